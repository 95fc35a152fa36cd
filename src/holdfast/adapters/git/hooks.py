"""Two optional git hooks, in plain sh: one remembers rewrites, one refuses to amend a checkpoint. Keeps hooks that are there.

`post-rewrite` appends "old new" to the file `holdfast/rewrites` in the git folder that all work trees share, for every
commit that a rebase or an amend replaced.

`reference-transaction` refuses to amend a commit that carries our trailer. Git tells no hook that it is amending (with
`-m` not even `prepare-commit-msg`), so this one looks at what an amend does: a branch or HEAD moves from a checkpoint to
a commit that has the same parents and that nothing else knows yet. It cannot be passed by `--no-verify`. What it lets
through: everything while a rebase is under way, moves to a commit that a ref or the reflog of HEAD knows (a reset), a
new commit after `git reset --soft`, and programs that move refs without running hooks. What it cannot find out, it
lets through. `HOLDFAST_FORCE=1` in the environment lets everything through.

A hook that was there before runs after ours, as `<name>.before-holdfast`; it must not care what it is called.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat

from holdfast.adapters.git.plain_files import Folder, opened
from holdfast.adapters.paths import real_path
from holdfast.adapters.probes.common import EffectError, hold
from holdfast.adapters.probes.git_runner import Git, complaint
from holdfast.core.errors import BadFile, HoldfastError
from holdfast.core.named import NamedTuple

TRAILER = "Holdfast-Checkpoint"
KEPT = ".before-holdfast"
LARGEST = 8 * 1024 * 1024  # bytes of the newest rewrites that are read
_FIRST = "#!/bin/sh\n# Made by Holdfast, "
_EXECUTABLE = 0o111
_REWRITE = re.compile(rb"([0-9a-f]{40}) ([0-9a-f]{40})|([0-9a-f]{64}) ([0-9a-f]{64})")

_POST_REWRITE = r"""
# Remembers which commit became which. Whatever happens here, the rewrite itself is done and stands.
said=$(cat)

note() {
    umask 077
    common=$(git rev-parse --git-common-dir) || return
    folder=$common/holdfast
    if [ -L "$folder" ] || [ -L "$folder/rewrites" ]; then return; fi
    if [ -e "$folder/rewrites" ] && [ ! -f "$folder/rewrites" ]; then return; fi
    mkdir -p "$folder" && rm -f "$folder/rewrites.$$" || return
    if [ -s "$folder/rewrites" ] && [ -n "$(tail -c 1 "$folder/rewrites")" ]; then
        echo >> "$folder/rewrites"
    fi
    printf '%s\n' "$said" | while read -r old new rest; do
        [ -z "$new" ] || printf '%s %s\n' "$old" "$new"
    done > "$folder/rewrites.$$"
    cat "$folder/rewrites.$$" >> "$folder/rewrites"
    rm -f "$folder/rewrites.$$"
}

( note )
[ -x "$0.before-holdfast" ] || exit 0
printf '%s\n' "$said" | "$0.before-holdfast" "$@"
"""

_REFERENCE_TRANSACTION = r"""
# Refuses to amend a commit that is a checkpoint, unless HOLDFAST_FORCE=1.
kept=$0.before-holdfast
if [ "$1" != prepared ] || [ "$HOLDFAST_FORCE" = 1 ]; then
    [ -x "$kept" ] || exit 0
    exec "$kept" "$@"
fi
said=$(cat)

is_amended() {
    was=$(git rev-parse "$1^@" 2>/dev/null) || return 1
    now=$(git rev-parse "$2^@" 2>/dev/null) || return 1
    [ "$was" = "$now" ] || return 1
    id=$(git log -1 --no-show-signature --format='%(trailers:key=Holdfast-Checkpoint,valueonly)' "$1" 2>/dev/null)
    [ -n "$id" ] || return 1
    folder=$(git rev-parse --git-dir 2>/dev/null) || return 1
    if [ -d "$folder/rebase-merge" ] || [ -d "$folder/rebase-apply" ]; then return 1; fi
    [ -z "$(git for-each-ref --count=1 --contains "$2" 2>/dev/null)" ] || return 1
    if git log -g --no-show-signature --format=%H HEAD 2>/dev/null | grep -q -x "$2"; then return 1; fi
    return 0
}

