"""The promises of `ports.Store.transact`, as tests for stores that have SQL. Part of `StoreSuite`.

A store says with `placeholder` that it has SQL. One that has none is held to saying so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.core.errors import (
    AppendRefused,
    BadInput,
    BadRecord,
    HoldfastError,
    LeaseLost,
    OperationReused,
    SequenceConflict,
    UsageError,
)
from holdfast.core.events import NoteRecorded
from holdfast.core.state import projection
from holdfast.ports import Append, Record, Sql, Store
from holdfast.testing.author import ANOTHER, LONG, SOMEBODY, Author, in_threads, operations, refused
from holdfast.testing.store_base import StoreBase

TABLE = "create table app_box (name text primary key, amount integer)"


class SqlPromises(StoreBase):
    """What belongs together is written together."""

    def __init_subclass__(cls, **options: Any) -> None:
        """A test that does not apply is not collected, rather than skipped."""
        super().__init_subclass__(**options)
        for name, test in SqlPromises.__dict__.items():
            if name.startswith("test_") and name not in cls.__dict__:
                setattr(cls, name, test if (name == NO_SQL) != bool(cls.placeholder) else None)

    def test_a_store_without_sql_says_so(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self.author(store)
            with refused(UsageError):
                store.transact(author.lease, lambda sql: self._append(author))
            assert list(store.read("run-1")) == []

    # --- tools

    def _begun(self, store: Store, ttl: float = LONG) -> Author:
        """A run with one event, and an empty table."""
        author = self.author(store, ttl=ttl)
        author.begin()
        self._do(author, TABLE)
        return author

    def _append(self, author: Author, op: str | None = None) -> Append:
        return Append(author.lease, author.draft(NoteRecorded(text="noted"), op=op), projection(author.state))

    def _do(self, author: Author, *statements: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """Run statements in a transaction with one note; the rows of the last one."""
        rows: list[tuple[Any, ...]] = []

        def work(sql: Sql) -> Append:
            for statement in statements:
                rows[:] = sql.execute(statement, values)
            return self._append(author)

        author.store.transact(author.lease, work)
        author.follow()
        return rows

    def _put(self, sql: Sql, name: str, amount: object = 1) -> None:
        mark = self.placeholder
        sql.execute(f"insert into app_box (name, amount) values ({mark}, {mark})", (name, amount))

    def _putting(self, name: str, append: Append) -> Callable[[Sql], Append]:
        def work(sql: Sql) -> Append:
            self._put(sql, name)
            return append

        return work

    def _names(self, author: Author) -> list[str]:
        """What is in the table, asked for by a reader that changes only its own run."""
        reader = self.author(author.store, "reader")
        reader.follow()
        reader.ops = operations(900_000 + reader.state.seq)
        names = [name for (name,) in self._do(reader, "select name from app_box order by name")]
        author.store.release(reader.lease)
        return names

    def _length(self, store: Store) -> int:
        return len(list(store.read("run-1")))

    # --- both

    def test_rows_and_events_are_written_together(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self._begun(store)
            append = self._append(author)
            store.transact(author.lease, self._putting("a", append))
            author.follow()
            assert [record.seq for record in store.read("run-1")] == [1, 2, 3]
            assert list(store.read("run-1"))[-1] == append.records[0]
            assert self._names(author) == ["a"]
            author.note("and the store goes on")
            assert self._length(store) == 4

    def test_several_events_and_the_projection_go_with_the_rows(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self._begun(store)
            records = author.draft(NoteRecorded(text="a"), NoteRecorded(text="b"))
            shown = projection(author.state)._replace(title="another title", steps_done=7)
            store.transact(author.lease, self._putting("a", Append(author.lease, records, shown)))
            head = store.head("run-1")
            assert head is not None
            assert (head.seq, head.hash, head.projection) == (4, records[-1].hash, shown)
            assert head.held

    def test_work_sees_its_own_rows_and_gets_values_back_as_they_were(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self._begun(store)
            seen: list[tuple[Any, ...]] = []

            def work(sql: Sql) -> Append:
                self._put(sql, "äöü 🦀 ' \" %", 1 << 40)
                self._put(sql, "none", None)
                seen.extend(sql.execute("select name, amount from app_box order by name"))
                return self._append(author)

            self._do(author, "alter table app_box rename column amount to number")
            self._do(author, "drop table app_box", TABLE.replace("integer", "bigint"))
            store.transact(author.lease, work)
            assert sorted(seen) == [("none", None), ("äöü 🦀 ' \" %", 1 << 40)]

    # --- or neither

    def test_what_work_raises_is_raised_as_it_is_and_undoes_everything(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self._begun(store)
            for problem in (ValueError("mine"), OSError(5, "mine"), UnicodeError("mine"), KeyboardInterrupt()):

                def work(sql: Sql, problem: BaseException = problem) -> Append:
                    sql.execute("create table app_more (x integer)")
                    self._put(sql, "a")
                    raise problem

                try:
                    store.transact(author.lease, work)
                except BaseException as raised:
                    assert raised is problem
            assert self._length(store) == 2
            assert self._names(author) == []
            author.note("the store goes on")
            self._do(author, "create table app_more (x integer)")

    def _refuses(self, author: Author, append: Append, kind: type[HoldfastError]) -> None:
        with refused(kind):
            author.store.transact(append.lease, self._putting("never", append))

    def test_a_refused_append_undoes_the_rows(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self._begun(store)
            used = author.note()[0].op
            author.state.seq += 3
            self._refuses(author, self._append(author), SequenceConflict)
            author.follow()
            self._refuses(author, self._append(author, op=used), OperationReused)
            bad: list[Record] = [author.draft(NoteRecorded(text="x"))[0]._replace(op="zz")]
            self._refuses(author, Append(author.lease, bad, projection(author.state)), BadInput)
            self._refuses(author, Append(author.lease, [], projection(author.state)), BadRecord)
            assert self._length(store) == 3
            assert self._names(author) == []

    def test_a_holder_whose_lease_was_taken_over_changes_nothing(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            zombie = self._begun(store, ttl=0.05)
            self.let_lease_end(store)
            new = Author(store, "run-1", operations(500), LONG, ANOTHER)
            new.follow()
            self._refuses(zombie, self._append(zombie), LeaseLost)
            assert self._length(store) == 2
            assert self._names(new) == []
            store.transact(new.lease, self._putting("alive", self._append(new)))
            assert self._names(new) == ["alive"]

    def test_a_released_lease_changes_nothing(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self._begun(store)
            store.release(author.lease)
            self._refuses(author, self._append(author), LeaseLost)
            new = Author(store, "run-1", operations(500), LONG)
            assert self._names(new) == []

    def test_the_same_append_repeated_leaves_rows_and_events_as_they_are(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self._begun(store)
            append = self._append(author)
            store.transact(author.lease, self._putting("first", append))
            store.transact(author.lease, self._putting("again", append))
            author.follow()
            author.note("in between")
            store.transact(author.lease, self._putting("and again", append))
            assert self._length(store) == 4
            assert self._names(author) == ["first"]

    def test_an_append_under_another_lease_is_refused(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author, other = self._begun(store), self.author(store, "run-2", start=50)
            other.begin()
            with refused(UsageError):
                store.transact(author.lease, self._putting("never", self._append(other)))
            wrong: Any
            for wrong in (None, [], author.lease):
                with refused(UsageError):
                    store.transact(author.lease, self._putting("never", wrong))
            assert [self._length(store), len(list(store.read("run-2")))] == [2, 1]
            assert self._names(author) == []

    # --- statements

    def test_a_statement_that_the_database_refuses_is_named_and_undoes_everything(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self._begun(store)
            for statement in ("insert into app_nowhere values (1)", "this is no sql", "select 1 / from app_box", ""):
                try:
                    self._do(author, "insert into app_box (name) values ('x')", statement)
                except BadInput as error:
                    assert statement in str(error)
                else:
                    assert statement == ""
                    self._do(author, "delete from app_box")
            length = self._length(store)
            for values in ((object(),), ("half \ud83e",), (1, 2, 3)):
                with refused(BadInput):
                    self._do(author, f"insert into app_box (name) values ({self.placeholder})", values=values)
            assert self._length(store) == length
            assert self._names(author) == []

    def test_a_failed_statement_cannot_be_passed_over(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self._begun(store)

            def work(sql: Sql) -> Append:
                self._put(sql, "a")
                for name in ("a", "b"):
                    with refused(BadInput):
                        self._put(sql, name)
                return self._append(author)

            with refused(BadInput):
                store.transact(author.lease, work)
            assert self._length(store) == 2
            assert self._names(author) == []

    def test_no_statement_ends_the_transaction(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self._begun(store)
            bare = (
                "commit",
                "end",
                "rollback",
                "abort",
                "begin",
                "savepoint s",
                "release s",
                "prepare transaction 's'",
            )
            hidden = (
                "COMMIT",
                " \n;commit",
                "-- select\ncommit",
                "/* select */ commit",
                "select 1; commit",
                "commit; select 1",
            )
            for statement in (*bare, *hidden):
                with refused(BadInput):
                    self._do(author, "insert into app_box (name) values ('x')", statement)
                assert self._length(store) == 2, statement
            assert self._names(author) == []

    def test_a_lent_transaction_cannot_be_kept_or_given_away(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author, kept = self._begun(store), []

            def elsewhere(sql: Sql) -> None:
                with refused(UsageError):
                    self._put(sql, "elsewhere")

            def work(sql: Sql) -> Append:
                kept.append(sql)
                in_threads(1, lambda _: elsewhere(sql))
                return self._append(author)

            store.transact(author.lease, work)
            author.follow()
            elsewhere(kept[0])

            def again(sql: Sql) -> Append:
                elsewhere(kept[0])
                return self._append(author)

            store.transact(author.lease, again)
            author.follow()
            assert self._names(author) == []

    # --- the store meanwhile

    def test_inside_of_work_the_store_reads_and_does_not_write(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author, other = self._begun(store), self.author(store, "run-2", start=50)
            other.begin()
            lengths: list[int] = []
            writes: list[Callable[[], object]] = [
                other.note,
                lambda: store.take("run-3", SOMEBODY, LONG),
                lambda: store.renew(other.lease),
                lambda: store.release(other.lease),
                lambda: store.post("run-2", "cancel", ""),
                lambda: store.drop_messages(other.lease, 1),
                lambda: store.put_artifact(b"bytes"),
                lambda: store.save_snapshot("run-2", 1, b"state"),
                lambda: store.transact(other.lease, lambda sql: self._append(other)),
                store.close,
            ]

            def work(sql: Sql) -> Append:
                self._put(sql, "a")
                for write in writes:
                    with refused(UsageError):
                        write()
                    lengths.append(self._length(store))
                self._put(sql, "b")
                return self._append(author)

            store.transact(author.lease, work)
            author.follow()
            assert lengths == [2] * len(writes)
            assert self._names(author) == ["a", "b"]
            other.follow()
            other.note("as before")
            assert [self._length(store), len(list(store.read("run-2")))] == [3, 2]

    def test_other_threads_go_on(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self._begun(store)
            authors = [self.author(store, f"run-{n}", start=n * 1000) for n in range(2, 6)]
            for other in authors:
                other.begin()
            inside, waiting = threading.Event(), threading.Event()

            def appends(other: Author) -> None:
                inside.wait(30)
                waiting.set()
                for number in range(10):
                    other.note(str(number))

            def transacts() -> None:
                for number in range(10):
                    self._slowly(author, str(number), inside, waiting)

            jobs = [transacts, *(lambda other=other: appends(other) for other in authors)]
            in_threads(len(jobs), lambda number: jobs[number]())
            assert self._length(store) == 12
            assert [len(list(store.read(other.run_id))) for other in authors] == [11] * 4
            assert self._names(author) == [str(number) for number in range(10)]

    def _slowly(self, author: Author, name: str, inside: threading.Event, waiting: threading.Event) -> None:
        def work(sql: Sql) -> Append:
            self._put(sql, name)
            inside.set()
            waiting.wait(30)
            return self._append(author)

        author.store.transact(author.lease, work)
        author.follow()

    def test_threads_that_race_for_one_place_write_one_row(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self._begun(store)
            drafts = [self._append(author) for _ in range(6)]
            outcomes: list[str] = []

            def work(number: int) -> None:
                try:
                    store.transact(author.lease, self._putting(str(number), drafts[number]))
                    outcomes.append(str(number))
                except AppendRefused:
                    return

            in_threads(6, work)
            assert self._length(store) == 3
            assert self._names(author) == outcomes
            assert len(outcomes) == 1


NO_SQL = SqlPromises.test_a_store_without_sql_says_so.__name__
