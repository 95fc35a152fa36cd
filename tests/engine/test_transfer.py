"""A run leaves one store and arrives in another unchanged, or the file is refused with its place and nothing is written."""

from __future__ import annotations

import base64
import errno
import hashlib
import io
import itertools
import json
import os
import socket
import stat
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core import errors, exchange, stops
from holdfast.core.events import (
    CheckpointComplete,
    EffectFinished,
    EffectStarted,
    Event,
    Extension,
    NoteRecorded,
    RunFinished,
    RunStarted,
    RunStopped,
    StepFinished,
    StepStarted,
)
from holdfast.core.state import projection, snapshot
from holdfast.core.values import Owner, Record
from holdfast.core.wire import GENESIS, chain_hash
from holdfast.engine import transfer
from holdfast.engine.log import RunLog, World, read_head, verify_run
from holdfast.ports import Store
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore

RUN = "run-1"
BIG = b"a line of a log that repeats itself\n" * 200
Line = dict[str, Any]
Edit = Callable[[list[Line]], object]


@pytest.fixture(params=["memory", "sqlite"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    opened: list[Any] = []

    def make() -> Any:
        folder = tmp_path / f"store-{len(opened)}"
        opened.append(
            MemoryStore() if request.param == "memory" else SqliteStore(folder / "holdfast.db", boot_id="boot")
        )
        return opened[-1]

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(tmp_path / "here" / "holdfast.db") as store:
        yield store


def a_world(name: str = "a") -> World:
    count = itertools.count(1)
    prefix = hashlib.sha256(name.encode()).hexdigest()[:20]
    times = itertools.count(1)
    return World(
        lambda: f"2026-01-02T03:04:{next(times) % 60:02d}.000001Z",
        lambda: f"{prefix}{next(count):012x}",
        Owner("host", "boot", 1, "1"),
    )


def begin(store: Store) -> tuple[Event, ...]:
    artifact = store.put_artifact(BIG)
    small = store.put_artifact(b"small")
    return (
        RunStarted(mission_id="mission", title="Größe & naïveté", plan=("a", "b")),
        StepStarted(step_id="a"),
        EffectStarted(effect_key="k", step_id="a"),
        EffectFinished(effect_key="k", receipt={"id": 9007199254740991, "ratio": 0.1}),
        StepFinished(step_id="a", output=[1, "two", None, {"x": True}], artifact=artifact),
        Extension(kind="x_remark", data={"artifact": small, "anything": [1.5]}, tagged=7),
        CheckpointComplete(checkpoint_id="c1", cursor="b", sidecar_written=True),
    )


def a_run(store: Store, run_id: str = RUN, world: World | None = None) -> None:
    with RunLog(store, run_id, world or a_world(run_id)) as log:
        first, *rest = begin(store)
        log.record(first)
        log.record(*rest[:2])
        for event in rest[2:]:
            log.record(event)


def exported(store: Store, run_id: str = RUN) -> bytes:
    out = io.BytesIO()
    transfer.export_run(store, run_id, out)
    return out.getvalue()


def take_in(store: Store, data: bytes, tmp_path: Path, **options: Any) -> transfer.Imported:
    path = tmp_path / "run.jsonl"
    path.write_bytes(data)
    with transfer.open_source(str(path)) as file:
        return transfer.import_run(store, file, str(path), a_world("importer"), **options)


def parsed(data: bytes) -> list[Line]:
    return [json.loads(line) for line in data.splitlines()]


def joined(lines: list[Line]) -> bytes:
    return b"".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n" for line in lines)


def resealed(lines: list[Line], start: int = 1) -> list[Line]:
    """What somebody can do who knows the format: change an event and compute every hash anew."""
    header, end = lines[0], lines[-1]
    events = [line for line in lines if "seq" in line]
    head = GENESIS
    for line in events:
        body = json.dumps(line["body"], separators=(",", ":"), ensure_ascii=False)
        data = body.encode(errors="surrogatepass")
        head = chain_hash(
            head, header["run_id"], line["seq"], line["kind"], line["version"], line["at"], line["op"], data
        )
        line["hash"] = head.hex()
    header["head"] = end["head"] = head.hex()
    header["events"] = end["events"] = len(events)
    return lines


def every_byte(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.endswith("-shm"))
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


# --- there and back


def test_an_imported_run_has_the_same_state_head_and_records(make_store, tmp_path):
    here, there = make_store(), make_store()
    a_run(here)
    found = take_in(there, exported(here), tmp_path)
    assert found == transfer.Imported(RUN, "new", 7, 7, 2)
    assert snapshot(read_head(there, RUN)[0]) == snapshot(read_head(here, RUN)[0])
    assert list(there.read(RUN)) == list(here.read(RUN))
    assert there.head(RUN).hash == here.head(RUN).hash
    assert there.head(RUN).projection == here.head(RUN).projection
    assert verify_run(there, RUN).findings == ()
    assert transfer.check_artifacts(there, RUN) == ()


def test_a_run_exported_again_after_import_is_the_same_file_byte_for_byte(make_store, tmp_path):
    here, there = make_store(), make_store()
    a_run(here)
    data = exported(here)
    take_in(there, data, tmp_path)
    assert exported(there) == data == exported(here)


def test_artifacts_travel_with_the_run(make_store, tmp_path):
    here, there = make_store(), make_store()
    a_run(here)
    data = exported(here)
    take_in(there, data, tmp_path)
    encodings = {line["encoding"] for line in parsed(data) if "artifact" in line}
    assert encodings == {"zstd", "plain"}
    assert there.get_artifact(hashlib.sha256(BIG).hexdigest()) == BIG
    assert there.get_artifact(hashlib.sha256(b"small").hexdigest()) == b"small"


def test_artifacts_that_receipts_and_notes_name_travel_too(make_store, tmp_path):
    here, there = make_store(), make_store()
    a_run(here)
    report, output, nowhere = here.put_artifact(b"report"), here.put_artifact(b"output"), "ab" * 32
    with RunLog(here, RUN, a_world("later")) as log:
        log.record(EffectStarted(effect_key="l", step_id="b"))
        log.record(
            EffectFinished(effect_key="l", receipt={"report": report, "tries": [{"output": output}], "tree": nowhere})
        )
        log.record(NoteRecorded(text=f"its output is artifact {here.put_artifact(b'words')}; {nowhere}f"))
    take_in(there, exported(here), tmp_path)
    kept = (report, output, hashlib.sha256(b"words").hexdigest())
    assert [there.get_artifact(digest) for digest in kept] == [b"report", b"output", b"words"]
    assert exported(there) == exported(here)


def test_hashes_of_what_steps_were_given_are_not_looked_up_as_artifacts(make_store, monkeypatch):
    here = make_store()
    kept, hashes = here.put_artifact(b"kept"), [f"{number:064x}" for number in range(6)]
    with RunLog(here, RUN, a_world("later")) as log:
        log.record(
            RunStarted(mission_id="m"),
            StepStarted(step_id="s", input_hash=hashes[0], code_hash=hashes[1]),
            StepFinished(step_id="s"),
            EffectStarted(effect_key="k", step_id="b", arguments_hash=hashes[2], code_hash=hashes[3]),
            StepFinished(step_id="t", output={"input_hash": kept}, input_hash=kept, code_hash=hashes[4]),
            NoteRecorded(text=hashes[5]),
        )
    looked_up: list[str] = []
    get_artifact = here.get_artifact
    monkeypatch.setattr(here, "get_artifact", lambda digest: looked_up.append(digest) or get_artifact(digest))
    data = exported(here)
    assert looked_up == [kept, hashes[5]]
    assert [line["artifact"] for line in parsed(data) if "artifact" in line] == [kept]


def test_an_imported_run_can_go_on(make_store, tmp_path):
    here, there = make_store(), make_store()
    a_run(here)
    take_in(there, exported(here), tmp_path)
    with RunLog(there, RUN, a_world("later")) as log:
        state = log.record(RunFinished())
    assert (state.seq, state.status) == (8, "finished")


def test_the_file_is_readable_without_the_product(make_store):
    store = make_store()
    a_run(store)
    header, *middle, end = parsed(exported(store))
    assert header == {"holdfast_export": 1, "run_id": RUN, "events": 7, "head": end["head"]}
    assert [line["seq"] for line in middle[:7]] == [1, 2, 3, 4, 5, 6, 7]
    assert middle[0]["body"]["title"] == "Größe & naïveté"
    assert end == {"end": True, "events": 7, "artifacts": 2, "head": middle[6]["hash"]}


def test_an_event_that_a_newer_holdfast_wrote_can_still_be_exported():
    store = MemoryStore()
    world = a_world()
    with RunLog(store, RUN, world) as log:
        state = log.record(RunStarted(mission_id="m"))
        (last,) = store.read(RUN)
        body = b'{"artifact":"' + store.put_artifact(b"new").encode() + b'"}'
        record = Record(RUN, 2, "future_happened", 3, world.now(), body, b"", world.new_op())
        sealed = chain_hash(last.hash, RUN, 2, record.kind, 3, record.at, record.op, body)
        store.append(log.lease, [record._replace(hash=sealed)], projection(state))
    lines = parsed(exported(store))
    assert lines[2]["kind"] == "future_happened"
    assert lines[3]["size"] == 3


def test_export_reads_only(sqlite, tmp_path):
    a_run(sqlite)
    before = every_byte(tmp_path)
    exported(sqlite)
    assert every_byte(tmp_path) == before


def test_export_of_an_unknown_run_is_not_found(make_store):
    with pytest.raises(errors.NotFound):
        exported(make_store())


def test_export_refuses_a_log_whose_artifact_is_gone():
    store = MemoryStore()
    a_run(store)
    store._artifacts.clear()
    with pytest.raises(errors.NotFound, match="artifact"):
        exported(store)


def test_export_refuses_a_log_whose_chain_is_broken():
    store = MemoryStore()
    a_run(store)
    records = store._runs[RUN].records
    records[3] = records[3]._replace(body=b'{"effect_key":"k"}')
    with pytest.raises(errors.ChainBroken, match="Event 4"):
        exported(store)


# --- the exported file


def test_the_file_appears_whole_private_and_alone(make_store, tmp_path):
    store = make_store()
    a_run(store)
    path = tmp_path / "out" / "run.jsonl"
    path.parent.mkdir()
    done = transfer.export_file(store, RUN, str(path))
    assert (done.events, done.artifacts) == (7, 2)
    assert path.read_bytes() == exported(store)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["run.jsonl"]


def test_a_file_that_is_there_is_kept_unless_forced(make_store, tmp_path):
    store = make_store()
    a_run(store)
    path = tmp_path / "kept"
    path.write_text("precious")
    with pytest.raises(errors.BadFile, match="already"):
        transfer.export_file(store, RUN, str(path))
    assert path.read_text() == "precious"
    transfer.export_file(store, RUN, str(path), force=True)
    assert path.read_bytes() == exported(store)


def test_a_file_that_comes_up_during_the_export_is_kept(make_store, tmp_path):
    store = make_store()
    a_run(store)
    path = tmp_path / "late"
    with pytest.raises(errors.BadFile, match="already"):
        transfer.export_file(store, RUN, str(path), tick=lambda seq: path.write_text("precious") and None)
    assert path.read_text() == "precious"


@pytest.mark.parametrize("force", [False, True])
def test_what_is_no_file_is_never_replaced(make_store, tmp_path, force):
    store = make_store()
    a_run(store)
    pipe, folder, door = tmp_path / "pipe", tmp_path / "folder", tmp_path / "door"
    to_pipe, to_folder = tmp_path / "to-pipe", tmp_path / "to-folder"  # /dev/stdout is such a link
    os.mkfifo(pipe)
    folder.mkdir()
    to_pipe.symlink_to(pipe)
    to_folder.symlink_to(folder)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(door))
        for path in (pipe, folder, door, to_pipe, to_folder):
            before = path.stat()
            with pytest.raises(errors.BadFile, match="not a regular file") as refused:
                transfer.export_file(store, RUN, str(path), force=force)
            assert "--force" not in refused.value.advice
            assert path.stat().st_ino == before.st_ino
    assert not list(tmp_path.glob(".*new-*"))


def test_a_file_that_is_not_there_is_not_found(tmp_path):
    with (
        pytest.raises(errors.NotFound, match=r"no file .*nowhere") as refused,
        transfer.open_source(str(tmp_path / "nowhere")),
    ):
        pytest.fail("opened")
    assert "holdfast export" in refused.value.advice


@pytest.mark.parametrize(
    ("line", "field", "named"), [(0, "head", "hash of the head"), (1, "hash", "hash of the event")]
)
def test_what_is_no_hash_is_called_what_it_stands_for(make_store, tmp_path, line, field, named):
    store = make_store()
    a_run(store)
    lines = parsed(exported(store))
    lines[line][field] = "0" * 63
    with pytest.raises(errors.HoldfastError, match=named) as refused:
        take_in(make_store(), joined(lines), tmp_path)
    assert f"line {line + 1}" in str(refused.value)


def test_where_a_file_has_only_one_name_an_export_is_as_careful(make_store, tmp_path, monkeypatch):
    def no_link(source, target):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    store = make_store()
    a_run(store)
    monkeypatch.setattr(os, "link", no_link)
    path, late = tmp_path / "run.jsonl", tmp_path / "late"
    transfer.export_file(store, RUN, str(path))
    assert path.read_bytes() == exported(store)
    with pytest.raises(errors.BadFile, match="already"):
        transfer.export_file(store, RUN, str(late), tick=lambda seq: late.write_text("precious") and None)
    assert late.read_text() == "precious"
    assert not list(tmp_path.glob(".*new-*"))


def test_force_replaces_a_link_and_never_what_it_points_to(make_store, tmp_path):
    store = make_store()
    a_run(store)
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("precious")
    link.symlink_to(target)
    transfer.export_file(store, RUN, str(link), force=True)
    assert target.read_text() == "precious"
    assert not link.is_symlink()


def test_an_export_that_fails_leaves_no_file(tmp_path):
    store = MemoryStore()
    a_run(store)
    store._artifacts.clear()
    folder = tmp_path / "empty"
    folder.mkdir()
    with pytest.raises(errors.NotFound):
        transfer.export_file(store, RUN, str(folder / "run.jsonl"))
    assert os.listdir(folder) == []


@pytest.mark.parametrize("name", ["missing/run.jsonl", "file/run.jsonl", "x" * 300])
def test_a_place_that_cannot_be_written_is_named(tmp_path, name):
    store = MemoryStore()
    a_run(store)
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.HoldfastError, match=name[:20]) as caught:
        transfer.export_file(store, RUN, str(tmp_path / name))
    assert stops.is_known(caught.value.reason)


