-- Every statement the SQLite store runs. Constant text, bound parameters, nothing built from strings.

-- name: run
select run_no, run_id, seq, hash, mission_id, title, status, stop_reason, steps_done, steps_open, effects_open,
       started_at, updated_at, epoch, owner_host, owner_boot, owner_pid, owner_started, lease_until
from runs where run_id = ?

-- name: runs
select run_no, run_id, seq, hash, mission_id, title, status, stop_reason, steps_done, steps_open, effects_open,
       started_at, updated_at, epoch, owner_host, owner_boot, owner_pid, owner_started, lease_until
from runs
where seq > 0 and run_id < ? and (? = 0 or status <> 'finished')
order by run_id desc limit ?

-- name: new_run
insert into runs (run_id, hash) values (?, ?)

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

-- the lease epoch and the expected sequence are checked by the same statement that moves the head
-- name: advance
update runs
set seq = ?, hash = ?, op = ?, mission_id = ?, title = ?, status = ?, stop_reason = ?, steps_done = ?,
    steps_open = ?, effects_open = ?, started_at = coalesce(started_at, ?), updated_at = ?, lease_until = ?
where run_no = ? and epoch = ? and seq = ? and op <> ? and owner_pid is not null

-- name: insert_event
insert into events (place, kind, version, at, op, hash, body) values (?, ?, ?, ?, ?, ?, ?)

-- name: event
select kind, version, at, op, hash, body from events where place = ?

-- name: events
select place, kind, version, at, op, hash, body from events
where place > ? and place <= ? order by place limit ?

-- name: standing
select epoch, seq, op, owner_pid is not null from runs where run_no = ?

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
select seq, data from snapshots where run_no = ?

-- name: store
select store_id, created_at from store where id = 1

-- name: new_store
insert into store (id, store_id, created_at) values (1, ?, ?)

-- name: recent_heads
select run_no, seq, hash from runs where seq > 0 order by updated_at desc limit ?

-- name: counts
select (select count(*) from runs where seq > 0), (select coalesce(sum(seq), 0) from runs), (select count(*) from artifacts)
