"""Kills somebody's own program at every point of its runs, starts it again until it rests, and hands over what it saw.

Each trial has a store, notes and a folder of its own. Judges nothing (`killcount` does) and ends only what it started.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, suppress

import msgspec

from holdfast.core import stops
from holdfast.core.errors import HoldfastError, NotFound, UsageError
from holdfast.core.named import NamedTuple
from holdfast.ports import Store
from holdfast.testing.killcount import Baseline, Trial, Verdict, compare, is_blocked, judge
from holdfast.testing.killlook import Left, look
from holdfast.testing.killpoints import (
    AFTER,
    APPEND,
    BEFORE,
    BEGIN,
    END,
    INSIDE,
    MIDDLE,
    OPEN,
    TRANSACTION,
    VARIABLE,
    Note,
    Order,
    read_notes,
)

FOLDER_VARIABLE = "HOLDFAST_KILLTEST_FOLDER"
NOT_INHERITED = ("HOLDFAST_RUN", "HOLDFAST_PLAN", VARIABLE)
LONG_ACT = 0.005  # seconds from which on an act has a middle
LIVES = 6
_LONGEST_PAUSE = 0.05
_TAIL = 400

Read = Callable[[str], AbstractContextManager[Store]]


class NotTestable(HoldfastError):
    """The program cannot be put to this test."""

    reason = "bad_input"


class NeverEnds(HoldfastError):
    """The program did not end in time, although nobody had disturbed it."""

    reason = "timeout"


class Point(NamedTuple):
    """A moment to kill at, such as `before:3`. `wait`: seconds from the beginning of an act to its middle."""

    name: str
    wait: float = 0.0


class Plan(NamedTuple):
    """What is put to the test, and where. Each trial works in a copy of `world`, if there is one."""

    command: Sequence[str]
    folder: str
    environ: Mapping[str, str]
    timeout: float = 60.0
    world: str | None = None
    check: Sequence[str] = ()


# --- points


def points_of(notes: Sequence[Note]) -> list[Point]:
    """Every point of an undisturbed run, in the order in which they come."""
    lasted = {note.number: note.lasted / 1e9 for note in notes if note.what == END}
    return [point for note in notes if note.number for point in _points(note, lasted.get(note.number, 0.0))]


def _points(note: Note, lasted: float) -> Iterator[Point]:
    if note.what == APPEND:
        moments = (BEFORE, INSIDE, AFTER) if note.policy == TRANSACTION else (BEFORE, AFTER)
        yield from (Point(f"{moment}:{note.number}") for moment in moments)
    elif note.what == BEGIN:
        yield Point(f"{BEGIN}:{note.number}")
        if lasted >= LONG_ACT:
            yield Point(f"{MIDDLE}:{note.number}", lasted / 2)
    elif note.what == END:
        yield Point(f"{END}:{note.number}")


def spread(points: Sequence[Point], most: int) -> list[Point]:
    """At most so many points, evenly over the program, the last one among them."""
    if len(points) <= most:
        return list(points)
    return [points[(place + 1) * len(points) // most - 1] for place in range(most)]


def sampled(points: Sequence[Point], most: int, seed: int) -> list[Point]:
    """At most so many points by seeded chance, in order."""
    chosen = random.Random(seed).sample(range(len(points)), min(most, len(points)))
    return [points[place] for place in sorted(chosen)]


def named(points: Sequence[Point], names: Sequence[str]) -> list[Point]:
    known = {point.name: point for point in points}
    for name in names:
        if name not in known:
            raise UsageError(f"The program has no point {name!r:.60}.", advice=f"It has {', '.join(known)}.")
    return [known[name] for name in names]


# --- trials


class Tester:
    """Runs the lives of one program. `read` opens a store so that nothing can be written."""

    def __init__(self, plan: Plan, read: Read) -> None:
        self._plan = plan
        self._read = read
        self._ending = threading.Event()
        self.points: list[Point] = []

    def baseline(self) -> Baseline:
        """Run it twice, undisturbed: what it gives, and what is not the same each time."""
        first, second = (self._undisturbed(f"undisturbed-{number}") for number in (1, 2))
        self.points = points_of(first.notes)
        unstable, shifting = compare(first.left, second.left)
        return Baseline(first.left, first.codes[-1] or 0, unstable, shifting)

    def trials(self, base: Baseline, points: Sequence[Point], jobs: int, keep: bool) -> Generator[Verdict, None, None]:
        """Kill it at each of these points. The verdicts come as the trials end."""
        pool = ThreadPoolExecutor(jobs)
        try:
            for done in as_completed([pool.submit(self._judged, base, point, keep) for point in points]):
                yield done.result()
        finally:
            self._ending.set()
            pool.shutdown(cancel_futures=True)

    def _judged(self, base: Baseline, point: Point, keep: bool) -> Verdict:
        folder = self._fresh(point.name.replace(":", "-"))
        verdict = judge(base, self._trial(base, point, folder))
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
        return verdict

    def _trial(self, base: Baseline, point: Point, folder: str) -> Trial:
        codes: list[int | None] = []
        looks: list[Left] = []
        rested = False
        while not rested and len(codes) < LIVES and None not in codes:
            run_id = looks[-1].run_ids[0] if looks and base.single and len(looks[-1].run_ids) == 1 else None
            codes.append(self._live(folder, len(codes) + 1, None if codes else point, run_id))
            looks.append(self._look(folder))
            rested = _rests(base, codes, looks)
        notes = read_notes(os.path.join(folder, "notes"))
        said = _tail(os.path.join(folder, f"life-{len(codes)}.txt"))
        return Trial(point.name, codes, looks, notes, rested, said, self._complaint(folder) if rested else "")

    def _undisturbed(self, name: str) -> Trial:
        folder = self._fresh(name)
        code = self._live(folder, 1)
        left, notes = self._look(folder), read_notes(os.path.join(folder, "notes"))
        self._check_undisturbed(code, left, notes, folder)
        return Trial(name, [code], [left], notes)

    def _check_undisturbed(self, code: int | None, left: Left, notes: Sequence[Note], folder: str) -> None:
        if code is None:
            raise NeverEnds(
                f"The program did not end within {self._plan.timeout:g} seconds, undisturbed.",
                advice="Give it more time with --timeout SECONDS.",
            )
        if code != 0 and not _waits(code, left):
            raise NotTestable(
                f"The program failed undisturbed, with exit code {code}. {_tail(os.path.join(folder, 'life-1.txt'))}",
                advice="It must end well by itself before it can be killed; --keep FOLDER keeps what it said.",
            )
        if not any(note.what == OPEN for note in notes) or not left.runs:
            raise _unused(left)
        if complaint := self._complaint(folder):
            raise NotTestable(f"The check fails after an undisturbed run: {complaint}")

    # --- one life

    def _fresh(self, name: str) -> str:
        folder = os.path.join(self._plan.folder, name)
        os.makedirs(folder, mode=0o700)
        if self._plan.world is None:
            os.mkdir(os.path.join(folder, "world"))
        else:
            shutil.copytree(self._plan.world, os.path.join(folder, "world"), symlinks=True)
        return folder

    def _environ(self, folder: str) -> dict[str, str]:
        kept = {name: value for name, value in self._plan.environ.items() if name not in NOT_INHERITED}
        world, store = os.path.join(folder, "world"), os.path.join(folder, "holdfast.db")
        return kept | {"HOLDFAST_STORE": store, FOLDER_VARIABLE: world}

    def _live(self, folder: str, life: int, point: Point | None = None, run_id: str | None = None) -> int | None:
        """One process, from its start to its end: its exit code, or None if it did not end in time."""
        environ = self._environ(folder) | ({"HOLDFAST_RUN": run_id} if run_id is not None else {})
        at, wait = point or Point("")
        order = Order(environ["HOLDFAST_STORE"], os.path.join(folder, "notes"), life, at, wait)
        environ[VARIABLE] = msgspec.json.encode(order).decode()
        return self._run(self._plan.command, environ, os.path.join(folder, f"life-{life}.txt"))

    def _complaint(self, folder: str) -> str:
        """What the check says about the world after a trial; nothing if all is well."""
        if not self._plan.check:
            return ""
        said = os.path.join(folder, "check.txt")
        code = self._run(self._plan.check, self._environ(folder), said)
        return "" if code == 0 else f"exit code {code}. {_tail(said)}"

    def _run(self, command: Sequence[str], environ: Mapping[str, str], said: str) -> int | None:
        cwd = None if self._plan.world is None else environ[FOLDER_VARIABLE]
        with open(said, "wb") as out:
            try:
                child = subprocess.Popen(
                    command,
                    env=environ,
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise UsageError(f"The program {command[0]!r:.120} cannot be started: {error.strerror}.") from None
        return self._await(child)

    def _await(self, child: subprocess.Popen[bytes]) -> int | None:
        """Until it ends, or its time is over. What it started and left behind ends with it."""
        deadline, pause, ended = time.monotonic() + self._plan.timeout, 0.002, False
        try:
            while not (ended := _has_ended(child.pid)) and time.monotonic() < deadline and not self._ending.is_set():
                time.sleep(pause)
                pause = min(pause * 1.5, _LONGEST_PAUSE)
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            code = child.wait()
        return code if ended else None

    def _look(self, folder: str) -> Left:
        try:
            with self._read(os.path.join(folder, "holdfast.db")) as store:
                return look(store, folder)
        except NotFound:
            return Left()


def _has_ended(pid: int) -> bool:
    """Without taking notice of it: the number of a process that nobody took notice of belongs to nobody else."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _rests(base: Baseline, codes: Sequence[int | None], looks: Sequence[Left]) -> bool:
    """It ended as it does undisturbed, or waits for a person, or would only do the same again."""
    if codes[-1] is None or codes[-1] == -signal.SIGKILL:
        return False
    now = looks[-1]
    again = len(looks) > 1 and codes[-2] == codes[-1] and looks[-2].runs == now.runs
    return again or now.runs == base.left.runs or now.finished or is_blocked(base.left, now)


def _waits(code: int, left: Left) -> bool:
    """An end that is none: the run asked a question or sleeps, and left with the exit code for that."""
    found = [stops.lookup(why) for _, why in left.runs.values() if why is not None]
    return any(stop.family == "waiting" and stop.exit_code == code for stop in found)


def _unused(left: Left) -> NotTestable:
    advice = "Points to kill at are in runs that are opened with `holdfast.run` or `holdfast.arun`."
    if left.runs:
        return NotTestable("The program writes to its store by itself, and opens no run.", advice=advice)
    return NotTestable("The program ended well, and used no Holdfast: it opened no run.", advice=advice)


def _tail(path: str) -> str:
    """The last thing that a process said, as a sentence."""
    with open(path, "rb") as file:
        lines = file.read().decode("utf-8", "backslashreplace").strip().splitlines()
    return f"Its last line: {lines[-1][:_TAIL]}" if lines else "It said nothing."
