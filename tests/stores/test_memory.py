"""The reference store against the suite."""

import pytest

from holdfast.stores.memory import MemoryStore
from holdfast.testing.store_suite import StoreSuite


class Ticking:
    now = 0.0

    def __call__(self):
        return self.now


class TestMemoryStore(StoreSuite):
    @pytest.fixture(autouse=True)
    def clock(self):
        self.clock = Ticking()

    def make_store(self, folder):
        return MemoryStore(self.clock)

    def let_lease_end(self, store):
        self.clock.now += 1.0
