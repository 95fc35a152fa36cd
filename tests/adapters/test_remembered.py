"""What is remembered of git within one process is what git would say now: settings by their bytes, trees by their ids."""

from __future__ import annotations

import contextlib
import copy
import os
import shutil
import time
from pathlib import Path

import pytest

from holdfast.adapters import syncing
from holdfast.adapters.git import content as git_content
from holdfast.adapters.git import workspace, ws_gather
from holdfast.adapters.git.content import content_of, looking
from holdfast.adapters.git.merging import merge
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.adapters.git.trees import TaskTrees
from holdfast.adapters.git.ws_desk import look_again, open_desk, turn
from holdfast.adapters.probes import git_place, git_runner
from holdfast.adapters.probes.common import EffectError
from holdfast.adapters.probes.git import GitCommit
from holdfast.adapters.probes.programs import find_program
from holdfast.adapters.remembering import Few
from holdfast.adapters.syncing import sync_objects
from tests.adapters.git_kit import Kit

MINUTE = 60 * 10**9


@pytest.fixture
def kit(tmp_path):
    return Kit(tmp_path)


@pytest.fixture
def asked(monkeypatch):
    """The commands that git was started with."""
    commands = []
    run = git_runner.run

    def started(argv, *more, **named):
        words = argv[1:]
        while words[0] in ("-C", "-c"):
            words = words[2:]
        commands.append(words[0])
        return run(argv, *more, **named)

    monkeypatch.setattr(git_runner, "run", started)
    return commands


def value_of(kit, name):
    return [value for _, key, value in kit.runner().settings if key == name]


def test_settings_are_asked_for_once_as_long_as_their_files_are_the_same(kit, asked):
    assert value_of(kit, "user.name") == value_of(kit, "user.name") == ["Somebody"]
    assert asked.count("config") == 1


def test_work_trees_share_the_settings_as_long_as_their_files_are_the_same(kit, asked, tmp_path):
    other = tmp_path / "other"
    kit.git("worktree", "add", "-q", "--detach", str(other))
    assert kit.runner().settings == kit.runner(other).settings and asked.count("config") == 1
    kit.git("config", "extensions.worktreeConfig", "true")
    kit.git("config", "--worktree", "holdfast.test", "its own", at=other)
    assert value_of(kit, "holdfast.test") == []
    assert ("worktree", "holdfast.test", "its own") in kit.runner(other).settings and asked.count("config") == 3


def test_a_git_whose_folder_is_gone_answers_no_question(kit, tmp_path):
    other = tmp_path / "other"
    kit.git("worktree", "add", "-q", "-b", "there", str(other))
    git, head = kit.runner(other), kit.git("rev-parse", "HEAD")
    assert git.contains(head, head)
    other.rename(tmp_path / "elsewhere")
    with pytest.raises(EffectError, match="cannot change to"):
        git.contains(head, head)


def test_work_trees_share_the_trees_of_commits(kit, asked, tmp_path):
    other, head = tmp_path / "other", kit.git("rev-parse", "HEAD")
    kit.git("worktree", "add", "-q", "--detach", str(other))
    assert kit.runner().tree_of(head) == kit.runner(other).tree_of(head) and asked.count("rev-parse") == 1


def test_the_id_of_a_commit_is_asked_for_once_and_any_other_name_each_time(kit, asked, tmp_path):
    other, head = tmp_path / "other", kit.git("rev-parse", "HEAD")
    kit.git("worktree", "add", "-q", "--detach", str(other))
    assert [kit.runner(top).commit_of(head) for top in (kit.top, other, kit.top)] == [head] * 3
    assert asked.count("rev-parse") == 1
    kit.git("tag", "-a", "-m", "x", "v1")
    tag = kit.git("rev-parse", "v1")
    assert [kit.runner().commit_of(name) for name in ("HEAD", "HEAD", tag, tag)] == [head] * 4
    assert asked.count("rev-parse") == 5
    kit.git("commit", "-q", "--allow-empty", "-m", "next")
    assert kit.runner().commit_of("HEAD") == kit.git("rev-parse", "HEAD") != head


