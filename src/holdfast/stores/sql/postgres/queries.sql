-- Every statement the PostgreSQL store runs. Constant text, bound parameters, nothing built from strings.
-- Tables are found through the search path, which every connection sets to the schema of the store.

-- {schema} is an identifier, checked and quoted by the store
-- name: create_schema
create schema if not exists {schema}

-- one migration at a time for each schema; freed by the end of the transaction or of the connection
-- name: migration_lock
select pg_advisory_xact_lock(hashtextextended('holdfast/' || %(schema)s, 0))

-- name: migration_patience
set local lock_timeout = '60s'

-- name: store
select schema_version, store_id from store where id = 1

-- name: new_store
insert into store (id, schema_version, store_id) values (1, 0, %(store_id)s)

-- name: set_version
update store set schema_version = %(version)s where id = 1

-- the encoding of the database, the tables of the schema, and those among them that carry a trigger or a rule
-- name: tables
select current_setting('server_encoding'), coalesce(array_agg(relname::text), '{}'),
    coalesce(array_agg(relname::text) filter (where relhastriggers or relhasrules), '{}')
from pg_class
where relnamespace = (select oid from pg_namespace where nspname = %(schema)s) and relkind = 'r'

-- a run is taken when nobody holds it by the clock of the server, or when this very acquisition is repeated
-- name: take
insert into runs as held (run_id, hash, epoch, token, owner_host, owner_boot, owner_pid, owner_started, lease_until)
values (%(run_id)s, %(genesis)s, 1, %(token)s, %(host)s, %(boot)s, %(pid)s, %(started)s,
        clock_timestamp() + %(ttl)s * interval '1 second')
on conflict (run_id) do update
set epoch = held.epoch + (held.token is distinct from excluded.token)::integer,
    token = excluded.token,
    owner_host = excluded.owner_host,
    owner_boot = excluded.owner_boot,
    owner_pid = excluded.owner_pid,
    owner_started = excluded.owner_started,
    lease_until = clock_timestamp() + %(ttl)s * interval '1 second'
where held.lease_until is null or held.lease_until <= clock_timestamp() or held.token = excluded.token
returning epoch, seq, hash

-- name: renew
update runs set lease_until = clock_timestamp() + %(ttl)s * interval '1 second'
where run_id = %(run_id)s and epoch = %(epoch)s and token is not null

-- name: release
update runs
set token = null, owner_host = null, owner_boot = null, owner_pid = null, owner_started = null, lease_until = null
where run_id = %(run_id)s and epoch = %(epoch)s

-- One round trip and one transaction: the lease epoch, the expected sequence and the previous hash are checked by the
-- statement that moves the head, and events are inserted only when it moved.
-- name: append
with moved as (
    update runs
    set seq = %(seq)s, hash = %(hash)s, mission_id = %(mission_id)s, title = %(title)s, status = %(status)s,
        stop_reason = %(stop_reason)s, steps_done = %(steps_done)s, steps_open = %(steps_open)s,
        effects_open = %(effects_open)s, started_at = coalesce(started_at, %(at)s), updated_at = %(at)s,
        lease_until = clock_timestamp() + %(ttl)s * interval '1 second'
    where run_id = %(run_id)s and epoch = %(epoch)s and token is not null
      and seq = %(expected)s and hash = coalesce(%(previous)s, hash)
    returning run_id
)
insert into events (run_id, seq, part, kind, version, at, op, hash, body)
select run_id, %(seq)s, 0, %(kind)s, %(version)s, %(at)s, %(op)s, %(hash)s, %(body)s from moved

-- the same for several records, each with its operation and its part in it
-- name: append_many
with moved as (
    update runs
    set seq = %(seq)s, hash = %(hash)s, mission_id = %(mission_id)s, title = %(title)s, status = %(status)s,
        stop_reason = %(stop_reason)s, steps_done = %(steps_done)s, steps_open = %(steps_open)s,
        effects_open = %(effects_open)s, started_at = coalesce(started_at, %(first_at)s), updated_at = %(at)s,
        lease_until = clock_timestamp() + %(ttl)s * interval '1 second'
    where run_id = %(run_id)s and epoch = %(epoch)s and token is not null
      and seq = %(expected)s and hash = coalesce(%(previous)s, hash)
    returning run_id
)
insert into events (run_id, seq, part, kind, version, at, op, hash, body)
select run_id, %(expected)s + place, part, kind, version, at, op, hash, body
from moved, unnest(%(kinds)s::text[], %(versions)s::integer[], %(ats)s::text[], %(ops)b::bytea[], %(parts)s::integer[],
                   %(hashes)b::bytea[], %(bodies)s::text[])
    with ordinality as record (kind, version, at, op, part, hash, body, place)

-- why an append moved nothing: where the run is, whether these very records are there, whether the operation is used
-- name: standing
select runs.epoch, runs.token is not null, runs.seq,
    exists (select from events where run_id = %(run_id)s and seq = %(seq)s and hash = %(hash)s and op = %(last_op)s),
    exists (select from events where op = %(op)s and part = 0)
from runs where run_id = %(run_id)s

