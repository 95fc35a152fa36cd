"""Runs one program: no shell, no terminal, bounded in time and output, and gone when it fails. Judges no exit code."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

from holdfast.adapters.probes.common import EffectError
from holdfast.adapters.probes.spawning import Env, Spawned, spawn
from holdfast.core.named import NamedTuple

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


_FOUND: dict[tuple[str, str], str] = {}


def find_program(name: str, environ: Mapping[str, str]) -> str:
    path = search_path(environ)
    found = _FOUND.get((name, path))
    if found is None or not os.access(found, os.X_OK):
        found = shutil.which(name, path=path)
        if found is None:
            raise EffectError(f"There is no {name} on the path.", advice=f"Install {name}.")
        _FOUND[name, path] = found
    return found


def run(
    argv: Sequence[str],
    env: Env,
    limits: Limits,
    *,
    cwd: str | None = "/",
    stdin: bytes = b"",
    keep: Sequence[int] = (),
) -> Finished:
    """Run it to its end. It has a session of its own, so nothing can ask a question on our terminal.

    `cwd` is None for a program that goes to its folder itself, as git does: such a one is started with less work.
    """
    end = time.monotonic() + limits.seconds
    with _Talk(stdin, limits.output) as talk:
        process = _started(argv, env, cwd, keep, talk)
        try:
            out, err = talk.until(end)
            return Finished(process.wait(max(0.0, end - time.monotonic())), out, err)
        except (TimeoutError, subprocess.TimeoutExpired):
            raise EffectError(f"{_name(argv)} took more than {limits.seconds:g} seconds and was ended.") from None
        finally:
            _end(process)


Process = subprocess.Popen[bytes] | Spawned


def _started(argv: Sequence[str], env: Env, cwd: str | None, keep: Sequence[int], talk: _Talk) -> Process:
    try:
        stdin, stdout, stderr = fds = talk.open()
        quickly = spawn(argv, env, fds, keep) if cwd is None else None
        fed = subprocess.DEVNULL if stdin is None else stdin
        return quickly or subprocess.Popen(
            argv, stdin=fed, stdout=stdout, stderr=stderr, env=env, cwd=cwd, start_new_session=True, pass_fds=keep
        )
    except (OSError, ValueError) as error:
        raise EffectError(f"{argv[0]} cannot be started: {error}.") from error
    finally:
        talk.hand_over()


def _name(argv: Sequence[str]) -> str:
    """The program and what it was to do; options before that say nothing to a reader."""
    words = (word for before, word in itertools.pairwise(argv) if word[:1] != "-" and before not in ("-c", "-C"))
    return " ".join([os.path.basename(argv[0]), *itertools.islice(words, 1)])


def _end(process: Process) -> None:
    """End the program, and with it whatever it started and did not send away."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class _Talk:
    """One conversation over pipes: feed what is to be fed, collect what is said, never wait on one of them alone.

    The pipes are bare numbers: a snapshot starts ten programs, and objects around their pipes cost more than the talk.
    """

    def __init__(self, stdin: bytes, limit: int) -> None:
        self._left, self._limit = memoryview(stdin), limit
        self._out, self._err = bytearray(), bytearray()
        self._theirs: list[int] = []
        self._ours: list[int] = []

    def __enter__(self) -> _Talk:
        return self

    def __exit__(self, *problem: object) -> None:
        for fd in self._ours:
            os.close(fd)

    def open(self) -> tuple[int | None, int, int]:
        """What the program has for stdin, stdout and stderr; None for stdin if nothing is to be fed."""
        for _ in ("stdout", "stderr"):
            source, sink = os.pipe()
            self._ours.append(source)
            self._theirs.append(sink)
        if self._left:
            source, sink = os.pipe()
            self._ours.append(sink)
            self._theirs.append(source)
            os.set_blocking(sink, False)
        stdout, stderr, *stdin = self._theirs
        return stdin[0] if stdin else None, stdout, stderr

    def hand_over(self) -> None:
        """The program has its ends, or never will."""
        while self._theirs:
            os.close(self._theirs.pop())

    def until(self, end: float) -> tuple[bytes, bytes]:
        out, err, *sink = self._ours
        steps = {out: self._hear, err: self._complain}
        waiting = select.poll()
        waiting.register(out, select.POLLIN)
        waiting.register(err, select.POLLIN)
        for fd in sink:
            steps[fd] = self._feed
            waiting.register(fd, select.POLLOUT)
        while steps:
            ready = waiting.poll(max(0.0, (end - time.monotonic()) * 1000))
            if not ready:
                raise TimeoutError
            for fd, _ in ready:
                if not steps[fd](fd):
                    del steps[fd]
                    waiting.unregister(fd)
                    self._ours.remove(fd)
                    os.close(fd)
        return bytes(self._out), bytes(self._err)

    def _feed(self, fd: int) -> bool:
        """Whether there is more to be fed."""
        try:
            self._left = self._left[os.write(fd, self._left[:_PIECE]) :]
        except BrokenPipeError:
            return False
        return bool(self._left)

    def _hear(self, fd: int) -> bool:
        """Whether there may be more to be heard."""
        piece = os.read(fd, _PIECE)
        self._out += piece
        if len(self._out) > self._limit:
            raise EffectError(f"The program said more than {self._limit:,} bytes and was ended.")
        return bool(piece)

    def _complain(self, fd: int) -> bool:
        piece = os.read(fd, _PIECE)
        self._err += piece[: MAX_COMPLAINT - len(self._err)]
        return bool(piece)
