"""Which git settings can start a program, and what to say instead. Tables only; nothing is run or read here.

Three ways in, three answers:

    settings with a fixed name      FIXED and LOCAL below go to every command, whatever the repository says
    settings with a name inside     PROGRAMS: those the repository itself sets are found and overridden one by one;
                                    a filter that the user's own (global or system) configuration defines stands
    hooks, transports, prompts      closed by core.hooksPath, by switching off each hook.<name>, and by `ENVIRONMENT`

What each command of ours could trigger, and what keeps it from doing so:

    rev-parse, rev-list, cat-file, log -g, symbolic-ref, for-each-ref, merge-base, worktree list, check-attr, var
        a lazy fetch of a missing object (no protocol is allowed, and lazy fetching is off), a signature check
        (log.showSignature), a pager (never a terminal), replaced objects and grafts (off)
    read-tree, update-index, write-tree
        core.fsmonitor, the hook post-index-change, and for update-index filters (clean, process)
    commit-tree, mktag, update-ref
        gpg (never asked to sign), an editor (never asked to edit), the hook reference-transaction
    push, ls-remote
        these never see the repository's configuration: they run in a git folder of their own, or in none. So no
        sshCommand, proxy, helper, receivepack, insteadOf or pre-push hook of the repository can matter; those of the
        user do, except hooks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# Never from anywhere: neither the repository nor the user gets a program run by these.
FIXED = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "core.pager": "cat",
    "core.editor": ":",
    "sequence.editor": ":",
    "core.alternateRefsCommand": ":",
    "diff.external": "",
    "interactive.diffFilter": "",
    "gpg.program": ":",
    "commit.gpgSign": "false",
    "tag.gpgSign": "false",
    "tag.forceSignAnnotated": "false",
    "push.gpgSign": "false",
    "log.showSignature": "false",
    "gc.auto": "0",
    "gc.recentObjectsHook": "",
    "maintenance.auto": "false",
    "submodule.recurse": "false",
    "push.recurseSubmodules": "no",
    "push.followTags": "false",
    "uploadpack.packObjectsHook": "",
    "safe.bareRepository": "explicit",
    "core.fsync": "all",
    "core.fsyncMethod": "fsync",
    "core.splitIndex": "false",
    "core.commitGraph": "false",  # a cache of history that could say something else than history
    "i18n.commitEncoding": "UTF-8",
    "i18n.logOutputEncoding": "UTF-8",
    "credential.interactive": "never",
}

# Only for commands that talk to nobody; for the others the user's own settings stand.
LOCAL = {"core.sshCommand": "false", "core.gitProxy": "", "core.askPass": "", "credential.helper": "", "http.proxy": ""}

# Settings with a name inside, as the repository may set them, and what is said instead.
PROGRAMS = (
    (r"filter\..+\.(clean|smudge|process)", ""),
    (r"filter\..+\.required", "false"),
    (r"diff\..+\.(command|textconv)", ":"),
    (r"merge\..+\.driver", ":"),
    (r"(difftool|mergetool|guitool|browser|man)\..+\.(cmd|path)", ":"),
    (r"alias\..+", ""),
    (r"pager\..+", "false"),
    (r"credential\..+\.helper", ""),
    (r"gpg\..+\.(program|defaultkeycommand)", ":"),
    (r"remote\..+\.uploadpack", "git-upload-pack"),
    (r"remote\..+\.receivepack", "git-receive-pack"),
    (r"remote\..+\.vcs", ""),
    (r"remote\..+\.promisor", "false"),
    (r"submodule\..+\.update", "none"),
    (r"trailer\..+\.(command|cmd)", ":"),
    (r"tar\..+\.command", ":"),
    (r"(imap|sendemail|instaweb|web|help|man)\..+", ""),
)

ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": ":",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_GRAFT_FILE": "/dev/null/none",  # nothing can be there; an empty file makes git give advice
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
}

# What a command gets from the environment it was given; all else is dropped, every other GIT_ variable with it.
KEPT = (
    *("HOME", "XDG_CONFIG_HOME", "TMPDIR"),
    *("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"),
)
KEPT_FOR_REMOTES = (
    *("SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
)

OURS = frozenset({"system", "global"})  # scopes that belong to the user
_NOBODYS = frozenset({"command"})  # what we say ourselves

_PROGRAMS = tuple((re.compile(pattern, re.IGNORECASE | re.DOTALL), neutral) for pattern, neutral in PROGRAMS)
_HOOK = re.compile(r"(hook\..+)\.[^.]+", re.IGNORECASE | re.DOTALL)
_FILTER = re.compile(r"filter\.(.+)\.(clean|smudge|process|required)", re.IGNORECASE | re.DOTALL)

Setting = tuple[str, str, str]  # scope, name, value


def parse_settings(listing: bytes) -> list[Setting]:
    """The output of `git config --list --show-scope -z`."""
    fields = listing.decode("utf-8", "surrogateescape").split("\0")[:-1]
    pairs = zip(fields[::2], fields[1::2], strict=True)
    return [(scope, *_name_and_value(pair)) for scope, pair in pairs]


def _name_and_value(pair: str) -> tuple[str, str]:
    name, _, value = pair.partition("\n")
    return name, value


def overrides(settings: Iterable[Setting]) -> dict[str, str]:
    """What to say about each setting by which the repository could start a program: what the user says, or nothing."""
    users: dict[str, str] = {}
    said: dict[str, str] = {}
    for scope, name, value in settings:
        if hook := _HOOK.fullmatch(name):
            said[f"{hook[1]}.enabled"] = "false"
        elif scope in OURS and _FILTER.fullmatch(name):
            users[name] = value
        elif scope not in OURS | _NOBODYS and (neutral := _neutral(name)) is not None:
            said[name] = neutral
    return said | {name: users[name] for name in said if name in users}


def _neutral(name: str) -> str | None:
    return next((neutral for pattern, neutral in _PROGRAMS if pattern.fullmatch(name)), None)


def filters_of_repository(settings: Iterable[Setting]) -> frozenset[str]:
    """The filters in which the repository has a say that cannot be undone: what they would make of a file, nobody knows.

    An empty `process` is not the same as none: git would then not even ask the user's own `clean`.
    """
    users: set[tuple[str, str]] = set()
    repositorys: set[tuple[str, str]] = set()
    for scope, name, _ in settings:
        if found := _FILTER.fullmatch(name):
            (users if scope in OURS else repositorys).add((found[1], found[2].lower()))
    strange = {name for name, part in repositorys - users if part == "process"}
    strange |= {name for name, part in repositorys - users if part == "clean" and (name, "process") not in users}
    return frozenset(strange)
