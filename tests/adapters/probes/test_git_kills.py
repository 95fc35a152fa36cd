"""Every git act, killed before each of its git calls, behind the back of each writing one, and in the middle of it.

After each kill the probe's answer is compared with what plain git sees. Then the act is repeated as the engine would
repeat it, and in the end the effect is there exactly once.
"""

from __future__ import annotations

import random
import shutil
from typing import NamedTuple

import pytest

from holdfast.adapters.probes import EffectError, GitBranch, GitCommit, GitPush, GitTag
from holdfast.testing.crashlab import available, kill_everywhere, scratch, table
from holdfast.testing.crashlab.server import folder_from
from tests.adapters.probes.conftest import make_repo
from tests.adapters.probes.git_work import GitWork
from tests.adapters.probes.killing import Front, in_child

KEY = "effect-1"
WRITING = ("read-tree", "update-index", "write-tree", "commit-tree", "mktag", "update-ref", "push")
PAUSES = (0.0, 0.002, 0.005, 0.01)
pytestmark = pytest.mark.crash


class World(NamedTuple):
    """A repository, its remote, and what plain git says about both."""

    repo: object
    remote: object
    git: object
    environ: dict

    def commits(self):
        return self.git(self.repo, "log", "--format=%H %(trailers:key=Holdfast-Effect,valueonly)", "main").count(KEY)

    def here(self, ref):
        return len(self.git(self.repo, "for-each-ref", ref).splitlines())

    def there(self):
        return len(self.git(self.remote, "for-each-ref", "refs/heads/main").splitlines())


def commit_of(paths):
    def make(world, environ):
        tip = world.git(world.repo, "rev-parse", "main")
        before = tip if world.commits() == 0 else world.git(world.repo, "rev-parse", "main~1")
        return GitCommit(str(world.repo), "a message", "main", before, paths, environ=environ)

    return make


def head(world):
    return world.git(world.repo, "rev-parse", "main")


# what is made, and how many of it plain git sees
EFFECTS = {
    "commit of paths": (commit_of(("old.txt", "new.txt")), World.commits),
    "commit of the index": (commit_of(None), World.commits),
    "branch": (lambda w, e: GitBranch(str(w.repo), "x", head(w), environ=e), lambda w: w.here("refs/heads/x")),
    "tag": (lambda w, e: GitTag(str(w.repo), "v", head(w), environ=e), lambda w: w.here("refs/tags/v")),
    "annotated tag": (
        lambda w, e: GitTag(str(w.repo), "v", head(w), "words", environ=e),
        lambda w: w.here("refs/tags/v"),
    ),
    "push": (
        lambda w, e: GitPush(str(w.repo), str(w.remote), "refs/heads/main", head(w), environ=e),
        World.there,
    ),
}


@pytest.fixture
def folder():
    """In memory where that is possible: a kill loses nothing that was written."""
    with folder_from(scratch) as made:
        yield made


@pytest.fixture
def fresh(folder, git, environ):
    """Makes a new world each time, from one that was made once."""
    template = make_repo(folder / "template", git)
    remote = folder / "template.git"
    git(folder, "init", "-q", "--bare", "-b", "main", str(remote))

    def make(staged):
        for source, target in ((template, folder / "repo"), (remote, folder / "remote.git")):
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target, symlinks=True)
        if staged:
            git(folder / "repo", "add", ".")
        return World(folder / "repo", folder / "remote.git", git, environ)

    return make


def points(calls):
    """Before each call; and for those that write, also behind the back of the caller and in the middle."""
    for number, call in enumerate(calls, 1):
        yield number, "before", 0.0
        if call in WRITING:
            yield number, "orphan", 0.0
            yield number, "after", 0.0
            yield number, "middle", random.Random(number).choice(PAUSES)


def recover(effect, world, count):
    """As a person and the engine would: a lock that a killed git left is removed, and the act is done again."""
    try:
        effect.act(KEY)
    except EffectError as error:
        locks = [path for path in world.repo.joinpath(".git").rglob("*.lock") if str(path) in str(error)]
        locks += list(world.remote.rglob("*.lock"))
        assert locks, error
        for lock in locks:
            assert lock.name in effect.probe(KEY).evidence or world.remote in lock.parents
            lock.unlink()
        effect.act(KEY)
    assert count(world) == 1


def check_index(world, before, committed, where):
    """The user's index is as it was, or, once the probe has seen the commit, as the commit has it."""
    assert world.git(world.repo, "status", "--porcelain") == "" if committed else True, where
    assert committed or world.git(world.repo, "ls-files", "--stage") == before, where


@pytest.mark.parametrize("name", EFFECTS)
def test_killed_at_every_call_the_probe_says_what_plain_git_sees(name, fresh, folder, tries, record_property):
    make, count = EFFECTS[name]
    staged = name == "commit of the index"
    front = Front(folder / "front")
    world = fresh(staged)
    unharmed = make(world, {**world.environ, **front.strike(0, "never")})
    assert in_child(lambda: unharmed.act(KEY)) == 0 and count(world) == 1
    calls, tried = front.called(), 0
    for number, how, pause in tries.part(points(calls), 6):
        world = fresh(staged)
        index = world.git(world.repo, "ls-files", "--stage")
        effect = make(world, world.environ)
        doomed = make(world, {**world.environ, **front.strike(number, how, pause)})
        status = in_child(lambda act=doomed.act: act(KEY))
        assert status == 9, (number, how, status)
        answer = effect.probe(KEY)
        if how == "orphan":
            front.wait_for_orphan()
        where = (name, number, calls[number - 1], how, pause, answer)
        is_push = calls[number - 1] == "push" and how in ("orphan", "middle")  # it goes on where no lock reaches
        if not is_push or answer.settled_as == "done":
            assert answer.settled_as == ("done" if count(world) else "not_done"), where
        assert count(world) in (0, 1), where
        assert not (world.repo / ".git" / "index.lock").exists(), where
        if how != "orphan":
            check_index(world, index, name.startswith("commit") and answer.settled_as == "done", where)
        recover(effect, world, count)
        assert effect.probe(KEY).settled_as == "done", where
        assert world.git(world.repo, "fsck", "--strict", "--no-dangling") == "", where
        tried += 1
    record_property("crash", (f"git {name}: kill at git calls", tried, {"whole": tried, "refused": 0}, 0))
    assert tried > (len(calls) if tries.whole else 3)


@pytest.mark.skipif(not available(), reason=available().why)
def test_killed_at_every_call_of_our_own_the_probe_says_what_plain_git_sees(tries, record_property):
    report = kill_everywhere(GitWork(), limit=tries.limit(12))
    record_property("crash", ("git: kill at our own calls", report.points, report.counts, len(report.violations)))
    assert report.violations == [], table([report])
    assert report.points > (20 if tries.whole else 3)
