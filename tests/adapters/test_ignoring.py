"""`.holdfast/` is ignored by git's own word, and the line that does it changes nothing else."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.adapters.git.ignoring import Ignored, add_rule, init, look, tracked, with_rule
from holdfast.adapters.probes import EffectError
from holdfast.core.errors import BadFile
from tests.adapters.git_kit import Kit


@pytest.fixture
def kit(tmp_path):
    return Kit(tmp_path)


# --- looking


def test_a_fresh_repository_ignores_nothing_of_ours_and_no_rule_says_so(kit):
    assert look(kit.runner()) == Ignored(False, None)


@pytest.mark.parametrize("rule", [".holdfast/", ".holdfast", ".*", "/.holdfast/**", "*holdfast*/"])
def test_a_rule_in_gitignore_counts_however_broad_it_is(kit, rule):
    kit.write(".gitignore", f"# ours\n{rule}\n")
    found = look(kit.runner())
    assert found == Ignored(True, f".gitignore:2 {rule}")


def test_a_rule_in_info_exclude_counts(kit):
    kit.write(".git/info/exclude", ".holdfast/\n")
    assert look(kit.runner()) == Ignored(True, f"{kit.top}/.git/info/exclude:1 .holdfast/")


def test_a_rule_in_the_users_global_file_counts(kit):
    (kit.home / "ignored").write_text("\n.holdfast/\n")
    (kit.home / ".gitconfig").write_text(f"[core]\n\texcludesFile = {kit.home}/ignored\n")
    assert look(kit.runner()) == Ignored(True, f"{kit.home}/ignored:2 .holdfast/")


def test_a_rule_of_a_repository_around_this_one_does_not_count(kit):
    """Git does not look above the top, so neither do we; but see the linked work tree below."""
    (kit.top.parent / ".gitignore").write_text(".holdfast/\n")
    assert not look(kit.runner()).ignored


def test_a_negated_rule_takes_it_back_and_is_named(kit):
    kit.write(".gitignore", ".holdfast/\n!.holdfast/\n")
    assert look(kit.runner()) == Ignored(False, None)
    (kit.top / ".holdfast").mkdir()
    assert look(kit.runner()) == Ignored(False, ".gitignore:2 !.holdfast/")


def test_one_own_file_that_is_not_ignored_is_enough(kit):
    kit.write(".gitignore", ".holdfast/*\n!.holdfast/checkpoints/\n!.holdfast/checkpoints/*\n")
    assert look(kit.runner()) == Ignored(False, ".gitignore:3 !.holdfast/checkpoints/*")
    kit.write(".gitignore", ".holdfast/*.db*\n")
    assert look(kit.runner()) == Ignored(False, None)


def test_it_does_not_matter_whether_our_files_are_there_or_tracked(kit):
    kit.write(".holdfast/holdfast.db", "x")
    kit.git("add", "-f", ".holdfast")
    kit.write(".gitignore", ".holdfast/\n")
    assert look(kit.runner()).ignored
    assert tracked(kit.runner()) == [".holdfast/holdfast.db"]


def test_nothing_is_tracked_that_only_looks_like_ours(kit):
    kit.commit("more", **{".holdfast-not/x": "x", "sub/.holdfast/x": "x"})
    assert tracked(kit.runner()) == []


def test_a_linked_work_tree_asks_about_the_main_one(kit, tmp_path):
    kit.git("worktree", "add", "-q", str(tmp_path / "other"))
    (tmp_path / "other" / ".gitignore").write_text(".holdfast/\n")
    assert not look(kit.runner(tmp_path / "other")).ignored
    assert init(kit.runner(tmp_path / "other")) == [f"Added `.holdfast/` to {kit.top}/.gitignore."]
    assert look(kit.runner(tmp_path / "other")).ignored and look(kit.runner()).ignored


def test_a_repository_without_a_main_work_tree_needs_no_rule(kit, tmp_path):
    kit.git("clone", "-q", "--bare", str(kit.top), str(tmp_path / "bare.git"))
    kit.git("worktree", "add", "-q", str(tmp_path / "tree"), "main", at=tmp_path / "bare.git")
    runner = kit.runner(tmp_path / "tree")
    assert look(runner).ignored and tracked(runner) == [] and init(runner) == []
    assert not (tmp_path / "tree" / ".gitignore").exists()


def test_a_link_in_the_place_of_our_folder_is_an_error_and_not_an_answer(kit, tmp_path):
    os.symlink(tmp_path, kit.top / ".holdfast")
    with pytest.raises(EffectError, match="check-ignore"):
        look(kit.runner())


# --- adding the rule


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, b".holdfast/\n"),
        (b"", b".holdfast/\n"),
        (b"a\nb\n", b"a\nb\n.holdfast/\n"),
        (b"a\nb", b"a\nb\n.holdfast/"),
        (b"a\r\nb\r\n", b"a\r\nb\r\n.holdfast/\r\n"),
        (b"a\r\nb", b"a\r\nb\r\n.holdfast/"),
        (b"a\nb\nc\r\n", b"a\nb\nc\r\n.holdfast/\n"),
        (b"\xef\xbb\xbfa\n", b"\xef\xbb\xbfa\n.holdfast/\n"),
        (b"\xff\xfe\n#.holdfast/\n", b"\xff\xfe\n#.holdfast/\n.holdfast/\n"),
        (b"!.holdfast/\n", b"!.holdfast/\n.holdfast/\n"),
    ],
)
def test_one_line_is_added_in_the_style_of_the_file_and_only_once(kit, before, after):
    path = kit.top / ".gitignore"
    if before is not None:
        path.write_bytes(before)
    assert init(kit.runner()) == [f"Added `.holdfast/` to {path}."]
    assert path.read_bytes() == after
    seen = os.stat(path)
    assert init(kit.runner()) == [] and add_rule(kit.runner()) is False
    assert os.stat(path) == seen and look(kit.runner()).ignored
    assert not [name for name in os.listdir(kit.top) if "holdfast-new" in name]


def test_a_broader_pattern_is_left_alone(kit):
    kit.write(".gitignore", ".*\n")
    assert init(kit.runner()) == []
    assert (kit.top / ".gitignore").read_text() == ".*\n"


def test_mode_is_kept_and_a_new_file_obeys_the_umask(kit):
    path = kit.write(".gitignore", "a\n")
    os.chmod(path, 0o640)
    init(kit.runner())
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o640
    os.unlink(path)
    old = os.umask(0o027)
    try:
        init(kit.runner())
    finally:
        os.umask(old)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o640


def test_the_rule_can_stand_in_info_exclude_even_if_that_folder_is_gone(kit):
    for name in os.listdir(kit.top / ".git" / "info"):
        os.unlink(kit.top / ".git" / "info" / name)
    os.rmdir(kit.top / ".git" / "info")
    assert init(kit.runner(), "exclude") == [f"Added `.holdfast/` to {kit.top}/.git/info/exclude."]
    assert init(kit.runner(), "exclude") == [] and kit.git("status", "--porcelain") == ""


def test_a_line_that_could_not_help_is_not_left_behind(kit):
    kit.write(".gitignore", "!.holdfast/\n")
    before = (kit.top / ".git/info/exclude").read_bytes()
    with pytest.raises(BadFile, match=r"a \.gitignore takes it back"):
        add_rule(kit.runner(), "exclude")
    assert (kit.top / ".git/info/exclude").read_bytes() == before
    os.unlink(kit.top / ".git/info/exclude")
    (kit.top / ".holdfast").mkdir()
    with pytest.raises(BadFile, match=r"\.gitignore:1 !\.holdfast/ takes it back"):
        add_rule(kit.runner(), "exclude")
    assert not os.path.exists(kit.top / ".git/info/exclude")


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "folder"])
def test_what_is_not_a_plain_file_is_refused_and_left_alone(kit, tmp_path, kind):
    path, target = kit.top / ".gitignore", tmp_path / "target"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        os.symlink(target, path)
        if kind == "link":
            target.write_text("a\n")
    with pytest.raises((BadFile, EffectError)):
        add_rule(kit.runner(seconds=0.7))
    assert target.exists() == (kind == "link") and (kind != "link" or target.read_text() == "a\n")
    assert path.is_symlink() == (kind in ("link", "dangling"))


def test_a_linked_info_folder_is_refused(kit, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    os.rename(kit.top / ".git/info", kit.top / ".git/info-was")
    os.symlink(tmp_path / "elsewhere", kit.top / ".git/info")
    with pytest.raises(BadFile, match="symbolic link"):
        add_rule(kit.runner(), "exclude")
    assert os.listdir(tmp_path / "elsewhere") == []


def test_what_a_killed_process_left_is_cleared_away(kit):
    kit.write(".gitignore.holdfast-new", "torn")
    init(kit.runner())
    assert (kit.top / ".gitignore").read_bytes() == b".holdfast/\n"
    assert not (kit.top / ".gitignore.holdfast-new").exists()


def test_ends_of_lines_are_those_of_most_lines():
    assert with_rule(b"a\r\nb\r\nc\n") == b"a\r\nb\r\nc\n.holdfast/\r\n"
    assert with_rule(b"a\rb") == b"a\rb\n.holdfast/"


def test_many_at_once_add_one_line(kit):
    runners = [kit.runner() for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(init, runners))
    assert sorted(map(len, said)) == [0] * 7 + [1]
    assert (kit.top / ".gitignore").read_bytes() == b".holdfast/\n"