def test_what_is_no_commit_is_refused_each_time(kit):
    for name in ("no-such-branch", "0" * 40, kit.git("rev-parse", "HEAD^{tree}")):
        for _ in range(2):
            with pytest.raises(EffectError, match="There is no commit"):
                kit.runner().commit_of(name)


def content(kit, base):
    with looking(kit.runner()) as desk:
        return content_of(desk, base)


def test_what_a_tree_and_an_index_hold_is_asked_for_once(kit, asked):
    base = kit.git("rev-parse", "HEAD")
    (kit.top / "new.txt").write_text("new\n")
    first = content(kit, base)
    asked.clear()
    assert content(kit, base) == first and "ls-tree" not in asked and "ls-files" not in asked


def test_what_was_announced_only_is_no_part_of_a_tree_but_of_the_index(kit, monkeypatch):
    """A file that is too large to be looked at is not looked at because somebody took it out and announced it again."""
    base = kit.git("rev-parse", "HEAD")
    (name, *_) = kit.git("ls-files").splitlines()
    kit.git("rm", "-q", "--cached", name)
    kit.git("add", "-N", name)
    (kit.top / name).write_text("x" * 100)
    with looking(kit.runner()) as desk:
        found = content_of(desk, base, policy=ws_gather.Policy(largest=10))
        rows = kit.git("ls-tree", "-r", "--name-only", base).splitlines()
        held = desk.line("ls-tree", "-r", "--name-only", found.tree).splitlines()
    assert held == [row for row in rows if row != name] and found.left_out[0].startswith(name)


def test_an_index_that_was_changed_is_listed_anew(kit):
    base = kit.git("rev-parse", "HEAD")
    (name, *_) = kit.git("ls-files").splitlines()
    assert content(kit, base).tree == kit.git("rev-parse", "HEAD^{tree}")
    kit.git("update-index", "--assume-unchanged", name)
    (kit.top / name).write_text("hidden from git\n")
    seen = content(kit, base)
    assert seen.tree != kit.git("rev-parse", "HEAD^{tree}")
    kit.git("update-index", "--no-assume-unchanged", name)
    assert content(kit, base) == seen


def test_many_or_large_trees_and_indexes_are_not_kept(kit, monkeypatch):
    for module, name in ((git_content, "_HELD"), (ws_gather, "_LISTED")):
        monkeypatch.setattr(module, name, Few(2))
    base = kit.git("rev-parse", "HEAD")
    for number in range(4):
        (kit.top / "new.txt").write_text(f"{number}\n")
        kit.git("add", "new.txt")
        kit.git("commit", "-q", "-m", "next")
        content(kit, base)
        assert len(git_content._HELD) <= 2 and len(ws_gather._LISTED) <= 2
    for module, name in ((git_content, "_HELD"), (ws_gather, "_LISTED")):
        getattr(module, name).clear()
        monkeypatch.setattr(module, f"_LARGEST{name}", 0)
    content(kit, base)
    assert not git_content._HELD and not ws_gather._LISTED


def test_what_was_collected_here_is_known_when_it_is_closed(kit, asked):
    trees = TaskTrees(GitWorkspace(str(kit.top), kit.environ), "r1")
    path = trees.open("a", kit.git("rev-parse", "HEAD"))
    Path(path, "new.txt").write_text("new\n")
    sha = trees.collect("a")
    anew = TaskTrees(GitWorkspace(str(kit.top), kit.environ), "r1").about(sha)
    assert trees.about(sha) == anew
    git_runner._TREES.clear()
    assert trees.workspace.tree_of(sha) == anew.tree
    asked.clear()
    assert trees.close("a") is None and not os.path.lexists(path)
    assert "cat-file" not in asked and "diff-tree" not in asked and asked.count("for-each-ref") == 1


def test_what_the_user_says_otherwise_is_passed_on_at_once(kit):
    git = kit.runner()
    git.given = dict(git.given)
    git.given["GIT_AUTHOR_NAME"] = "One"
    look_again(git)
    assert git.line("var", "GIT_AUTHOR_IDENT").startswith("One ")
    git.given["GIT_AUTHOR_NAME"] = "Two"
    look_again(git)
    assert git.line("var", "GIT_AUTHOR_IDENT").startswith("Two ")
    kit.git("config", "holdfast.test", "new")
    look_again(git)
    assert git.line("config", "holdfast.test") == "new"


