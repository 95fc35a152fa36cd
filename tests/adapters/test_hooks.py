"""The optional hooks, run by real git: rewrites are noted, checkpoints are not amended, everything else goes on."""

from __future__ import annotations

import os
import random
import shutil
import stat
import subprocess
import sys
import time

import pytest

from holdfast.adapters.git import hooks
from holdfast.adapters.git.hooks import (
    KEPT,
    SCRIPTS,
    AmendRefused,
    install,
    is_milestone,
    read_rewrites,
    refuse_amend,
    state,
    uninstall,
)
from holdfast.adapters.git.plain_files import Folder
from holdfast.adapters.probes import EffectError
from holdfast.core.errors import BadFile
from tests.adapters.git_kit import Kit

FORCE = {"HOLDFAST_FORCE": "1"}
OURS = dict.fromkeys(SCRIPTS, "ours")
NONE = dict.fromkeys(SCRIPTS, "none")


class Hooked(Kit):
    def milestone(self, name, index=0):
        return self.commit(
            f"checkpoint: {name}\n\nHoldfast-Run: run-1\nHoldfast-Checkpoint: cp-{name}\nHoldfast-Milestone: {index}",
            **{f"{name}.txt": name * 20},
        )

    def head(self):
        return self.git("rev-parse", "HEAD")

    def refused(self, *argv, **more):
        """Run git, which must be kept from moving HEAD or anything else of the user's."""
        before = self.head(), self.git("status", "--porcelain"), self.git("for-each-ref")
        done = self.ask(*argv, **more)
        assert done.returncode != 0 and "is a checkpoint; it is not amended" in done.stderr, done.stderr
        assert (self.head(), self.git("status", "--porcelain"), self.git("for-each-ref")) == before
        assert not (self.top / ".git/index.lock").exists()


@pytest.fixture
def kit(tmp_path):
    return Hooked(tmp_path)


@pytest.fixture
def hooked(kit):
    install(kit.runner())
    return kit


@pytest.fixture
def folder(kit):
    return kit.top / ".git" / "hooks"


def sight(folder):
    """Everything in a folder: content or target, mode and inode."""
    found = {}
    for name in os.listdir(folder):
        path = folder / name
        data = os.readlink(path) if path.is_symlink() else path.read_bytes()
        found[name] = (data, os.lstat(path).st_mode, os.lstat(path).st_ino)
    return found


# --- the scripts


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_every_shell_that_is_here_can_read_the_scripts(name, shell):
    if shutil.which(shell) is None:
        shell = "sh"
    words = [shell, "sh", "-n"] if shell == "busybox" else [shell, "-n"]
    assert subprocess.run(words, input=SCRIPTS[name], check=False, capture_output=True).returncode == 0


# --- amending


AMENDS = [
    ("commit", "--amend", "--no-edit"),
    ("commit", "--amend", "-m", "another message"),
    ("commit", "--amend", "--no-edit", "--no-verify"),
    ("commit", "--amend", "--reset-author", "-C", "HEAD"),
    ("commit", "--am", "-q", "--allow-empty", "-m", "abbreviated"),
    ("-c", "alias.ca=commit --amend", "ca", "-m", "by an alias"),
]


@pytest.mark.parametrize("words", AMENDS, ids=" ".join)
def test_a_checkpoint_is_not_amended_without_force(hooked, words):
    hooked.milestone("one")
    hooked.write("more.txt")
    hooked.git("add", "-A")
    hooked.refused(*words)
    was = hooked.head()
    hooked.git(*words, environ=FORCE)
    assert hooked.head() != was
    assert read_rewrites(hooked.runner()) == [(was, hooked.head())]


@pytest.mark.parametrize("words", AMENDS, ids=" ".join)
def test_any_other_commit_is_amended_as_ever(hooked, words):
    was = hooked.commit("plain", **{"b.txt": "Holdfast-Checkpoint: x"})
    hooked.write("more.txt")
    hooked.git("add", "-A")
    hooked.git(*words)
    assert hooked.head() != was and read_rewrites(hooked.runner()) == [(was, hooked.head())]


