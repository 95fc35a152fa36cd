"""What the crash laboratory breaks of FileWrite: a new file, a replaced one, one in a new folder; then a look of our own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from holdfast.adapters.probes.files import FileWrite
from holdfast.testing.crashlab.workload import Verdict

OLD, NEW = b"old" * 100, b"new" * 5000


class FileWork:
    name = "file write"

    def prepare(self, folder: Path) -> None:
        (folder / "replaced").write_bytes(OLD)

    def effects(self, folder: Path) -> Iterator[tuple[str, FileWrite]]:
        yield "new", FileWrite(str(folder / "new"), NEW)
        yield "replaced", FileWrite(str(folder / "replaced"), NEW, sha256(OLD).hexdigest(), str(folder))
        yield "deep", FileWrite(str(folder / "c" / "d" / "deep"), NEW)
        yield "below", FileWrite(str(folder / "a" / "b" / "below"), NEW, None, str(folder))

    def work(self, folder: Path, ack: Callable[[str], None]) -> None:
        for key, effect in self.effects(folder):
            effect.act(key)
            ack(key)

    def check(self, folder: Path, acked: Sequence[str]) -> Verdict:
        for key, effect in self.effects(folder):
            path = Path(effect.path)
            data = path.read_bytes() if path.exists() else None
            wrong = self.wrong(key, effect, data, acked)
            if wrong:
                return Verdict(False, wrong[0], f"{key}: {wrong[1]}")
            if data != NEW:
                effect.act(key)
            if path.read_bytes() != NEW:
                return Verdict(False, "corrupt", f"{key} cannot be recovered")
        left = [name for _, _, names in os.walk(folder) for name in names if name.startswith(".holdfast")]
        return Verdict(not left, "corrupt" if left else "whole", f"left behind: {left}")

    def wrong(self, key: str, effect: FileWrite, data: bytes | None, acked: Sequence[str]) -> tuple[str, str] | None:
        before = OLD if key == "replaced" else None
        if data not in (NEW, before):
            return "corrupt", f"torn: {data!r:.40}"
        if key in acked and data != NEW:
            return "lost", "it was acknowledged"
        said = effect.probe(key).settled_as
        return None if said == ("done" if data == NEW else "not_done") else ("corrupt", f"the probe says {said}")
