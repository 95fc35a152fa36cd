"""What a program says, kept in one file: redacted before it is written, bounded, its beginning and its end.

Memory stays bounded whatever comes: no line end for a hundred megabytes, bytes that are no text, two channels at once.
"""

from __future__ import annotations

import codecs
import os
from collections import deque
from collections.abc import Callable, Sequence

from holdfast.adapters.ledger import write_all
from holdfast.core.redact import Redactor

MAX_LINE = 1 << 20  # of one line for those who listen; in the file it is whole
PIECE = 1 << 16  # of a line without an end, before it goes into the file as it is
CONTEXT = 16_384  # around what is kept, so that no secret begins or ends where nobody looks
RECENT, SHOWN = 4096, 400


class Lines:
    """Cuts one channel into lines. `hear` gets whole lines without their ends, `write` all of the text."""

    def __init__(self, hear: Callable[[Sequence[str]], None], write: Callable[[str], None]) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._hear, self._write = hear, write
        self._rest = ""
        self._written = 0  # of the rest

    def feed(self, data: bytes) -> None:
        *lines, rest = (self._rest + self._decoder.decode(data)).split("\n")
        if lines:
            self._write("\n".join([*lines, ""])[self._written :])
            self._hear([line[:MAX_LINE].rstrip("\r") for line in lines])
            self._written = 0
        if len(rest) - self._written > PIECE:
            self._write(rest[self._written :])
            rest = rest[:MAX_LINE]
            self._written = len(rest)
        self._rest = rest

    def end(self) -> None:
        rest = self._rest + self._decoder.decode(b"", True)
        self._write(rest[self._written :])
        if rest:
            self._hear([rest])
        self._rest = ""


class Log:
    """The file. Half of `most` characters is for the beginning, half for the end; between them stands what was left out."""

    def __init__(self, path: str, most: int, redactor: Redactor) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o600)
        self._redactor, self._stream = redactor, redactor.stream()
        self._half = max(1, most // 2)
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._in_tail = self._place = 0
        self._recent = ""
        self.said = 0

    def write(self, text: str) -> None:
        room = self._half + CONTEXT - self.said
        if room > 0:
            self._head.append(text[:room])
        first = text[: max(0, self._half - self.said)]
        self.said += len(text)
        self._recent = (self._recent + text[-RECENT:])[-RECENT:]
        if first and (known := self._stream.feed(first)):
            self._put(known)
        if len(first) < len(text):
            self._keep(text[len(first) :])

    def _keep(self, text: str) -> None:
        most = self._half + CONTEXT
        self._tail.append(text[-most:])
        self._in_tail += len(self._tail[-1])
        while self._in_tail - len(self._tail[0]) >= most:
            self._in_tail -= len(self._tail.popleft())

    def _put(self, text: str) -> None:
        self._place += self._write_ahead(text)

    def _write_ahead(self, text: str) -> int:
        """Put it where the next text will stand, and nothing behind it."""
        data = text.encode("utf-8", "replace")
        write_all(self._fd, data, self._place)
        os.ftruncate(self._fd, self._place + len(data))
        return len(data)

    def put_newest(self) -> None:
        """Bring what is held back for redaction into the file, until it is known for good. A kill finds it there."""
        if self.said <= self._half:
            self._write_ahead(self._stream.held())

    @property
    def dropped(self) -> int:
        return max(0, self.said - 2 * self._half)

    def last_line(self) -> str:
        """The end of the newest line that is not blank, redacted with what came before it."""
        lines = self._redactor.text(self._recent).replace("\r", "\n").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")[-SHOWN:]

    def save(self) -> None:
        """Bring the end into the file too, as far as it has come."""
        if self.said <= self._half:
            return
        text = self._text()
        os.ftruncate(self._fd, 0)
        self._place = 0
        self._put(text)

    def _text(self) -> str:
        head, tail = "".join(self._head), "".join(self._tail)
        if self._in_tail == self.said - self._half:
            return self._redactor.text(head[: self._half] + tail)
        note = f"\n[... {self.dropped:,} characters are left out here ...]\n"
        return self._redactor.text(head)[: self._half] + note + self._redactor.text(tail)[-self._half :]

    def close(self) -> None:
        if self.said <= self._half:
            self._put(self._stream.flush())
        self.save()
        os.fsync(self._fd)
        os.close(self._fd)