-- the search path that the server gives, without the schema of the store: its name may be that of the role
-- name: theirs
select set_config('search_path', coalesce(string_agg(quote_ident(name), ', ' order by place), ''), true)
from unnest(current_schemas(false)) with ordinality as found (name, place) where name <> %(schema)s

-- a statement of the user may have changed these: here they are again what every append has
-- name: ours
select set_config('search_path', %(path)s, true), set_config('synchronous_commit', 'on', true)

-- wait until whoever moves the run is done with it
-- name: await_run
select 1 from runs where run_id = %(run_id)s for update

-- name: run
select run_id, seq, hash, mission_id, title, status, stop_reason, steps_done, steps_open, effects_open,
    started_at, updated_at, epoch, owner_host, owner_boot, owner_pid, owner_started,
    coalesce(lease_until > clock_timestamp(), false)
from runs where run_id = %(run_id)s

-- name: runs
select run_id, seq, hash, mission_id, title, status, stop_reason, steps_done, steps_open, effects_open,
    started_at, updated_at, epoch, owner_host, owner_boot, owner_pid, owner_started,
    coalesce(lease_until > clock_timestamp(), false)
from runs where seq > 0 and run_id < %(before)s order by run_id desc limit %(limit)s

-- name: unfinished_runs
select run_id, seq, hash, mission_id, title, status, stop_reason, steps_done, steps_open, effects_open,
    started_at, updated_at, epoch, owner_host, owner_boot, owner_pid, owner_started,
    coalesce(lease_until > clock_timestamp(), false)
from runs where seq > 0 and status <> 'finished' and run_id < %(before)s order by run_id desc limit %(limit)s

-- name: events
select run_id, seq, kind, version, at, body, hash, op from events
where run_id = %(run_id)s and seq > %(after)s order by seq limit %(limit)s

-- runs with events that are not listed, and where their events end; steps from run to run, not from event to event
-- name: strays
with recursive used as (
    (select run_id from events order by run_id limit 1)
    union all
    select (select events.run_id from events where events.run_id > used.run_id order by events.run_id limit 1)
    from used where used.run_id is not null
)
select run_id, (select max(seq) from events where events.run_id = used.run_id)
from used where run_id is not null and not exists (select from runs where runs.run_id = used.run_id and runs.seq > 0)

-- runs whose head stands further than their events go
-- name: shortened
select run_id, seq, reached from (
    select run_id, seq, coalesce((select max(events.seq) from events where events.run_id = runs.run_id), 0) as reached
    from runs
) as found where seq > reached

-- a loss that a person accepted: what is there now is what there is. A snapshot of more is emptied, which is as good as none;
-- to delete it would need a right that a writer does without
-- name: accept_loss
with emptied as (
    update snapshots set seq = 0, data = '' where run_id = %(run_id)s and seq > %(seq)s
)
update runs
set seq = %(seq)s, mission_id = %(mission_id)s, title = %(title)s, status = %(status)s, stop_reason = %(stop_reason)s,
    steps_done = %(steps_done)s, steps_open = %(steps_open)s, effects_open = %(effects_open)s,
    hash = coalesce((select hash from events where events.run_id = runs.run_id and events.seq = %(seq)s), %(genesis)s)
where run_id = %(run_id)s and seq > %(seq)s

-- a message is counted and left in one statement; the token is unique, so one that is repeated goes in once
-- name: post
with counted as (
    update store set last_message = last_message + 1
    where id = 1 and exists (select from runs where run_id = %(run_id)s)
    returning last_message
)
insert into messages (id, run_id, token, kind, body)
select last_message, %(run_id)s, %(token)s, %(kind)s, %(body)s from counted
returning id

-- name: posted
select id from messages where token = %(token)s

-- name: messages
select id, kind, body from messages where run_id = %(run_id)s and id > %(after)s and not dropped order by id

-- false if the lease does not stand
-- name: drop_messages
with held as (
    select run_id from runs where run_id = %(run_id)s and epoch = %(epoch)s and token is not null for share
), gone as (
    update messages set dropped = true, body = ''
    from held where messages.run_id = held.run_id and id <= %(upto)s and not dropped
)
select exists (select from held)

-- name: has_artifact
select exists (select from artifacts where digest = %(digest)s)

-- name: put_artifact
insert into artifacts (digest, size, encoding, data) values (%(digest)s, %(size)s, %(encoding)s, %(data)b)
on conflict do nothing

-- name: get_artifact
select encoding, size, data from artifacts where digest = %(digest)s

-- name: save_snapshot
insert into snapshots (run_id, seq, data) select run_id, %(seq)s, %(data)b from runs where run_id = %(run_id)s
on conflict (run_id) do update set seq = excluded.seq, data = excluded.data where excluded.seq >= snapshots.seq

-- name: load_snapshot
select seq, data from snapshots where run_id = %(run_id)s

-- name: facts
select current_setting('server_version'), current_setting('fsync'), current_setting('full_page_writes'),
    current_setting('synchronous_commit'),
    (select sum(pg_total_relation_size(oid))::bigint from pg_class where relnamespace = current_schema()::regnamespace and relkind = 'r'),
    (select count(*) from runs where seq > 0), (select coalesce(sum(seq), 0)::bigint from runs),
    (select count(*) from artifacts)