# --- a store that already has the run


def test_the_same_run_again_writes_nothing(sqlite, tmp_path):
    a_run(sqlite)
    data = exported(sqlite)
    before = every_byte(tmp_path / "here")
    assert take_in(sqlite, data, tmp_path) == transfer.Imported(RUN, "identical", 7, 0, 0)
    assert every_byte(tmp_path / "here") == before


def test_an_older_export_of_a_run_that_went_on_writes_nothing(make_store, tmp_path):
    store = make_store()
    a_run(store)
    data = exported(store)
    with RunLog(store, RUN, a_world("later")) as log:
        log.record(RunStopped(reason="cancelled"))
    assert take_in(store, data, tmp_path).outcome == "older"
    assert store.head(RUN).seq == 8


def test_a_newer_export_appends_the_rest(make_store, tmp_path):
    here, there = make_store(), make_store()
    a_run(here)
    take_in(there, exported(here), tmp_path)
    with RunLog(here, RUN, a_world("later")) as log:
        log.record(RunStopped(reason="cancelled"), NoteRecorded(text="why"))
    appended: list[int] = []
    found = take_in(there, exported(here), tmp_path, tick=appended.append)
    assert found == transfer.Imported(RUN, "extended", 9, 2, 0)
    assert appended == [9]
    assert list(there.read(RUN)) == list(here.read(RUN))


