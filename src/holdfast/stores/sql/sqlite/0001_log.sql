-- The log of many runs in one file. Every table is strict; there are no triggers, views or virtual tables, ever.
-- Tables whose names begin with app_ belong to the user.

-- who this store is: the witness beside the file names it; and how many messages it has had, so that no id comes twice
create table store (
    id integer primary key check (id = 1),
    store_id text not null,
    created_at text not null,
    last_message integer not null default 0
) strict;

-- one row a run: what changes seldom, and the lease; where it stands is in its last event
create table runs (
    run_no integer primary key,
    run_id text not null unique,
    mission_id text not null default '',
    title text not null default '',
    status text not null default 'ready',
    stop_reason text,
    started_at text,
    kept_seq integer not null default 0,
    kept_hash blob,
    epoch integer not null default 0,
    owner_host text,
    owner_boot text,
    owner_pid integer,
    owner_started text,
    lease_until integer not null default 0
) strict;

-- what is unfinished is found without passing over what is finished; changes with the status only
create index runs_unfinished on runs (run_id) where status <> 'finished';

-- place = run_no * 2^32 + seq: two writers cannot both write event N of a run, and a run lies together on disk;
-- the counts are those after the event, so that a list needs no fold and an append touches one page
create table events (
    place integer primary key,
    kind text not null,
    version integer not null,
    at text not null,
    op blob not null,
    hash blob not null,
    steps_done integer not null,
    steps_open integer not null,
    effects_open integer not null,
    body text not null
) strict;

-- bytes by their SHA-256
create table artifacts (
    digest blob primary key,
    size integer not null,
    encoding text not null,
    data blob not null
) strict;

-- caches of folded state; deleting them loses nothing
create table snapshots (
    run_no integer primary key,
    seq integer not null,
    data blob not null
) strict;

-- what was left for a run by those who do not hold its lease, until its log has taken it in
create table messages (
    id integer primary key,
    run_no integer not null,
    kind text not null,
    body text not null
) strict;

create index messages_run on messages (run_no);
