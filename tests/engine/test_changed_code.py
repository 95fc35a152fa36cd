"""A change of a step's source is seen wherever it is, and only a change of its source."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

import holdfast
from holdfast.adapters.probes import FileWrite
from holdfast.engine import forms

WRAPS = """
import functools
def logged(f):
    @functools.wraps(f)
    def inner(*a, **k):
        return f(*a, **k)
    return inner
"""


@pytest.fixture
def loaded(tmp_path):
    counted = iter(range(100))

    def load(source):
        path = tmp_path / f"code_{next(counted)}.py"
        path.write_text(textwrap.dedent(source))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.work

    return load


@pytest.mark.parametrize(
    "source",
    [
        'def work():\n    return """One\nOLD\n"""\n',
        'def work(x):\n    return f"""One {x}\nOLD\n"""\n',
        'def work():\n    return (1,\n        2,\n        "OLD")\n',
        "def work(x):\n    return x.replace(\n        'a',\n        'OLD',\n    )\n",
        WRAPS + "@logged\ndef work(x):\n    return 'OLD'\n",
        WRAPS + "@logged\n@logged\n@functools.lru_cache\ndef work(x):\n    return 'OLD'\n",
        WRAPS + "def plain(x):\n    return 'OLD'\nwork = functools.partial(functools.lru_cache(plain), 1)\n",
        "class Work:\n    def __call__(self, x):\n        return 'OLD'\nwork = Work()\n",
    ],
)
def test_a_change_is_seen(loaded, source):
    before, same, after = (forms.code_hash(loaded(text)) for text in (source, source, source.replace("OLD", "NEW")))
    assert before is not None
    assert before == same != after


def test_the_hash_of_a_plain_function_is_that_of_its_lines(loaded):
    text = "def work(x):\n    y = x + 1\n    return y\n"
    kept = hashlib.sha256(text.encode()).hexdigest()[:32]
    assert forms.code_hash(loaded("import os\n\n" + text + "\n\nOTHER = 1\n")) == kept


def test_what_has_no_source_has_no_hash():
    assert [forms.code_hash(work) for work in (print, dict, functools.partial(len, "x"))] == [None] * 3


def test_a_function_that_wraps_itself_is_hashed_once(loaded):
    work = loaded("def work(x):\n    return x\n")
    work.__wrapped__ = work
    assert forms.code_hash(work) == hashlib.sha256(b"def work(x):\n    return x\n").hexdigest()[:32]


def test_an_object_without_a_hash_can_be_called():
    @dataclass
    class Adder:
        by: int

        def __call__(self, x: int) -> int:
            return x + self.by

    assert forms.shape_of(Adder(1)).code_hash is not None


EDITED = """
import sys
from pathlib import Path
import holdfast
import helpers
def work():
    return "OLD"
with holdfast.run("m", store="log.db", run_id="run-1") as run:
    for name in (__file__, helpers.__file__):
        Path(name).write_text(Path(name).read_text().replace("OLD", "NEW"))
    print(run.step("main", work), run.step("module", helpers.work.__wrapped__))