def test_an_interrupted_import_leaves_nothing_and_can_be_repeated(make_store, tmp_path, monkeypatch):
    here, there = make_store(), make_store()
    a_run(here)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(there, "append", interrupt)
        with pytest.raises(KeyboardInterrupt):
            take_in(there, exported(here), tmp_path)
    assert there.head(RUN) is None
    assert take_in(there, exported(here), tmp_path).appended == 7
    assert list(there.read(RUN)) == list(here.read(RUN))


def test_a_log_that_differs_is_refused_at_the_first_differing_event(make_store, tmp_path):
    here, there = make_store(), make_store()
    for store, name in ((here, "one"), (there, "other")):
        with RunLog(store, RUN, a_world("same")) as log:
            log.record(RunStarted(mission_id="m"))
            log.record(StepStarted(step_id="a"))
        with RunLog(store, RUN, a_world(name)) as log:
            log.record(NoteRecorded(text=name))
    before = list(there.read(RUN))
    with pytest.raises(errors.BadFile, match=r"event 3 is not event 3 of run run-1") as caught:
        take_in(there, exported(here), tmp_path)
    assert caught.value.line == 4
    assert list(there.read(RUN)) == before


def test_a_damaged_stored_log_is_not_continued(tmp_path):
    here, there = MemoryStore(), MemoryStore()
    a_run(here)
    data = exported(here)
    take_in(there, data, tmp_path)
    records = there._runs[RUN].records
    records[2] = records[2]._replace(body=b"{}")
    with pytest.raises(errors.ChainBroken, match="Event 3"):
        take_in(there, data, tmp_path)