def test_the_first_commit_a_merge_and_a_loose_head_are_guarded_too(hooked, tmp_path):
    hooked.git("switch", "-q", "--orphan", "fresh")
    hooked.milestone("root")
    hooked.refused("commit", "--amend", "-m", "x")
    hooked.git("switch", "-q", "--detach")
    hooked.milestone("loose")
    hooked.refused("commit", "--amend", "-m", "x")
    hooked.git("switch", "-q", "main")
    message = "merged\n\nHoldfast-Checkpoint: merge"
    hooked.git("merge", "-q", "--no-ff", "--allow-unrelated-histories", "-m", message, "fresh")
    hooked.refused("commit", "--amend", "-m", "x")
    hooked.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    hooked.refused("commit", "--amend", "-m", "x", at=tmp_path / "side")


def test_the_message_that_was_written_for_it_is_not_lost(hooked):
    hooked.milestone("one")
    hooked.refused("commit", "--amend", "-m", "hours of thought")
    assert "hours of thought" in (hooked.top / ".git/COMMIT_EDITMSG").read_text()


def test_a_body_that_only_speaks_of_a_checkpoint_is_none(hooked):
    sha = hooked.commit("about\n\nHoldfast-Checkpoint: quoted\n\nin the middle of the text")
    assert not is_milestone(hooked.runner(), sha)
    hooked.git("commit", "--amend", "--allow-empty", "-m", "x")


def test_plain_work_goes_on_on_top_of_a_checkpoint(hooked):
    first = hooked.milestone("one")
    second = hooked.milestone("two", 1)
    hooked.commit("plain", **{"p.txt": "p"})
    hooked.git("commit", "-q", "--allow-empty", "-m", "x", "-m", "Holdfast-Checkpoint: three")
    hooked.git("commit", "-q", "--allow-empty", "-C", "HEAD")
    hooked.git("revert", "--no-edit", second)
    hooked.git("switch", "-q", "-c", "side", f"{first}~")
    hooked.git("cherry-pick", first, second)
    hooked.git("merge", "-q", "--no-edit", "main")
    hooked.git("switch", "-q", "main")
    hooked.git("merge", "-q", "--ff-only", "side")
    hooked.git("branch", "-q", "copy")
    hooked.git("branch", "-q", "-D", "copy")
    hooked.git("tag", "-a", "-m", "x", "v1")
    hooked.write("p.txt", "stashed")
    hooked.git("stash")
    hooked.git("stash", "pop")


def test_undoing_a_commit_is_not_amending_it(hooked):
    hooked.milestone("one")
    hooked.git("reset", "-q", "--hard", "HEAD~")
    hooked.git("reset", "-q", "--hard", "ORIG_HEAD")
    was = hooked.head()
    hooked.git("commit", "-q", "--amend", "-m", "x\n\nHoldfast-Checkpoint: x", environ=FORCE)
    hooked.git("reset", "-q", "--hard", was)
    hooked.git("branch", "-q", "-f", "other", "HEAD@{1}")
    hooked.git("reset", "-q", "--hard", "other")
    sibling = hooked.git("commit-tree", "HEAD^{tree}", "-p", "HEAD~", "-m", "made elsewhere")
    hooked.git("update-ref", "refs/remotes/origin/main", sibling)
    hooked.git("reset", "-q", "--hard", "origin/main")


def test_a_rebase_goes_through_and_is_noted(hooked):
    hooked.git("branch", "-q", "side")
    old = [hooked.milestone("one"), hooked.milestone("two", 1)]
    hooked.git("switch", "-q", "side")
    hooked.commit("elsewhere", **{"s.txt": "s"})
    hooked.git("switch", "-q", "main")
    hooked.git("rebase", "-q", "side")
    new = hooked.git("rev-list", "--reverse", "HEAD~2..HEAD").splitlines()
    assert read_rewrites(hooked.runner()) == list(zip(old, new, strict=True))


