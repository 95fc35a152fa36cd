"""`holdfast log` streams what was stored: at once, whole, and without understanding it."""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from holdfast import app
from holdfast.core import stops
from holdfast.core.events import NoteRecorded, RunFinished, RunStopped
from holdfast.core.wire import chain_hash
from holdfast.ports import Projection, Record
from holdfast.testing.postgres import available, shared_server

LONG = "many"


def append_raw(place, run_id: str, *bodies: tuple[str, int, bytes]) -> None:
    """Events as another, newer Holdfast would write them."""
    with closing(app.open_store(str(place))) as store:
        lease = store.take(run_id, app.world().owner, 30.0)
        head = store.head(run_id)
        assert head is not None
        seq, previous = head.seq, head.hash
        for kind, version, body in bodies:
            seq += 1
            op, at = f"{seq:032x}", "2026-01-02T03:04:05.678901Z"
            previous = chain_hash(previous, run_id, seq, kind, version, at, op, body)
            record = Record(run_id, seq, kind, version, at, body, previous, op)
            store.append(lease, [record], Projection("m", "", "running"))


def test_each_event_is_one_line(holdfast, make_run):
    make_run("run-1", steps=1)
    lines = holdfast("log", "run-1").out.splitlines()
    assert [line.split()[0] for line in lines] == ["1", "2", "3", "4"]
    assert "run_started" in lines[0] and "awaiting_answer" in lines[3]


def test_the_hashes_of_changed_inputs_are_short_and_json_has_them_whole(holdfast, make_run):
    make_run("run-1")
    body = b'{"drift":"inputs","now":"%b","subject":"the run","verdict":"go","was":"%b"}' % (b"2" * 64, b"1" * 16)
    append_raw(holdfast.place, "run-1", ("drift_found", 1, body))
    assert holdfast("log", "run-1").out.splitlines()[-1].endswith(f"go  {'1' * 16}  {'2' * 16}")
    assert json.loads(holdfast("log", "run-1", "--json").out.splitlines()[-1])["body"]["now"] == "2" * 64


def test_json_lines_carry_a_schema_version_and_the_whole_event(holdfast, make_run):
    make_run("run-1", steps=1)
    events = [json.loads(line) for line in holdfast("log", "run-1", "--json").out.splitlines()]
    assert [event["seq"] for event in events] == [1, 2, 3, 4]
    assert {event["schema_version"] for event in events} == {1}
    assert events[2]["body"] == {"step_id": "step-0", "output": 0}
    assert len(events[0]["hash"]) == 64


def test_after_limit_and_kind_narrow_it(holdfast, make_run):
    make_run("run-1", steps=3)
    assert [line.split()[0] for line in holdfast("log", "run-1", "--after", "2", "--limit", "2").out.splitlines()] == [
        "3",
        "4",
    ]
    lines = holdfast("log", "run-1", "--kind", "step_finished", "--limit", "2").out.splitlines()
    assert [line.split()[0] for line in lines] == ["3", "5"]


def test_unknown_newer_and_unreadable_events_are_shown_raw(holdfast, make_run):
    make_run("run-1", steps=0, ending="")
    deep = b"[" * 30_000 + b"]" * 30_000
    bodies = [
        ("step_levitated", 9, b'{"height":3}'),
        ("run_stopped", 99, b'{"why":"new"}'),
        ("x_nan", 1, b'{"n":NaN}'),
        ("x_long", 1, b'{"n":' + b"9" * 5000 + b"}"),
        ("x_deep", 1, b'{"n":' + deep + b"}"),
        ("x_lines", 1, b'{"text":"a\\nb\\u2028c"}'),
    ]
    append_raw(holdfast.place, "run-1", *bodies)
    text = holdfast("log", "run-1")
    assert (text.code, len(text.out.splitlines())) == (0, 7)
    assert '{"height":3}' in text.out and "NaN" in text.out
    lines = holdfast("log", "run-1", "--json").out.splitlines()
    events = [json.loads(line, parse_constant=lambda name: None) for line in lines]
    assert events[1]["body"] == {"height": 3}
    assert [("body" in event) for event in events] == [True, True, True, False, False, False, True]
    assert all("NaN" not in line or "body_text" in line for line in lines)


