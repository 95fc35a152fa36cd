"""Power loss from a recorded trace: builds the disks that may be found after the power failed, and checks each.

At every cut: nothing uncertain kept, all, each item dropped or kept alone, random subsets, writes torn at 512 bytes.
Images that are equal (with equal acknowledgements) are checked once. It never invents an image the model forbids.
"""

from __future__ import annotations

import errno
import hashlib
import random
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from holdfast.core.named import NamedTuple
from holdfast.testing.crashlab.disk import (
    DATASYNC,
    MODELS,
    SECTOR,
    SYNC,
    Base,
    Change,
    Disk,
    Node,
    Op,
    Renaming,
    folder_of,
    read_trace,
    snapshot,
)
from holdfast.testing.crashlab.server import CHILD_TIME, ForkServer, folder_from, judge, scratch
from holdfast.testing.crashlab.shim import CLEAN, Fault
from holdfast.testing.crashlab.workload import FolderFactory, Report, Workload


class Choice(NamedTuple):
    """One image: after `cut` calls, keep the uncertain items in this way (`drop 3`, `keep 0`, `random 17`, ...)."""

    cut: int
    how: str
    item: int


class Kept(NamedTuple):
    """The uncertain items that made it: renamings, and changes per file with the sectors of torn ones."""

    renamings: list[Renaming]
    changes: dict[Node, list[tuple[Change, frozenset[int] | None]]]


def systematic(disk: Disk) -> Iterator[tuple[str, int]]:
    """None, all, each item dropped alone, each kept alone, and the last write of each file torn in three ways."""
    yield "all", 0
    changes = [change for node in disk.files() for change in node.pending]
    first, total = len(disk.renamings), len(disk.renamings) + len(changes)
    if total:
        yield "none", 0
    if total > 1:
        yield from (("drop", index) for index in range(total))
        yield from (("keep", index) for index in range(total))
    last = {id(node.pending[-1]) for node in disk.files()}
    for index, change in enumerate(changes, first):
        if id(change) in last and len(change.units(SECTOR)) > 1:
            yield from ((how, index) for how in ("tear-front", "tear-back", "tear-first"))


