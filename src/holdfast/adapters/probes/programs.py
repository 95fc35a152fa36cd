"""Runs one program: no shell, no terminal, bounded in time and output, and gone when it fails. Judges no exit code."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import IO, NamedTuple

from holdfast.adapters.probes.common import EffectError

MAX_OUTPUT = 16 * 1024 * 1024
MAX_COMPLAINT = 16 * 1024
_PIECE = 1 << 16


class Finished(NamedTuple):
    """How a program ended and what it said; of its complaints only the beginning is kept."""

    code: int
    out: bytes
    err: bytes


class Limits(NamedTuple):
    seconds: float
    output: int = MAX_OUTPUT


def search_path(environ: Mapping[str, str]) -> str:
    """The folders to look for programs in; one that depends on the current folder is left out."""
    folders = environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if os.path.isabs(folder))


def find_program(name: str, environ: Mapping[str, str]) -> str:
    found = shutil.which(name, path=search_path(environ))
    if found is None:
        raise EffectError(f"There is no {name} on the path.", advice=f"Install {name}.")
    return found


def run(
    argv: Sequence[str],
    env: Mapping[str, str],
    limits: Limits,
    *,
    cwd: str = "/",
    stdin: bytes = b"",
    keep: Sequence[int] = (),
) -> Finished:
    """Run it to its end. It has a session of its own, so nothing can ask a question on our terminal."""
    end = time.monotonic() + limits.seconds
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env, cwd=cwd, start_new_session=True, pass_fds=keep
        )
    except (OSError, ValueError) as error:
        raise EffectError(f"{argv[0]} cannot be started: {error}.") from error
    with process:
        try:
            out, err = _Talk(process, stdin, limits.output).until(end)
            return Finished(process.wait(max(0.0, end - time.monotonic())), out, err)
        except (TimeoutError, subprocess.TimeoutExpired):
            raise EffectError(f"{_name(argv)} took more than {limits.seconds:g} seconds and was ended.") from None
        finally:
            _end(process)


def _name(argv: Sequence[str]) -> str:
    return " ".join([os.path.basename(argv[0]), *argv[1:2]])


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the program, and with it whatever it started and did not send away."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


class _Talk:
    """One conversation over pipes: feed what is to be fed, collect what is said, never wait on one of them alone."""

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes, limit: int) -> None:
        assert process.stdin and process.stdout and process.stderr
        self._sink, self._source, self._complaints = process.stdin, process.stdout, process.stderr
        self._heard: dict[IO[bytes], bytearray] = {self._source: bytearray(), self._complaints: bytearray()}
        self._left, self._limit = memoryview(stdin), limit

    def until(self, end: float) -> tuple[bytes, bytes]:
        with selectors.DefaultSelector() as waiting:
            for source in self._heard:
                waiting.register(source, selectors.EVENT_READ, source)
            os.set_blocking(self._sink.fileno(), False)
            waiting.register(self._sink, selectors.EVENT_WRITE, self._sink)
            while waiting.get_map():
                ready = waiting.select(max(0.0, end - time.monotonic()))
                if not ready:
                    raise TimeoutError
                for pipe in [key.data for key, _ in ready]:
                    if not self._go_on(pipe):
                        waiting.unregister(pipe)
                        pipe.close()
        return bytes(self._heard[self._source]), bytes(self._heard[self._complaints])

    def _go_on(self, pipe: IO[bytes]) -> bool:
        """Whether there is more to come through this pipe."""
        return self._feed() if pipe is self._sink else self._listen(pipe)

    def _feed(self) -> bool:
        try:
            self._left = self._left[os.write(self._sink.fileno(), self._left[:_PIECE]) :]
        except BrokenPipeError:
            return False
        return bool(self._left)

    def _listen(self, pipe: IO[bytes]) -> bool:
        piece = os.read(pipe.fileno(), _PIECE)
        heard = self._heard[pipe]
        heard += piece
        if pipe is self._complaints:
            del heard[MAX_COMPLAINT:]
        elif len(heard) > self._limit:
            raise EffectError(f"The program said more than {self._limit:,} bytes and was ended.")
        return bool(piece)
