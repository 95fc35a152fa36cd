"""Seeded damage to the files of a store at rest: flipped bits, cut ends, zeroed sectors, missing files. Never to the original.

A damaged store may be whole (the damage did not matter) or refuse; it may never answer with less than was acknowledged.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from holdfast.core.named import NamedTuple
from holdfast.testing.crashlab.bytecode import Tell, died, in_child, in_memory
from holdfast.testing.crashlab.limits import left_by_kill
from holdfast.testing.crashlab.workload import Report, Verdict, Workload

SECTOR = 512
NEVER = 1 << 60
BATCH = 250


class Damage(NamedTuple):
    """One change to one file: `at` is a bit number for a flip, a length for a cut, a byte offset for zeros."""

    way: str
    file: str
    at: int


def _flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at // 8)
        byte = file.read(1)[0] ^ (1 << at % 8)
        file.seek(at // 8)
        file.write(bytes([byte]))


def _cut(path: Path, at: int) -> None:
    os.truncate(path, at)


def _zero(path: Path, at: int) -> None:
    length = min(SECTOR, path.stat().st_size - at)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(length))


def _remove(path: Path, at: int) -> None:
    path.unlink()


# way -> (how it is done, how many different places a file of n bytes has for it)
WAYS: dict[str, tuple[Callable[[Path, int], None], Callable[[int], int]]] = {
    "flip": (_flip, lambda size: size * 8),
    "cut": (_cut, lambda size: size),
    "zero": (_zero, lambda size: size),
    "remove": (_remove, lambda size: 1),
}


def _targets(folder: Path, patterns: Sequence[str]) -> list[Path]:
    found = sorted({path for pattern in patterns for path in folder.rglob(pattern) if path.is_file()})
    targets = [path for path in found if path.stat().st_size]
    if not targets:
        raise ValueError(f"no file with content in {folder} matches {list(patterns)}")
    return targets


def inflict(folder: Path, damage: Damage) -> None:
    """Do the damage in this folder, for good."""
    WAYS[damage.way][0](folder / damage.file, damage.at)


class Target(NamedTuple):
    """A store at rest, what it has acknowledged, and the damages that may befall its files."""

    workload: Workload
    folder: Path
    acked: Sequence[str]
    patterns: Sequence[str]
    ways: Sequence[str]
    seed: int

    def damage(self, point: int) -> Damage:
        """The damage number `point`: first the file, then the way, then the place, each with equal chances."""
        rng = random.Random(f"{self.seed}/{point}")
        path = rng.choice(_targets(self.folder, self.patterns))
        way = rng.choice(list(self.ways))
        at = rng.randrange(WAYS[way][1](path.stat().st_size))
        return Damage(way, str(path.relative_to(self.folder)), at - at % SECTOR if way == "zero" else at)

    def recipe(self, point: int) -> str:
        chosen = f"{list(self.patterns)!r}, ways={tuple(self.ways)!r}, seed={self.seed}, points=[{point}]"
        return f"flips(workload, folder, acked, {chosen})  # {' '.join(map(str, self.damage(point)))}"


def flips(
    workload: Workload,
    folder: Path,
    acked: Sequence[str],
    patterns: Sequence[str],
    *,
    points: Sequence[int] | None = None,
    limit: int = 1000,
    ways: Sequence[str] = ("flip", "cut"),
    seed: int = 0,
    scratch: Path | None = None,
    timeout: float = 30.0,
) -> Report:
    """Damage a copy of the folder `limit` times (or as numbered in `points`) and check each time.

    `patterns` are names of the files to damage, such as `*-wal`; the folder itself stays as it is.
    """
    report = Report("damage " + "+".join(ways), workload.name, seed)
    target = Target(workload, folder, acked, patterns, ways, seed)
    tally: Counter[tuple[str, str]] = Counter()
    for point, verdict in _verdicts(target, list(points or range(1, limit + 1)), scratch, timeout):
        report.add(verdict, point, "" if verdict.ok else target.recipe(point))
        tally[target.damage(point).file, verdict.kind] += 1
    for (file, kind), times in sorted(tally.items()):
        report.note(f"{file}: {times} {kind}")
    return report.done()


def _verdicts(target: Target, points: list[int], scratch: Path | None, timeout: float) -> Iterator[tuple[int, Verdict]]:
    """One child checks point after point; when it dies or hangs, that is its point's verdict and another child goes on."""
    with tempfile.TemporaryDirectory(prefix="crashlab-", dir=scratch or in_memory()) as root:
        while points:
            batch, points = points[:BATCH], points[BATCH:]
            ending = in_child(_checker(target, batch, Path(root)), timeout)
            verdicts = [Verdict(*json.loads(text)) for text in ending.all("verdict")]
            if len(verdicts) < len(batch):
                points = batch[len(verdicts) + 1 :] + points
                verdicts.append(died(ending))
            yield from zip(batch, verdicts, strict=False)


def _checker(target: Target, batch: Sequence[int], root: Path) -> Callable[[Tell], None]:
    def job(tell: Tell) -> None:
        for point in batch:
            with damaged(target.folder, target.damage(point), root) as copy:
                tell("verdict", json.dumps(target.workload.check(copy, target.acked)))

    return job


@contextmanager
def damaged(folder: Path, damage: Damage, root: Path) -> Iterator[Path]:
    """A damaged copy of the folder under `root`, removed afterwards."""
    copy = Path(tempfile.mkdtemp(dir=root)) / "store"
    shutil.copytree(folder, copy, symlinks=True)
    try:
        inflict(copy, damage)
        yield copy
    finally:
        shutil.rmtree(copy.parent)


def finished_store(workload: Workload, folder: Path, timeout: float = 60.0) -> tuple[str, ...]:
    """Prepare a store in the empty folder and let the work come to its end; the acknowledged labels."""
    return _left(workload, folder, NEVER, timeout)


def crashed_store(workload: Workload, folder: Path, after: int, timeout: float = 60.0) -> tuple[str, ...]:
    """Prepare a store in the empty folder and kill the work right after ack number `after`; the acknowledged labels."""
    return _left(workload, folder, after, timeout)


def _left(workload: Workload, folder: Path, after: int, timeout: float) -> tuple[str, ...]:
    prepared = in_child(lambda tell: workload.prepare(folder), timeout)
    ending = left_by_kill(workload, folder, after, timeout)
    if error := prepared.last("error") or ending.last("error"):
        raise RuntimeError(f"{workload.name} cannot make a store to damage: {error}")
    return ending.acked