def test_gits_with_the_same_settings_are_told_the_same_things(kit, tmp_path):
    other = tmp_path / "other"
    kit.git("worktree", "add", "-q", "--detach", str(other))
    one, same, elsewhere = kit.runner(), kit.runner(), kit.runner(other)
    assert one.environment is same.environment and one._bytes() is same._bytes()
    assert elsewhere.environment["GIT_WORK_TREE"] == str(other) != one.environment["GIT_WORK_TREE"]
    assert {os.fsdecode(name): os.fsdecode(value) for name, value in one._bytes().items()} == one.environment


def test_where_nothing_is_to_be_linked_nobody_waits_for_a_turn(kit):
    trees = TaskTrees(GitWorkspace(str(kit.top), kit.environ), "r1")
    trees.open("a", kit.git("rev-parse", "HEAD"))
    home = kit.top / ".git" / "holdfast" / "trees" / "r1"
    with turn(str(home)):
        assert trees.link("a", [".venv"]) == []


def test_which_git_it_is_is_asked_once(kit, asked):
    git_runner.version_of.cache_clear()
    base = kit.git("rev-parse", "HEAD")
    for _ in range(2):
        merge(kit.runner(), base, base, [("T1", base)])
    assert asked.count("version") == 1


CHANGES = {
    "of the repository": lambda kit: kit.git("config", "holdfast.test", "new"),
    "of the user": lambda kit: kit.git("config", "--global", "holdfast.test", "new"),
    "of the user, elsewhere": lambda kit: kit.git(
        "config", "--file", os.path.join(_made(kit.home / ".config" / "git"), "config"), "holdfast.test", "new"
    ),
    "of the work tree": lambda kit: (
        kit.git("config", "extensions.worktreeConfig", "true"),
        kit.git("config", "--worktree", "holdfast.test", "new"),
    ),
}


def _made(folder):
    folder.mkdir(parents=True)
    return str(folder)


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_setting_is_seen_at_once(kit, change):
    assert value_of(kit, "holdfast.test") == []
    CHANGES[change](kit)
    assert value_of(kit, "holdfast.test") == ["new"]


def test_a_setting_changed_in_place_to_one_as_long_is_seen(kit):
    kit.git("config", "holdfast.test", "before")
    assert value_of(kit, "holdfast.test") == ["before"]
    path = kit.top / ".git" / "config"
    before = path.stat()
    with open(path, "r+b") as file:
        data = file.read().replace(b"before", b"behind")
        file.seek(0)
        file.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert value_of(kit, "holdfast.test") == ["behind"]


def test_settings_that_name_other_files_are_never_remembered(kit, asked):
    more = kit.home / "more"
    more.write_text("[holdfast]\n\ttest = first\n")
    kit.git("config", "include.path", str(more))
    assert value_of(kit, "holdfast.test") == ["first"]
    more.write_text("[holdfast]\n\ttest = second\n")
    assert value_of(kit, "holdfast.test") == ["second"]


@pytest.mark.parametrize("kind", ["pipe", "large"])
def test_files_of_settings_that_are_not_small_and_ordinary_are_left_to_git(kit, asked, kind):
    path = kit.home / ".gitconfig"
    path.write_text("[holdfast]\n\ttest = x\n" + "# filler\n" * 10_000 if kind == "large" else "")
    if kind == "pipe":
        path.unlink()
        os.mkfifo(path)
        assert git_place.read_configs(None, kit.environ) is None
        return
    assert value_of(kit, "holdfast.test") == value_of(kit, "holdfast.test") == ["x"]
    assert asked.count("config") == 2


def evil(config):
    """Settings by which the repository would start a program of its own."""
    return config + b'[filter "evil"]\n\tclean = touch fired\n'


def neutral(kit):
    """What our git says of the filter that the repository names; None: nothing."""
    said = kit.runner().environment
    names = {said[f"GIT_CONFIG_KEY_{number}"]: number for number in range(int(said["GIT_CONFIG_COUNT"]))}
    number = names.get("filter.evil.clean")
    return None if number is None else said[f"GIT_CONFIG_VALUE_{number}"]