check() {
    seen=
    while read -r old new ref; do
        case $ref in HEAD | refs/heads/*) ;; *) continue ;; esac
        case $old in *[!0]*) ;; *) continue ;; esac
        case $new in *[!0]*) ;; *) continue ;; esac
        [ "$old $new" != "$seen" ] || continue
        seen="$old $new"
        if is_amended "$old" "$new"; then
            echo "holdfast: $old is a checkpoint; it is not amended." >&2
            echo "holdfast: make a new commit, or set HOLDFAST_FORCE=1 and do it again." >&2
            return 1
        fi
    done
    return 0
}

printf '%s\n' "$said" | check || exit 1
[ -x "$kept" ] || exit 0
printf '%s\n' "$said" | "$kept" "$@"
"""


def _script(body: str) -> bytes:
    return f"{_FIRST}{_digest(body.encode())}{body}".encode()


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:16]


SCRIPTS = {"post-rewrite": _script(_POST_REWRITE), "reference-transaction": _script(_REFERENCE_TRANSACTION)}


class AmendRefused(HoldfastError):
    """A checkpoint commit that would be amended."""

    reason = "guard_violation"
    advice = "Make a new commit, or force it."


# --- what is there


class _Hook(NamedTuple):
    """One hook: what it is, whether a newer script may take its place unasked, and what was found of it."""

    name: str
    state: str
    is_intact: bool
    found: os.stat_result | None
    kept: os.stat_result | None


def folder_of(git: Git) -> str:
    """Where git looks for hooks here. One outside of the repository serves others too and is refused."""
    assert git.place is not None
    said = [text for scope, name, text in git.settings if name.lower() == "core.hookspath" and scope != "command"]
    if not said:
        return os.path.join(git.place.common, "hooks")
    path = os.path.normpath(os.path.join(git.place.top, _expanded(git, said[-1]) or "/"))
    if not _is_inside(git, real_path(path)):
        raise BadFile(
            path,
            None,
            f"core.hooksPath is {said[-1]!r:.200}, which is outside of this repository",
            advice="Set core.hooksPath for this repository, or go without these hooks.",
        )
    return path


def _is_inside(git: Git, path: str) -> bool:
    place = git.place
    assert place is not None
    main = os.path.dirname(place.common) if os.path.basename(place.common) == ".git" else place.common
    return any(path == top or path.startswith(f"{top}/") for top in (place.top, main, place.common))


def _expanded(git: Git, path: str) -> str:
    if path.startswith("~/"):
        return os.path.join(git.given.get("HOME") or "/", path[2:])
    return "/" if path.startswith(("~", "%(prefix)")) else path


def _look(inside: Folder, name: str) -> _Hook:
    found, kept = inside.look(name), inside.look(name + KEPT)
    if found is None:
        return _Hook(name, "none", True, found, kept)
    plain = inside.read(name) if stat.S_ISREG(found.st_mode) else None
    if plain is None or not plain.data.startswith(_FIRST.encode()):
        return _Hook(name, "foreign", False, found, kept)
    if plain.data == SCRIPTS[name] and found.st_mode & stat.S_IXUSR:
        return _Hook(name, "ours", True, found, kept)
    said, newline, body = plain.data.removeprefix(_FIRST.encode()).partition(b"\n")
    return _Hook(name, "changed", said.decode("ascii", "replace") == _digest(newline + body), found, kept)


class Sight(NamedTuple):
    """Our hooks as one work tree has them. `was_here`: something shows that they were installed.

    `missing` are those that are gone or have another in their place, `in_the_way` is what keeps one from coming back.
    """

    top: str
    folder: str
    was_here: bool
    changed: tuple[str, ...]
    missing: tuple[str, ...]
    in_the_way: tuple[str, ...]


def sight(git: Git) -> Sight:
    assert git.place is not None
    folder, found = folder_of(git), _look_at_all(git)
    missing = [hook for hook in found if hook.state in ("none", "foreign")]
    return Sight(
        git.place.top,
        folder,
        len(missing) < len(found) or any(hook.kept for hook in found),
        tuple(hook.name for hook in found if hook.state == "changed"),
        tuple(hook.name for hook in missing),
        tuple(os.path.join(folder, hook.name + KEPT) for hook in missing if _is_second(hook)),
    )


def is_for_each_tree(git: Git) -> bool:
    """Whether every work tree looks for hooks in a folder of its own, as it does by a relative path."""
    said = [text for scope, name, text in git.settings if name.lower() == "core.hookspath" and scope != "command"]
    return bool(said) and not os.path.isabs(_expanded(git, said[-1]))


def _look_at_all(git: Git) -> list[_Hook]:
    folder = folder_of(git)
    if not os.path.lexists(folder):
        return [_Hook(name, "none", True, None, None) for name in SCRIPTS]
    with opened(folder) as inside:
        return [_look(inside, name) for name in SCRIPTS]


def state(git: Git) -> dict[str, str]:
    """Of each hook: "ours", "changed" (ours once, and not as this version makes it), "foreign" or "none"."""
    return {hook.name: hook.state for hook in _look_at_all(git)}


# --- installing


def install(git: Git, force: bool = False) -> list[str]:
    """Put our hooks in their place. What it did, in sentences; nothing if they were there. `force` drops what was edited."""
    assert git.place is not None
    folder = folder_of(git)
    with hold(git.place.common), opened(folder, make=True) as inside:
        hooks = [_look(inside, name) for name in SCRIPTS]
        for hook in hooks:
            _refuse_changed(inside, hook, force)
            _refuse_second(inside, hook)
        return [_put(inside, hook) for hook in hooks if hook.state != "ours"]


def _refuse_changed(inside: Folder, hook: _Hook, force: bool) -> None:
    if hook.state == "changed" and not hook.is_intact and not force:
        raise BadFile(
            inside.path_of(hook.name),
            None,
            "Holdfast made this hook, and somebody changed it",
            advice="Keep your lines elsewhere, then do it again with force.",
        )


def _refuse_second(inside: Folder, hook: _Hook) -> None:
    """Only one hook can be kept; unless what is kept is this very one, by its second name."""
    if _is_second(hook):
        kept = inside.path_of(hook.name + KEPT)
        raise BadFile(
            inside.path_of(hook.name), None, f"another hook is kept as {kept}", advice=f"Remove {kept} first."
        )


def _is_second(hook: _Hook) -> bool:
    if hook.state != "foreign" or hook.found is None or hook.kept is None:
        return False
    return not os.path.samestat(hook.found, hook.kept)


def _put(inside: Folder, hook: _Hook) -> str:
    path = inside.path_of(hook.name)
    if hook.state == "foreign" and hook.kept is None:
        inside.link(hook.name, hook.name + KEPT)
    inside.replace(hook.name, SCRIPTS[hook.name], hook.found, _EXECUTABLE)
    then = f"; the one that was there is kept as {hook.name}{KEPT} and runs after it" if hook.state == "foreign" else ""
    return f"Installed the hook {path}{then}."


def uninstall(git: Git, force: bool = False) -> list[str]:
    """Put back exactly what was there before. `force` drops what was edited."""
    assert git.place is not None
    folder = folder_of(git)
    if not os.path.lexists(folder):
        return []
    with hold(git.place.common), opened(folder) as inside:
        hooks = [_look(inside, name) for name in SCRIPTS]
        for hook in hooks:
            _refuse_changed(inside, hook, force)
        return [said for hook in hooks if (said := _take_away(inside, hook))]


def _take_away(inside: Folder, hook: _Hook) -> str | None:
    path = inside.path_of(hook.name)
    if hook.state == "foreign" or (hook.found is None and hook.kept is None):
        return None
    if hook.kept is None:
        inside.remove(hook.name)
        return f"Removed the hook {path}."
    inside.move(hook.name + KEPT, hook.name)
    return f"Put the hook {path} back as it was."


# --- rewrites and amends


def read_rewrites(git: Git) -> list[tuple[str, str]]:
    """What became of which commit, oldest first, as the hook noted it. Lines that are torn or strange are left out."""
    assert git.place is not None
    folder = os.path.join(git.place.common, "holdfast")
    if not os.path.lexists(folder):
        return []
    with opened(folder) as inside:
        lines = inside.read_end("rewrites", LARGEST).split(b"\n")[:-1]
    found = (_REWRITE.fullmatch(line) for line in lines)
    return [((one[1] or one[3]).decode(), (one[2] or one[4]).decode()) for one in found if one]


def is_milestone(git: Git, commit: str) -> bool:
    """Whether a commit carries our trailer, by git's own rules of what a trailer is."""
    form = f"--format=%(trailers:key={TRAILER},valueonly)"
    finished = git.ask("log", "-1", "--no-show-signature", form, "--end-of-options", commit, "--")
    if finished.code:
        raise EffectError(f"The message of {commit!r:.80} cannot be read: {complaint(finished)}")
    return bool(finished.out.strip())


def refuse_amend(git: Git, commit: str = "HEAD", force: bool = False) -> None:
    """Raise if amending this commit would take a checkpoint away."""
    if not force and is_milestone(git, commit):
        raise AmendRefused(f"{commit} is a checkpoint; it is not amended.")