@pytest.mark.parametrize("word", ["reword", "squash", "edit"])
def test_an_interactive_rebase_goes_through_even_where_it_amends(hooked, word):
    hooked.milestone("one")
    was = hooked.milestone("two", 1)
    editor = {"GIT_SEQUENCE_EDITOR": f"sed -i '2s/^pick/{word}/'", "GIT_EDITOR": "sed -i '1s/^/new: /'"}
    hooked.git("rebase", "-q", "-i", "HEAD~2", environ=editor)
    if word == "edit":
        hooked.git("commit", "-q", "--amend", "-m", "edited\n\nHoldfast-Checkpoint: cp-two")
        hooked.git("rebase", "--continue")
    assert hooked.head() != was and was in {old for old, _ in read_rewrites(hooked.runner())}
    assert hooked.git("status", "--porcelain") == "" and hooked.git("symbolic-ref", "HEAD") == "refs/heads/main"
    assert not (hooked.top / ".git/rebase-merge").exists()


def test_pushes_and_fetches_are_not_in_the_way(hooked, tmp_path):
    hooked.milestone("one")
    hooked.git("clone", "-q", "--bare", str(hooked.top), str(tmp_path / "remote.git"))
    hooked.git("remote", "add", "origin", str(tmp_path / "remote.git"))
    hooked.milestone("two", 1)
    hooked.git("push", "-q", "origin", "main")
    hooked.git("fetch", "-q", "--prune", "origin")
    hooked.git("pull", "-q", "--rebase", "origin", "main")