def test_a_repository_that_is_led_elsewhere_is_asked_again(kit):
    git = kit.runner()
    assert neutral(kit) is None
    other = kit.home / "elsewhere"
    shutil.copytree(kit.top / ".git", other)
    (other / "config").write_bytes(evil((other / "config").read_bytes()))
    (kit.top / ".git" / "commondir").write_text(f"{other}\n")
    again = git_runner.Git(git.place, kit.environ)
    assert ("local", "filter.evil.clean", "touch fired") in again.settings


def test_what_git_said_of_a_broken_repository_is_not_remembered(kit):
    git = kit.runner()
    assert neutral(kit) is None
    config, head = kit.top / ".git" / "config", kit.top / ".git" / "HEAD"
    config.write_bytes(evil(config.read_bytes()))
    head.rename(kit.home / "HEAD")
    with contextlib.suppress(git_runner.EffectError):
        assert "filter.evil.clean" not in {name for _, name, _ in git_runner.Git(git.place, kit.environ).settings}
    (kit.home / "HEAD").rename(head)
    assert neutral(kit) == ""


def test_a_home_that_depends_on_the_folder_is_left_to_git(kit):
    assert git_place.read_configs(None, {"HOME": "somewhere"}) is None
    assert git_place.read_configs(None, {}) is None


def test_the_tree_of_a_commit_is_asked_for_once(kit, asked):
    head, tree = kit.git("rev-parse", "HEAD"), kit.git("rev-parse", "HEAD^{tree}")
    assert kit.runner().tree_of(head) == kit.runner().tree_of(head) == tree
    assert asked.count("rev-parse") == 1


def test_the_tree_of_a_commit_that_was_made_here_is_known(kit, asked):
    kit.write("b.txt")
    commit = GitCommit(str(kit.top), "Second", "main", kit.git("rev-parse", "HEAD"), ["b.txt"], environ=kit.environ)
    made = commit.act("effect-1")["commit"]
    asked.clear()
    assert kit.runner().tree_of(made) == kit.git("rev-parse", f"{made}^{{tree}}") and asked == []


def test_the_name_of_a_ref_is_judged_once_and_a_bad_one_is_refused_each_time(kit, asked):
    for _ in range(2):
        git_runner.check_ref(kit.runner(), "refs/heads/good-as-any")
        with pytest.raises(git_runner.EffectError, match="cannot be the name"):
            git_runner.check_ref(kit.runner(), "refs/heads/a..b")
    assert asked.count("check-ref-format") == 3


def test_an_environment_that_was_made_out_of_another_is_passed_on_whole(kit):
    git = kit.runner()
    before = git._bytes()
    other = copy.copy(git)
    other.environment = {**git.environment, "GIT_FLUSH": "0", "GIT_DIR": "/elsewhere"}
    assert other._bytes() == {**before, b"GIT_FLUSH": b"0", b"GIT_DIR": b"/elsewhere"}
    other.environment = {"PATH": "/bin"}
    assert other._bytes() == {b"PATH": b"/bin"} and git._bytes() is before


def test_head_is_told_without_git_only_where_its_file_says_so_outright(kit, asked):
    assert kit.runner().head_ref() == "refs/heads/main" and "symbolic-ref" not in asked
    kit.git("pack-refs", "--all")
    assert kit.runner().head_ref() == "refs/heads/main" and "symbolic-ref" in asked
    kit.git("checkout", "-q", "--detach")
    asked.clear()
    assert kit.runner().head_ref() is None and "symbolic-ref" not in asked
    head = kit.top / ".git" / "HEAD"
    head.unlink()
    head.symlink_to("refs/heads/main")
    assert kit.runner().head_ref() == "refs/heads/main"


