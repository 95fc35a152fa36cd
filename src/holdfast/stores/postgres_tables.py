"""Which tables of a PostgreSQL schema are the store's own, and whether another hand has touched them. Writes nothing."""

from __future__ import annotations

from holdfast.core.named import NamedTuple
from holdfast.stores.postgres_link import PatientConnection
from holdfast.stores.sqlfiles import queries

SQL = queries("postgres")
OURS = frozenset({"store", "runs", "events", "artifacts", "snapshots", "messages"})


class Tables(NamedTuple):
    """`meddled`: those of ours that carry a trigger, a rule or a foreign key that points at them."""

    encoding: str
    ours: frozenset[str]
    meddled: tuple[str, ...]


def look(connection: PatientConnection, schema: str) -> Tables:
    row = connection.do(SQL["tables"], {"schema": schema}).fetchone()
    encoding, found, meddled = row or ("nothing", [], [])
    return Tables(encoding, OURS.intersection(found), tuple(sorted(OURS.intersection(meddled))))