def test_artifacts_that_the_store_lost_come_back(tmp_path):
    here = MemoryStore()
    a_run(here)
    data = exported(here)
    here._artifacts.clear()
    assert take_in(here, data, tmp_path) == transfer.Imported(RUN, "identical", 7, 0, 2)
    assert exported(here) == data


def test_a_run_that_somebody_writes_is_not_imported_into(make_store, tmp_path):
    here, there = make_store(), make_store()
    a_run(here)
    there.take(RUN, a_world("someone").owner, 30)
    with pytest.raises(errors.LeaseHeld):
        take_in(there, exported(here), tmp_path)
    assert there.head(RUN) is None


def test_a_log_that_moved_between_the_look_and_the_write_is_refused_before_anything_is_written(tmp_path):
    here, there = MemoryStore(), MemoryStore()
    a_run(here)
    take = there.take

    def late(run_id: str, owner: Owner, ttl: float) -> Any:
        there.take = take
        with RunLog(there, RUN, a_world("rival")) as log:
            log.record(RunStarted(mission_id="m"))
        return take(run_id, owner, ttl)

    there.take = late
    with pytest.raises(errors.SequenceConflict):
        take_in(there, exported(here), tmp_path)
    (head,) = there.heads()
    assert (head.seq, head.held, there._artifacts) == (1, False, {})