def test_a_program_that_is_gone_is_looked_for_again(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        (folder / "tool").write_text("#!/bin/sh\n")
        (folder / "tool").chmod(0o700)
    environ = {"PATH": f"{first}:{second}"}
    assert find_program("tool", environ) == str(first / "tool")
    (first / "tool").unlink()
    assert find_program("tool", environ) == str(second / "tool")


@pytest.fixture
def synced(monkeypatch):
    paths = []
    for name in ("sync_path", "sync_folder"):
        sync = getattr(syncing, name)
        monkeypatch.setattr(syncing, name, lambda path, sync=sync: (paths.append(path), sync(path)))
    monkeypatch.setattr(syncing, "_SYNCED", {})
    return paths


@pytest.fixture
def sync(kit, tmp_path):
    """Sync what was written in the last minute, once the clock of the file system has moved on."""
    clock = tmp_path / "clock"
    clock.mkdir()

    def go():
        time.sleep(0.03)
        sync_objects(str(kit.top / ".git" / "objects"), time.time_ns() - MINUTE, str(clock))

    return go


def test_objects_are_synced_once_and_again_when_they_are_written_again(kit, synced, sync):
    objects = str(kit.top / ".git" / "objects")
    sync()
    first = [path for path in synced if os.path.isfile(path)]
    assert len(first) == 3 and objects in synced
    synced.clear()
    sync()
    assert synced == []
    data = Path(first[0]).read_bytes()
    os.unlink(first[0])
    with open(first[0], "wb") as file:
        file.write(data)
    sync()
    assert sorted(synced) == sorted([first[0], os.path.dirname(first[0]), objects])


@pytest.fixture
def since(kit, monkeypatch):
    """From when on the objects were looked at, each time, counted from when the desk was laid out; 0 is everything."""
    looked = []
    monkeypatch.setattr(workspace, "_SYNCED", {})
    monkeypatch.setattr(workspace, "sync_objects", lambda objects, since_ns, clock: looked.append(since_ns))
    return looked


def test_what_was_there_when_the_last_desk_was_laid_out_is_looked_at_once(kit, since):
    for _ in range(2):
        with open_desk(kit.runner(), "one") as first:
            workspace.sync(first)
        with open_desk(kit.runner(), "two") as second:
            workspace.sync(second)
        assert since[-1] == first.began_ns
    assert since[0] == since[1] - MINUTE


def test_what_was_written_on_a_desk_is_looked_at_though_another_was_laid_out_later(kit, since):
    with open_desk(kit.runner(), "one") as first, open_desk(kit.runner(), "two") as second:
        second.began_ns += 1000
        workspace.sync(second)
        workspace.sync(first)
    assert since[-1] == first.began_ns - MINUTE


def test_a_clock_that_was_set_back_or_a_sync_that_failed_is_not_built_on(kit, since, monkeypatch):
    with open_desk(kit.runner(), "one") as desk:
        workspace.sync(desk)
    with open_desk(kit.runner(), "two") as later:
        later.began_ns -= 10 * MINUTE  # it was laid out after the clock was set back
        workspace.sync(later)
        assert since[-1] == later.began_ns - MINUTE
        later.began_ns += 20 * MINUTE  # the clock was set back since
        workspace.sync(later)
        assert since[-1] == 0
    monkeypatch.setattr(workspace, "_SYNCED", {})
    with open_desk(kit.runner(), "three") as desk:
        monkeypatch.setattr(workspace, "sync_objects", lambda *all: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            workspace.sync(desk)
    assert not workspace._SYNCED


def test_other_objects_in_the_same_place_are_looked_at_anew(kit, since):
    with open_desk(kit.runner(), "one") as desk:
        workspace.sync(desk)
        objects = kit.top / ".git" / "objects"
        shutil.copytree(objects, kit.top / ".git" / "copy")
        shutil.move(objects, kit.top / ".git" / "old")
        shutil.move(kit.top / ".git" / "copy", objects)
        workspace.sync(desk)
    assert since == [desk.began_ns - MINUTE] * 2


def test_what_was_changed_at_the_very_time_that_the_clock_still_shows_is_synced_again(kit, synced, sync, monkeypatch):
    """A change after the sync could have the same time, and would look the same."""
    kit.commit("second", **{"b.txt": "b\n"})
    objects = kit.top / ".git" / "objects"
    newest = max(max(one.stat().st_mtime_ns, one.stat().st_ctime_ns) for one in objects.rglob("*"))
    monkeypatch.setattr(syncing, "_told_by", lambda clock, beside: newest)
    sync()
    synced.clear()
    sync()
    assert synced
    monkeypatch.setattr(syncing, "_told_by", lambda clock, beside: newest + 1)
    sync()
    synced.clear()
    sync()
    assert synced == []


def test_the_clock_is_asked_before_anything_is_synced(kit, synced, sync, monkeypatch):
    """What is changed while others are synced, and got no later time, would else be remembered as synced."""
    told_by = syncing._told_by
    monkeypatch.setattr(syncing, "_told_by", lambda *where: (synced.append("clock"), told_by(*where))[1])
    sync()
    assert synced.index("clock") == 0 and len(synced) > 3


def test_the_clock_of_another_file_system_is_not_believed(kit, synced, monkeypatch, tmp_path):
    objects = str(kit.top / ".git" / "objects")
    (tmp_path / "clock").mkdir()
    elsewhere = os.stat("/dev").st_dev
    assert elsewhere != os.stat(tmp_path).st_dev and syncing._told_by(str(tmp_path / "clock"), "/dev") == 0
    monkeypatch.setattr(syncing, "_told_by", lambda clock, beside: 0)
    monkeypatch.setattr(syncing, "_FINE_NS", MINUTE)
    for _ in range(2):
        synced.clear()
        sync_objects(objects, time.time_ns() - MINUTE, "")
        assert len([path for path in synced if os.path.isfile(path)]) >= 3


def test_what_could_not_be_synced_is_not_remembered(kit, synced, sync, monkeypatch):
    def fail(path):
        raise OSError(5, "Input/output error", path)

    with monkeypatch.context() as broken, pytest.raises(OSError, match="Input/output"):
        broken.setattr(syncing, "sync_path", fail)
        sync()
    sync()
    assert len([path for path in synced if os.path.isfile(path)]) == 3


def test_a_file_that_a_coarse_clock_hides_is_synced_with_its_folder(kit, synced, sync):
    """A folder that looks unchanged may hold an object that came within the same tick."""
    objects = str(kit.top / ".git" / "objects")
    sync()
    known = next(path for path in synced if os.path.isfile(path))
    folder = os.path.dirname(known)
    before = os.stat(folder)
    Path(folder, "f" * 38).write_bytes(b"another object")
    syncing._SYNCED[folder] = (before.st_ino, os.stat(folder).st_mtime_ns, os.stat(folder).st_ctime_ns)
    synced.clear()
    sync()
    assert sorted(synced) == sorted([os.path.join(folder, "f" * 38), folder, objects])


@pytest.mark.parametrize("coarse", [(1, 5_000_000_000, 5_000_000_123), (1, 5_000_000_123, 5_001_000_000)])
def test_a_clock_that_tells_no_parts_of_a_microsecond_may_be_a_coarse_one(coarse):
    assert syncing._tick_of(coarse) == syncing._TICK_NS > syncing._tick_of((1, 5_000_000_123, 5_000_000_123))


def test_a_folder_is_synced_when_it_changed_and_one_that_is_gone_is_left_out(tmp_path, synced, monkeypatch):
    monkeypatch.setattr(syncing, "_tick_of", lambda seen: -1)
    inner, outer, no_folder = tmp_path / "a" / "b", tmp_path / "a", tmp_path / "file"
    inner.mkdir(parents=True)
    no_folder.write_text("x")
    folders = [str(path) for path in (inner, outer, tmp_path / "gone", no_folder)]
    syncing.sync_folders(folders)
    assert synced == [str(inner), str(outer)]
    syncing.sync_folders(folders)
    assert synced == [str(inner), str(outer)]
    (inner / "c").touch()
    syncing.sync_folders(folders)
    assert synced == [str(inner), str(outer), str(inner)]


def test_a_folder_that_was_changed_a_moment_ago_is_synced_again(tmp_path, synced, monkeypatch):
    monkeypatch.setattr(syncing, "_FINE_NS", MINUTE)
    for _ in range(2):
        syncing.sync_folders([str(tmp_path)])
    assert synced == 2 * [str(tmp_path)]
