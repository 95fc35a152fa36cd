"""The shipped effects in real runs: killed right before and right after each act, resumed, and in the end done once each."""

from __future__ import annotations

import os
import signal
import threading

import pytest

import holdfast
from holdfast.adapters.probes import FileWrite, GitBranch, GitCommit, GitPush, GitTag, HttpRequest
from holdfast.app import write_run
from holdfast.engine.log import read_state
from holdfast.engine.runner import Effect, Runner
from tests.adapters.probes.serving import serving
from tests.adapters.probes.test_http import Shop

NAMES = ("file", "commit", "branch", "tag", "push", "order")


class Deadly:
    """An effect whose process dies right before or right after its act, if it is its turn."""

    def __init__(self, inner, dies=""):
        self.inner, self.dies, self.policy = inner, dies, inner.policy

    @property
    def arguments(self):
        return self.inner.arguments

    def act(self, key):
        if self.dies == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        receipt = self.inner.act(key)
        if self.dies == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return receipt

    def probe(self, key):
        return self.inner.probe(key)


@pytest.fixture
def shop():
    with serving(Shop()) as server:
        yield server


def work(store, repo, bare, shop, environ, turn=("", "")):
    """A run as an author would write it: what `prepare` finds is kept by a step, the effect is made from it."""
    with holdfast.run("shipped", store=store) as run:

        def do(name, prepare, make):
            found = run.step(f"plan {name}", prepare)
            return run.effect(name, Deadly(make(**found), turn[1] if turn[0] == name else ""))

        file = str(repo / "new.txt")
        do("file", lambda: FileWrite.prepare(file, b"ours").found, lambda **f: FileWrite(file, b"ours", **f))
        top, words = str(repo), "words of ours"
        made = do(
            "commit",
            lambda: GitCommit.prepare(top, words, environ=environ).found,
            lambda **f: GitCommit(top, words, **f, paths=["new.txt"], environ=environ),
        )
        at = {"commit": made["commit"], "environ": environ}
        do("branch", dict, lambda: GitBranch(top, "side", **at))
        do("tag", dict, lambda: GitTag(top, "v1", message="one", **at))
        do("push", dict, lambda: GitPush(top, str(bare), "refs/heads/main", **at))
        do("order", dict, lambda: HttpRequest("POST", f"{shop.url}/orders", b"{}"))
        return run.run_id


@pytest.mark.crash
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", NAMES)
def test_a_run_killed_around_any_effect_does_each_once(name, when, repo, bare, git, environ, tmp_path, shop):
    store = str(tmp_path / "store.db")
    pid = os.fork()
    if pid == 0:
        try:
            work(store, repo, bare, shop, environ, (name, when))
        finally:
            os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    run_id = work(store, repo, bare, shop, environ)
    assert (repo / "new.txt").read_bytes() == b"ours"
    assert git(repo, "log", "--format=%s", "main") == "words of ours\nthe first"
    assert git(bare, "rev-parse", "main") == git(repo, "rev-parse", "side") == git(repo, "rev-parse", "v1^{commit}")
    assert len(shop.orders) == 1 and len(shop.requests) <= 2
    with holdfast.open_store(store, read_only=True) as opened:
        state = read_state(opened, run_id)
        assert [effect.status for effect in state.effects.values()] == ["done"] * len(NAMES)


def test_a_plan_that_is_looked_up_anew_after_the_act_blocks_and_never_lies(repo, tmp_path):
    """Whoever does not keep what `prepare` found is stopped: the effect is no longer the one that was begun."""
    store, path = str(tmp_path / "store.db"), str(repo / "old.txt")

    def run(dies):
        with holdfast.run("careless", store=store) as live:
            live.effect("write", Deadly(FileWrite.prepare(path, b"ours"), dies))

    pid = os.fork()
    if pid == 0:
        try:
            run("after")
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    with pytest.raises(SystemExit):
        run("")
    assert (repo / "old.txt").read_bytes() == b"ours"


def test_they_are_effects_of_the_plain_runner_too(repo, bare, environ, tmp_path, git):
    commit = GitCommit.prepare(str(repo), "m", ["new.txt"], environ)
    write = FileWrite.prepare(repo / "made.txt", b"made")
    steps = {
        name: Effect(f"key-{name}", each.act, each.policy, each.probe, each.arguments)
        for name, each in {"write": write, "commit": commit}.items()
    }
    with holdfast.open_store(str(tmp_path / "s.db")) as store, write_run(store, "run-1") as log:
        state = Runner(log, steps).run("plain")
    assert state.status == "finished" and {effect.receipt is None for effect in state.effects.values()} == {False}


def test_many_threads_at_one_repository_each_get_their_turn(repo, environ, git):
    effects = [GitBranch.prepare(str(repo), f"b{number}", environ=environ) for number in range(8)]
    errors = []

    def act(effect):
        try:
            effect.act(f"key-{effect.name}")
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=act, args=[effect]) for effect in effects]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and len(git(repo, "branch", "--list", "b*").splitlines()) == 8
    assert all(effect.probe(f"key-{effect.name}").settled_as == "done" for effect in effects)
