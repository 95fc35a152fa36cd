-- The log of many runs in one PostgreSQL schema. There are no triggers, views, rules or functions, ever.

-- who this store is, which migrations it has had, and how many messages: whoever counts one is alone until it is committed,
-- so no message becomes visible after one with a greater id
create table store (
    id integer primary key check (id = 1),
    schema_version integer not null,
    store_id text not null,
    created_at timestamptz not null default clock_timestamp(),
    last_message bigint not null default 0
);

-- one row a run: its head, what a list shows of it, and the lease.
-- Half of each page stays free and no changing column is indexed, so moving a head touches no index.
create table runs (
    run_id text collate "C" primary key,
    seq bigint not null default 0,
    hash bytea not null,
    mission_id text not null default '',
    title text not null default '',
    status text not null default 'ready',
    stop_reason text,
    steps_done bigint not null default 0,
    steps_open bigint not null default 0,
    effects_open bigint not null default 0,
    started_at text,
    updated_at text,
    epoch bigint not null default 0,
    -- new at every acquisition: an acquisition whose answer was lost is recognised when it is repeated
    token text,
    owner_host text,
    owner_boot text,
    owner_pid bigint,
    owner_started text,
    lease_until timestamptz
) with (fillfactor = 50);

create index runs_unfinished on runs (run_id desc) where status <> 'finished';

-- two writers cannot both write event N of a run. No foreign key: the statement that inserts an event moves its run.
create table events (
    run_id text collate "C" not null,
    seq bigint not null,
    part integer not null,
    kind text not null,
    version integer not null,
    at text not null,
    op bytea not null,
    hash bytea not null,
    body text not null,
    primary key (run_id, seq)
);

-- an operation belongs to one append: its first event is part 0
create unique index events_op on events (op) where part = 0;

-- bytes by their SHA-256; compressed by us, so not again by the server
create table artifacts (
    digest bytea primary key,
    size bigint not null,
    encoding text not null,
    data bytea not null
);
alter table artifacts alter column data set storage external;

-- caches of folded state; deleting them loses nothing
create table snapshots (
    run_id text collate "C" primary key,
    seq bigint not null,
    data bytea not null
);

-- what was left for a run by those who do not hold its lease. The body is UTF-8; text here keeps no NUL.
-- A message that was taken in loses its body and stays: so one whose answer was lost is recognised when it is repeated.
create table messages (
    id bigint primary key,
    run_id text collate "C" not null,
    token bytea not null unique,
    kind text not null,
    body bytea not null,
    dropped boolean not null default false
);

create index messages_waiting on messages (run_id, id) where not dropped;
