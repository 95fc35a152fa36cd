"""One spec's folder, to be read and written. Names it as the repository does, and finds those that are there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from holdfast.adapters.paths import real_path
from holdfast.adapters.specs import reader, texts
from holdfast.adapters.specs.texts import top_of, within
from holdfast.adapters.specs.writer import Writer
from holdfast.core.review import Finding
from holdfast.core.spec import Checkpoint, Spec, Status


class SpecFolder:
    """`path` is relative to the repository if the folder is in it. Without `top` the repository is looked for."""

    def __init__(self, path: str, top: str | None = None) -> None:
        self._folder = os.path.abspath(path if top is None else os.path.join(top, path))
        self._top = top or top_of(self._folder)
        inside = within(self._folder, self._top) and real_path(self._folder) != real_path(self._top)
        real = os.path.relpath(real_path(self._folder), real_path(self._top))
        self.path = real if inside else self._folder
        self._writer = Writer(self._folder, self._top)
        self._known: reader.Understood | None = None

    def read(self) -> Spec:
        """All that the files say, with every problem. Raises SpecError where there is no `tasks.yaml`.

        The files are read each time; only if their bytes are others than the last time, they are understood anew.
        """
        found, known = reader.fetch_all(self._folder, self._top, self.path), self._known
        if known is None or known.found != found:
            known = self._known = reader.understood(self._folder, self.path, found, known)
        return known.spec

    def mirrors(self) -> dict[str, bytes]:
        """`checkpoint.yaml` and `review.yaml`, if they are there, byte for byte."""
        base = real_path(self._top)
        found = {name: texts.fetch(self._folder, name, base) for name in (reader.CHECKPOINT, reader.REVIEW)}
        return {name: data for name, data in found.items() if data is not None}

    def lost(self, name: str, before: bytes) -> list[str]:
        """What one of these said besides what a run writes, and does not say any more."""
        return reader.lost_in(name, before, self.mirrors().get(name))

    def put_back(self, name: str, data: bytes) -> None:
        """Write one of these as it was."""
        texts.put_back(self._folder, name, data)

    def check_writable(self) -> None:
        """Refuse, before any work is done, files that could not be changed after it. Raises BadFile with the line."""
        self._writer.check()

    def mark(
        self, statuses: Mapping[str, Status], commits: Mapping[str, str] | None = None, *, today: str | None = None
    ) -> None:
        """Set the status of tasks in the words of the file. `today` is for files that say when they were last updated."""
        self._writer.mark(statuses, commits or {}, today)

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write `checkpoint.yaml`; of one that is there, change only what differs."""
        self._writer.write_checkpoint(checkpoint)

    def write_review(self, batch: str, findings: Sequence[Finding]) -> None:
        """Note findings in `review.yaml`. Those that are noted already are not noted again."""
        self._writer.write_review(batch, findings)


def find(top: str) -> list[str]:
    """The specs below a repository's usual places, by their paths from its top."""
    return [SpecFolder(folder, top).path for folder in reader.find(top)]


def named(top: str, text: str) -> SpecFolder:
    """The spec that a path or a name means."""
    return SpecFolder(reader.named(top, text), top)
