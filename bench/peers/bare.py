"""The floor: the same bytes in one bare table, committed row by row with full durability. Resumes nothing."""

import os

import apsw

from bench.peers.work import Stamps, first_new_step, text

PRAGMAS = ("journal_mode = wal", "synchronous = full", "wal_autocheckpoint = 1000")


def connect(place):
    os.makedirs(place, exist_ok=True)
    connection = apsw.Connection(os.path.join(place, "bare.db"))
    for pragma in PRAGMAS:
        connection.execute(f"pragma {pragma}").fetchall()
    connection.execute("create table if not exists bare (id integer primary key, body text)")
    return connection


def sqlite(place):
    connection, stamps = connect(place), Stamps()

    def insert(body):
        connection.execute("begin immediate")
        connection.execute("insert into bare (body) values (?)", (body,))
        connection.execute("commit")

    def burst(steps):
        for number in range(steps):
            insert(stamps.work(number))
        return stamps.take()

    def settings():
        synchronous = connection.execute("pragma synchronous").fetchall()[0][0]
        mode = connection.execute("pragma journal_mode").fetchall()[0][0]
        return f"apsw {apsw.apsw_version()}, SQLite {apsw.sqlite_lib_version()}, journal_mode {mode}, synchronous {synchronous}"

    def seed(steps):
        with connection:
            connection.executemany("insert into bare (body) values (?)", ((text(number),) for number in range(steps)))

    return {"burst": burst, "settings": settings, "seed": seed, "close": connection.close}


def postgres(url):
    import psycopg  # here, because the start of a process that needs only apsw is measured

    connection, stamps = psycopg.connect(url), Stamps()
    connection.execute("create table bare (id bigserial primary key, body text)")
    connection.commit()

    def burst(steps):
        for number in range(steps):
            connection.execute("insert into bare (body) values (%s)", (stamps.work(number),))
            connection.commit()
        return stamps.take()

    def settings():
        (commit,) = connection.execute("show synchronous_commit").fetchone()
        return f"psycopg {psycopg.__version__}, synchronous_commit {commit}"

    return {"burst": burst, "settings": settings, "close": connection.close}


def resume(place, steps):
    rows = connect(place).execute("select body from bare order by id limit ?", (steps,)).fetchall()
    assert len(rows) == steps
    first_new_step(steps)
