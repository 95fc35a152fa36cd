"""A seeded fuzzer for every reader of foreign bytes. Anything but success or a typed refusal is a failure with a replay.

`python -m tests.attacks.fuzz TARGET SEED NUMBER` gives the traceback of one input.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import signal
import sys
import tempfile
import traceback
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import apsw

from holdfast import app, config
from holdfast.cli import log as log_verb
from holdfast.cli import main, overview
from holdfast.cli.output import escape, parse_body
from holdfast.cli.verbs import VERBS
from holdfast.core import events as e
from holdfast.core import ids, stops
from holdfast.core.canonical import canonical
from holdfast.core.errors import HoldfastError
from holdfast.core.exchange import event_line
from holdfast.core.redact import Redactor
from holdfast.core.state import RunState, evolve, fold, projection, read_snapshot, seal, snapshot, unseal
from holdfast.core.values import Owner, Record
from holdfast.core.wire import GENESIS, check_chain, decode
from holdfast.engine import transfer
from holdfast.engine.log import RunLog, World, read_head, verify_run
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.witness import sightings
from tests.attacks import mutate
from tests.core.test_redact import CANARIES

LIMIT = 20.0  # seconds that one input may take; far more than any needs
AT = "2026-01-02T03:04:05.678901Z"
DIGEST = "b" * 64
Attempt = Callable[[Random], None]


class Broken(AssertionError):
    """The input was accepted, and what came of it is wrong."""


class Hang(BaseException):
    """The input took too long. Not an Exception, so that no handler takes it for its own."""


class Target(NamedTuple):
    """What is fuzzed: how many inputs at scale 1, and how to get ready for them."""

    inputs: int
    begin: Callable[[Path], AbstractContextManager[Attempt]]


class Failure(NamedTuple):
    replay: str
    what: str

    def __str__(self) -> str:
        return f"{self.replay}  # {self.what}"


def chance_of(target: str, seed: int, number: int) -> Random:
    return Random(f"{target}:{seed}:{number}")


def fuzz(target: str, seed: int, numbers: range, folder: Path) -> tuple[dict[str, int], list[Failure]]:
    """Try these inputs; how many were accepted and refused, and one failure for each place in the code that failed."""
    counts = {"accepted": 0, "refused": 0}
    failures: dict[str, Failure] = {}
    with TARGETS[target].begin(folder) as attempt, alarmed():
        for number in numbers:
            problem = outcome(attempt, chance_of(target, seed, number))
            if isinstance(problem, str):
                counts[problem] += 1
            else:
                replay = f"python -m tests.attacks.fuzz {target} {seed} {number}"
                failures.setdefault(
                    where(problem), Failure(replay, f"{type(problem).__name__}: {problem!s:.200} at {where(problem)}")
                )
    return counts, list(failures.values())


def outcome(attempt: Attempt, chance: Random) -> str | BaseException:
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        attempt(chance)
    except HoldfastError as error:
        return refusal(error)
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        return problem
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return "accepted"


def refusal(error: HoldfastError) -> str | BaseException:
    """A refusal says so in one printable sentence, with a reason that has an exit code."""
    sentence = escape(error) + escape(error.advice)
    if not stops.is_known(error.reason) or stops.exit_code(error.reason) in (0, 1, stops.exit_code("internal_error")):
        return Broken(f"refused without a reason: {error.reason}: {sentence:.100}")
    return "refused" if sentence.isprintable() and len(str(error)) > 4 else Broken(f"no sentence: {sentence!r:.100}")


def where(problem: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(problem.__traceback__) if "/holdfast/" in frame.filename]
    return f"{frames[-1].filename.partition('/holdfast/')[2]}:{frames[-1].lineno}" if frames else str(problem)[:60]


@contextmanager
def alarmed() -> Iterator[None]:
    def ring(number: int, frame: object) -> None:
        raise Hang(f"more than {LIMIT} s")

    before = signal.signal(signal.SIGALRM, ring)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


def require(true: object, problem: str) -> None:
    if not true:
        raise Broken(problem)


# --- what is damaged


def a_world() -> World:
    count = itertools.count(1)
    return World(lambda: AT, lambda: f"{next(count):032x}", Owner("host", "boot", 7, "1"))


def the_events(artifact: str) -> tuple[e.Event, ...]:
    """One of every kind, in an order that may follow."""
    return (
        e.RunStarted(mission_id="m", title="a title", plan=("a", "b"), input_hash=DIGEST),
        e.StepStarted(step_id="a", phase="think", input_hash=DIGEST),
        e.EffectStarted(effect_key="mail", step_id="a", policy="keyed", arguments_hash=DIGEST),
        e.EffectFinished(effect_key="mail", receipt={"id": 7, "to": ["x", None, 1.5]}),
        e.StepFinished(step_id="a", output={"text": "é ☃", "n": [1, 2, {"deep": True}]}, artifact=artifact),
        e.StepStarted(step_id="b"),
        e.EffectStarted(effect_key="disk", step_id="b"),
        e.EffectSettled(effect_key="disk", settled_as="unknown", evidence="nobody knows"),
        e.EffectSettled(effect_key="disk", settled_as="not_done", by="person"),
        e.StepFailed(step_id="b", error="it did not work"),
        e.CheckpointComplete(checkpoint_id="c1", step_id="a", cursor="a", sidecar_written=True),
        e.NoteRecorded(text="a note", author="me"),
        e.Extension(kind="x_tool", data={"name": "t", "artifact": DIGEST, "n": 1}),
        e.RunStopped(reason="awaiting_answer", diagnosis="which?", evidence=("one", "two")),
        e.RunResumed(source="log", epoch=2, was="stopped"),
        e.RunFinished(),
    )


def a_store(store: Any, run_id: str = "run-1", events: int = 99) -> Any:
    """One run of every kind of event, and an artifact, in the store."""
    artifact = store.put_artifact(b"the bytes of an artifact, which say the same again and again. " * 20)
    with RunLog(store, run_id, a_world(), ttl=600.0) as log:
        log.record(*the_events(artifact)[:events])
    return store


def an_export(events: int = 99) -> list[bytes]:
    out = io.BytesIO()
    transfer.export_run(a_store(MemoryStore(), events=events), "run-1", out)
    return out.getvalue().splitlines(keepends=True)


# --- export files


@contextmanager
def exports(folder: Path) -> Iterator[Attempt]:
    seeds = [an_export(99), an_export(3)]
    with tempfile.TemporaryFile(dir=folder) as file:

        def attempt(chance: Random) -> None:
            content = b"".join(bad_export(chance.choice(seeds), chance))
            file.seek(0)
            file.truncate()
            file.write(content)
            file.flush()
            store = MemoryStore()
            try:
                done = transfer.import_run(store, file, "fuzzed.jsonl", a_world())
            except HoldfastError as error:
                require(not list(store.heads()), "a refused import wrote something")
                require("fuzzed.jsonl" in str(error), f"the refusal names no place: {error!s:.100}")
                raise
            require(verify_run(store, done.run_id).findings == (), "an accepted import does not verify")
            transfer.export_run(store, done.run_id, io.BytesIO())

        yield attempt


def bad_export(lines: list[bytes], chance: Random) -> list[bytes]:
    way = chance.random()
    if way < 0.25:
        return mutate.shuffled(lines, chance)
    if way < 0.45:
        return [mutate.damaged(b"".join(lines), chance)]
    at = chance.randrange(len(lines))
    wrong = mutate.misfit(json.loads(lines[at]), chance).encode("utf-8", "surrogatepass") + b"\n"
    changed = [*lines[:at], wrong, *lines[at + 1 :]]
    return mutate.resealed(changed) if way < 0.85 else changed


# --- records


@contextmanager
def records(folder: Path) -> Iterator[Attempt]:
    seeds = list(a_store(MemoryStore()).read("run-1"))
    before = [fold(decode(record) for record in seeds[:count]) for count in range(len(seeds))]
    kept = [snapshot(state) for state in before]
    kinds = [*e.KINDS, "x_tool", "x_", "from_the_future", ""]

    def attempt(chance: Random) -> None:
        at = chance.randrange(len(seeds))
        record = bad_record(seeds[at], kinds, chance)
        shown(record)
        previous = seeds[at - 1].hash if at else GENESIS
        if chance.random() < 0.3:
            check_chain(record, previous, at + 1)
            require(record == seeds[at], "the chain accepted an edited record")
        state = read_snapshot(kept[at])
        try:
            evolve(state, decode(record))
        except HoldfastError:
            require(snapshot(state) == kept[at], "a refused event changed the state")
            raise
        projection(state)
        read_snapshot(snapshot(state))

    yield attempt


def bad_record(record: Record, kinds: list[str], chance: Random) -> Record:
    way = chance.random()
    if way < 0.4:
        record = record._replace(body=mutate.damaged(record.body, chance))
    elif way < 0.9:
        body = mutate.misfit(json.loads(record.body), chance)
        record = record._replace(body=body.encode("utf-8", "surrogatepass"))
    if chance.random() < 0.2:
        record = record._replace(kind=chance.choice(kinds))
    if chance.random() < 0.1:
        record = record._replace(version=chance.choice((-(2**63), -1, 0, 1, 2, 3, 2**31, 2**63 - 1)))
    if chance.random() < 0.1:
        other = mutate.text(chance).encode("utf-8", "replace").decode()
        record = record._replace(kind=other) if chance.random() < 0.5 else record._replace(at=other)
    return record


def shown(record: Record) -> None:
    """What `log` and `show` print of a stored event, whatever it is: printable text, and JSON that can be read."""
    require(log_verb.text_line(record).isprintable(), "a line with control characters")
    require(json.loads(log_verb.json_line(record))["seq"] == record.seq, "a JSON line that says something else")
    if b"\n" not in record.body and parse_body(record.body) is not None:
        event_line(record)
        transfer.reference(record)


# --- snapshots


@contextmanager
def snapshots(folder: Path) -> Iterator[Attempt]:
    store = a_store(MemoryStore(), events=7)
    head = list(store.read("run-1"))[-1].hash
    whole = json.loads(snapshot(read_head(store, "run-1")[0]))
    more = the_events(DIGEST)[7:]
    follow: list[e.Event] = [
        *more,
        e.StepFinished(step_id="b"),
        e.StepFinished(step_id="a"),
        e.EffectFinished(effect_key="disk"),
        e.EffectFailed(effect_key="mail"),
        e.StepStarted(step_id="c"),
    ]

    def attempt(chance: Random) -> None:
        way = chance.random()
        plain = json.dumps(whole).encode()
        data = (
            mutate.damaged(plain, chance)
            if way < 0.4
            else mutate.misfit(whole, chance).encode("utf-8", "surrogatepass")
        )
        if way > 0.9:
            sealed = mutate.damaged(seal(read_snapshot(plain), head), chance)
            unseal(sealed, head)
        state = read_snapshot(data)
        use(state, follow, chance)
        trusted(state, head, chance.choice(follow))

    yield attempt


def use(state: RunState, follow: list[e.Event], chance: Random) -> None:
    """A state that was read from foreign bytes is then folded further, listed and shown."""
    projection(state)
    snapshot(state)
    for event in chance.sample(follow, 3):
        try:
            evolve(state, event)
        except HoldfastError as error:
            refusal(error)


def trusted(state: RunState, head: bytes, event: e.Event) -> None:
    """What a hook does: it goes on from the snapshot that somebody left in the store."""
    store = a_store(MemoryStore(), events=7)
    store.save_snapshot("run-1", 7, seal(state, head))
    with RunLog(store, "run-1", a_world()._replace(new_op=lambda: "f" * 32), trust_snapshot=True) as log:
        log.record(event)


# --- plain values and ids

STRANGE: tuple[Any, ...] = (b"x", bytearray(b"x"), {1, 2}, frozenset(), object(), 1j, ..., range(3), type, 10**5000)


def strange(chance: Random, depth: int = 0) -> Any:
    dice = chance.random()
    if dice < 0.5 or depth > 4:
        return mutate.value(chance) if chance.random() < 0.9 else chance.choice(STRANGE)
    if dice < 0.7:
        return [strange(chance, depth + 1) for _ in range(chance.randrange(5))]
    if dice < 0.8:
        return tuple(strange(chance, depth + 1) for _ in range(chance.randrange(3)))
    return {key(chance): strange(chance, depth + 1) for _ in range(chance.randrange(5))}


def key(chance: Random) -> Any:
    return mutate.text(chance) if chance.random() < 0.8 else chance.choice((*mutate.NUMBERS, b"x", (1, 2), 10**5000))


@contextmanager
def values(folder: Path) -> Iterator[Attempt]:
    def attempt(chance: Random) -> None:
        form = canonical(strange(chance))
        again = json.loads(form)
        require(canonical(again) == form, "the canonical form of the canonical form is another one")

    yield attempt


ID = re.compile(r"(?!.*\.\.)[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
HEX = re.compile(r"[0-9a-f]+", re.ASCII)


@contextmanager
def names(folder: Path) -> Iterator[Attempt]:
    seeds = ("run-1", "a.b_c-d", "0" * 64, "f" * 32, "x" * 64, "01890a5d-ac96-774b-bcce-b302099a8057")

    def attempt(chance: Random) -> None:
        given = chance.choice(seeds) if chance.random() < 0.5 else mutate.text(chance)
        damaged: Any = mutate.damaged(given.encode("utf-8", "surrogatepass"), chance).decode("utf-8", "replace")
        if chance.random() < 0.1:
            damaged = chance.choice((*mutate.NUMBERS, *STRANGE))
        check, grammar, length = chance.choice(
            ((ids.check_id, ID, None), (ids.check_op, HEX, 32), (ids.check_digest, HEX, 64))
        )
        accepted = check(damaged)
        require(grammar.fullmatch(accepted) and length in (None, len(accepted)), f"not an id: {accepted!r:.80}")

    yield attempt


# --- redaction

WORDS = (
    "password=",
    "token: ",
    '"api_key": "',
    "--secret ",
    "https://u:",
    "@h/",
    "Bearer ",
    "\n",
    "é",
    "日",
    "\\u0041",
    '"',
)


def a_text(chance: Random) -> str:
    """Secrets, words that announce them and hostile text, cut and joined."""
    parts = []
    for _ in range(chance.randrange(1, 7)):
        pick = chance.random()
        source = (
            chance.choice(SECRETS) if pick < 0.5 else chance.choice(WORDS) if pick < 0.8 else mutate.text(chance)[:300]
        )
        parts.append(source if chance.random() < 0.7 else source[chance.randrange(len(source) + 1) :])
    return "".join(parts)


SECRETS = [shape[0] for shape in CANARIES.values()]
REDACTOR = Redactor(['Tr0ub4dor/&3 "q" \\ + =é', "plain-value-77"])


@contextmanager
def redacted_text(folder: Path) -> Iterator[Attempt]:
    def attempt(chance: Random) -> None:
        clean = REDACTOR.text(a_text(chance))
        require(REDACTOR.text(clean) == clean, "redacting twice changes more")

    yield attempt


@contextmanager
def redacted_bodies(folder: Path) -> Iterator[Attempt]:
    def attempt(chance: Random) -> None:
        document = {a_text(chance)[:40]: a_text(chance), "list": [a_text(chance), mutate.value(chance)], "token": "x-9"}
        body = mutate.misfit(document, chance).encode("utf-8", "surrogatepass")
        if chance.random() < 0.5:
            body = mutate.damaged(body, chance)
        clean = REDACTOR.body(body)
        require(shape(body) is None or shape(body) == shape(clean), "the shape of the document changed")

    yield attempt


def shape(body: bytes) -> Any:
    """A JSON document with its strings taken out; None if it is none."""
    try:
        return outline(json.loads(body))
    except (ValueError, RecursionError):
        return None


def outline(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: outline(held) for name, held in value.items()}
    if isinstance(value, list):
        return [outline(held) for held in value]
    return "text" if isinstance(value, str) else repr(value)


@contextmanager
def redacted_streams(folder: Path) -> Iterator[Attempt]:
    def attempt(chance: Random) -> None:
        long = chance.choice((0, 0, 0, 3900, 8192, 9000))
        filler = chance.choice(("a", "é", "aB3", " x", "日\n"))
        text = (
            (filler * long)[:long]
            + a_text(chance)
            + (chance.choice(("aB3", "x ", "Z9_")) * long)[:long]
            + a_text(chance)
        )
        one, other = REDACTOR.stream(), REDACTOR.stream()
        whole = one.feed(text) + one.flush()
        cuts = sorted(chance.randrange(len(text) + 1) for _ in range(chance.randrange(6)))
        parts = [text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])]
        require("".join(map(other.feed, parts)) + other.flush() == whole, "the stream depends on its chunks")

    yield attempt


# --- the witness, and a database that another hand has filled


@contextmanager
def witnesses(folder: Path) -> Iterator[Attempt]:
    path = folder / "w" / "holdfast.db"
    with closing(a_store(SqliteStore(path, boot_id="boot"))):
        pass
    whole = Path(f"{path}-witness").read_bytes()
    used = [place for place in range(0, len(whole), 512) if whole[place : place + 8] == b"HFWITN01"]

    def attempt(chance: Random) -> None:
        data = bad_witness(whole, used, chance)
        Path(f"{path}-witness").write_bytes(data)
        if chance.random() < 0.5:
            sightings(f"{path}-witness")
            return
        with SqliteStore(path, boot_id="boot", read_only=True) as store:
            require(verify_run(store, "run-1").findings == (), "a damaged witness changed the log")

    yield attempt


def bad_witness(whole: bytes, used: list[int], chance: Random) -> bytes:
    if chance.random() < 0.4:
        return mutate.damaged(whole, chance)
    data = bytearray(whole)
    place = chance.choice(used)
    slot = bytearray(whole[place : place + 80])
    at = chance.choice((8, 40, 48))
    slot[at : at + 8] = chance.choice(
        (bytes(8), b"\xff" * 8, b"\x80" + bytes(7), b"\x7f" + b"\xff" * 7, chance.randbytes(8))
    )
    data[place : place + 84] = slot + zlib.crc32(slot).to_bytes(4, "big")
    return bytes(data)


COLUMNS = {
    "runs": ("run_no", "run_id", "mission_id", "title", "status", "stop_reason", "started_at", "kept_seq", "kept_hash", "epoch",
             "owner_host", "owner_boot", "owner_pid", "owner_started", "lease_until"),
    **dict.fromkeys(
        ("events_1", "events_2"),
        ("place", "kind", "version", "at", "op", "hash", "steps_done", "steps_open", "effects_open", "body"),
    ),
    "artifacts": ("digest", "size", "encoding", "data"),
    "snapshots": ("run_no", "seq", "data"),
    "store": ("store_id", "created_at"),
}  # fmt: skip


@contextmanager
def rows(folder: Path) -> Iterator[Attempt]:
    """Cells of the database as somebody with a database tool can leave them."""
    path = folder / "r" / "holdfast.db"
    with closing(a_store(SqliteStore(path, boot_id="boot"))) as store:
        a_store(store, "run-2", 5)
        artifact = store.put_artifact(b"the bytes of an artifact, which say the same again and again. " * 20)
    merge(path)
    template = path.read_bytes()

    def attempt(chance: Random) -> None:
        for end in ("-wal", "-shm", "-witness", "-lock"):
            Path(f"{path}{end}").unlink(missing_ok=True)
        path.write_bytes(template)
        plant(path, chance)
        with SqliteStore(path, boot_id="boot", read_only=True) as store:
            look(store, artifact)
        with SqliteStore(path, boot_id="boot") as store, RunLog(store, "run-2", a_world(), trust_snapshot=True) as log:
            log.record(e.NoteRecorded(text="one more"))

    yield attempt


def merge(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()
    for end in ("-wal", "-shm"):
        Path(f"{path}{end}").unlink(missing_ok=True)


def plant(path: Path, chance: Random) -> None:
    connection = apsw.Connection(str(path))
    for _ in range(chance.choice((1, 1, 2))):
        table = chance.choice((*COLUMNS, "runs", "events_1"))
        column = chance.choice(COLUMNS[table])
        ((count,),) = connection.execute(f"select count(*) from {table}")
        row = f"rowid = (select rowid from {table} order by rowid limit 1 offset {chance.randrange(count)})"
        statement = f"update {table} set {column} = ? where {row}"
        try:
            connection.execute(statement, (cell(chance),))
        except (apsw.Error, OverflowError):
            continue  # the table itself refuses it
    connection.close()
    merge(path)


def cell(chance: Random) -> Any:
    way = chance.random()
    if way < 0.12:
        return None
    if way < 0.35:
        return mutate.text(chance).encode("utf-8", "replace").decode()
    if way < 0.65:
        return chance.choice([number for number in mutate.NUMBERS if number is None or abs(number) < 2**63])
    if way < 0.9:
        return chance.choice(
            (b"", bytes(32), b"\xff" * 16, bytes(16), chance.randbytes(32), mutate.damaged(b'{"a":1}', chance))
        )
    return mutate.misfit({"step_id": "a", "attempt": 1, "output": {"a": 1}}, chance).encode("utf-8", "replace").decode()


def look(store: SqliteStore, artifact: str) -> None:
    """Everything a reader does; the first refusal must not keep the others from being tried."""
    first: HoldfastError | None = None
    for view in (listed, described, read_through, verified, exported):
        for run_id in ("run-1", "run-2"):
            try:
                view(store, run_id)
            except HoldfastError as error:
                first = first or error
    store.get_artifact(artifact)
    store.facts()
    if first is not None:
        raise first


def listed(store: SqliteStore, run_id: str) -> None:
    for head in store.heads():
        require(all(escape(cell).isprintable() for cell in overview.row(head, AT)), "a list with control characters")
        json.dumps(overview.as_data(head))


def described(store: SqliteStore, run_id: str) -> None:
    head = app.find_run(store, run_id)
    overview.describe(head, AT)
    overview.next_actions(store, head)


def read_through(store: SqliteStore, run_id: str) -> None:
    for record in store.read(run_id):
        shown(record)


def verified(store: SqliteStore, run_id: str) -> None:
    verify_run(store, run_id)
    transfer.check_artifacts(store, run_id)


def exported(store: SqliteStore, run_id: str) -> None:
    transfer.export_run(store, run_id, io.BytesIO())


# --- configuration


@contextmanager
def settings(folder: Path) -> Iterator[Attempt]:
    repository = folder / "repo" / "inner"
    repository.mkdir(parents=True)
    git = folder / "repo" / ".git"
    (folder / "loop").symlink_to("loop")
    seeds = [
        str(folder / "x.db"),
        "~/x",
        "relative/y.db",
        "postgresql://u:p@h:1/d?x=1",
        f"{folder}/loop",
        "/proc/self/mem",
    ]

    def attempt(chance: Random) -> None:
        git.write_bytes(mutate.damaged(f"gitdir: {folder}/repo/../repo\n".encode(), chance)[:9000])
        picked = a_place(seeds, chance)
        environ = {
            name: of_system
            for name in ("HOLDFAST_STORE", "HOLDFAST_WITNESS", "XDG_DATA_HOME", "HOME")
            if chance.random() < 0.4 and (of_system := mutate.of_system(a_place(seeds, chance)))
        }
        if chance.random() < 0.7:
            environ.pop("HOLDFAST_WITNESS", None)
        where = config.load(picked if chance.random() < 0.4 else None, environ, str(repository))
        require(escape(where.shown).isprintable() and isinstance(where.place, str), "a place that cannot be shown")
        if not where.on_server and "\0" not in where.place:
            with closing(app.open_configured(where, read_only=True)):
                pass

    yield attempt


def a_place(seeds: list[str], chance: Random) -> str:
    if chance.random() < 0.5:
        return mutate.text(chance)
    seed = chance.choice(seeds).encode()
    return mutate.damaged(seed, chance).decode("utf-8", "surrogateescape")


# --- the command line

OPTIONS = ("--json", "--all", "--limit", "--after", "--kind", "-f", "--raw", "-o", "--output", "--force", "--fix",
           "--accept-loss", "--help", "--version", "--", "-", "--no-such", "-x", "--limit=0", "--after=-1",
           "--json=1", "-h")  # fmt: skip
OWN = {
    "status": (["run-1"], ["--all"], ["--limit", "3"], ["--json"]),
    "log": (["run-1"], ["run-1", "-f"], ["--after", "2"], ["--limit", "2"], ["--kind", "note_recorded"], ["--json"]),
    "show": (
        ["run-1"],
        ["run-1", "5"],
        ["run-1", "a"],
        ["run-1", "1", "--raw"],
        ["run-1", "2", "-o", "out.bin"],
        ["--json"],
    ),
    "verify": (["run-1"], ["--all"], ["--json"]),
    "resume": (["run-1", "--plan"], ["--plan"], ["--approve", "0"], ["--json"]),
    "answer": (["run-1", "yes"], ["--question", "a"], ["--json"]),
    "settle": (["run-1", "mail", "--done"], ["--not-done"], ["--receipt", "{}"], ["--evidence", "x"], ["--json"]),
    "cancel": (["run-1"], ["--because", "x"], ["--json"]),
    "export": (["run-1", "out.bin"], ["run-1", "-"], ["--force"], ["--json"]),
    "import": (["in.jsonl"], ["-"], ["--json"]),
    "stops": (["complete"], ["64"], ["--json"]),
    "doctor": (["--fix"], ["--fix", "--accept-loss"], ["--json"]),
    "completion": (["bash"], ["zsh"], ["fish"]),
}
THINGS = ("run-1", "run", "1", "3", "0", "999999999", "a", "mail", "c1", "bash", "zsh", "complete", "10", "out.bin", "in.jsonl",
          "no-such-folder/x", "run_started", DIGEST, "18446744073709551616")  # fmt: skip


@contextmanager
def commands(folder: Path) -> Iterator[Attempt]:
    """`holdfast` itself, in a folder of its own, on a store whose only run is finished (so that following it ends)."""
    place = folder / "c" / "holdfast.db"
    with closing(a_store(SqliteStore(place, boot_id="boot"))):
        pass
    here = folder / "here"
    here.mkdir()
    whole = b"".join(an_export())
    with surroundings(here, HOLDFAST_STORE=str(place), HOME=str(folder), COLUMNS="100"):

        def attempt(chance: Random) -> None:
            for left in here.iterdir():
                left.unlink()
            (here / "in.jsonl").write_bytes(whole if chance.random() < 0.3 else mutate.damaged(whole, chance))
            arguments = a_command(chance)
            judge(arguments, *performed(arguments, whole))

        yield attempt


@contextmanager
def surroundings(cwd: Path, **environ: str) -> Iterator[None]:
    before, kept = os.getcwd(), dict(os.environ)
    os.chdir(cwd)
    os.environ.update(environ)
    os.environ.pop("HOLDFAST_DEBUG", None)
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(kept)


def a_command(chance: Random) -> list[str]:
    """A verb and arguments. No argument can name a place outside of the folder, for some of these verbs write."""
    if chance.random() < 0.5:
        return an_ordinary_command(chance)
    verb = chance.choice([*VERBS, mutate.text(chance)])
    words = [word(chance) for _ in range(chance.choice((0, 1, 1, 2, 2, 3, 4)))]
    if verb == "demo":
        words.insert(0, chance.choice(("--kills=x", "--steps=-1", "--nope", "-h", "--seed=1e9", "--kills=1001")))
    if verb == "killtest":
        words.insert(0, chance.choice(("--points=x", "--jobs=-1", "--nope", "-h", "--seed=1e9", "--timeout=x")))
    if verb == "resume":
        words = [part for part in words if part != "--"]  # what stands behind it would be started
    if verb in ("log", "show", "export", "status", "verify", "resume") and chance.random() < 0.6:
        words.insert(chance.randrange(2) if words else 0, "run-1")
    return [mutate.of_system(part).replace("/", "_" if part not in THINGS else "/")[:20_000] for part in (verb, *words)]


def an_ordinary_command(chance: Random) -> list[str]:
    """A command as people write it, with at most one word that nobody would."""
    verb = chance.choice(list(OWN))
    words = [part for some in chance.sample(OWN[verb], chance.choice((1, 1, 2))) for part in some]
    if chance.random() < 0.5:
        words[chance.randrange(len(words))] = mutate.of_system(word(chance)).replace("/", "_")[:20_000]
    return [verb, *words]


def word(chance: Random) -> str:
    dice = chance.random()
    if dice < 0.4:
        return chance.choice(OPTIONS)
    if dice < 0.7:
        return chance.choice(THINGS)
    return mutate.text(chance) if dice < 0.9 else str(chance.choice(mutate.NUMBERS))


class Terminal(io.TextIOWrapper):
    """A stream that is kept, and is no terminal."""

    def __init__(self, content: bytes = b"") -> None:
        super().__init__(io.BytesIO(content), encoding="utf-8", newline="")

    def shown(self) -> str:
        self.flush()
        written: bytes = self.buffer.getvalue()  # type: ignore[attr-defined]
        return written.decode("utf-8", "replace")


def performed(arguments: list[str], stdin: bytes) -> tuple[object, str, str]:
    kept = sys.stdin, sys.stdout, sys.stderr
    out, err = Terminal(), Terminal()
    sys.stdin, sys.stdout, sys.stderr = Terminal(stdin), out, err
    code: object = "no exit"
    try:
        main(arguments)
    except SystemExit as left:
        code = left.code
    finally:
        sys.stdin, sys.stdout, sys.stderr = kept
    return code, out.shown(), err.shown()


NO_DOCUMENT = {"-h", "--help", "--version", "log", "--", "-o", "--output"}
EXIT_CODES = frozenset(stop.exit_code for stop in stops.all_stops()) - {stops.exit_code("internal_error")} | {0}


def judge(arguments: list[str], code: object, out: str, err: str) -> None:
    told = f"{arguments!r:.300} -> {code}: {err:.200}"
    require(code in EXIT_CODES, told)
    require("Traceback" not in err and err.replace("\n", "").isprintable(), f"bad error output: {told}")
    require(
        (code == 0) == (err == "") or "verify" in arguments or "doctor" in arguments, f"code and words disagree: {told}"
    )
    if "--raw" in arguments or "export" in arguments or "completion" in arguments:
        return  # bytes as they are stored, on request
    require(out.replace("\n", "").isprintable(), f"control characters: {told}")
    if code == 0 and "--json" in arguments and not NO_DOCUMENT & set(arguments):
        require(json.loads(out)["schema_version"] == 1, f"no JSON: {told}")


TARGETS = {
    "exports": Target(10_000, exports),
    "records": Target(20_000, records),
    "snapshots": Target(8_000, snapshots),
    "values": Target(8_000, values),
    "names": Target(5_000, names),
    "redacted_text": Target(8_000, redacted_text),
    "redacted_bodies": Target(6_000, redacted_bodies),
    "redacted_streams": Target(1_500, redacted_streams),
    "witnesses": Target(3_000, witnesses),
    "rows": Target(1_000, rows),
    "settings": Target(4_000, settings),
    "commands": Target(8_000, commands),
}


def replay(target: str, seed: str, number: str) -> None:
    """One input again, with everything that it raises."""
    with tempfile.TemporaryDirectory() as folder, TARGETS[target].begin(Path(folder)) as attempt:
        attempt(chance_of(target, int(seed), int(number)))


if __name__ == "__main__":
    replay(*sys.argv[1:])