def bytes_read(process: subprocess.Popen[str]) -> int:
    """By a process, from all of its files, so far."""
    told = Path(f"/proc/{process.pid}/io").read_text()
    return int(next(line for line in told.splitlines() if line.startswith("rchar")).split()[1])


def test_a_long_log_begins_to_print_at_once_and_a_reader_may_leave(holdfast):
    with closing(app.open_store(str(holdfast.place))) as store:
        log = app.start_run(store, "mission", run_id=LONG)
        for _ in range(15):
            log.record(*(NoteRecorded(text="x" * 800) for _ in range(1000)))
        log.close()
    for options in ([], ["--json"], ["--follow"]):
        process = holdfast.start("log", LONG, *options)
        assert process.stdout is not None and process.stderr is not None
        assert "run_started" in process.stdout.readline()
        assert bytes_read(process) < holdfast.place.stat().st_size / 2  # the rest is read as its reader takes it
        process.stdout.close()
        with process.stderr:
            assert process.stderr.read() == ""
        assert process.wait(timeout=20) == 0


def test_following_shows_new_events_and_ends_with_the_run(holdfast):
    with closing(app.open_store(str(holdfast.place))) as store:
        log = app.start_run(store, "mission", run_id="run-1")
        process = holdfast.start("log", "run-1", "-f", "--json")
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["kind"] == "run_started"
        log.record(NoteRecorded(text="first"))
        assert json.loads(process.stdout.readline())["body"] == {"text": "first"}
        log.record(NoteRecorded(text="second"))
        log.record(RunFinished())
        assert [json.loads(line)["seq"] for line in process.stdout] == [3, 4]
        assert process.wait(timeout=20) == 0
        process.communicate()


@pytest.mark.parametrize(("reason", "ends"), [("cancelled", True), ("awaiting_answer", False)])
def test_following_ends_with_a_stop_only_if_the_run_never_goes_on(holdfast, make_run, reason, ends):
    make_run("run-1", ending="")
    app.record("run-1", RunStopped(reason=reason), place=str(holdfast.place))
    process = holdfast.start("log", "run-1", "-f")
    assert process.stdout is not None
    while "run_stopped" not in process.stdout.readline():
        pass
    if not ends:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=1)
        process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == (0 if ends else 130)


def test_following_a_store_at_rest_sees_a_writer_that_comes_later(holdfast, make_run):
    make_run("run-1", ending="")
    for end in ("-wal", "-shm"):
        settle(holdfast.place)
        assert not holdfast.place.with_name("holdfast.db" + end).exists()
    process = holdfast.start("log", "run-1", "-f", "--after", "5")
    app.record("run-1", NoteRecorded(text="late"), place=str(holdfast.place))
    assert process.stdout is not None and "late" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130


def settle(place) -> None:
    """Bring a store into one file, as a copy to another disk may have it."""
    if place.with_name("holdfast.db-wal").exists():
        connection = apsw.Connection(str(place))
        connection.execute("pragma wal_checkpoint(truncate)").fetchall()
        connection.close()
    for end in ("-wal", "-shm"):
        place.with_name("holdfast.db" + end).unlink(missing_ok=True)


# --- a log that is damaged

EVENT = 1 << 32  # the place of event 0 of the first run
DELETED = f"delete from events_1 where place = {EVENT + 4}"
EDITED = f"update events_1 set body = replace(body, '\"output\":1', '\"output\":9') where place = {EVENT + 5}"
GAP = "Run run-1 should go on with event 4, but has 5."
BROKEN = "Event 5 of run run-1 does not follow from the event before it."


