"""Threads of one run: whatever one of them begins while another is writing, nothing of the log is read half way."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import holdfast
from holdfast.core import stops
from holdfast.core.errors import UsageError

BESIDE = {
    "a known step": lambda run: run.step("known", int),
    "a known step with tries": lambda run: run.step("known", int, retry=3),
    "a new step": lambda run: run.step("new", int),
    "a new step with tries": lambda run: run.step("new", int, retry=3),
    "an effect": lambda run: run.effect("mail", int, policy="idempotent"),
    "a cost": lambda run: run.spend(tokens=1),
    "a note": lambda run: run.note("half way"),
    "a sleep": lambda run: run.sleep(0.001, name="rest"),
    "a checkpoint": lambda run: run.checkpoint("here") and None,
}


@pytest.mark.parametrize("name", BESIDE)
def test_what_begins_while_another_thread_writes_waits_for_it(tmp_path, monkeypatch, name):
    with holdfast.open_store(str(tmp_path / "holdfast.db")) as store:
        with pytest.raises(KeyError), holdfast.run("m", store=store, run_id="run-1") as run:
            run.step("known", int)
            raise KeyError
        append, slow = store.append, threading.Event()

        def in_no_hurry(*given):
            if not slow.is_set():
                slow.set()
                threading.Event().wait(0.1)  # the other one begins
            return append(*given)

        with holdfast.run("m", store=store, run_id="run-1") as run, ThreadPoolExecutor(2) as pool:
            monkeypatch.setattr(store, "append", in_no_hurry)
            writing = pool.submit(run.step, "slow", int)
            assert slow.wait(10)
            beside = pool.submit(BESIDE[name], run)
            assert (writing.result(10), beside.result(10)) in {(0, 0), (0, None)}
        assert run.state.status == "finished"


def test_a_run_of_an_event_loop_is_refused_in_that_of_another_thread(tmp_path):
    """Two loops that wait for each other's futures wait for ever."""

    async def body():
        async with holdfast.arun("m", store=str(tmp_path / "holdfast.db"), run_id="run-1") as run:
            elsewhere = asyncio.to_thread(lambda: asyncio.run(run.step("a", int)))
            with pytest.raises(UsageError, match="another event loop"):
                await asyncio.wait_for(elsewhere, 10)
            return await run.step("b", str, 1), run.state.status

    assert asyncio.run(body()) == ("1", "running")


STOPS = """
import asyncio, sys
import holdfast

async def main():
    async with holdfast.arun("m", store=sys.argv[1], run_id="run-1") as run:
        both = [asyncio.create_task(run.ask("Well?")), asyncio.create_task(asyncio.sleep(60))]
        await (asyncio.gather(*both) if sys.argv[2] == "gather" else asyncio.wait(both))

asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["gather", "wait"])
def test_a_stop_in_a_task_is_told_in_one_line(tmp_path, how):
    words = [sys.executable, "-c", STOPS, str(tmp_path / "holdfast.db"), how]
    ended = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert ended.returncode == stops.exit_code("awaiting_answer")
    assert ended.stderr.startswith("holdfast: Run run-1 stopped: awaiting_answer.") and ended.stderr.count("\n") == 1


def test_what_else_a_loop_has_to_report_is_reported_after_a_stop(tmp_path):
    reported = []

    async def body():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: reported.append(context["message"]))
        for number in range(3):
            with pytest.raises(holdfast.Stopped):
                async with holdfast.arun("m", store=str(tmp_path / "holdfast.db"), run_id=f"run-{number}") as run:
                    await run.ask("Well?")
        loop.call_exception_handler({"message": "a stop", "exception": holdfast.Stopped("r", "x")})
        loop.call_exception_handler({"message": "an error", "exception": ValueError()})
        return loop.get_exception_handler().args

    (others,) = asyncio.run(body())
    assert reported == ["an error"] and not hasattr(others, "func")