TEARS: dict[str, Callable[[list[int]], list[int]]] = {
    "tear-front": lambda units: units[: len(units) // 2],
    "tear-back": lambda units: units[len(units) // 2 :],
    "tear-first": lambda units: units[:1],
}


def everything(index: int, item: int) -> bool:
    return True


WISHES: dict[str, Callable[[int, int], bool]] = {
    "none": lambda index, item: False,
    "drop": lambda index, item: index != item,
    "keep": lambda index, item: index == item,
}


def _wanted(choice: Choice, total: int, first: int, chance: random.Random) -> list[bool]:
    """Which of the uncertain items a choice asks for, before the model has its say."""
    if choice.how == "random":
        names = chance.randint(0, first)
        share = chance.random()
        return [index < names if index < first else chance.random() < share for index in range(total)]
    wish = WISHES.get(choice.how, everything)
    return [wish(index, choice.item) for index in range(total)]


def resolve(disk: Disk, choice: Choice, seed: int) -> Kept:
    """The items that a choice keeps, made legal: in the ext4 model names keep their order and sizes come first."""
    chance = random.Random(f"{seed}/{choice.cut}/{choice.item}")
    first = len(disk.renamings)
    files = disk.files()
    total = first + sum(len(node.pending) for node in files)
    wanted = _wanted(choice, total, first, chance)
    if disk.strict and choice.how == "random":
        wanted[:first] = [chance.random() < 0.5 for _ in range(first)]
    if not disk.strict:
        alone = choice.how == "keep" and choice.item < first
        named = choice.item + 1 if alone else [*wanted[:first], False].index(False)
        wanted[:first] = [index < named for index in range(first)]
    kept = Kept([item for item, want in zip(disk.renamings, wanted, strict=False) if want], {})
    at = first
    for node in files:
        flags = wanted[at : at + len(node.pending)]
        kept.changes[node] = list(_changes(disk, node, flags, choice, at, chance))
        at += len(node.pending)
    return kept


def _changes(
    disk: Disk, node: Node, flags: Sequence[bool], choice: Choice, at: int, chance: random.Random
) -> Iterator[tuple[Change, frozenset[int] | None]]:
    for index, (change, flag) in enumerate(zip(node.pending, flags, strict=True), at):
        if not flag and not change.must:
            if change.data is None and not disk.strict:
                return
            continue
        units = change.units(SECTOR) if change.data else []
        if choice.how in TEARS and index == choice.item:
            yield change, frozenset(TEARS[choice.how](units))
        elif choice.how == "random" and len(units) > 1 and chance.random() < 0.6:
            yield change, frozenset(unit for unit in units if chance.random() < 0.5)
        else:
            yield change, None


Image = dict[str, bytes | bytearray | None]


def build(disk: Disk, kept: Kept) -> tuple[Image, bytes]:
    """The files of an image (None is a folder) and a hash of it all."""
    names = dict(disk.durable)
    for item in kept.renamings:
        item.apply(names)
    image: Image = {}
    total = hashlib.blake2b(digest_size=16)
    for path, node in sorted(names.items()):
        if all(parent in names for parent in _parents(path)):
            image[path], digest = _content(node, kept)
            total.update(path.encode(errors="surrogateescape") + b"\0" + digest)
    return image, total.digest()


def _parents(path: str) -> Iterator[str]:
    while path := folder_of(path):
        yield path


def _content(node: Node, kept: Kept) -> tuple[bytes | bytearray | None, bytes]:
    if node.folder:
        return None, b"folder"
    changes = kept.changes.get(node)
    if not changes:
        return node.durable, node.fingerprint()
    content = bytearray(node.durable)
    for change, sectors in changes:
        change.apply(content, sectors)
    return content, hashlib.blake2b(content, digest_size=16).digest()


def lay_out(image: Image, folder: Path) -> None:
    """Write an image into an empty folder."""
    for path, content in image.items():
        target = folder / path
        if content is None:
            target.mkdir(mode=0o700)
        else:
            target.write_bytes(content)
            target.chmod(0o600)


# -- the sweep -------------------------------------------------------------------------------------------------------


class Recording(NamedTuple):
    """A recorded run: the prepared folder and what was done to it."""

    base: Base
    ops: list[Op]

    def disk(self, model: str) -> Disk:
        return Disk(model, self.base)

    def cuts(self, model: str) -> Iterator[tuple[int, Disk]]:
        """The disk after each call; an acknowledgement belongs to the call before it, so that it is always counted."""
        disk = self.disk(model)
        for number, op in enumerate(self.ops, 1):
            disk.apply(op)
            if number == len(self.ops) or not self.ops[number].is_mark:
                yield number, disk


def record(server: ForkServer, folder_factory: FolderFactory, fault: Fault = CLEAN) -> Recording:
    """Prepare, then run the work once with every changing call recorded (and a fault, if given)."""
    with folder_from(folder_factory) as folder, folder_from(scratch) as beside:
        server.prepare(folder)
        base = snapshot(folder)
        if fault == CLEAN:
            server.clean_work(folder, beside / "trace")
        else:
            server.work(folder, fault, beside / "trace")
        return Recording(base, read_trace(beside / "trace", folder))


def plan(recording: Recording, model: str, images: int, seed: int) -> list[Choice]:
    """The choices to try, in order: all systematic ones or a seeded sample of them, then random subsets."""
    chance = random.Random(f"{seed}/{model}")
    choices: list[Choice] = []
    weights: dict[int, int] = {}
    for cut, disk in recording.cuts(model):
        choices += [Choice(cut, how, index) for how, index in systematic(disk)]
        weights[cut] = max(0, uncertain(disk) - 1)
    if len(choices) >= images:
        return sorted(chance.sample(choices, images))
    extra = 4 * (images - len(choices)) if any(weights.values()) else 0
    cuts = chance.choices(list(weights), list(weights.values()), k=extra) if extra else []
    return sorted(choices + [Choice(cut, "random", index) for index, cut in enumerate(cuts)])


def uncertain(disk: Disk) -> int:
    """How many items (torn sectors counted one by one) may or may not have reached the disk."""
    return len(disk.renamings) + sum(len(change.units(SECTOR)) or 1 for node in disk.files() for change in node.pending)


def power_loss(
    workload: Workload,
    folder_factory: FolderFactory = scratch,
    *,
    models: Sequence[str] = MODELS,
    images: int = 2000,
    seed: int = 0,
    only: Sequence[int] | None = None,
    fault: Fault = CLEAN,
    timeout: float = CHILD_TIME,
) -> Report:
    """Record one run, then check up to `images` distinct legal images, shared evenly by the models."""
    report = Report("power loss", workload.name, seed)
    with ForkServer(workload, timeout) as server:
        recording = record(server, folder_factory, fault)
        for model in models:
            sweep(report, server, recording, model, images // len(models), only, fault)
    return report.done()


def sweep(
    report: Report,
    server: ForkServer,
    recording: Recording,
    model: str,
    images: int,
    only: Sequence[int] | None = None,
    fault: Fault = CLEAN,
) -> None:
    """Check the images of one recording under one model; `only` picks choices by their number, to replay."""
    numbered = list(enumerate(plan(recording, model, images, report.seed)))
    by_cut: defaultdict[int, list[tuple[int, Choice]]] = defaultdict(list)
    for number, choice in numbered:
        if only is None or number in only:
            by_cut[choice.cut].append((number, choice))
    seen: set[tuple[bytes, int]] = set()
    for cut, disk in recording.cuts(model):
        for number, choice in by_cut[cut]:
            image, digest = build(disk, resolve(disk, choice, report.seed))
            if (digest, len(disk.acked)) not in seen and len(seen) < images:
                seen.add((digest, len(disk.acked)))
                place = f"cut {choice.cut} after {recording.ops[choice.cut - 1]}, {choice.how} {choice.item}"
                extra = "" if fault == CLEAN else f", fault={fault!r}"
                how = f"models=[{model!r}], images={images}, seed={report.seed}, only=[{number}]{extra}"
                recipe = f"power_loss({report.workload}, {how}): {place}"
                _try(report, server, image, disk.acked, number, recipe)


def _try(report: Report, server: ForkServer, image: Image, acked: Sequence[str], number: int, recipe: str) -> None:
    folder = scratch()
    try:
        lay_out(image, folder)
        report.add(judge(server.quick_check(folder, acked)), number, recipe)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def power_loss_after_failed_sync(
    workload: Workload,
    folder_factory: FolderFactory = scratch,
    *,
    models: Sequence[str] = MODELS,
    images: int = 2000,
    seed: int = 0,
    timeout: float = CHILD_TIME,
) -> Report:
    """Fail each sync once with EIO (the kernel drops those pages, no later sync writes them), then lose power."""
    report = Report("power loss after EIO in sync", workload.name, seed)
    with ForkServer(workload, timeout) as server:
        calls = [op for op in record(server, folder_factory).ops if not op.is_mark]
        syncs = [number for number, op in enumerate(calls, 1) if op.kind in (SYNC, DATASYNC)]
        for n in syncs:
            fault = Fault("errno", n, errno.EIO)
            recording = record(server, folder_factory, fault)
            for model in models:
                sweep(report, server, recording, model, max(1, images // (len(models) * len(syncs))), None, fault)
    return report.done()
