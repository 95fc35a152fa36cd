"""Runs `holdfast` in a process of its own, forked from one that has loaded everything: most of a command is its start.

It is what `python -m holdfast` would be: with its own environment, folder, output, signals and end. What changes the
interpreter itself cannot be given to a fork, so each such environment has a process to fork from.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from holdfast.cli.main import main

ROOT = Path(__file__).resolve().parent.parent
OF_THE_INTERPRETER = ("PYTHON", "LC_", "LANG", "LD_", "COVERAGE_")
PACKAGES = ("cli", "engine", "adapters", "stores")
MOST = 1 << 20  # bytes of an order
SHORT = 64  # bytes of an answer
Done = subprocess.CompletedProcess


def holdfast(
    arguments: Sequence[str], cwd: str | Path, env: Mapping[str, str], prefix: Sequence[str] = (), timeout: float = 60.0
) -> Done[bytes]:
    """`python -m holdfast ARGUMENTS`, with nothing to read. An environment that is seen for the first time gets just that."""
    own = (*prefix, *sorted(f"{name}={value}" for name, value in env.items() if name.startswith(OF_THE_INTERPRETER)))
    with _turn:
        _seen[own] += 1
        if _seen[own] == 2:
            _parents[own] = Parent(prefix, env)
    if own in _parents:
        return _parents[own].run([*arguments], str(cwd), {**env}, timeout)
    command = [*prefix, sys.executable, "-m", "holdfast", *arguments]
    return subprocess.run(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False
    )


def holdfast_says(arguments: Sequence[str], cwd: str | Path, env: Mapping[str, str]) -> Done[str]:
    """The same, and what it said as text."""
    done = holdfast(arguments, cwd, env)
    return Done(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


class Parent:
    """The process to fork from. It ends when nobody is left who could ask it."""

    def __init__(self, prefix: Sequence[str], env: Mapping[str, str]) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [*prefix, sys.executable, "-m", "tests.forked", str(theirs.fileno())]
        self._process = subprocess.Popen(command, cwd=ROOT, env=env, pass_fds=[theirs.fileno()])
        theirs.close()

    def run(self, arguments: list[str], cwd: str, env: dict[str, str], timeout: float) -> Done[bytes]:
        word, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        order = json.dumps([arguments, cwd, env]).encode()
        with word, theirs, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            with _turn:
                socket.send_fds(self._line, [order], [out.fileno(), err.fileno(), theirs.fileno()])
            theirs.close()
            pid = int(word.recv(SHORT))
            word.settimeout(timeout)
            try:
                code = int(word.recv(SHORT))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(arguments, timeout) from None
            out.seek(0)
            err.seek(0)
            return Done(arguments, code, out.read(), err.read())


_seen: Counter[tuple[str, ...]] = Counter()
_parents: dict[tuple[str, ...], Parent] = {}
_turn = threading.Lock()


# --- the other side


def load() -> None:
    for name in PACKAGES:
        package = import_module(f"holdfast.{name}")
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            import_module(found.name)
    import_module("holdfast.spec_run")
    gc.collect()
    gc.freeze()  # or the first collection of each fork would copy all of it


def serve(line: socket.socket) -> list[str] | None:
    """Fork for each order: a process that waits, and below it the one that goes on as the command. None if there is no more."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait
    while True:
        order, handles, _, _ = socket.recv_fds(line, MOST, 3)
        if not order:
            return None
        if os.fork() == 0:
            break
        for handle in handles:
            os.close(handle)
    line.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    out, err, answer = handles
    pid = os.fork()
    if pid == 0:
        os.close(answer)
        return become(out, err, *json.loads(order))
    os.close(out)
    os.close(err)
    with socket.socket(fileno=answer) as word:
        word.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        word.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def become(out: int, err: int, arguments: list[str], cwd: str, env: dict[str, str]) -> list[str]:
    nothing = os.open(os.devnull, os.O_RDONLY)
    for handle, place in ((nothing, 0), (out, 1), (err, 2)):
        os.dup2(handle, place)
        os.close(handle)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(cwd)
    sys.path[0] = cwd
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    return arguments


if __name__ == "__main__":
    load()
    given = serve(socket.socket(fileno=int(sys.argv[1])))
    if given is not None:
        try:
            main(given)
        except SystemExit as ended:
            threading._shutdown()  # type: ignore[attr-defined]  # what the end of an interpreter does, but for tearing it down
            atexit._run_exitfuncs()
            sys.stdout.flush()
            os._exit(int(ended.code or 0))
