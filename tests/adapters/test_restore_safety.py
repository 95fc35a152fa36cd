"""Restores that meet something of the user's, or that fail: what is not theirs to change stays as it is."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time

import pytest

from holdfast.adapters.git import restore, ws_alone, ws_desk
from holdfast.adapters.git.restore import RestoreRefused, in_place, into_worktree, preview
from holdfast.adapters.git.workspace import Policy, WorkspaceError, kept, take
from holdfast.adapters.git.ws_intent import Intent, discard, over, unfinished
from holdfast.adapters.probes.git_place import find_repository
from holdfast.core.errors import HoldfastError
from tests.adapters.git_kit import Kit
from tests.adapters.probes.killing import in_child
from tests.adapters.test_restore import files_of
from tests.adapters.test_workspace import NOW, prints_of, take_and_keep


@pytest.fixture
def kit(tmp_path):
    return Kit(tmp_path)


# --- into a new worktree


def cut_off(git, path, monkeypatch, owner=restore, where="narrow"):
    """A restore into a new worktree that is killed on the way."""

    def die():
        monkeypatch.setattr(owner, where, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        into_worktree(git, "c1", path)

    assert in_child(die) == 9
    monkeypatch.undo()
    assert [intent.path for intent in unfinished(git)] == [path]


MOMENTS = [(restore, "narrow"), (restore, "_fill"), (Intent, "bind")]


@pytest.mark.parametrize(("owner", "where"), MOMENTS)
def test_what_a_killed_restore_left_is_removed_with_its_record(kit, tmp_path, monkeypatch, owner, where):
    git, path = kit.runner(), str(tmp_path / "back")
    take_and_keep(git)
    cut_off(git, path, monkeypatch, owner, where)
    discard(git, unfinished(git)[0])
    assert not os.path.lexists(path) and not (kit.top / ".git" / "worktrees").exists() and unfinished(git) == []


@pytest.mark.parametrize(("owner", "where"), MOMENTS)
def test_a_later_worktree_at_the_same_place_is_not_taken_for_it(kit, tmp_path, monkeypatch, owner, where):
    git, path = kit.runner(), tmp_path / "back"
    take_and_keep(git)
    cut_off(git, str(path), monkeypatch, owner, where)
    shutil.rmtree(path)
    kit.git("worktree", "prune")
    kit.git("worktree", "add", "-q", "--detach", str(path))
    (path / "mine").write_text("mine\n")
    assert unfinished(git) == []


def test_a_later_restore_to_the_same_place_makes_the_earlier_one_forgotten(kit, tmp_path, monkeypatch):
    git, path = kit.runner(), tmp_path / "back"
    take_and_keep(git)
    cut_off(git, str(path), monkeypatch)
    shutil.rmtree(path)
    kit.git("worktree", "prune")
    into_worktree(git, "c1", str(path))
    assert unfinished(git) == [] and not list((kit.top / ".git" / "holdfast").glob("restoring-*"))
    assert not [name for name in os.listdir(kit.top / ".git" / "worktrees" / "back") if "holdfast-" in name]


def test_a_half_made_worktree_that_somebody_took_into_use_is_not_removed(kit, tmp_path, monkeypatch):
    git, path = kit.runner(), tmp_path / "back"
    take_and_keep(git)
    cut_off(git, str(path), monkeypatch)
    (path / "mine").write_text("mine\n")
    kit.git("add", "mine", at=path)
    assert unfinished(git) == []


@pytest.mark.parametrize("is_locked", [True, False])
def test_the_record_of_a_worktree_that_is_away_is_left_alone(kit, tmp_path, is_locked):
    git, path = kit.runner(), tmp_path / "usb"
    take_and_keep(git)
    kit.git("worktree", "add", "-q", "-b", "feat", str(path))
    (path / "staged").write_text("staged\n")
    kit.git("add", "staged", at=path)
    if is_locked:
        kit.git("worktree", "lock", str(path))
    path.rename(tmp_path / "unmounted")
    before = prints_of(kit.top / ".git" / "worktrees")
    with pytest.raises(RestoreRefused, match="belongs to a work tree"):
        into_worktree(git, "c1", str(path))
    assert prints_of(kit.top / ".git" / "worktrees") == before
    (tmp_path / "unmounted").rename(path)
    assert kit.git("show", ":staged", at=path) == "staged"


def test_a_place_with_a_newline_is_refused_for_that_reason(kit, tmp_path):
    git = kit.runner()
    take_and_keep(git)
    with pytest.raises(RestoreRefused, match="newline"):
        into_worktree(git, "c1", str(tmp_path / "a\nb"))


# --- in place


def test_an_ignored_link_to_a_folder_is_never_removed(kit, tmp_path):
    kit.write("t", "a file\n")
    git = kit.runner()
    take_and_keep(git)
    os.unlink(kit.top / "t")
    kit.write(".git/info/exclude", "*.ign\n")
    kit.write("t/seen", "seen\n")
    os.symlink(tmp_path, kit.top / "t" / "link.ign")
    before = prints_of(kit.top)
    with pytest.raises(RestoreRefused, match=r"t/link\.ign"):
        in_place(git, "c1", "before", NOW)
    assert prints_of(kit.top) == before


def test_a_file_of_the_users_that_is_called_like_a_draft_of_ours_stays(kit):
    kit.git("config", "core.autocrlf", "input")
    kit.write("a.txt", b"one\r\ntwo\n")
    git = kit.runner()
    take_and_keep(git)
    kit.write(".git/info/exclude", ".holdfast-new\n")
    kit.write(".holdfast-new", "mine\n")
    kit.write("a.txt", b"other\n")
    in_place(git, "c1", "before", NOW)
    assert (kit.top / "a.txt").read_bytes() == b"one\r\ntwo\n"
    assert (kit.top / ".holdfast-new").read_text() == "mine\n"
    assert sorted(os.listdir(kit.top)) == [".git", ".holdfast-new", "a.txt"]


def test_a_git_that_a_killed_restore_left_at_work_is_waited_for(kit, tmp_path, monkeypatch):
    git = kit.runner()
    take_and_keep(git)
    kit.write("a.txt", "changed\n")

    def die():
        def leave(desk, *_):
            late = "sleep 0.7; echo late > a.txt; touch ../done"
            subprocess.Popen(["sh", "-c", late], cwd=kit.top, pass_fds=desk.git.held)
            os.kill(os.getpid(), signal.SIGKILL)

        monkeypatch.setattr(restore, "_change_files", leave)
        in_place(git, "c1", "before", NOW)

    assert in_child(die) == 9
    monkeypatch.undo()
    in_place(git, "before", "after", NOW)
    while not (tmp_path / "done").exists():
        time.sleep(0.05)
    assert (kit.top / "a.txt").read_text() == "changed\n"


def test_one_that_does_not_end_is_a_refusal(kit, monkeypatch):
    monkeypatch.setattr(ws_alone, "PATIENCE", 0.1)
    git = kit.runner()
    take_and_keep(git)
    kit.write("a.txt", "changed\n")
    with ws_desk.open_desk(git, "other") as desk:
        ws_alone.be_alone(desk)
        with pytest.raises(WorkspaceError, match="Another restore is still changing files"):
            in_place(git, "c1", "before", NOW)
        assert (kit.top / "a.txt").read_text() == "changed\n"
        take_and_keep(git, "c2")
    in_place(git, "c1", "before", NOW)


def broken(kit, git):
    """A checkpoint of which git has lost one file, and a work tree that differs from it in every way."""
    kit.commit("more", gone="g\n", t="t\n", zz="z\n")
    kit.write("lost", "lost\n" * 100)
    os.unlink(kit.top / "gone")
    os.unlink(kit.top / "t")
    kit.write("t/x", "x\n")
    made = take_and_keep(git)
    blob = kit.git("rev-parse", f"{made.tree}:lost")
    (kit.top / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    shutil.rmtree(kit.top / "t")
    os.unlink(kit.top / "lost")
    for name in ("a.txt", "gone", "u1", "zz", "d/u2", "t"):
        kit.write(name, f"mine: {name}\n")
    kit.git("add", "zz")


def test_a_restore_in_place_that_fails_puts_every_file_back(kit):
    git = kit.runner()
    broken(kit, git)
    wanted, index = files_of(kit.top), (kit.top / ".git" / "index").read_bytes()
    with pytest.raises(RestoreRefused, match="All files are again what they were before") as caught:
        in_place(git, "c1", "before", NOW)
    assert files_of(kit.top) == wanted and (kit.top / ".git" / "index").read_bytes() == index
    assert "`holdfast restore c1`" in caught.value.advice and sorted(kept(git)) == ["before", "c1"]


@pytest.mark.parametrize("where", ["put_raw", "convert_again", "put_index"])
def test_wherever_it_fails_files_and_index_are_put_back(kit, monkeypatch, where):
    kit.git("config", "core.autocrlf", "input")
    git = kit.runner()
    take_and_keep(git)
    kit.write("a.txt", b"changed\r\nin part\n")
    kit.write("u1", "mine\n")
    wanted, index = files_of(kit.top), (kit.top / ".git" / "index").read_bytes()
    real, left = getattr(restore, where), [1]

    def fail(*given):
        real(*given)
        if left.pop() if left else 0:
            raise OSError(5, "no", "x")

    monkeypatch.setattr(restore, where, fail)
    with pytest.raises(WorkspaceError, match=r"x cannot be read or written: no\. All files are again"):
        in_place(git, "c1", "before", NOW)
    assert files_of(kit.top) == wanted and (kit.top / ".git" / "index").read_bytes() == index


@pytest.mark.parametrize("is_known", [True, False])
def test_files_of_a_filter_that_only_the_repository_defines_are_put_back_too(kit, monkeypatch, is_known):
    kit.git("config", "filter.up.clean", "tr a-z A-Z")
    for name, data in {".gitattributes": "*.up filter=up\n", "a.up": "one\n", "gone.up": "gone\n"}.items():
        os.utime(kit.write(name, data), (1, 1) if is_known else None)  # git need not look into what is older
    kit.commit("filtered")
    git = kit.runner()
    take_and_keep(git)
    kit.write("a.up", "two\n")
    kit.write("new.up", "new\n")
    os.unlink(kit.top / "gone.up")
    wanted, index = files_of(kit.top), (kit.top / ".git" / "index").read_bytes()
    real, left = restore.put_index, [1]

    def fail(*given):
        if left:
            left.clear()
            raise OSError(5, "no", "x")
        real(*given)

    monkeypatch.setattr(restore, "put_index", fail)
    with pytest.raises(WorkspaceError, match="All files are again what they were before"):
        in_place(git, "c1", "before", NOW)
    assert files_of(kit.top) == wanted and (kit.top / ".git" / "index").read_bytes() == index


def test_what_somebody_changed_meanwhile_is_not_put_back_and_the_way_back_is_named(kit, monkeypatch):
    git = kit.runner()
    take_and_keep(git)
    kit.write("a.txt", "changed\n")

    def fail(*_):
        kit.write("a.txt", "by somebody else\n")
        raise OSError(5, "no", "x")

    monkeypatch.setattr(restore, "put_raw", fail)
    with pytest.raises(WorkspaceError, match="Only some of the files may be restored") as caught:
        in_place(git, "c1", "before", NOW)
    assert "`holdfast restore before --in-place`" in caught.value.advice
    assert (kit.top / "a.txt").read_text() == "by somebody else\n"


# --- permissions


def modes_of(top, *names):
    return {name: os.lstat(os.path.join(top, name)).st_mode & 0o777 for name in names}


def test_no_file_comes_back_readable_for_more_people_than_it_was(kit, tmp_path):
    kit.write(".git/info/exclude", ".env\n")
    wanted = {".env": 0o600, ".secret": 0o640, "d/key": 0o600, "d": 0o700, "a.txt": 0o600, "run": 0o700, "plain": 0o644}
    for name in (*wanted, "plain"):
        if name != "d":
            kit.write(name, "one\n")
    for name, mode in wanted.items():
        os.chmod(kit.top / name, mode)
    git = kit.runner()
    take_and_keep(git, "c1", Policy(ignored=(".env",)))
    into_worktree(git, "c1", str(tmp_path / "back"))
    assert modes_of(tmp_path / "back", *wanted) == wanted
    assert modes_of(tmp_path / "back", ".") == modes_of(kit.top, ".")
    for name in (".env", ".secret", "a.txt", "run"):
        kit.write(name, "two\n")
    shutil.rmtree(kit.top / "d")
    in_place(git, "c1", "before", NOW)
    assert modes_of(kit.top, *wanted) == wanted and (kit.top / ".env").read_text() == "one\n"


def test_who_may_read_a_file_says_nothing_of_whether_it_runs_or_is_a_folder(kit):
    kit.write("run", "#!/bin/sh\n")
    os.chmod(kit.top / "run", 0o755)
    kit.write("x/f", "f\n")
    git = kit.runner()
    take_and_keep(git)
    kit.write("run", "two\n")
    os.chmod(kit.top / "run", 0o600)
    shutil.rmtree(kit.top / "x")
    kit.write("x", "a file\n")
    os.chmod(kit.top / "x", 0o600)
    in_place(git, "c1", "before", NOW)
    assert modes_of(kit.top, "run") == {"run": 0o700} and modes_of(kit.top, "x")["x"] & 0o700 == 0o700


def test_the_undo_of_a_restore_knows_who_could_read_the_files(kit):
    os.chmod(kit.top / "a.txt", 0o600)
    os.rename(kit.top / "a.txt", kit.top.parent / "away")
    git = kit.runner()
    take_and_keep(git)
    os.rename(kit.top.parent / "away", kit.top / "a.txt")
    in_place(git, "c1", "before", NOW)
    assert not (kit.top / "a.txt").exists()
    in_place(git, "before", "again", NOW)
    assert modes_of(kit.top, "a.txt") == {"a.txt": 0o600}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_restore_that_fails_or_is_interrupted_at_its_end_puts_permissions_back_too(kit, monkeypatch, error):
    kit.write("priv", "one\n")
    os.chmod(kit.top / "priv", 0o600)
    git = kit.runner()
    take_and_keep(git)
    os.chmod(kit.top / "priv", 0o644)
    kit.write("a.txt", "changed\n")

    def fail(*_):
        raise error

    monkeypatch.setattr(restore, "put_index", fail)
    with pytest.raises((HoldfastError, KeyboardInterrupt)):
        in_place(git, "c1", "before", NOW)
    assert modes_of(kit.top, "priv") == {"priv": 0o644} and (kit.top / "a.txt").read_text() == "changed\n"


def test_a_restored_worktree_whose_note_was_left_behind_is_never_removed(kit, tmp_path, monkeypatch):
    """Killed behind its last file; later its index is moved away, as for a broken one."""
    git, path = kit.runner(), str(tmp_path / "back")
    take_and_keep(git)

    def die():
        monkeypatch.setattr(Intent, "end", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        into_worktree(git, "c1", path)

    assert in_child(die) == 9
    monkeypatch.undo()
    (tmp_path / "back" / "precious").write_text("mine\n")
    os.unlink(find_repository(path).index_file)
    assert unfinished(git) == []
    (left,) = over(git)
    left.end(git)
    assert over(git) == [] and (tmp_path / "back" / "precious").exists()


def test_a_half_made_worktree_into_which_somebody_put_a_file_is_not_removed(kit, tmp_path, monkeypatch):
    git, path = kit.runner(), str(tmp_path / "back")
    take_and_keep(git)
    cut_off(git, path, monkeypatch)
    (tmp_path / "back" / "precious").write_text("mine\n")
    with pytest.raises(WorkspaceError, match="not of its snapshot"):
        discard(git, unfinished(git)[0])
    assert (tmp_path / "back" / "precious").exists()


def test_permissions_alone_make_another_snapshot(kit, tmp_path):
    kit.write("new", "new\n")
    git = kit.runner()
    take_and_keep(git)
    os.chmod(kit.top / "new", 0o600)
    assert take_and_keep(git, "c2").is_new
    assert not take(git, "c3", NOW).is_new
    into_worktree(git, "c2", str(tmp_path / "back"))
    assert modes_of(tmp_path / "back", "new") == {"new": 0o600}


def test_a_file_of_which_nothing_is_known_keeps_the_permissions_that_it_has_here(kit, monkeypatch):
    git = kit.runner()
    take_and_keep(git)
    kit.write("a.txt", "changed\n")
    os.chmod(kit.top / "a.txt", 0o600)
    in_place(git, "c1", "before", NOW)
    assert modes_of(kit.top, "a.txt") == {"a.txt": 0o600} and (kit.top / "a.txt").read_text() == "a\n"
    kit.write("a.txt", "changed\n")

    def fail(*_):
        raise OSError(5, "no", "x")

    monkeypatch.setattr(restore, "convert_again", fail)
    with pytest.raises(WorkspaceError, match="All files are again"):
        in_place(git, "c1", "again", NOW)
    assert modes_of(kit.top, "a.txt") == {"a.txt": 0o600} and (kit.top / "a.txt").read_text() == "changed\n"


# --- sparse checkouts and rules that came or went meanwhile


@pytest.mark.parametrize("extra", [[], ["--sparse-index"]])
def test_what_a_sparse_checkout_took_away_since_then_comes_back(kit, extra):
    kit.commit("more", **{"in/x": "x\n", "out/y": "y\n", "out/z": "z\n"})
    kit.write("out/z", "changed\n")
    git = kit.runner()
    take_and_keep(git)
    wanted = files_of(kit.top)
    kit.git("checkout", "-q", "out/z")
    kit.git("sparse-checkout", "set", "--cone", *extra, "in")
    sparse = files_of(kit.top)
    assert b"out/y" not in sparse
    assert ("out/y", "added", None) in preview(git, "c1")
    in_place(git, "c1", "before", NOW)
    assert files_of(kit.top) == wanted and preview(git, "c1") == []
    in_place(git, "before", "after", NOW)
    assert files_of(kit.top) == sparse


@pytest.mark.parametrize("extra", [[], ["--sparse-index"]])
def test_what_was_not_there_by_a_sparse_checkout_goes_again(kit, extra):
    kit.commit("more", **{"in/x": "x\n", "out/y": "y\n"})
    kit.git("sparse-checkout", "set", "--cone", *extra, "in")
    git = kit.runner()
    take_and_keep(git)
    wanted = files_of(kit.top)
    kit.write("out/y", "here now\n")
    kit.write("in/x", "changed\n")
    full = files_of(kit.top)
    in_place(git, "c1", "before", NOW)
    assert files_of(kit.top) == wanted and kit.git("status", "--porcelain") == ""
    in_place(git, "before", "after", NOW)
    assert files_of(kit.top) == full


def test_files_that_the_rules_of_the_checkpoint_ignore_stay(kit):
    kit.commit("rules", **{".gitignore": ".env\nbuild/\n", "d/.gitignore": "*.log\n"})
    for name in (".env", "build/out", "d/x.log"):
        kit.write(name, "mine\n")
    git = kit.runner()
    take_and_keep(git)
    wanted = files_of(kit.top)
    os.unlink(kit.top / ".gitignore")
    os.unlink(kit.top / "d" / ".gitignore")
    kit.write("later", "later\n")
    listed = {change.path for change in preview(git, "c1")}
    assert listed == {".gitignore", "d/.gitignore", "later"}
    in_place(git, "c1", "before", NOW)
    assert files_of(kit.top) == wanted


# --- snapshots of earlier versions, which say less


def as_before(kit, name="c1"):
    """Make a snapshot what an earlier version took of a clean tree: without bytes of files that git calls unchanged."""
    ref = f"refs/holdfast/checkpoints/{name}"
    beside = kit.git("rev-parse", f"{ref}^2")
    rows = [row for row in kit.git("ls-tree", beside).split("\n") if not row.endswith("\traw")]
    top = kit.git("mktree", stdin="\n".join(rows) + "\n")
    body = kit.git("cat-file", "commit", beside).split("\n")
    body = [f"tree {top}", *(line for line in body[1:] if not line.startswith("Holdfast-Exact"))]
    older = kit.git("hash-object", "-t", "commit", "-w", "--stdin", stdin="\n".join(body) + "\n")
    body = kit.git("cat-file", "commit", ref).replace(beside, older)
    kit.git("update-ref", ref, kit.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=body + "\n"))


def with_line_ends(kit, setting):
    """A file with line ends that git would not write, which git calls unchanged."""
    if setting:
        kit.git("config", "core.autocrlf", "input")
    else:
        kit.commit("rules", **{".gitattributes": "* text=auto\n"})
    kit.commit("lf", **{"c.txt": b"a\nb\n", "n": "one\n"})
    kit.write("c.txt", b"a\r\nb\r\n")
    kit.git("add", "c.txt")
    assert kit.git("status", "--porcelain") == ""


@pytest.mark.parametrize("setting", [True, False])
def test_bytes_of_which_an_older_snapshot_says_nothing_stay_as_they_are(kit, setting):
    with_line_ends(kit, setting)
    git = kit.runner()
    take_and_keep(git)
    as_before(kit)
    kit.write("n", "two\n")
    assert [change.path for change in preview(git, "c1")] == ["n"]
    in_place(git, "c1", "before", NOW)
    assert (kit.top / "c.txt").read_bytes() == b"a\r\nb\r\n" and (kit.top / "n").read_text() == "one\n"


@pytest.mark.parametrize("setting", [True, False])
def test_a_preview_lists_files_that_git_calls_the_same_and_that_get_other_bytes(kit, setting):
    with_line_ends(kit, setting)
    git = kit.runner()
    take_and_keep(git)
    assert preview(git, "c1") == []
    kit.write("c.txt", b"a\nb\n")
    take_and_keep(git, "c2")
    assert preview(git, "c1") == [("c.txt", "modified", None)] and preview(git, "c2") == []
    in_place(git, "c1", "before", NOW)
    assert (kit.top / "c.txt").read_bytes() == b"a\r\nb\r\n" and preview(git, "c1") == []
    assert preview(git, "c2") == [("c.txt", "modified", None)]
    in_place(git, "c2", "again", NOW)
    assert (kit.top / "c.txt").read_bytes() == b"a\nb\n"


def test_bytes_that_were_too_many_to_keep_stay_as_they_are(kit):
    with_line_ends(kit, setting=True)
    git = kit.runner()
    take_and_keep(git, "c1", Policy(largest=5))
    assert preview(git, "c1") == []
    in_place(git, "c1", "before", NOW)
    assert (kit.top / "c.txt").read_bytes() == b"a\r\nb\r\n"


def test_a_file_that_stands_for_a_link_stays_one_where_an_older_snapshot_cannot_tell(kit, tmp_path):
    for name in ("link", "true", "gone"):
        os.symlink("a.txt", kit.top / name)
    kit.commit("links")
    kit.git("config", "core.symlinks", "false")
    for name in ("link", "gone"):
        os.unlink(kit.top / name)
        kit.write(name, "a.txt")
    assert kit.git("status", "--porcelain") == ""
    git = kit.runner()
    take_and_keep(git)
    tree = kit.git("rev-parse", "HEAD^{tree}")
    body = kit.git("cat-file", "commit", "refs/holdfast/checkpoints/c1").split("\n")
    body = "\n".join([f"tree {tree}", *body[1:]]) + "\n"
    older = kit.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=body)
    kit.git("update-ref", "refs/holdfast/checkpoints/c1", older)
    as_before(kit)
    wanted = files_of(kit.top)
    assert preview(git, "c1") == []
    os.unlink(kit.top / "gone")
    assert [change.path for change in preview(git, "c1")] == ["gone"]
    in_place(git, "c1", "before", NOW)
    assert files_of(kit.top) == wanted and (kit.top / "true").is_symlink() and not (kit.top / "link").is_symlink()
    into_worktree(git, "c1", str(tmp_path / "back"))
    assert kit.git("status", "--porcelain", at=tmp_path / "back") == ""
    assert not (tmp_path / "back" / "link").is_symlink()
