"""Nothing is ended that is not proved to be ours: not a reused pid, not another host's, not another run's."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest

from holdfast.adapters.checks import Commands
from holdfast.adapters.processes import Identity, get, identify, left_behind, put, read_record, reap, record
from holdfast.core.redact import Redactor
from tests.adapters.agents.kit import finish, is_alive, run_of


@pytest.fixture
def sleeper():
    """Starts processes that do nothing, with the variables they are given, and ends them after the test."""
    started = []

    def start(**env):
        process = subprocess.Popen(["sleep", "300"], env={**os.environ, **env}, start_new_session=True)
        started.append(process)
        return process

    yield start
    for process in started:
        finish(process)


def noted(folder, pid, **changes):
    identity = msgspec.structs.replace(identify(pid, "k-1", run_of(folder), "codex"), **changes)
    record(str(folder), identity, durable=False)
    return identity


def test_a_live_process_with_the_same_start_time_is_ours(tmp_path, sleeper):
    process = sleeper()
    identity = noted(tmp_path, process.pid)
    left = left_behind(str(tmp_path))
    assert left.identity == identity == read_record(str(tmp_path)) and [one.pid for one in left.ours] == [process.pid]
    assert reap(left) == [f"process {process.pid} (sleep)"] and process.wait(5) == -15


def test_a_reused_pid_is_not_ours(tmp_path, sleeper):
    process = sleeper()
    noted(tmp_path, process.pid, start_time="1")
    assert left_behind(str(tmp_path)) is None and is_alive(process.pid)


def test_a_pid_that_is_reused_between_look_and_end_is_not_ended(tmp_path, sleeper):
    process = sleeper()
    noted(tmp_path, process.pid)
    left = left_behind(str(tmp_path))
    reused = left._replace(identity=msgspec.structs.replace(left.identity, start_time="1"))
    assert reap(reused) == [] and is_alive(process.pid)


def test_on_another_host_nothing_is_known_and_nothing_is_touched(tmp_path, sleeper):
    process = sleeper(HOLDFAST_EFFECT_KEY="k-1", HOLDFAST_AGENT_RUN=run_of(tmp_path))
    noted(tmp_path, process.pid, host="elsewhere")
    left = left_behind(str(tmp_path))
    assert left.ours == () and "elsewhere" in left.why
    assert "Nothing was ended" in reap(left)[0] and is_alive(process.pid)


def test_no_process_outlives_a_boot(tmp_path, sleeper):
    process = sleeper()
    noted(tmp_path, process.pid, boot_id="another")
    assert left_behind(str(tmp_path)) is None and is_alive(process.pid)


def test_a_descendant_is_known_by_the_key_in_its_environment(tmp_path, sleeper):
    ours = sleeper(HOLDFAST_EFFECT_KEY="k-1", HOLDFAST_AGENT_RUN=run_of(tmp_path))
    others = [
        sleeper(HOLDFAST_EFFECT_KEY="k-1", HOLDFAST_AGENT_RUN="r-other"),
        sleeper(HOLDFAST_EFFECT_KEY="k-12", HOLDFAST_AGENT_RUN=run_of(tmp_path)),
        sleeper(),
    ]
    noted(tmp_path, 2**22 + 1)
    left = left_behind(str(tmp_path))
    assert [one.pid for one in left.ours] == [ours.pid]
    reap(left)
    assert ours.wait(5) == -15 and all(is_alive(other.pid) for other in others)


def test_this_process_is_never_among_them(tmp_path):
    identity = noted(tmp_path, 2**22 + 1, key="mine")
    code = (
        "import os, sys, holdfast.adapters.processes as p; print(p.left_behind(sys.argv[1]), flush=True); os._exit(0)"
    )
    env = {**os.environ, "HOLDFAST_EFFECT_KEY": identity.key, "HOLDFAST_AGENT_RUN": identity.run_id}
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], env=env, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "None"


def test_what_has_ended_or_was_never_recorded_leaves_nothing(tmp_path, sleeper):
    assert left_behind(str(tmp_path)) is None and left_behind(str(tmp_path / "gone")) is None
    process = sleeper()
    noted(tmp_path, process.pid, ended=True)
    assert left_behind(str(tmp_path)) is None and is_alive(process.pid)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"pid": "x"}', b"\xff", b"{" * 70_000])
def test_a_damaged_record_proves_nothing(tmp_path, data):
    (tmp_path / "process.json").write_bytes(data)
    assert read_record(str(tmp_path)) is None and left_behind(str(tmp_path)) is None


def test_links_and_devices_are_not_read_or_written_through(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    os.symlink(victim, tmp_path / "process.json")
    assert get(str(tmp_path), "process.json", 100) is None
    os.mkfifo(tmp_path / "fifo")
    assert get(str(tmp_path), "fifo", 100) is None
    put(str(tmp_path), "process.json", b"new")
    assert victim.read_text() == "mine" and (tmp_path / "process.json").read_bytes() == b"new"
    os.symlink(victim, tmp_path / "report.json.new")
    put(str(tmp_path), "report.json", b"new")
    assert victim.read_text() == "mine" and not (tmp_path / "report.json").is_symlink()
    assert get(str(tmp_path.parent), tmp_path.name, 100) is None


def test_the_record_is_what_was_noted(tmp_path):
    identity = noted(tmp_path, os.getpid())
    assert identity == Identity(**msgspec.json.decode((tmp_path / "process.json").read_bytes()))
    assert (identity.pid, identity.pgid, identity.key, identity.run_id, identity.agent) == (
        os.getpid(),
        os.getpid(),
        "k-1",
        run_of(tmp_path),
        "codex",
    )


def test_that_a_command_was_started_is_on_the_disk_before_it_runs_and_still_after_its_end(tmp_path, monkeypatch):
    """After a failure of power nothing of it runs, but whoever asks whether it ever did must hear the truth."""
    synced, sync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), sync(fd))[1])
    commands = Commands("run-1", str(tmp_path), dict(os.environ), Redactor())
    ran = commands.run("key-1", ["/bin/sh", "-c", "echo hi"], str(tmp_path))
    place = str(tmp_path / "key-1")
    assert ran.exit_code == 0 and commands.was_started("key-1") and not commands.was_started("key-2")
    assert [path for path in synced if path.endswith("process.json.new") or path == place] == 2 * [
        f"{place}/process.json.new",
        place,
    ]
