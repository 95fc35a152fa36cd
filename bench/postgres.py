"""One durable event on PostgreSQL against a bare psycopg insert-and-commit of the same bytes, on the same server."""

import psycopg

from bench.append import holdfast_event, kilobyte_note
from bench.group import eight_against_one
from bench.measure import side_by_side
from holdfast.app import open_store
from holdfast.core.wire import encode_body
from holdfast.testing.postgres import shared_server


def bare_postgres(url, body):
    connection = psycopg.connect(url)
    connection.execute("create table bare (id bigserial primary key, body text)")
    connection.commit()

    def insert_and_commit():
        connection.execute("insert into bare (body) values (%s)", (body,))
        connection.commit()

    return insert_and_commit, connection


def postgres_append():
    event = kilobyte_note()
    with shared_server().database() as url:
        bare, connection = bare_postgres(url, encode_body(event).decode())
        store = open_store(url)
        contenders = {"bare": bare, "holdfast": holdfast_event(store, "bench-append", event)}
        timings = side_by_side(contenders, rounds=40)
        store.close()
        connection.close()
    return timings["bare"], timings["holdfast"]


def postgres_group():
    with shared_server().database() as url:
        return eight_against_one(url)
