"""The SQLite store: the suite, and what only a file can do wrong."""

from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.store_suite import StoreSuite


class TestSqliteStore(StoreSuite):
    def make_store(self, folder):
        return SqliteStore(folder / ".holdfast" / "holdfast.db", boot_id="boot-1")


class TestStrictSqliteStore(StoreSuite):
    def make_store(self, folder):
        return SqliteStore(folder / ".holdfast" / "holdfast.db", boot_id="boot-1", witness="strict")
