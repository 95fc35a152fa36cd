"""`holdfast show`: a run's folded state, or one event, step, effect, checkpoint or artifact of it. Writes only to -o FILE."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any, NoReturn

import click
import msgspec

from holdfast import app
from holdfast.cli import log as log_verb
from holdfast.cli import overview
from holdfast.cli.output import check_open, emit, escape, json_option, parse_body, run_argument, say
from holdfast.cli.render import clock, on_terminal, pairs, size
from holdfast.cli.watching import read_watched, watching
from holdfast.core.errors import NotFound, UsageError
from holdfast.core.mentions import mentioned
from holdfast.core.named import NamedTuple
from holdfast.core.state import RunState
from holdfast.engine.log import chained
from holdfast.ports import Head, Record, Store

LISTED = 10
SHORTEST = 8  # digits that name an artifact by its beginning
NAMES = {"step_id": "step", "effect_key": "effect", "checkpoint_id": "checkpoint"}


class Named(NamedTuple):
    """Every event that speaks of one step, effect or checkpoint."""

    what: str
    name: str
    records: list[Record]


@click.command()
@run_argument()
@click.argument("thing", required=False)
@click.option("--diff", is_flag=True, help="Of a checkpoint: what its work tree had changed since its commit.")
@click.option("--raw", is_flag=True, help="The stored bytes of an event or artifact, unchanged.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write the bytes to a new file.")
@json_option
def command(run: str, thing: str | None, diff: bool, raw: bool, output: str | None, as_json: bool) -> None:
    """Show RUN, or one THING of it: an event's number, or the id of a step, effect, checkpoint or artifact.

    RUN may also be the id of a checkpoint of the repository around you.
    """
    if diff or (thing is None and not is_run(run)):
        if raw or output is not None:
            refuse_bytes(thing or run)
        import_module("holdfast.cli.show_checkpoint").show(thing or run, diff, as_json)  # starts git
        return
    with app.reading() as store:
        head = app.newest_run(store, run)
        if raw or output is not None:
            write_bytes(stored_bytes(store, head, thing), output, as_json)
        elif thing is None:
            show_run(store, head, as_json)
        else:
            show_thing(store, head, thing, as_json)


def refuse_bytes(checkpoint: str) -> NoReturn:
    advice = f"`holdfast restore {checkpoint}` brings back its files; what `--diff` shows can be sent to a file."
    raise UsageError("--raw and --output are for events and artifacts; a checkpoint has no bytes.", advice=advice)


def is_run(text: str) -> bool:
    """Whether a run here is called that. What is no run may be a checkpoint, which git keeps without a store, too."""
    try:
        with app.reading() as store:
            app.newest_run(store, text)
    except NotFound as missing:
        if import_module("holdfast.cli.show_checkpoint").is_there(text):
            return False
        raise NotFound("run or checkpoint", text) if missing.name == text else missing from None
    return True


# --- the run


def show_run(store: Store, head: Head, as_json: bool) -> None:
    state = read_watched(store, head)
    head = app.find_run(store, head.run_id)
    if as_json:
        emit({"run": overview.as_data(head), "state": msgspec.to_builtins(state)})
        return
    pairs([*overview.describe(head, app.now()), *summary(state)])
    for heading, lines in lists(state):
        say(f"\n{heading}")
        for line in lines:
            say(f"  {line}")


def summary(state: RunState) -> list[tuple[str, object]]:
    return [
        ("diagnosis", state.diagnosis),
        ("checkpoint", state.checkpoint_id),
        ("cursor", state.cursor),
        ("resumes", state.resumes or None),
        ("notes", state.notes or None),
        ("spent", spent(state)),
    ]


def spent(state: RunState) -> str:
    """As far as the agents say; nothing if they do not."""
    tokens = f"{state.spent.tokens:,} tokens" if state.spent.tokens else ""
    money = f"${state.spent.money:.2f}" if state.spent.money else ""
    return ", ".join(filter(None, (tokens, money)))


def lists(state: RunState) -> Iterator[tuple[str, list[str]]]:
    """What is open, all of it; what is done, the last few."""
    steps = [f"{escape(name)}  {escape(step.status)}" for name, step in list(state.steps.items())[-LISTED:]]
    if steps:
        yield f"steps (the last {len(steps)} of {len(state.steps)})", steps
    if state.steps_open:
        yield "open steps", [f"{escape(name)}  attempt {attempt}" for name, attempt in state.steps_open.items()]
    if state.effects_open:
        yield "open effects", [open_effect(state, name) for name in state.effects_open]


def open_effect(state: RunState, name: str) -> str:
    effect = state.effects[name]
    return f"{escape(name)}  {escape(effect.status)}  {escape(effect.policy)}  in step {escape(effect.step_id)}"


# --- one thing of it


def show_thing(store: Store, head: Head, thing: str, as_json: bool) -> None:
    record = find_event(store, head.run_id, thing)
    if record is not None:
        prove(store, head.run_id, record.seq)
        show_event(record, as_json)
    elif digest := find_digest(store, head, thing):
        show_artifact(store, head, digest, as_json)
    else:
        show_named(find_named(store, head, thing), as_json)


def find_event(store: Store, run_id: str, thing: str) -> Record | None:
    if not (thing.isascii() and thing.isdecimal() and 1 <= len(thing) <= 9) or int(thing) == 0:
        return None
    seq = int(thing)
    found = next(store.read(run_id, seq - 1, 1), None)
    return found if found is not None and found.seq == seq else None


def prove(store: Store, run_id: str, seq: int) -> None:
    """Raises ChainBroken if anything up to this event is no longer what was written. `--raw` shows that as well."""
    with watching(store, "Reading", seq) as seen:
        for _ in chained(seen.read(run_id, limit=seq)):
            pass


def find_digest(store: Store, head: Head, thing: str) -> str | None:
    """An artifact by its digest, or by enough of its beginning; one that is not whole must be named by an event."""
    if len(thing) < SHORTEST or not set(thing) <= set("0123456789abcdef"):
        return None
    if len(thing) == 64:
        return thing
    with watching(store, "Reading", head.seq) as seen:
        named = {digest for record in seen.read(head.run_id) for digest in mentioned(record.body)}
    found = [digest for digest in sorted(named) if digest.startswith(thing)]
    if len(found) > 1:
        raise UsageError(f"{len(found)} artifacts of this run begin with {thing}.", advice="Give more of the digest.")
    return found[0] if found else None


def show_event(record: Record, as_json: bool) -> None:
    data = log_verb.as_data(record)
    if as_json:
        emit({"event": data})
        return
    pairs([(name, data[name]) for name in ("run_id", "seq", "kind", "version")])
    pairs([("at", clock(record.at)), ("operation", record.op), ("hash", record.hash.hex())])
    body = parse_body(record.body)
    say()
    if body is None:
        say(escape(record.body.decode("utf-8", "backslashreplace")))
        return
    for name, value in body.items():
        say(f"{escape(name)}: {escape(log_verb.plain(value))}")


def show_artifact(store: Store, head: Head, digest: str, as_json: bool) -> None:
    data = store.get_artifact(digest)
    with watching(store, "Reading", head.seq) as seen:
        events = [record.seq for record in seen.read(head.run_id) if digest.encode() in record.body]
    if as_json:
        emit({"artifact": {"digest": digest, "bytes": len(data), "events": events, "text": is_text(data)}})
        return
    pairs([("artifact", digest), ("size", size(len(data))), ("kind", "text" if is_text(data) else "binary")])
    pairs([("events", ", ".join(map(str, events[:LISTED])))])
    say(f"  holdfast show {head.run_id} {digest} -o FILE")


def is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode("utf-8")
    except UnicodeDecodeError:
        return False


def find_named(store: Store, head: Head, name: str) -> Named:
    found, what = [], ""
    with watching(store, "Reading", head.seq) as seen:
        for record in chained(seen.read(head.run_id)):
            body = parse_body(record.body) or {}
            role = next((word for field, word in NAMES.items() if body.get(field) == name), None)
            if role is not None:
                what = what or role
                found.append(record)
    if not found:
        raise NotFound("event, step, effect, checkpoint or artifact", name)
    return Named(what, name, found)


def show_named(named: Named, as_json: bool) -> None:
    if as_json:
        events: list[dict[str, Any]] = [log_verb.as_data(record) for record in named.records]
        emit({"what": named.what, "name": named.name, "events": events})
        return
    pairs([(named.what, named.name)])
    for record in named.records:
        say(log_verb.text_line(record))


# --- bytes


def stored_bytes(store: Store, head: Head, thing: str | None) -> bytes:
    if thing is not None:
        if record := find_event(store, head.run_id, thing):
            return record.body
        if digest := find_digest(store, head, thing):
            return store.get_artifact(digest)
        find_named(store, head, thing)
    advice = f"`holdfast show {head.run_id}` lists them."
    raise UsageError("Only an event or an artifact has bytes to write.", advice=advice)


def write_bytes(data: bytes, output: str | None, as_json: bool) -> None:
    if output is not None:
        write_new_file(data, output)
        if as_json:
            emit({"file": output, "bytes": len(data)})
    elif as_json:
        raise UsageError("The bytes themselves go to standard output, so --json has no place there.")
    elif on_terminal():
        raise UsageError("Stored bytes may do anything to a terminal.", advice="Name a file with -o, or use a pipe.")
    else:
        check_open()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def write_new_file(data: bytes, path: str) -> None:
    """A file that was not there before: nothing of yours is written over, and no link is followed."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        problem = "is there already" if isinstance(error, FileExistsError) else f"cannot be made ({error.strerror})"
        raise UsageError(f"The file {path!r:.200} {problem}.", advice="Name a new file.") from None
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