# --- files that are not what they must be


def drop(number: int) -> Edit:
    return lambda lines: lines.pop(number)


def put(number: int, name: str, value: object) -> Edit:
    return lambda lines: lines[number].update({name: value})


def swap(one: int, other: int) -> Edit:
    def edit(lines: list[Line]) -> None:
        lines[one], lines[other] = lines[other], lines[one]

    return edit


def body(number: int, **fields: object) -> Edit:
    return lambda lines: lines[number]["body"].update(fields)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


EDITED: dict[str, tuple[Edit, type[errors.HoldfastError], str]] = {
    "no header": (drop(0), errors.BadFile, "line 1: this is not a Holdfast export"),
    "no end line": (drop(-1), errors.BadFile, "line 10: the file ends here without its end line"),
    "a gap": (drop(3), errors.SequenceGap, "line 4: .*should go on with event 3, but has 4"),
    "the first event is missing": (drop(1), errors.SequenceGap, "line 2: .*event 1, but has 2"),
    "the last event is missing": (drop(7), errors.BadFile, "line 8: the header names 7 events, but there are 6"),
    "shuffled events": (swap(2, 5), errors.SequenceGap, "line 3: .*event 2, but has 5"),
    "an event twice": (lambda lines: lines.insert(3, lines[2]), errors.SequenceGap, "line 4"),
    "another number": (put(3, "seq", 99), errors.SequenceGap, "line 4"),
    "a wrong hash": (put(3, "hash", "0" * 64), errors.ChainBroken, "line 4: Event 3"),
    "a hash that is none": (put(3, "hash", "zz"), errors.InvalidId, "line 4"),
    "an edited body": (body(1, title="other"), errors.ChainBroken, "line 2: Event 1"),
    "an edited time": (put(2, "at", "2026-01-02T03:04:05.000009Z"), errors.ChainBroken, "line 3"),
    "an edited kind": (put(3, "kind", "step_failed"), errors.ChainBroken, "line 4"),
    "an edited version": (put(7, "version", 1), errors.ChainBroken, "line 8"),
    "an edited operation": (put(2, "op", "f" * 32), errors.ChainBroken, "line 3"),
    "a swapped run id": (put(0, "run_id", "run-2"), errors.ChainBroken, "line 2: Event 1 of run run-2"),
    "another head": (put(0, "head", "0" * 64), errors.ChainBroken, "line 9"),
    "another end": (put(-1, "head", "0" * 64), errors.BadFile, "line 11: the end line does not agree"),
    "an end that is none": (put(-1, "end", False), errors.BadFile, "line 11"),
    "other counts": (put(-1, "artifacts", 3), errors.BadFile, "line 11"),
    "fewer events promised": (put(0, "events", 3), errors.BadFile, "line 5: more than the 3 events"),
    "no events promised": (put(0, "events", 0), errors.BadFile, "line 1"),
    "a second header": (lambda lines: lines.insert(4, lines[0]), errors.BadFile, "line 5: a second header"),
    "something after the end": (lambda lines: lines.append(lines[1]), errors.BadFile, "line 12: .*after the end"),
    "a newer format": (put(0, "holdfast_export", 2), errors.NewerSchema, "line 1: The export"),
    "a newer format of another shape": (
        lambda lines: lines[0].update({"holdfast_export": 2, "more": 1}), errors.NewerSchema, "line 1"),
    "format true": (put(0, "holdfast_export", True), errors.BadFile, "line 1"),
    "format zero": (put(0, "holdfast_export", 0), errors.BadFile, "line 1"),
    "an unknown field": (put(2, "more", 1), errors.BadFile, "line 3: missing or unknown fields: 'more'"),
    "a missing field": (lambda lines: lines[2].pop("at"), errors.BadFile, "line 3: missing or unknown fields: 'at'"),
    "an unknown line": (lambda lines: lines.insert(2, {"hello": 1}), errors.BadFile, "line 3: this is neither"),
    "text for a number": (put(2, "seq", "2"), errors.BadFile, "line 3: the field seq has the wrong type"),
    "true for a number": (put(1, "seq", True), errors.BadFile, "line 2: the field seq"),
    "a body that is a list": (put(2, "body", []), errors.BadFile, "line 3: the field body"),
    "a body as text": (put(2, "body", "{}"), errors.BadFile, "line 3: the field body"),
    "an operation that is none": (put(2, "op", "../x"), errors.InvalidId, "line 3"),
    "an artifact that is another one": (put(8, "data", base64.b64encode(b"x" * 20).decode()), errors.ArtifactDamaged, "line 9"),
    "an artifact that is not base64": (put(9, "data", "?"), errors.ArtifactDamaged, "line 10"),
    "an artifact in an unknown encoding": (put(9, "encoding", "gzip"), errors.ArtifactDamaged, "line 10"),
    "an artifact of another size": (put(8, "size", 1), errors.ArtifactDamaged, "line 9"),
    "an artifact of a negative size": (put(8, "size", -1), errors.TooLarge, "line 9"),
    "an artifact that promises too much": (put(8, "size", 2**40), errors.TooLarge, "line 9"),
    "an artifact with a path for a name": (put(8, "artifact", "../../etc/passwd"), errors.InvalidId, "line 9"),
    "an artifact nobody asked for": (put(8, "artifact", "0" * 64), errors.BadFile, "line 9: no event refers to"),
    "an artifact twice": (lambda lines: lines.insert(9, lines[8]), errors.BadFile, "line 10: .*comes twice"),
    "an artifact is missing": (drop(8), errors.BadFile, "line 10: event 5 refers to artifact"),
    "an event after the artifacts": (lambda lines: lines.insert(9, lines[7]), errors.BadFile, "line 10: an event after"),
}  # fmt: skip