def hurt(holdfast, make_run, *statements, steps=3) -> None:
    """A run of eight events, as somebody with a database tool leaves it."""
    make_run("run-1", steps=steps, ending="finished")
    settle(holdfast.place)
    connection = apsw.Connection(str(holdfast.place))
    for statement in statements:
        connection.execute(statement)
    connection.close()


def seqs(answer) -> list[str]:
    return [line.split()[0] for line in answer.out.splitlines()]


@pytest.mark.parametrize("options", [[], ["-f"]])
@pytest.mark.parametrize(("damage", "told", "left"), [(DELETED, GAP, "1235678"), (EDITED, BROKEN, "12345678")])
def test_damage_is_named_and_what_is_left_is_shown(holdfast, make_run, options, damage, told, left):
    hurt(holdfast, make_run, damage)
    answer = holdfast("log", "run-1", *options)
    assert (answer.code, "".join(seqs(answer))) == (stops.exit_code("log_damaged"), left)
    first, *_, advice = answer.err.splitlines()
    assert first == told and "holdfast verify" in advice


def test_damage_is_named_as_json_beside_json(holdfast, make_run):
    hurt(holdfast, make_run, DELETED, EDITED)
    answer = holdfast("log", "run-1", "--json")
    *events, last = map(json.loads, answer.out.splitlines())
    assert [event["seq"] for event in events] == [1, 2, 3, 5, 6, 7, 8]
    assert (last["error"]["message"], last["error"]["exit_code"]) == (GAP, answer.code)
    assert [json.loads(line)["moment"] for line in answer.err.splitlines()] == ["note", "error"]


def test_each_hurt_place_is_named_up_to_some(holdfast, make_run):
    hurt(holdfast, make_run, "update events_1 set at = replace(at, ':', '-')", steps=20)
    answer = holdfast("log", "run-1")
    assert len(seqs(answer)) == 42
    assert answer.err.count("does not follow") == 10 + 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--after", "3"], GAP),
        (["--after", "4"], ""),  # nothing is left to prove event 5 by
        (["--after", "5"], ""),
        (["--after", "6", "--limit", "1"], ""),
        (["--limit", "3"], ""),
        (["--kind", "run_finished"], GAP),
        (["--kind", "run_started", "--limit", "1"], ""),
        (["--after", "800"], ""),
    ],
)
def test_only_damage_in_the_range_is_named(holdfast, make_run, options, told):
    hurt(holdfast, make_run, DELETED, EDITED)
    answer = holdfast("log", "run-1", *options)
    assert (answer.code, answer.err.partition("\n")[0]) == (stops.exit_code("log_damaged") if told else 0, told)


def test_an_end_that_is_gone_is_named(holdfast, make_run):
    hurt(holdfast, make_run, f"delete from events_1 where place > {EVENT + 6}")
    holdfast.place.with_name("holdfast.db-witness").unlink()
    answer = holdfast("log", "run-1")
    assert (answer.code, len(seqs(answer))) == (stops.exit_code("tail_lost"), 6)
    assert "it was at event 8 and now ends at 6" in answer.err
    assert holdfast("log", "run-1", "--limit", "6").code == 0


def test_ctrl_c_ends_following_with_its_own_exit_code(holdfast, make_run):
    make_run("run-1", ending="")
    process = holdfast.start("log", "run-1", "--follow")
    assert process.stdout is not None and process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in err


@pytest.mark.postgres
@pytest.mark.skipif(available() is not None, reason=available() or "")
def test_damage_is_named_on_a_server_too(holdfast, make_run):
    server = shared_server()
    with server.database() as holdfast.place:
        make_run("run-1", steps=3)
        assert holdfast("log", "run-1", "--after", "2").code == 0
        server.execute("delete from holdfast.events where seq = 4", holdfast.place.rpartition("/")[2])
        answer = holdfast("log", "run-1", "--after", "2")
        assert (answer.code, seqs(answer)) == (stops.exit_code("log_damaged"), ["3", "5", "6", "7", "8"])
        assert GAP in answer.err
