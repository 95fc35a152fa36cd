"""Where HEAD stands, read from its files: never anything else than what git itself says."""

from __future__ import annotations

import pytest

from holdfast.adapters.git.repo import GitWorkspace
from holdfast.adapters.probes.git_place import find_repository, plain_head
from tests.adapters.git_kit import Kit


@pytest.fixture
def kit(tmp_path):
    return Kit(tmp_path)


def said_by_git(kit, top=None):
    branch = kit.ask("symbolic-ref", "--quiet", "HEAD", at=top).stdout.strip() or None
    return kit.ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}", at=top).stdout.strip() or None, branch


def where(kit, top=None):
    return GitWorkspace(str(top or kit.top), kit.environ).where()


def on_a_branch(kit):
    return True


def in_a_folder_of_branches(kit):
    kit.git("switch", "-q", "-c", "some/branch")
    return True


def packed(kit):
    kit.git("pack-refs", "--all")
    return False


def detached(kit):
    kit.git("checkout", "-q", "--detach")
    return False


def unborn(kit):
    kit.git("switch", "-q", "--orphan", "new")
    return False


def by_another_name(kit):
    kit.git("symbolic-ref", "refs/heads/alias", "refs/heads/main")
    kit.git("symbolic-ref", "HEAD", "refs/heads/alias")
    return False


@pytest.mark.parametrize(
    "state", [on_a_branch, in_a_folder_of_branches, packed, detached, unborn], ids=lambda one: one.__name__
)
def test_it_is_what_git_says(kit, state):
    is_plain = state(kit)
    assert (plain_head(find_repository(str(kit.top))) is not None) == is_plain
    assert where(kit) == said_by_git(kit)


@pytest.mark.parametrize("name", ["side", "si\nde", " side\n", "s\rde"])
def test_in_a_work_tree_of_its_own_the_branch_is_that_of_the_work_tree(tmp_path, name):
    (tmp_path / name).mkdir()
    kit = Kit(tmp_path / name)
    side = tmp_path / name / "side"
    kit.git("worktree", "add", "-q", "-b", "side", str(side))
    kit.commit("second", **{"b.txt": "b\n"})
    assert where(kit, side) == said_by_git(kit, side) != where(kit)


def test_a_head_that_leads_elsewhere_is_left_to_git(kit):
    by_another_name(kit)
    assert plain_head(find_repository(str(kit.top))) is None
    secret = kit.top / ".git" / "secret"
    secret.write_text("0" * 40)
    (kit.top / ".git" / "HEAD").write_text("ref: refs/heads/../../secret\n")
    assert plain_head(find_repository(str(kit.top))) is None
