-- Every statement the SQLite store runs. Bound parameters; nothing from outside ever becomes part of the text.
-- {events} is the table that holds the events of a run, {table} its number and {tables} how many there are: sqlite_tables.py

-- name: run
select run_no, run_id, mission_id, title, status, stop_reason, started_at,
       epoch, owner_host, owner_boot, owner_pid, owner_started, lease_until, kept_seq, kept_hash
from runs where run_id = ?

-- name: runs
select run_no, run_id, mission_id, title, status, stop_reason, started_at,
       epoch, owner_host, owner_boot, owner_pid, owner_started, lease_until, kept_seq, kept_hash
from runs where run_id < ? order by run_id desc limit ?

-- name: unfinished_runs
select run_no, run_id, mission_id, title, status, stop_reason, started_at,
       epoch, owner_host, owner_boot, owner_pid, owner_started, lease_until, kept_seq, kept_hash
from runs where run_id < ? and status <> 'finished' order by run_id desc limit ?

-- where a run stands
-- name: head
select place, hash, steps_done, steps_open, effects_open, at
from {events} where place > ?1 << 32 and place < (?1 + 1) << 32 order by place desc limit 1

-- name: lease_row
select run_no, epoch, owner_host, owner_boot, owner_pid, owner_started, lease_until, kept_seq from runs where run_id = ?

-- name: highest
select coalesce(max(place), 0) >> 32 from {events}

-- a number above every one that anything here carries: what a lost run left behind never becomes a part of another
-- name: new_run
insert into runs (run_no, run_id) values (1 + max(?1,
    coalesce((select max(run_no) from runs), 0), coalesce((select max(run_no) from snapshots), 0),
    coalesce((select max(run_no) from messages), 0)), ?2)

-- name: lease
update runs
set epoch = ?, owner_host = ?, owner_boot = ?, owner_pid = ?, owner_started = ?, lease_until = ?
where run_no = ?

-- name: renew
update runs set lease_until = ? where run_no = ? and epoch = ? and owner_pid is not null

-- name: release
update runs
set owner_host = null, owner_boot = null, owner_pid = null, owner_started = null, lease_until = 0
where run_no = ? and epoch = ?

-- where the run stands, written down a second time whenever its row is written anyway: a tail that is cut off later shows
-- name: keep_head
update runs
set (kept_seq, kept_hash) = (
    select place & 0xffffffff, hash from {events}
    where place > run_no << 32 and place < (run_no + 1) << 32 order by place desc limit 1
)
where run_no = ? and epoch = ? and exists (select 1 from {events} where place = run_no << 32 | 1)

-- runs that once stood further than their log goes
-- name: shortened
select run_no, run_id, kept_seq, reached from (
    select run_no, run_id, kept_seq, (select coalesce(max(place) & 0xffffffff, 0) from {events}
                                      where place > run_no << 32 and place < (run_no + 1) << 32) as reached
    from runs where run_no % {tables} = {table}
) where kept_seq > reached

-- numbers with events and no run, or in a table that is not theirs, and where their events end; steps from number to
-- number, not from event to event
-- name: strays
with recursive used (number) as (
    select min(place) >> 32 from {events}
    union all
    select (select min(place) >> 32 from {events} where place > (number << 32 | 0xffffffff)) from used where number is not null
)
select number, (select max(place) & 0xffffffff from {events} where place <= (number << 32 | 0xffffffff))
from used where number is not null and (number % {tables} <> {table} or not exists (select 1 from runs where run_no = number))

-- a loss that a person accepted: what is there now is what there is
-- name: accept_loss
update runs set kept_seq = ?1 where run_id = ?2

-- name: drop_snapshot
delete from snapshots where run_no = (select run_no from runs where run_id = ?2) and seq > ?1

-- name: show
update runs
set mission_id = ?, title = ?, status = ?, stop_reason = ?, started_at = coalesce(started_at, ?)
where run_no = ?

-- the first event of an append goes in only under the lease it claims, and only where no event is yet; while that
-- lease stands nobody else has appended, so the store knows without asking where the run ends
-- name: append
insert into {events} (place, kind, version, at, op, hash, steps_done, steps_open, effects_open, body)
select ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10
where exists (select 1 from runs where run_no = ?1 >> 32 and epoch = ?11 and owner_pid is not null)
on conflict do nothing

-- name: append_more
insert into {events} (place, kind, version, at, op, hash, steps_done, steps_open, effects_open, body)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)

-- name: event
select op, hash from {events} where place = ?

-- name: sighted
select hash, exists (select 1 from runs where run_no = place >> 32) from {events} where place = ?

-- the body as the bytes it is hashed by: it need not become text in between. What is no text is none
-- name: events
select place, kind, version, at, op, hash, case typeof(body) when 'text' then cast(body as blob) end from {events}
where place > ? and place <= ? order by place limit ?

-- name: standing
select epoch, owner_pid is not null,
       (select max(place) from {events} where place > run_no << 32 and place < (run_no + 1) << 32)
from runs where run_no = ?

-- name: last
select max(place) from {events} where place > ?1 << 32 and place < (?1 + 1) << 32

-- name: run_no
select run_no from runs where run_id = ?

-- name: put_artifact
insert into artifacts (digest, size, encoding, data) values (?, ?, ?, ?) on conflict do nothing

-- name: get_artifact
select encoding, size, data from artifacts where digest = ?

-- name: save_snapshot
insert into snapshots (run_no, seq, data) values (?, ?, ?)
on conflict (run_no) do update set seq = excluded.seq, data = excluded.data where excluded.seq >= seq

-- name: load_snapshot
select seq, data from snapshots where run_no = (select run_no from runs where run_id = ?)

-- name: next_message
update store set last_message = last_message + 1 where id = 1 returning last_message

-- name: post
insert into messages (id, run_no, kind, body) values (?, ?, ?, ?)

-- name: messages
select id, kind, body from messages where run_no = (select run_no from runs where run_id = ?) and id > ? order by id

-- name: drop_messages
delete from messages where run_no = ? and id <= ?

-- name: stands
select 1 from runs where run_no = ? and epoch = ? and owner_pid is not null

-- name: schema
select type, name, tbl_name, coalesce(sql, ''), rootpage from sqlite_schema order by type, name

-- what SQLite has understood of the schema: each table with its kind and its indexes (a table without rowid is its key's)
-- name: objects
select t.name, t.type, i.name from pragma_table_list t
left join pragma_index_list(t.name) i on not (t.wr and i.origin = 'pk')
where t.schema = 'main' and t.name <> 'sqlite_schema'

-- name: store
select store_id, created_at from store where id = 1

-- name: new_store
insert into store (id, store_id, created_at) values (1, ?, ?)

-- name: recent_heads
select e.place, e.hash, e.at from runs r
join {events} e on e.place = (select max(place) from {events} where place > r.run_no << 32 and place < (r.run_no + 1) << 32)
where r.run_no % {tables} = {table}
order by e.at desc limit ?

-- name: counts
select (select count(*) from runs), (select count(*) from artifacts)

-- name: events_count
select count(*) from {events}