RESEALED: dict[str, tuple[Edit, type[errors.HoldfastError], str]] = {
    "a newer event": (put(7, "version", 9), errors.NewerSchema, "line 8: Event 7"),
    "an unknown kind": (put(3, "kind", "future_happened"), errors.NewerSchema, "line 4: Event 3"),
    "an extension of a newer version is fine, an odd kind is not": (put(6, "kind", "x_\u202e"), errors.BadFile, "line 7"),
    "a kind with a line break": (put(6, "kind", "x_a\nb"), errors.BadFile, "line 7: the kind"),
    "version zero": (put(2, "version", 0), errors.BadFile, "line 3"),
    "a huge version": (put(6, "version", 2**31), errors.BadFile, "line 7"),
    "an event that cannot follow": (put(1, "kind", "step_started"), errors.BadRecord, "line 2"),
    "a step that is not open": (body(5, step_id="b"), errors.IllegalEvent, "line 6: .*step b is not open"),
    "an unknown field in a body": (body(2, more=1), errors.BadRecord, "line 3: Event 2"),
    "a field of the wrong type": (body(2, step_id=5), errors.BadRecord, "line 3: Event 2"),
    "a lone surrogate": (body(5, output="\ud800"), errors.NotCanonical, "line 6: .*body.output.*surrogate"),
    "a lone surrogate in a key": (body(5, output={"\udfff": 1}), errors.NotCanonical, "line 6: .*body.output"),
    "a whole number beyond 2^53": (body(5, output=[2**53 + 1]), errors.NotCanonical, r"line 6: .*body.output\[0\]"),
    "a very long number": (body(5, output=10**4000), errors.BadFile, "line 6: a number is beyond 2"),
    "NaN": (body(5, output=float("nan")), errors.BadFile, "line 6: NaN is not JSON"),
    "infinity": (body(5, output=float("-inf")), errors.BadFile, "line 6: -Infinity is not JSON"),
    "deep data": (body(5, output=nested(300)), errors.NotCanonical, "line 6: .*nested"),
    "very deep data": (body(5, output=nested(900)), errors.HoldfastError, "line 6: .*nested"),
    "a text of a million letters": (body(5, output="a" * 1_000_000), errors.TooLarge, "line 6: The body"),
    "a text of two million letters": (body(5, output="a" * 2_000_000), errors.TooLarge, "line 6: The line"),
    "an operation that comes again later": (
        lambda lines: lines[7].update(op=lines[1]["op"]), errors.OperationReused, "line 8"),
    "a run id that climbs": (put(0, "run_id", "../../etc/passwd"), errors.InvalidId, "line 1: The run id"),
    "a run id that is a path": (put(0, "run_id", "/etc/passwd"), errors.InvalidId, "line 1"),
    "a run id with an escape": (put(0, "run_id", "a\x1b[2J"), errors.InvalidId, "line 1"),
    "a run id with a NUL": (put(0, "run_id", "a\0b"), errors.InvalidId, "line 1"),
    "a run id that is empty": (put(0, "run_id", ""), errors.InvalidId, "line 1"),
    "a run id in capitals": (put(0, "run_id", "RUN-1"), errors.InvalidId, "line 1"),
    "a run id with a dotless i": (put(0, "run_id", "run-ı"), errors.InvalidId, "line 1"),
    "a run id that is too long": (put(0, "run_id", "a" * 65), errors.InvalidId, "line 1"),
    **{
        f"the time {at!r}": (put(2, "at", at), errors.BadFile, "line 3: the time")
        for at in (
            "2026-01-02T03:04:05.678901", "2026-01-02T03:04:05.678901+00:00", "2026-01-02T03:04:05.678901+02:00",
            "2026-01-02T03:04:05Z", "2026-01-02 03:04:05.678901Z", "2026-13-02T03:04:05.678901Z", "2026-02-30T03:04:05.678901Z",
            "2026-01-02T25:04:05.678901Z", "1767322800", "", "yesterday", "٢٠٢٦-01-02T03:04:05.678901Z",
            "2026-01-02T03:04:05.678901Z\n",
        )
    },
}  # fmt: skip


