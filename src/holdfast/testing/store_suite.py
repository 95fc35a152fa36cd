"""The promises of `ports.Store` as tests. Subclass `StoreSuite`, give it `make_store`, and pytest holds the store to them.

Every store passes the same suite, so nothing above a store needs to know which one it is.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.core.errors import (
    AppendRefused,
    BadInput,
    InvalidId,
    LeaseHeld,
    LeaseLost,
    NotFound,
    OperationReused,
    SequenceConflict,
)
from holdfast.core.events import NoteRecorded, RunFinished, RunStarted
from holdfast.core.state import projection
from holdfast.core.wire import GENESIS, check_chain
from holdfast.ports import Append, Lease, Owner
from holdfast.testing.author import ANOTHER, AT, LONG, SOMEBODY, Author, in_threads, operations, refused
from holdfast.testing.store_messages import MessagePromises
from holdfast.testing.store_sql import SqlPromises


class StoreSuite(MessagePromises, SqlPromises):
    """Subclass it as `class TestMyStore(StoreSuite)` and give it `make_store`, and `placeholder` if it has SQL."""

    # --- the log

    def test_what_was_appended_is_read_back_as_it_was(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self.author(store)
            written = [*author.begin(), *author.note("äöü \u0000 \u2028 🦀 \\ \" '"), *author.note("x" * 5000)]
            assert list(store.read("run-1")) == written

    def test_records_form_a_chain(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self.author(store)
            author.begin()
            author.write(NoteRecorded(text="a"), NoteRecorded(text="b"), NoteRecorded(text="c"))
            head = GENESIS
            for expected, record in enumerate(store.read("run-1"), 1):
                head = check_chain(record, head, expected)
            found = store.head("run-1")
            assert found is not None
            assert (found.seq, found.hash) == (4, head)

    def test_reading_starts_after_a_place_and_stops_at_a_limit(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self.author(store)
            author.begin()
            author.write(*(NoteRecorded(text=str(number)) for number in range(1200)))
            assert [record.seq for record in store.read("run-1", after=1198)] == [1199, 1200, 1201]
            assert [record.seq for record in store.read("run-1", after=3, limit=2)] == [4, 5]
            assert [record.seq for record in store.read("run-1")] == list(range(1, 1202))
            assert list(store.read("run-1", limit=0)) == []

    def test_an_unknown_run_is_empty(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            assert store.head("run-9") is None
            assert list(store.read("run-9")) == []
            assert store.load_snapshot("run-9") is None

    def test_a_run_without_events_is_not_listed(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            self.author(store)
            assert list(store.heads()) == []
            assert store.head("run-1") is None

    def test_nothing_strays_from_a_run_while_the_store_is_whole(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            assert store.strays() == []
            self.author(store, "run-1").begin()
            self.author(store, "run-2", 2)
            store.post("run-2", "question", "before its first event")
            assert store.strays() == []

    def test_runs_are_listed_newest_first_in_pages(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            for number in range(5):
                self.author(store, f"run-{number}", start=100 * number + 1).begin()
            self.author(store, "run-9", start=9000).write(RunStarted(mission_id="m"), RunFinished())
            assert [head.run_id for head in store.heads(limit=2)] == ["run-9", "run-4"]
            assert [head.run_id for head in store.heads(after="run-4", limit=2)] == ["run-3", "run-2"]
            assert "run-9" not in [head.run_id for head in store.heads(unfinished=True)]
            assert len(list(store.heads())) == 6

    def test_the_list_shows_the_projection(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self.author(store)
            author.begin()
            author.note()
            (head,) = store.heads()
            assert head.projection == projection(author.state)
            assert head.started_at == head.updated_at == AT
            assert head.owner == SOMEBODY

    # --- appending

    def test_an_append_at_the_wrong_place_writes_nothing(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self.author(store)
            author.begin()
            ahead = author.draft(NoteRecorded(text="ahead"))
            author.note("in between")
            with refused(SequenceConflict):
                store.append(author.lease, ahead, projection(author.state))
            author.state.seq += 5
            with refused(SequenceConflict):
                store.append(author.lease, author.draft(NoteRecorded(text="gap")), projection(author.state))
            assert [record.seq for record in store.read("run-1")] == [1, 2]

    def test_the_same_append_repeated_is_done_once(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self.author(store)
            first = author.begin()
            store.append(author.lease, first, projection(author.state))
            note = author.note()
            store.append(author.lease, first, projection(author.state))
            store.append(author.lease, note, projection(author.state))
            assert list(store.read("run-1")) == [*first, *note]

    def test_a_repeat_is_known_even_after_the_lease_was_lost(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self.author(store, ttl=0.05)
            first = author.begin()
            self.let_lease_end(store)
            store.take("run-1", ANOTHER, LONG)
            store.append(author.lease, first, projection(author.state))
            assert list(store.read("run-1")) == first

    def test_an_operation_id_belongs_to_one_append(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self.author(store)
            author.begin()
            used = author.note()[0].op
            with refused(OperationReused):
                store.append(author.lease, author.draft(NoteRecorded(text="b"), op=used), projection(author.state))
            assert [record.seq for record in store.read("run-1")] == [1, 2]

    def test_many_events_in_one_append_are_all_or_none(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self.author(store)
            author.begin()
            batch = author.draft(NoteRecorded(text="a"), NoteRecorded(text="b"))
            author.note("first")
            with refused(SequenceConflict):
                store.append(author.lease, batch, projection(author.state))
            assert [record.seq for record in store.read("run-1")] == [1, 2]

    def test_threads_that_write_many_runs_lose_nothing(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:

            def work(number: int) -> None:
                author = self.author(store, f"run-{number}", start=number * 1000 + 1)
                author.begin()
                for count in range(30):
                    author.note(str(count))

            in_threads(8, work)
            for number in range(8):
                assert [record.seq for record in store.read(f"run-{number}")] == list(range(1, 32))

    def test_threads_that_race_for_one_place_make_one_winner(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self.author(store)
            author.begin()
            drafts = [author.draft(NoteRecorded(text=str(number))) for number in range(8)]
            outcomes: list[str] = []

            def work(number: int) -> None:
                try:
                    store.append(author.lease, drafts[number], projection(author.state))
                    outcomes.append("won")
                except SequenceConflict:
                    outcomes.append("lost")

            in_threads(8, work)
            assert sorted(outcomes) == ["lost"] * 7 + ["won"]
            assert [record.seq for record in store.read("run-1")] == [1, 2]

    def test_several_operations_in_one_append_keep_their_ids(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self.author(store)
            records = author.draft(RunStarted(mission_id="suite"), NoteRecorded(text="a"))
            author.state.seq, author.head = 2, records[-1].hash
            records += author.draft(NoteRecorded(text="b"), op=f"{77:032x}")
            store.append(author.lease, records, projection(author.state))
            assert list(store.read("run-1")) == records

    def test_several_appends_at_once_get_each_its_own_outcome(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            authors = [self.author(store, f"run-{number}", start=number * 100 + 1) for number in range(4)]
            for author in authors:
                author.begin()
            store.release(authors[1].lease)
            drafts = [author.draft(NoteRecorded(text="together")) for author in authors]
            appends = [
                Append(author.lease, records, projection(author.state))
                for author, records in zip(authors, drafts, strict=True)
            ]
            outcomes = store.append_all([*appends, appends[2]])
            assert [type(outcome) for outcome in outcomes] == [type(None), LeaseLost, *[type(None)] * 3]
            assert [len(list(store.read(f"run-{number}"))) for number in range(4)] == [2, 1, 2, 2]
            assert store.append_all([]) == []

    def test_several_operations_repeated_are_done_once(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self.author(store)
            records = author.draft(RunStarted(mission_id="suite"))
            author.state.seq, author.head = 1, records[-1].hash
            records += author.draft(NoteRecorded(text="b"))
            for _ in range(2):
                store.append(author.lease, records, projection(author.state))
            assert list(store.read("run-1")) == records

    def test_an_append_of_which_only_the_beginning_is_there_is_not_done(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self.author(store)
            author.begin()
            both = author.draft(NoteRecorded(text="a"), NoteRecorded(text="b"))
            store.append(author.lease, both[:1], projection(author.state))
            with refused(AppendRefused):
                store.append(author.lease, both, projection(author.state))
            assert [record.seq for record in store.read("run-1")] == [1, 2]

    def test_records_that_cannot_be_kept_are_refused_by_name(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self.author(store)
            author.begin()
            (good,) = author.draft(NoteRecorded(text="good"))
            wrong = (good._replace(op="zz"), good._replace(body=b"\xff"), good._replace(version=1 << 70))
            for record in wrong:
                with refused(BadInput):
                    store.append(author.lease, [record], projection(author.state))
            with refused(BadInput):
                store.append(author.lease, [], projection(author.state))
            store.append(author.lease, [good], projection(author.state))
            assert [record.seq for record in store.read("run-1")] == [1, 2]

    def test_a_bad_append_does_not_spoil_those_beside_it(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            first, second = self.author(store, "run-1"), self.author(store, "run-2", start=50)
            first.begin(), second.begin()
            two = first.draft(NoteRecorded(text="a"), NoteRecorded(text="b"))
            (bad,) = second.draft(NoteRecorded(text="bad"))
            outcomes = store.append_all(
                [
                    Append(first.lease, two, projection(first.state)),
                    Append(second.lease, [bad._replace(version=1 << 70)], projection(second.state)),
                ]
            )
            assert outcomes[0] is None
            assert isinstance(outcomes[1], BadInput)
            assert [len(list(store.read(run))) for run in ("run-1", "run-2")] == [3, 1]

    # --- leases

    def test_a_held_run_cannot_be_taken(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self.author(store)
            author.begin()
            with refused(LeaseHeld):
                store.take("run-1", ANOTHER, LONG)
            head = store.head("run-1")
            assert head is not None
            assert head.held

    def test_a_released_run_can_be_taken_at_once(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self.author(store)
            author.begin()
            store.release(author.lease)
            lease = store.take("run-1", ANOTHER, LONG)
            assert lease.epoch > author.lease.epoch

    def test_a_released_lease_cannot_write(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self.author(store)
            author.begin()
            store.release(author.lease)
            with refused(LeaseLost):
                author.note()
            with refused(LeaseLost):
                store.renew(author.lease)

    def test_a_lease_that_ran_out_can_be_taken_over_and_fences_the_old_holder(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            old = self.author(store, ttl=0.05)
            old.begin()
            self.let_lease_end(store)
            new = Author(store, "run-1", operations(500), LONG, ANOTHER)
            new.follow()
            assert new.lease.epoch > old.lease.epoch
            with refused(LeaseLost):
                old.note("from the grave")
            with refused(LeaseLost):
                store.renew(old.lease)
            store.release(old.lease)
            new.note("alive")
            assert [record.op for record in store.read("run-1")] == [f"{1:032x}", f"{500:032x}"]

    def test_the_same_owner_gets_a_new_epoch_each_time(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            first = self.author(store)
            first.begin()
            store.release(first.lease)
            second = store.take("run-1", SOMEBODY, LONG)
            assert second.epoch > first.lease.epoch
            with refused(LeaseLost):
                first.note()

    def test_renewing_keeps_a_lease_alive(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self.author(store, ttl=0.05)
            author.begin()
            longer = Lease(author.lease.run_id, author.lease.epoch, LONG)
            store.renew(longer)
            self.let_lease_end(store)
            with refused(LeaseHeld):
                store.take("run-1", ANOTHER, LONG)

    def test_appending_extends_the_lease(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author = self.author(store, ttl=0.05)
            author.begin()
            author.lease = Lease(author.lease.run_id, author.lease.epoch, LONG)
            author.note()
            self.let_lease_end(store)
            with refused(LeaseHeld):
                store.take("run-1", ANOTHER, LONG)

    def test_one_of_many_takers_wins(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            outcomes: list[str] = []

            def work(number: int) -> None:
                try:
                    store.take("run-1", Owner("h", "boot-1", number + 1, ""), LONG)
                    outcomes.append("won")
                except LeaseHeld:
                    outcomes.append("held")

            in_threads(8, work)
            assert sorted(outcomes) == ["held"] * 7 + ["won"]

    def test_ids_that_could_name_a_path_are_refused(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            for bad in ("", "..", "a/b", "../x", "A", "a\n", "a" * 65, "a\x00b", ".a", "-a", "a..b", "é"):
                with refused(InvalidId):
                    store.take(bad, SOMEBODY, LONG)

    # --- artifacts and snapshots

    def test_artifacts_are_kept_once_and_come_back_whole(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            for data in (b"", b"small", b"long and dull " * 10_000, bytes(range(256)) * 300):
                digest = store.put_artifact(data)
                assert store.put_artifact(data) == digest
                assert store.get_artifact(digest) == data

    def test_an_unknown_artifact_is_not_found(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            with refused(NotFound):
                store.get_artifact("0" * 64)
            with refused(InvalidId):
                store.get_artifact("../../etc/passwd")

    def test_the_newest_snapshot_is_kept(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            self.author(store).begin()
            store.save_snapshot("run-1", 5, b"five")
            store.save_snapshot("run-1", 3, b"three")
            assert store.load_snapshot("run-1") == (5, b"five")
            store.save_snapshot("run-1", 6, b"six")
            assert store.load_snapshot("run-1") == (6, b"six")

    def test_facts_name_the_engine(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            assert store.facts()["engine"]