"""
HELPERS = "import holdfast\n@holdfast.step\ndef work():\n    return 'OLD'\n"


def test_a_file_that_is_edited_while_its_code_runs_is_hashed_as_what_runs(tmp_path):
    (tmp_path / "program.py").write_text(EDITED)
    (tmp_path / "helpers.py").write_text(HELPERS)
    ran = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, "OLD OLD\n"), ran.stderr
    with holdfast.open_store(str(tmp_path / "log.db"), read_only=True) as store:
        steps = holdfast.read_state(store, "run-1").steps
    main, module = 'def work():\n    return "OLD"\n', HELPERS.partition("\n")[2]
    for name, text in (("main", main), ("module", module)):
        assert steps[name].code_hash == hashlib.sha256(text.encode()).hexdigest()[:32], name


# --- effects


class Killed(BaseException):
    pass


@pytest.fixture
def live(tmp_path, monkeypatch):
    """One life of a run, which ends as by a kill unless it may finish; gives what it reported as drift."""
    monkeypatch.delenv("HOLDFAST_STRICTNESS", raising=False)

    def live(body, finishes=False, **options):
        place, told = str(tmp_path / "r.db"), []
        try:
            with holdfast.run("m", store=place, run_id="r", tell=told.append, **options) as run:
                body(run)
                if not finishes:
                    run._life.end = lambda *_: iter(())
                    raise Killed
        except Killed:
            pass
        return told

    return live


OLD, NEW = "def work(x):\n    DONE.append(x)\n    return 1\n", "def work(x):\n    DONE.append(x)\n    return 2\n"


@pytest.mark.parametrize("finishes", [False, True])
def test_an_effect_whose_act_changed_is_told_and_not_done_again(live, loaded, finishes):
    done, (old, new) = [], map(loaded, (OLD, NEW))
    old.__globals__["DONE"] = new.__globals__["DONE"] = done
    live(lambda run: run.effect("pay", old, 1, policy="idempotent"))
    given = []
    told = live(lambda run: given.append(run.effect("pay", new, 1, policy="idempotent")), finishes)
    assert told == ["pay: the source of effect pay changed"]
    assert (done, given) == ([1], [1])


def test_max_refuses_an_effect_whose_act_changed(live, loaded):
    done, (old, new) = [], map(loaded, (OLD, NEW))
    old.__globals__["DONE"] = new.__globals__["DONE"] = done
    live(lambda run: run.effect("pay", old, 1, policy="idempotent"), strictness="max")
    with pytest.raises(holdfast.Stopped, match="the source of effect pay changed") as stopped:
        live(lambda run: run.effect("pay", new, 1, policy="idempotent"), strictness="max")
    assert (stopped.value.reason, done) == ("code_changed", [1])


def test_an_effect_that_the_code_no_longer_asks_for_is_told_and_refused_by_max(live):
    live(lambda run: run.effect("pay", str, 1, policy="idempotent"))
    with pytest.raises(holdfast.Stopped, match="effect pay is done, and the code no longer asks for it"):
        live(lambda run: None, finishes=True, strictness="max")
    assert live(lambda run: None, finishes=True) == ["pay: effect pay is done, and the code no longer asks for it"]


def test_what_was_done_within_a_step_or_an_effect_that_is_done_is_not_missed(live):
    def outer(run):
        run.step("inner step", str, 1)
        run.effect("inner effect", str, 1, policy="idempotent")
        return 1

    def body(run):
        run.effect("effect", lambda: outer(run))
        run.step("step", lambda: run.effect("of a step", str, 1, policy="idempotent"))

    live(body, strictness="max")
    assert live(body, finishes=True, strictness="max") == []


def test_an_effect_that_was_given_up_or_never_ended_well_is_not_missed(live):
    def body(run):
        with contextlib.suppress(ZeroDivisionError):
            run.effect("failed", lambda: 1 / 0, policy="idempotent")

    live(body)
    assert live(lambda run: None, finishes=True, strictness="max") == []


def test_our_own_effects_may_change_with_us(live, tmp_path, monkeypatch):
    ready = FileWrite(str(tmp_path / "file"), b"x")
    monkeypatch.setattr(forms, "code_hash", lambda work: "a" * 32)
    live(lambda run: run.effect("write", ready), strictness="max")
    monkeypatch.setattr(forms, "code_hash", lambda work: "b" * 32)
    assert live(lambda run: run.effect("write", ready), finishes=True, strictness="max") == []


def test_a_step_that_began_before_another_did_not_run_within_it(live):
    gone_begun, kept_begun, gone_ended = (threading.Event() for _ in range(3))

    def gone():
        gone_begun.set()
        kept_begun.wait(30)

    def kept():
        kept_begun.set()
        gone_ended.wait(30)

    def overlapping(run):
        with ThreadPoolExecutor(2) as pool:
            one = pool.submit(run.step, "gone", gone)
            gone_begun.wait(30)
            run.note("between")
            other = pool.submit(run.step, "kept", kept)
            one.result()
            gone_ended.set()
            other.result()

    live(overlapping)
    told = live(lambda run: run.step("kept", kept), finishes=True)
    assert told == ["gone: step gone is in the log, and the code no longer runs it"]


def test_what_a_step_had_done_before_a_kill_is_not_missed_once_it_is_done(live):
    kills = [True, False]

    def body(run):
        def order():
            run.effect("pay", str, 1, policy="idempotent")
            run.effect("post", act)
            if kills.pop(0):
                raise Killed

        run.step("order", order)

    def act():
        return 1

    for _ in range(2):
        live(body, strictness="max")
    assert kills == []
    assert live(body, finishes=True, strictness="max") == []