def refuse(store: SqliteStore, data: bytes, tmp_path: Path, kind: type[errors.HoldfastError], match: str) -> Any:
    a_run(store, "other")
    before = every_byte(tmp_path / "here")
    with pytest.raises(kind, match=match) as caught:
        take_in(store, data, tmp_path)
    assert every_byte(tmp_path / "here") == before
    assert store.head(RUN) is None
    assert "run.jsonl" in str(caught.value)
    assert stops.is_known(caught.value.reason)
    assert stops.exit_code(caught.value.reason) > 1
    return caught.value


@pytest.fixture(scope="module")
def good() -> bytes:
    store = MemoryStore()
    a_run(store)
    return exported(store)


@pytest.mark.parametrize("name", EDITED)
def test_an_edited_file_is_refused_with_its_place(sqlite, tmp_path, good, name):
    edit, kind, match = EDITED[name]
    lines = parsed(good)
    edit(lines)
    refuse(sqlite, joined(lines), tmp_path, kind, match)


@pytest.mark.parametrize("name", RESEALED)
def test_a_file_sealed_anew_is_refused_with_its_place(sqlite, tmp_path, good, name):
    edit, kind, match = RESEALED[name]
    lines = parsed(good)
    edit(lines)
    sealed = resealed(lines)
    data = b"".join(
        json.dumps(line, separators=(",", ":"), ensure_ascii="\\ud" in json.dumps(line)).encode() + b"\n"
        for line in sealed
    )
    refuse(sqlite, data, tmp_path, kind, match)


def test_sealing_anew_without_an_edit_is_accepted(sqlite, tmp_path, good):
    assert take_in(sqlite, joined(resealed(parsed(good))), tmp_path).outcome == "new"


