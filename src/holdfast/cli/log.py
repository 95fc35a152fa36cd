"""`holdfast log`: the events of a run as they were stored, as a stream. Folds nothing, so no event is too new to be shown.

Damage is named where it stands, and what is left is shown all the same; the exit code is that of the first.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from importlib import import_module
from itertools import islice
from typing import Any, TypeVar

import click

from holdfast import app, config
from holdfast.cli.output import (
    SCHEMA_VERSION,
    body_field,
    escape,
    json_option,
    parse_body,
    remark,
    run_argument,
    write_lines,
)
from holdfast.cli.render import clock
from holdfast.core.chain import GENESIS, check_chain
from holdfast.core.errors import LogDamaged, TailLost
from holdfast.core.stops import is_resumable
from holdfast.ports import Head, Record, Store

Item = TypeVar("Item")
POLL = 0.2
SUMMARY = 160
NAMED = 10  # places that are hurt; who rewrote a whole log need not be told of each event

# What one line shows of each kind; a kind that is not here is shown raw.
FIELDS = {
    "run_started": ("mission_id", "title"),
    "run_resumed": ("source", "was"),
    "run_stopped": ("reason", "diagnosis"),
    "run_finished": ("outcome",),
    "step_started": ("step_id", "phase"),
    "step_finished": ("step_id", "output", "artifact"),
    "step_failed": ("step_id", "error"),
    "effect_started": ("effect_key", "policy", "step_id"),
    "effect_finished": ("effect_key", "receipt"),
    "effect_failed": ("effect_key", "error"),
    "effect_settled": ("effect_key", "settled_as", "by", "evidence"),
    "checkpoint_complete": ("checkpoint_id", "cursor"),
    "step_checkpointed": ("step_id", "cursor", "checkpoint_id"),
    "gate_blocked": ("step_id", "strictness", "conflicts"),
    "checkpoint_resumed": ("checkpoint_id",),
    "drift_found": ("drift", "subject", "verdict", "by", "was", "now"),
    "question_asked": ("question_id", "text", "choices", "deadline"),
    "question_answered": ("question_id", "answer", "by"),
    "question_expired": ("question_id",),
    "sleep_started": ("sleep_id", "until"),
    "sleep_ended": ("sleep_id",),
    "cancel_requested": ("by",),
    "budget_spent": ("tokens", "money", "step_id"),
    "note_recorded": ("author", "text", "step_id"),
}


@click.command()
@run_argument()
@click.option("-f", "--follow", is_flag=True, help="Go on as events come, until the run has ended for good.")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Begin behind this event.")
@click.option("--limit", type=click.IntRange(min=1), help="At most this many events.")
@click.option("--kind", "kinds", multiple=True, help="Only events of this kind; may be given again.")
@json_option
def command(run: str, follow: bool, after: int, limit: int | None, kinds: tuple[str, ...], as_json: bool) -> None:
    """Print the events of RUN, one to a line (with --json as JSON lines)."""
    where = config.load()
    line = json_line if as_json else text_line
    left = None if limit is None else min(limit, sys.maxsize)

    with closing(app.open_configured(where, read_only=True)) as store:
        head = app.newest_run(store, run)
        proof = Proof(store, head, after, as_json)

        def chosen(records: Iterable[Record]) -> Iterator[str]:
            return (line(record) for record in proof.follow(records) if not kinds or record.kind in kinds)

        if not follow:
            write_lines(islice(chosen(proof.to_the_end(store.read(head.run_id, after))), left))
    for batch in proof.to_the_end(follow_run(where, head.run_id, after)) if follow else ():
        shown = write_lines(islice(chosen(batch), left))
        left = None if left is None else left - shown
        if left == 0:
            break
    proof.judge()


class Proof:
    """Follows the chain through what is shown, from wherever that begins. Keeps nothing back: names what does not follow."""

    def __init__(self, store: Store, head: Head, after: int, as_json: bool) -> None:
        before = next(store.read(head.run_id, after - 1, 1), None) if after else None
        self._previous = GENESIS if not after else before.hash if before is not None and before.seq == after else None
        self._head, self._seq, self._as_json = head, after, as_json
        self._found: list[LogDamaged] = []

    def follow(self, records: Iterable[Record]) -> Iterator[Record]:
        for record in records:
            previous, expected = self._previous, self._seq + 1
            self._previous, self._seq = record.hash, record.seq
            if previous is not None or record.seq != expected:
                self._check(record, previous or GENESIS, expected)
            yield record

    def _check(self, record: Record, previous: bytes, expected: int) -> None:
        try:
            check_chain(record, previous, expected)
        except LogDamaged as damage:
            self._name(damage)

    def to_the_end(self, items: Iterable[Item]) -> Iterator[Item]:
        """The last of them must be no earlier than where the run was when this began."""
        yield from items
        if self._seq < self._head.seq:
            reached = f"it was at event {self._head.seq} and now ends at {self._seq}"
            self._name(TailLost(f"Run {self._head.run_id}", reached))

    def _name(self, damage: LogDamaged) -> None:
        self._found.append(damage)
        if len(self._found) <= NAMED:
            remark(escape(damage), self._as_json)

    def judge(self) -> None:
        """Leave with the first damage, once everything is shown."""
        for damage in self._found:
            raise damage


def follow_run(
    where: config.Config, run_id: str, after: int, sleep: Callable[[float], None] = time.sleep
) -> Iterator[list[Record]]:
    """What is there, then what comes, in batches, until the run has ended for good and all of it was seen."""
    with View(where) as view:
        while True:
            store = view.refreshed()
            ended = store is not None and _has_ended(store, run_id)
            batch = list(store.read(run_id, after, 512)) if store is not None else []
            if batch:
                after = batch[-1].seq
                view.look_again()
                yield batch
            elif ended:
                return
            else:
                sleep(POLL)


def _has_ended(store: Store, run_id: str) -> bool:
    """Finished, or stopped for a reason after which a run never goes on, as after `holdfast cancel`."""
    head = store.head(run_id)
    if head is None or head.projection.status == "finished":
        return True
    return head.projection.stop_reason is not None and not is_resumable(head.projection.stop_reason)


class View:
    """A store seen again and again. A file that was opened at rest shows no later change, so it is opened anew."""

    def __init__(self, where: config.Config) -> None:
        self.where = where
        self._store: Store | None = None
        self._stamp: object = None
        self._quiet = False

    def look_again(self) -> None:
        """A file's time is coarse: a write just after a look may leave it the same. So look twice, a while apart."""
        self._stamp = None

    def refreshed(self) -> Store | None:
        """The store as it is now; None if its files have not changed for two looks."""
        stamp = None if self.where.on_server else tuple(_stamp(self.where.place + end) for end in ("", "-wal"))
        same = stamp is not None and stamp == self._stamp
        if same and self._quiet:
            return None
        self._quiet, self._stamp = same, stamp
        if self._store is not None and not self.where.on_server:
            self.close()
        if self._store is None:
            self._store = app.open_configured(self.where, read_only=True)
        return self._store

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def __enter__(self) -> View:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def text_line(record: Record) -> str:
    return f"{record.seq:>6}  {escape(clock(record.at))}  {escape(record.kind):<20}  {summary(record)}".rstrip()


def summary(record: Record) -> str:
    """The telling fields of a known event, or the stored body."""
    body, names = parse_body(record.body), FIELDS.get(record.kind)
    if body is None or names is None:
        return escape(record.body.decode("utf-8", "backslashreplace"), SUMMARY)
    if record.kind == "drift_found":
        short = import_module("holdfast.core.inputs").short_hash
        body |= {name: short(plain(body[name])) for name in ("was", "now") if name in body}
    words = [plain(body[name]) for name in names if body.get(name) not in (None, "")]
    attempt = body.get("attempt", 1)
    return escape("  ".join(words) + (f"  (attempt {plain(attempt)})" if attempt != 1 else ""), SUMMARY)


def plain(value: Any) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def json_line(record: Record) -> str:
    import json

    return json.dumps({"schema_version": SCHEMA_VERSION, **as_data(record)}, allow_nan=False)


def as_data(record: Record) -> dict[str, Any]:
    return {
        "run_id": record.run_id,
        "seq": record.seq,
        "kind": record.kind,
        "version": record.version,
        "at": record.at,
        "op": record.op,
        "hash": record.hash.hex(),
        **body_field(record.body),
    }
