-- Sixteen tables of events instead of one: events_0 holds those of the runs 16, 32, ..., events_1 those of 1, 17, 33, ...
-- A paragraph with {events} in it is for each of these tables in turn; {table} is the number of the table.

-- place = run_no * 2^32 + seq: two writers cannot both write event N of a run, and a run lies together on disk;
-- the counts are those after the event, so that a list needs no fold and an append touches one page
create table {events} (
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

insert into {events} select * from events where (place >> 32) & 15 = {table} order by place;

-- a process with an older Holdfast that has the store open finds no table, instead of writing where nobody reads
drop table events;