RAW: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda data: b"", "run.jsonl: the file is empty"),
    "a torn last line": (lambda data: data[:-20], "line 11: the line is cut off"),
    "a torn line in the middle": (lambda data: data[: len(data) // 3], "line [0-9]+: the line is cut off"),
    "no line end at all": (lambda data: data[:5], "line 1: the line is cut off"),
    "a line that is not JSON": (lambda data: data.replace(b'{"seq":3', b'{seq:3'), "line 4: the line is not JSON"),
    "a line that is a list": (lambda data: data.replace(b'{"seq":3', b'[]\n{"seq":3'), "line 4: .*not an object"),
    "a line that is a number": (lambda data: b"7\n" + data, "line 1: .*not an object"),
    "a line that is null": (lambda data: b"null\n" + data, "line 1: .*not an object"),
    "a blank line": (lambda data: data.replace(b'{"seq":3', b'\n{"seq":3'), "line 4: the line is not JSON"),
    "two lines joined": (lambda data: data.replace(b'}\n{"seq":3', b'}{"seq":3'), "line 3: the line is not JSON"),
    "a key twice": (lambda data: data.replace(b'{"seq":3,', b'{"seq":9,"seq":3,'), "line 4: the key 'seq' comes twice"),
    "a key twice in a body": (
        lambda data: data.replace(b'{"effect_key":"k","step_id"', b'{"effect_key":"z","effect_key":"k","step_id"'),
        "line 4: the key 'effect_key' comes twice"),
    "not UTF-8": (lambda data: data.replace("ß".encode(), b"\xff"), "line 2: the line is not UTF-8"),
    "a byte order mark": (lambda data: b"\xef\xbb\xbf" + data, "line 1: the line is not JSON"),
    "UTF-16": (lambda data: data.decode().encode("utf-16"), "line 1"),
    "brackets without end": (lambda data: b"[" * 500_000 + b"\n", "line 1: the line is nested too deeply"),
    "objects without end": (lambda data: b'{"a":' * 200_000 + b"\n", "line 1: the line is nested too deeply"),
    "binary": (lambda data: bytes(range(256)) * 10, "line 1"),
    "zeros": (lambda data: bytes(4096), "line 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", RAW)
def test_a_file_that_is_no_export_is_refused_with_its_place(sqlite, tmp_path, good, name):
    change, match = RAW[name]
    assert change(good) != good
    refuse(sqlite, change(good), tmp_path, errors.BadFile, match)


def test_a_line_of_a_hundred_megabytes_is_refused_after_the_first(sqlite, tmp_path, good):
    path = tmp_path / "run.jsonl"
    with path.open("wb") as file:
        file.write(good.splitlines(keepends=True)[0] + b'{"seq":1,"kind":"')
        file.seek(100_000_000, os.SEEK_CUR)
        file.write(b'"}\n')
    with transfer.open_source(str(path)) as source:
        with pytest.raises(errors.TooLarge, match="line 2: The line"):
            transfer.import_run(sqlite, source, str(path), a_world())
        assert source.tell() < 3 * exchange.MAX_LINE


def test_a_decompression_bomb_is_not_inflated(sqlite, tmp_path, good):
    line = parsed(good)[8]
    bomb = parsed(exchange.artifact_line(line["artifact"], bytes(64 * 1024 * 1024)))[0]
    assert len(bomb["data"]) < 20_000
    lines = parsed(good)
    lines[8] = bomb | {"size": 100}
    tracemalloc.start()
    refuse(sqlite, joined(lines), tmp_path, errors.ArtifactDamaged, "line 9")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 * 1024 * 1024


def test_an_artifact_over_the_limit_is_not_exported(monkeypatch):
    store = MemoryStore()
    a_run(store)
    monkeypatch.setattr(exchange, "MAX_ARTIFACT", 100)
    with pytest.raises(errors.TooLarge, match="Artifact"):
        exported(store)


def test_an_artifact_longer_than_a_line_of_events_travels(make_store, tmp_path):
    here, there = make_store(), make_store()
    noise = b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(60_000))
    with RunLog(here, RUN, a_world()) as log:
        log.record(RunStarted(mission_id="m"), StepStarted(step_id="a"))
        log.record(StepFinished(step_id="a", artifact=here.put_artifact(noise)))
    data = exported(here)
    assert max(map(len, data.splitlines())) > exchange.MAX_LINE
    take_in(there, data, tmp_path)
    assert there.get_artifact(hashlib.sha256(noise).hexdigest()) == noise


def test_every_cut_of_a_file_is_refused(good, tmp_path):
    """All but the cut of the very last byte, a line break, after which nothing is missing."""
    store = MemoryStore()
    for length in range(0, len(good) - 1, 7):
        with pytest.raises(errors.HoldfastError):
            take_in(store, good[:length], tmp_path)
    assert list(store.heads()) == []


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_flipped_byte_is_accepted_as_something_else(data):
    """A flip is refused with a typed error, or (white space, say) changes nothing that is imported."""
    here, there = MemoryStore(), MemoryStore()
    a_run(here)
    whole = exported(here)
    place = data.draw(st.integers(0, len(whole) - 1))
    flipped = bytearray(whole)
    flipped[place] ^= 1 << data.draw(st.integers(0, 7))
    reader = exchange.Reader("file")
    try:
        records = [reader.take(line) for line in bytes(flipped).splitlines(keepends=True)]
        reader.finish()
    except errors.HoldfastError as error:
        assert stops.is_known(error.reason)
        assert "file" in str(error)
    else:
        assert [item for item in records if isinstance(item, Record)] == list(here.read(RUN))
    assert list(there.heads()) == []


# --- where the file is


def test_a_fifo_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(errors.BadFile, match="regular"), transfer.open_source(str(tmp_path / "pipe")):
        pass


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(errors.BadFile), transfer.open_source(str(tmp_path)):
        pass


def test_a_stream_is_imported_as_well(make_store, good):
    store = make_store()
    with transfer.open_stream(io.BytesIO(good)) as file:
        found = transfer.import_run(store, file, "standard input", a_world("importer"))
    assert found.outcome == "new"
    assert exported(store) == good


def test_a_file_that_changes_between_the_two_readings_is_refused(tmp_path, good):
    path = tmp_path / "run.jsonl"
    path.write_bytes(good)
    store = MemoryStore()
    with transfer.open_source(str(path)) as file:
        found = transfer.survey(store, file, str(path))
        path.write_bytes(good + b" ")
        with pytest.raises(errors.BadFile, match="changed"):
            transfer.import_run(store, file, str(path), a_world(), found)
    assert list(store.heads()) == []


def test_the_program_in_the_docs_proves_a_file_without_holdfast(tmp_path, good):
    page = (Path(__file__).parents[2] / "docs" / "reference" / "export-format.md").read_text()
    (tmp_path / "prove.py").write_text(page.split("```python\n")[1].split("```")[0])
    for data, code in ((good, 0), (good.replace(b'"cursor":"b"', b'"cursor":"c"'), 1)):
        (tmp_path / "run.jsonl").write_bytes(data)
        command = [sys.executable, "-I", "-S", str(tmp_path / "prove.py"), str(tmp_path / "run.jsonl")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
