"""Which tasks go together: each as early as what it needs allows, never two on one file, alone when it names no file.

The same for every order of the tasks. Refuses, all at once and with names, what has no order: cycles, strangers, twins.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from holdfast.core.named import NamedTuple
from holdfast.core.spec import ASIDE, OVER, Problem, Status, Task, natural, refuse

Needs: TypeAlias = tuple[str, ...]
Group: TypeAlias = tuple[Needs, list[str]]
_CYCLE_TOLD = 100
_WAITING_TOLD = 10
_GLOB = frozenset("*?[{")
_ALONE = ("alone", ())


class Batch(NamedTuple):
    """Tasks between two checkpoints. `parallel` says that there is more than one, so that they may run at the same time."""

    tasks: tuple[str, ...]
    parallel: bool


def plan(tasks: Sequence[Task], *, break_on_phase: bool = False, sound: Sequence[Task] = ()) -> tuple[Batch, ...]:
    """The batches of the tasks that can be done. What is complete counts as done; what is held up is in none of them.

    `sound`: the same tasks as they were when they had an order.
    """
    left = _ordered(tasks)
    found = [] if _is_left_of(sound, tasks) else _faults(tasks, left)
    refuse([Problem("tasks.yaml", None, sentence, fatal=True) for sentence in found])
    out = {name for blocked, behind in _held(left).items() for name in (blocked, *behind)}
    free = [task for task in left if task.id not in out] if out else left
    queue = _one_phase_first(free) if break_on_phase else free
    return _gathered(free, _earliest(queue, _open_needs(queue), by_phase=break_on_phase))


def held(tasks: Sequence[Task]) -> dict[str, tuple[str, ...]]:
    """Each task that somebody called blocked, and those to do that wait for it, one behind the other too."""
    return _held(_ordered(tasks))


def held_said(held_up: Mapping[str, Sequence[str]]) -> list[str]:
    """The same in sentences."""
    return [f"{name} is blocked{_waiting(behind)}" for name, behind in held_up.items()]


def _waiting(behind: Sequence[str]) -> str:
    more = f" and {len(behind) - _WAITING_TOLD} more" if len(behind) > _WAITING_TOLD else ""
    who = f"{', '.join(behind[:_WAITING_TOLD])}{more}"
    return f", and {who} {'waits' if len(behind) == 1 else 'wait'} for it" if behind else ""


def _held(left: Sequence[Task]) -> dict[str, tuple[str, ...]]:
    blocked = [task.id for task in left if task.status == "blocked"]
    wanted_by = _wanted_by(_groups(_open_needs(left))) if blocked else {}
    return {name: _behind(name, wanted_by) for name in blocked}


def _behind(name: str, wanted_by: Mapping[str, Sequence[Group]]) -> tuple[str, ...]:
    found, met = {name: None}, set[int]()
    queue = [name]
    for one in queue:
        for _, members in wanted_by.get(one, ()):
            if id(members) not in met:
                met.add(id(members))
                fresh = [later for later in members if later not in found]
                found |= dict.fromkeys(fresh)
                queue += fresh
    return tuple(sorted(found.keys() - {name}, key=natural))


def faults(tasks: Sequence[Task], sound: Sequence[Task] = ()) -> list[str]:
    """Every reason why these tasks have no order, one sentence each. Only what is still to do can stand in the way.

    `sound`: the same tasks as they were when they had none.
    """
    return [] if _is_left_of(sound, tasks) else _faults(tasks, _ordered(tasks))


def _is_left_of(sound: Sequence[Task], tasks: Sequence[Task]) -> bool:
    """Whether these need what they needed, and none is set aside or to be done that was not: a part of an order is one."""
    return len(sound) == len(tasks) > 0 and all(
        was is now or (was.id == now.id and was.depends_on == now.depends_on and _is_no_more(was.status, now.status))
        for was, now in zip(sound, tasks, strict=True)
    )


def _is_no_more(was: Status, now: Status) -> bool:
    return (was in ASIDE) == (now in ASIDE) and (was not in OVER or now in OVER)


def _faults(tasks: Sequence[Task], left: Sequence[Task]) -> list[str]:
    needs = _open_needs(left)
    needs |= {name: tuple(need for need in needs[name] if need != name) for name in _selfish(left)}
    cycles = [f"{_chain(cycle)}, which is a cycle." for cycle in _cycles(needs)]
    return [*_twins(tasks), *_bad_needs(tasks, left), *cycles]


def _ordered(tasks: Sequence[Task]) -> list[Task]:
    return sorted((task for task in tasks if task.status not in OVER), key=lambda task: natural(task.id))


def _one_phase_first(left: Sequence[Task]) -> list[Task]:
    """In the order of the phases, which is that of their first ids."""
    rank: dict[str | None, int] = {}
    for task in left:
        rank.setdefault(task.phase, len(rank))
    return sorted(left, key=lambda task: rank[task.phase])


def _open_needs(left: Sequence[Task]) -> dict[str, Needs]:
    """What each still waits for. Those that need the same, as all of a phase do, have one tuple between them."""
    rank = {task.id: number for number, task in enumerate(left)}
    distinct = _distinct(left).items()
    waits = {key: tuple(sorted(rank.keys() & set(needs), key=rank.__getitem__)) for key, needs in distinct}
    return {task.id: waits[id(task.depends_on)] for task in left}


def _distinct(tasks: Sequence[Task]) -> dict[int, Needs]:
    """What they need, each tuple once: two phases of 500 tasks are two of them, and not 250,000 pairs."""
    return {id(task.depends_on): task.depends_on for task in tasks}


def _selfish(tasks: Sequence[Task]) -> set[str]:
    """Those that need themselves."""
    given = {key: frozenset(needs) for key, needs in _distinct(tasks).items()}
    return {task.id for task in tasks if task.id in given[id(task.depends_on)]}


def _twins(tasks: Sequence[Task]) -> list[str]:
    counts = Counter([task.id for task in tasks])
    twice = sorted((name for name, count in counts.items() if count > 1), key=natural)
    return [f"The id {name} is given to {counts[name]} tasks." for name in twice]


def _bad_needs(tasks: Sequence[Task], left: Sequence[Task]) -> Iterator[str]:
    known: Mapping[str, Task] = {task.id: task for task in tasks}
    selfish, distinct = _selfish(left), _distinct(left).items()
    bad = {key for key, needs in distinct if any(need not in known or known[need].status in ASIDE for need in needs)}
    for task in left:
        if task.id not in selfish and id(task.depends_on) not in bad:
            continue
        for need in dict.fromkeys(task.depends_on):
            if need == task.id:
                yield f"{task.id} needs itself."
            elif need not in known:
                yield f"{task.id} needs {need}, and there is no such task."
            elif known[need].status in ASIDE:
                yield f"{task.id} needs {need}, which is {known[need].status}."


def _chain(cycle: Sequence[str]) -> str:
    if len(cycle) > _CYCLE_TOLD:
        cycle = [*cycle[:_CYCLE_TOLD], f"({len(cycle) - _CYCLE_TOLD} more)"]
    return " needs ".join([*cycle, cycle[0]])


def _cycles(needs: Mapping[str, Needs]) -> Iterator[list[str]]:
    """One cycle of every knot, each from its first id on."""
    knots = _knots(needs)
    seen: set[str] = set()
    for start in sorted(knots, key=natural):
        path: dict[str, int] = {}
        here: str = start
        while here not in seen:
            seen.add(here)
            path[here] = len(path)
            here = next(need for need in needs[here] if need in knots)
        if here in path:
            yield _from_first(list(path)[path[here] :])


def _from_first(cycle: list[str]) -> list[str]:
    first = cycle.index(min(cycle, key=natural))
    return cycle[first:] + cycle[:first]


def _knots(needs: Mapping[str, Needs]) -> set[str]:
    """The tasks that have no place in any order: those on a cycle, and those that need one of them."""
    return set(needs) - set(_in_order(needs))


def _in_order(needs: Mapping[str, Needs]) -> Iterator[str]:
    """The ids so that each comes after what it needs, the first by name before others. Those behind a cycle never come."""
    groups = _groups(needs)
    wanted_by = _wanted_by(groups)
    missing = {id(members): len(wanted) for wanted, members in groups}
    rank = {name: number for number, name in enumerate(needs)}
    ready = [(rank[name], name) for wanted, members in groups if not wanted for name in members]
    heapq.heapify(ready)
    while ready:
        _, name = heapq.heappop(ready)
        yield name
        for _, members in wanted_by.get(name, ()):
            missing[id(members)] -= 1
            if missing[id(members)] == 0:
                for waiting in members:
                    heapq.heappush(ready, (rank[waiting], waiting))


def _groups(needs: Mapping[str, Needs]) -> list[Group]:
    """Those that wait for the same, with what that is."""
    found: dict[int, Group] = {}
    for name, wanted in needs.items():
        found.setdefault(id(wanted), (wanted, []))[1].append(name)
    return list(found.values())


def _wanted_by(groups: Iterable[Group]) -> dict[str, list[Group]]:
    found: dict[str, list[Group]] = {}
    for group in groups:
        for need in group[0]:
            found.setdefault(need, []).append(group)
    return found


def _earliest(left: Sequence[Task], needs: Mapping[str, Needs], *, by_phase: bool) -> dict[str, int]:
    """The first batch after all that a task needs in which nobody touches its files, and no other phase is at work."""
    tasks = {task.id: task for task in left}
    places: dict[str, int] = {}
    count, is_free = 0, not by_phase and not _collide(left)
    rooms: dict[str | None, _Rooms] = {}
    behind: dict[int, int] = {}  # the first batch after all that a group needs
    for name in _in_order(needs):
        group = id(needs[name])
        if group not in behind:
            behind[group] = max((places[need] + 1 for need in needs[name]), default=0)
        if is_free:
            places[name] = behind[group]
            continue
        room = rooms.setdefault(tasks[name].phase if by_phase else None, _Rooms())
        places[name] = room.take(_claims(tasks[name].files), behind[group], count)
        count = max(count, places[name] + 1)
    return places


def _collide(tasks: Sequence[Task]) -> bool:
    """Whether any two could not be in one batch because of what they touch."""
    claims = [_claims(task.files) for task in tasks]
    places = [place for claimed in claims for place in claimed]
    known = set(places)
    return (
        not all(claims)
        or len(known) < len(places)
        or any(place[:length] in known for place in places for length in range(len(place)))
    )


def _gathered(left: Sequence[Task], places: Mapping[str, int]) -> tuple[Batch, ...]:
    groups: list[list[str]] = [[] for _ in range(max(places.values(), default=-1) + 1)]
    for task in left:
        groups[places[task.id]].append(task.id)
    return tuple(Batch(tuple(group), len(group) > 1) for group in groups)


@lru_cache(maxsize=8192)
def _claims(files: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """The places a task may write to. A folder or a pattern stands for all that may be in it."""
    return tuple(sorted({_place(file) for file in files if file.strip()}))


def _place(file: str) -> tuple[str, ...]:
    """A path in one spelling, up to its first pattern: `./src//a.py` and `SRC/a.py` are the same place for us."""
    parts: list[str] = []
    for part in file.strip().replace("\\", "/").casefold().split("/"):
        if _GLOB.intersection(part):
            break
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return tuple(parts)


class _Rooms:
    """Who touches what in which batch. Finds the first batch that is free for a set of places, without trying each."""

    def __init__(self) -> None:
        self._batches: list[int] = []  # those that are ours, of all there are
        self._held: dict[tuple[str, tuple[str, ...]], dict[int, int]] = {}
        self._tried: dict[tuple[tuple[str, ...], ...], tuple[int, int]] = {}

    def take(self, claims: tuple[tuple[str, ...], ...], after: int, count: int) -> int:
        """The number of the batch, at least `after`. `count` is the number of the next new one."""
        room = self._free(claims, bisect_left(self._batches, after)) if claims else len(self._batches)
        if room == len(self._batches):
            self._batches.append(count)
        for key in _marks(claims):
            self._held.setdefault(key, {})[room] = room + 1
        return self._batches[room]

    def _free(self, claims: tuple[tuple[str, ...], ...], room: int) -> int:
        tried_from, tried_to = self._tried.get(claims, (room, room))
        if tried_from <= room <= tried_to:
            room = tried_to
        else:
            tried_from = room
        keys = _obstacles(claims)
        while (free := self._past(keys, room)) != room:
            room = free
        self._tried[claims] = (tried_from, room)
        return room

    def _past(self, keys: Sequence[tuple[str, tuple[str, ...]]], room: int) -> int:
        for key in keys:
            room = _leap(self._held.get(key, {}), room)
        return room


def _leap(held: dict[int, int], room: int) -> int:
    """The first room from here on that is not held. The way there is made short for those who come after."""
    way = []
    while room in held:
        way.append(room)
        room = held[room]
    for passed in way:
        held[passed] = room
    return room


def _marks(claims: tuple[tuple[str, ...], ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What a task leaves behind in its batch: each place, and every folder above that something in it is held."""
    if not claims:
        yield _ALONE
    for place in claims:
        yield "at", place
        yield from (("below", place[:length]) for length in range(len(place) + 1))


def _obstacles(claims: tuple[tuple[str, ...], ...]) -> list[tuple[str, tuple[str, ...]]]:
    """What keeps a task out of a batch: somebody alone, a folder above one of its places, or anything in such a place."""
    above = {("at", place[:length]) for place in claims for length in range(len(place))}
    return [_ALONE, *sorted(above), *(("below", place) for place in claims)]