def test_a_hook_that_cannot_find_out_lets_it_through(hooked):
    """Without a git on the path the hook knows nothing; git itself must still work."""
    hooked.milestone("one")
    done = subprocess.run(
        ["/bin/sh", str(hooked.top / ".git/hooks/reference-transaction"), "prepared"],
        input=f"{hooked.head()} {'1' * 40} refs/heads/main\n".encode(),
        cwd=hooked.top,
        env={"PATH": "/nowhere"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0


# --- rewrites


def test_rewrites_are_noted_for_the_repository_and_not_for_the_work_tree(hooked, tmp_path):
    hooked.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    was = hooked.git("rev-parse", "HEAD", at=tmp_path / "side")
    hooked.git("commit", "-q", "--amend", "-m", "x", at=tmp_path / "side")
    now = hooked.git("rev-parse", "HEAD", at=tmp_path / "side")
    assert read_rewrites(hooked.runner()) == read_rewrites(hooked.runner(tmp_path / "side")) == [(was, now)]
    assert stat.S_IMODE(os.stat(hooked.top / ".git/holdfast/rewrites").st_mode) == 0o600
    assert os.listdir(hooked.top / ".git/holdfast") == ["rewrites"]


def test_torn_and_strange_lines_are_left_out(hooked):
    assert read_rewrites(hooked.runner()) == []
    path = hooked.top / ".git/holdfast/rewrites"
    path.parent.mkdir()
    one, other, long = "1" * 40, "2" * 40, "3" * 64
    path.write_bytes(
        f"{one} {other}\nnonsense\n{one} {long}\n{long} {long}\n\n{one} {other} x\n\xff\n{one} 22".encode()
    )
    assert read_rewrites(hooked.runner()) == [(one, other), (long, long)]
    was = hooked.head()
    hooked.git("commit", "-q", "--amend", "-m", "after the torn line")
    assert read_rewrites(hooked.runner()) == [(one, other), (long, long), (was, hooked.head())]


def test_only_the_newest_of_very_many_rewrites_are_read(hooked, monkeypatch):
    path = hooked.top / ".git/holdfast/rewrites"
    path.parent.mkdir()
    path.write_text("".join(f"{number:040x} {number + 1:040x}\n" for number in range(1000)))
    monkeypatch.setattr(hooks, "LARGEST", 1000)
    found = read_rewrites(hooked.runner())
    assert len(found) == 12 and found[-1] == (f"{999:040x}", f"{1000:040x}")


def test_a_planted_link_is_neither_read_nor_written(hooked, tmp_path):
    target = tmp_path / "target"
    target.write_text(f"{'1' * 40} {'2' * 40}\n")
    (hooked.top / ".git/holdfast").mkdir()
    os.symlink(target, hooked.top / ".git/holdfast/rewrites")
    hooked.git("commit", "-q", "--amend", "-m", "x")
    assert read_rewrites(hooked.runner()) == [] and target.read_text().count("\n") == 1
    shutil.rmtree(hooked.top / ".git/holdfast")
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", hooked.top / ".git/holdfast")
    hooked.git("commit", "-q", "--amend", "-m", "y")
    assert os.listdir(tmp_path / "elsewhere") == []
    with pytest.raises(BadFile, match="symbolic link"):
        read_rewrites(hooked.runner())


# --- installing


def test_installing_twice_changes_nothing_the_second_time(kit, folder):
    assert state(kit.runner()) == NONE
    assert install(kit.runner()) == [f"Installed the hook {folder / name}." for name in SCRIPTS]
    before = sight(folder)
    assert state(kit.runner()) == OURS and install(kit.runner()) == [] and sight(folder) == before
    assert all(os.access(folder / name, os.X_OK) for name in SCRIPTS)


def test_uninstalling_puts_back_exactly_what_was_there(kit, folder):
    (folder / "post-rewrite").write_text("#!/bin/sh\necho mine\n")
    (folder / "post-rewrite").chmod(0o751)
    os.symlink("post-rewrite", folder / "reference-transaction")
    before = sight(folder)
    said = install(kit.runner())
    assert all(f"kept as {name}{KEPT}" in line for name, line in zip(SCRIPTS, said, strict=True))
    assert state(kit.runner()) == OURS
    uninstall(kit.runner())
    assert sight(folder) == before and uninstall(kit.runner()) == []
    assert state(kit.runner()) == dict.fromkeys(SCRIPTS, "foreign")


def test_uninstalling_where_nothing_was_leaves_nothing(kit, folder):
    before = sight(folder)
    install(kit.runner())
    assert uninstall(kit.runner()) == [f"Removed the hook {folder / name}." for name in SCRIPTS]
    assert sight(folder) == before


def test_a_hook_that_was_there_runs_after_ours_with_the_same_words_and_input(kit, folder):
    seen = kit.top.parent / "seen"
    for name in SCRIPTS:
        (folder / name).write_text(f'#!/bin/sh\nif [ "$1" != committed ]; then echo "{name} $*"; cat; fi >> {seen}\n')
        (folder / name).chmod(0o755)
    was = kit.head()
    kit.git("commit", "-q", "--amend", "-m", "x")
    without, now = seen.read_text(), kit.head()
    assert f"post-rewrite amend\n{was} {now}\n" in without and "reference-transaction prepared\n" in without
    kit.git("reset", "-q", "--hard", was)
    install(kit.runner())
    seen.unlink()
    kit.git("commit", "-q", "--amend", "-m", "x y")
    assert seen.read_text() == without.replace(now, kit.head())


def test_a_hook_that_was_there_can_still_refuse(kit, folder):
    (folder / "reference-transaction").write_text("#!/bin/sh\nexit 3\n")
    (folder / "reference-transaction").chmod(0o755)
    install(kit.runner())
    assert kit.ask("branch", "no").returncode != 0


def test_one_that_is_not_executable_is_kept_and_still_not_run(kit, folder):
    (folder / "reference-transaction").write_text("#!/bin/sh\nexit 3\n")
    (folder / "reference-transaction").chmod(0o644)
    before = sight(folder)
    install(kit.runner())
    kit.git("branch", "yes")
    assert state(kit.runner()) == OURS
    uninstall(kit.runner())
    assert sight(folder) == before


def test_an_edited_hook_is_neither_replaced_nor_removed_without_force(kit, folder):
    install(kit.runner())
    path = folder / "post-rewrite"
    path.write_bytes(path.read_bytes() + b"echo mine\n")
    (folder / "reference-transaction").unlink()
    before = sight(folder)
    assert state(kit.runner()) == {"post-rewrite": "changed", "reference-transaction": "none"}
    for act in (install, uninstall):
        with pytest.raises(BadFile, match="somebody changed it"):
            act(kit.runner())
        assert sight(folder) == before
    install(kit.runner(), force=True)
    assert state(kit.runner()) == OURS


def test_an_older_script_of_ours_is_renewed_unasked(kit, folder, monkeypatch):
    now = SCRIPTS["post-rewrite"]
    monkeypatch.setitem(SCRIPTS, "post-rewrite", hooks._script("\necho older\n"))
    install(kit.runner())
    monkeypatch.setitem(SCRIPTS, "post-rewrite", now)
    assert state(kit.runner())["post-rewrite"] == "changed"
    assert install(kit.runner()) == [f"Installed the hook {folder / 'post-rewrite'}."]
    assert (folder / "post-rewrite").read_bytes() == now


def test_one_that_lost_its_mode_is_made_to_run_again(kit, folder):
    install(kit.runner())
    (folder / "post-rewrite").chmod(0o600)
    assert state(kit.runner())["post-rewrite"] == "changed"
    install(kit.runner())
    assert state(kit.runner()) == OURS


def test_two_hooks_that_would_both_have_to_be_kept_are_refused(kit, folder):
    (folder / "post-rewrite").write_text("#!/bin/sh\n")
    (folder / f"post-rewrite{KEPT}").write_text("#!/bin/sh\n# older\n")
    before = sight(folder)
    with pytest.raises(BadFile, match="another hook is kept"):
        install(kit.runner())
    assert sight(folder) == before


def test_a_process_killed_between_keeping_and_installing_leaves_a_hook_that_works(kit, folder):
    path = folder / "post-rewrite"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    before = sight(folder)
    os.link(path, folder / f"post-rewrite{KEPT}")
    (folder / "post-rewrite.holdfast-new").write_text("torn")
    install(kit.runner())
    assert state(kit.runner()) == OURS and not (folder / "post-rewrite.holdfast-new").exists()
    uninstall(kit.runner())
    assert sight(folder) == before


WORK = """
import sys
from holdfast.adapters.git import hooks, ignoring
from holdfast.adapters.probes.git_place import find_repository
from holdfast.adapters.probes.git_runner import Git
git = Git(find_repository(sys.argv[1]), {"HOME": sys.argv[2], "PATH": sys.argv[3]})
print("begun", flush=True)
while True:
    hooks.install(git)
    hooks.uninstall(git)
    ignoring.add_rule(git)
    with open(sys.argv[1] + "/.gitignore", "wb") as file:
        file.write(b"a")
"""


def test_wherever_it_is_killed_there_is_a_whole_hook_and_the_next_one_cleans_up(kit, folder):
    mine = b"#!/bin/sh\nexit 0\n"
    (folder / "post-rewrite").write_bytes(mine)
    (folder / "post-rewrite").chmod(0o755)
    before = sight(folder)
    chance = random.Random(4)
    for _ in range(12):
        (kit.top / ".gitignore").write_bytes(b"a")
        words = [sys.executable, "-c", WORK, str(kit.top), str(kit.home), os.environ["PATH"]]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None and child.stdout.readline() == b"begun\n"
            time.sleep(chance.random() * 0.05)
            child.kill()
        assert (folder / "post-rewrite").read_bytes() in (mine, SCRIPTS["post-rewrite"])
        assert os.access(folder / "post-rewrite", os.X_OK)
        assert (kit.top / ".gitignore").read_bytes() in (b"a", b"", b"a\n.holdfast/")
        kit.git("commit", "-q", "--amend", "-m", "works")
    install(kit.runner())
    uninstall(kit.runner())
    assert sight(folder) == before


def test_a_hook_that_changes_meanwhile_is_not_lost(kit, folder, monkeypatch):
    (folder / "post-rewrite").write_text("#!/bin/sh\n")
    real = Folder._write

    def slow(self, *args):
        real(self, *args)
        (folder / "post-rewrite").write_text("#!/bin/sh\n# somebody's news\n")

    monkeypatch.setattr(Folder, "_write", slow)
    with pytest.raises(BadFile, match="changed meanwhile"):
        install(kit.runner())
    assert "somebody's news" in (folder / "post-rewrite").read_text()
    assert not [name for name in os.listdir(folder) if name.endswith(".holdfast-new")]


def test_a_repository_without_a_hooks_folder_gets_one(kit, folder):
    shutil.rmtree(folder)
    assert state(kit.runner()) == NONE and uninstall(kit.runner()) == []
    install(kit.runner())
    assert state(kit.runner()) == OURS


def test_a_linked_hooks_folder_is_refused(kit, folder, tmp_path):
    shutil.rmtree(folder)
    (tmp_path / "shared").mkdir()
    os.symlink(tmp_path / "shared", folder)
    with pytest.raises(BadFile, match="symbolic link"):
        install(kit.runner())
    assert os.listdir(tmp_path / "shared") == []


def test_hooks_go_where_the_repository_says_if_that_is_within_it(kit, folder):
    kit.git("config", "core.hooksPath", ".githooks")
    install(kit.runner())
    assert sorted(os.listdir(kit.top / ".githooks")) == sorted(SCRIPTS) and not set(SCRIPTS) & set(os.listdir(folder))
    kit.milestone("one")
    kit.refused("commit", "--amend", "-m", "x")


@pytest.mark.parametrize(
    "path", ["/etc/hooks", "~/hooks", "../hooks", "", "/dev/null", "~root/hooks", "%(prefix)/hooks"]
)
def test_a_hooks_path_outside_of_the_repository_is_refused_by_name(kit, path):
    kit.git("config", "core.hooksPath", path)
    for act in (install, uninstall, state):
        with pytest.raises(BadFile, match=r"core\.hooksPath is '.*outside of this repository"):
            act(kit.runner())


def test_a_hooks_path_that_leads_out_by_a_link_is_refused(kit, tmp_path):
    (tmp_path / "shared").mkdir()
    os.symlink(tmp_path / "shared", kit.top / "linked")
    kit.git("config", "core.hooksPath", "linked")
    with pytest.raises(BadFile, match="outside"):
        install(kit.runner())


def test_the_users_global_hooks_path_is_honoured_too(kit):
    (kit.home / ".gitconfig").write_text("[core]\n\thooksPath = ~/all-hooks\n")
    with pytest.raises(BadFile, match="all-hooks"):
        install(kit.runner())


# --- asking


def test_amending_is_refused_by_a_call_as_well(kit):
    plain = kit.head()
    sha = kit.milestone("one")
    runner = kit.runner()
    assert is_milestone(runner, sha) and is_milestone(runner, "HEAD") and not is_milestone(runner, plain)
    with pytest.raises(AmendRefused, match="it is not amended") as caught:
        refuse_amend(runner)
    assert caught.value.reason == "guard_violation"
    refuse_amend(runner, force=True)
    refuse_amend(runner, plain)
    for name in ("--output=x", "nowhere"):
        with pytest.raises(EffectError):
            is_milestone(runner, name)
    assert not (kit.top / "x").exists()
