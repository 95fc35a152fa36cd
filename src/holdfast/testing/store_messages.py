"""The promises of `ports.Store` about messages, as tests. Part of `StoreSuite`."""

from __future__ import annotations

import threading
from pathlib import Path

from holdfast.core.errors import BadInput, LeaseLost, NotFound, TooLarge
from holdfast.core.values import Message
from holdfast.ports import Store
from holdfast.testing.author import ANOTHER, LONG, Author, in_threads, operations, refused
from holdfast.testing.store_base import StoreBase

LIMIT = 16 * 1024


class MessagePromises(StoreBase):
    """Whoever does not hold the lease can still be heard."""

    def test_messages_are_read_in_the_order_of_their_ids(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            self.author(store).begin()
            first = store.post("run-1", "cancel", "now")
            second = store.post("run-1", "answer", '{"question":"q","text":"äöü \u0000 \u2028 🦀"}')
            third = store.post("run-1", "cancel", "")
            assert 0 < first < second < third
            assert store.messages("run-1") == [
                Message(first, "cancel", "now"),
                Message(second, "answer", '{"question":"q","text":"äöü \u0000 \u2028 🦀"}'),
                Message(third, "cancel", ""),
            ]
            assert [message.id for message in store.messages("run-1", after=first)] == [second, third]
            assert store.messages("run-1", after=third) == store.messages("run-1", after=1 << 80) == []

    def test_a_message_is_for_one_run_and_changes_nothing_of_it(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            one, other = self.author(store), self.author(store, "run-2", start=50)
            one.begin(), other.begin()
            before = store.head("run-1"), list(store.read("run-1"))
            store.post("run-1", "cancel", "one")
            store.post("run-2", "cancel", "other")
            assert [message.body for message in store.messages("run-1")] == ["one"]
            assert [message.body for message in store.messages("run-2")] == ["other"]
            assert (store.head("run-1"), list(store.read("run-1"))) == before
            one.note("the holder goes on")

    def test_a_message_for_an_unknown_run_is_refused(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            for unknown in ("run-9", "", "../x", "a\u0000b"):
                with refused(NotFound):
                    store.post(unknown, "cancel", "")
                assert store.messages(unknown) == []

    def test_a_message_that_cannot_be_kept_is_refused_by_name(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            self.author(store)
            store.post("run-1", "answer", "ä" * (LIMIT // 2))
            with refused(TooLarge):
                store.post("run-1", "answer", "ä" * (LIMIT // 2) + "a")
            for kind in ("", "Cancel", "a b", "a-b", "a" * 65, "é"):
                with refused(BadInput):
                    store.post("run-1", kind, "")
            with refused(BadInput):
                store.post("run-1", "answer", "half a \ud83e")
            assert len(store.messages("run-1")) == 1

    def test_dropped_messages_are_forgotten_and_their_ids_never_used_again(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            author, other = self.author(store), self.author(store, "run-2", start=50)
            ids = [store.post("run-1", "note", str(number)) for number in range(4)]
            kept = store.post("run-2", "note", "of another run")
            store.drop_messages(author.lease, ids[1])
            assert [message.id for message in store.messages("run-1")] == ids[2:]
            store.drop_messages(author.lease, ids[1])
            store.drop_messages(other.lease, ids[-1])
            store.drop_messages(author.lease, 1 << 80)
            assert store.messages("run-1") == []
            assert [message.id for message in store.messages("run-2")] == [kept]
            store.drop_messages(other.lease, kept)
            assert store.post("run-1", "note", "later") > kept

    def test_only_the_lease_drops_messages(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            old = self.author(store, ttl=0.05)
            number = store.post("run-1", "cancel", "")
            self.let_lease_end(store)
            new = Author(store, "run-1", operations(500), LONG, ANOTHER)
            with refused(LeaseLost):
                store.drop_messages(old.lease, number)
            assert len(store.messages("run-1")) == 1
            store.release(new.lease)
            with refused(LeaseLost):
                store.drop_messages(new.lease, number)
            assert len(store.messages("run-1")) == 1

    def test_one_who_listens_while_many_post_misses_nothing(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as store:
            self.author(store)
            done = threading.Event()
            heard: list[Message] = []

            def listen() -> None:
                while True:
                    last = done.is_set()
                    heard.extend(store.messages("run-1", after=heard[-1].id if heard else 0))
                    if last:
                        return

            listener = threading.Thread(target=listen)
            listener.start()
            try:
                in_threads(4, lambda number: self._post_many(store, number))
            finally:
                done.set()
                listener.join()
            ids = [message.id for message in heard]
            assert ids == sorted(set(ids))
            assert sorted(message.body for message in heard) == sorted(f"{a}:{b}" for a in range(4) for b in range(15))

    def _post_many(self, store: Store, number: int) -> None:
        for count in range(15):
            store.post("run-1", "note", f"{number}:{count}")
