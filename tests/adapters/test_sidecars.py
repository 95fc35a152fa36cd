"""The folder of sidecars holds whole files only, keeps both milestones of one commit, and hides nothing it cannot read."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time

import msgspec
import pytest

from holdfast.adapters.git.repo import GitWorkspace
from holdfast.adapters.git.sidecars import (
    SidecarsUnreadable,
    SidecarUnwritable,
    read_all,
    remove_leftovers,
    set_aside,
    write,
)
from holdfast.core.sidecar import Sidecar, to_bytes
from tests.adapters.git_kit import Kit

SHA = "a" * 40


def sidecar(name="one", **more):
    known = {"schema_version": 1, "sha": SHA, "run_id": "run-1", "milestone_index": 0, "milestone_title": "t"}
    return Sidecar(checkpoint_id=name, created_at="2026", **{**known, **more})


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / ".holdfast" / "checkpoints")


def test_a_sidecar_is_written_under_the_id_of_its_checkpoint_and_read_back(folder):
    path = write(folder, sidecar())
    assert path == os.path.join(folder, "one.json") and os.path.isabs(path)
    assert read_all(folder) == ([sidecar()], [])
    assert os.listdir(folder) == ["one.json"], "no temporary file is left"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700


def test_two_milestones_on_one_commit_are_two_sidecars(folder):
    write(folder, sidecar("one", milestone_index=0))
    write(folder, sidecar("two", milestone_index=1))
    read, refused = read_all(folder)
    assert [(one.checkpoint_id, one.milestone_index, one.sha) for one in read] == [("one", 0, SHA), ("two", 1, SHA)]
    assert refused == []


def test_writing_again_replaces_the_file(folder):
    write(folder, sidecar(milestone_title="old and much longer than the new one"))
    write(folder, sidecar(milestone_title="new"))
    assert read_all(folder) == ([sidecar(milestone_title="new")], [])


def test_reading_where_nothing_was_written_makes_nothing(folder, tmp_path):
    assert read_all(folder) == ([], [])
    assert remove_leftovers(folder) == []
    assert os.listdir(tmp_path) == []


def put(folder, name, data):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)


def body(**more):
    return json.dumps({**json.loads(to_bytes(sidecar())), **more}).encode()


def test_every_file_that_cannot_be_used_is_listed_with_the_reason(folder):
    write(folder, sidecar("good"))
    put(folder, "bad.json", b"{")
    put(folder, "newer.json", body(checkpoint_id="newer", schema_version=2))
    put(folder, "other.json", body(checkpoint_id="another"))
    put(folder, "below.json", body(checkpoint_id="below", milestone_index=-1))
    put(folder, "nan.json", body(checkpoint_id="nan", milestone_index=float("nan")))
    put(folder, "large.json", b" " * 70_000)
    put(folder, "notes.txt", b"hello")
    put(folder, b"\xff.json".decode("utf-8", "surrogateescape"), b"{}")
    os.mkdir(os.path.join(folder, "folder.json"))
    os.mkfifo(os.path.join(folder, "pipe.json"))
    os.symlink(os.path.join(folder, "good.json"), os.path.join(folder, "link.json"))
    read, refused = read_all(folder)
    assert [one.checkpoint_id for one in read] == ["good"]
    why = {os.path.basename(one.path): one.why for one in refused}
    assert len(why) == 11 and all(why.values())
    for name, words in {
        "bad.json": "not JSON", "newer.json": "newer Holdfast", "other.json": "not its name", "below.json": "milestone_index",
        "nan.json": "NaN", "large.json": "larger", "notes.txt": "not JSON", "folder.json": "not a plain file",
        "pipe.json": "not a plain file", "link.json": "symbolic link",
    }.items():  # fmt: skip
        assert words in why[name], name


def test_sidecars_of_runr_in_the_folder_are_understood(folder):
    known = {
        "schema_version": 1,
        "sha": SHA,
        "run_id": "20261115221914",
        "milestone_index": 1,
        "milestone_title": "two",
    }
    put(folder, f"{SHA}.json", json.dumps({**known, "created_at": "2026"}).encode())
    put(folder, f"{'b' * 40}.json", json.dumps({**known, "created_at": "2026"}).encode())
    read, refused = read_all(folder)
    assert [one.checkpoint_id for one in read] == ["runr-20261115221914-1"]
    assert len(refused) == 1 and "not its name" in refused[0].why


@pytest.mark.parametrize("which", [".holdfast", "checkpoints"])
def test_a_folder_behind_a_link_is_refused(tmp_path, which):
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "checkpoints").mkdir(parents=True)
    top = tmp_path / "top"
    top.mkdir()
    if which == "checkpoints":
        (top / ".holdfast").mkdir()
        (top / ".holdfast" / "checkpoints").symlink_to(elsewhere / "checkpoints")
    else:
        (top / ".holdfast").symlink_to(elsewhere)
    folder = str(top / ".holdfast" / "checkpoints")
    with pytest.raises(SidecarUnwritable) as caught:
        write(folder, sidecar())
    assert caught.value.path == os.path.join(folder, "one.json")
    assert caught.value.reason == "checkpoint_unwritable"
    with pytest.raises(SidecarsUnreadable):
        read_all(folder)
    with pytest.raises(SidecarUnwritable):
        remove_leftovers(folder)
    assert list((elsewhere / "checkpoints").iterdir()) == []


def test_a_link_in_the_place_of_the_file_is_neither_followed_nor_replaced(folder, tmp_path):
    os.makedirs(folder)
    target = tmp_path / "precious"
    target.write_text("precious")
    os.symlink(target, os.path.join(folder, "one.json"))
    with pytest.raises(SidecarUnwritable):
        write(folder, sidecar())
    assert target.read_text() == "precious"
    assert os.listdir(folder) == ["one.json"]


def test_a_disk_that_takes_no_more_leaves_the_old_file(folder):
    write(folder, sidecar(milestone_title="old"))
    code = f"""
import resource, signal
from tests.adapters.test_sidecars import sidecar, write, SidecarUnwritable
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))  # not before: Python would keep what it compiles cut off
try:
    write({folder!r}, sidecar(milestone_title="new" * 100))
except SidecarUnwritable as refused:
    print(refused.path)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == os.path.join(folder, "one.json")
    assert read_all(folder) == ([sidecar(milestone_title="old")], [])


WRITER = """
import sys
from holdfast.adapters.git import sidecars
from holdfast.core.sidecar import Sidecar
print("ready", flush=True)
for number in range(10**9):
    known = dict(schema_version=1, sha="a" * 40, run_id="run-1", created_at="2026", milestone_title="t" * 2000)
    sidecars.write(sys.argv[1], Sidecar(checkpoint_id=f"c{number % 5}", milestone_index=number, **known))
"""


def test_a_killed_writer_leaves_whole_files_and_what_it_left_is_cleared_away(folder):
    for pause in (0.0, 0.001, 0.003, 0.005, 0.008, 0.013, 0.021, 0.03):
        with subprocess.Popen([sys.executable, "-c", WRITER, folder], stdout=subprocess.PIPE) as child:
            child.stdout.readline()
            time.sleep(pause)
            os.kill(child.pid, signal.SIGKILL)
        read, refused = read_all(folder)
        assert all(one.milestone_title == "t" * 2000 for one in read)
        assert all("temporary" in one.why for one in refused), "nothing is half written under its own name"
        assert remove_leftovers(folder) == [one.path for one in refused]
        assert read_all(folder) == (read, [])
    assert read


def test_what_a_killed_writer_left_is_listed_and_removed(folder):
    write(folder, sidecar())
    put(folder, ".two.0123456789abcdef.new", b'{"half')
    read, refused = read_all(folder)
    assert [one.checkpoint_id for one in read] == ["one"]
    assert [os.path.basename(one.path) for one in refused] == [".two.0123456789abcdef.new"]
    assert remove_leftovers(folder) == [refused[0].path]
    assert read_all(folder) == ([sidecar()], [])


def test_clearing_away_never_takes_the_file_of_a_living_writer(folder):
    failed, stop = [], threading.Event()

    def keep_writing(name):
        while not stop.is_set():
            try:
                write(folder, sidecar(name))
            except SidecarUnwritable as error:
                failed.append(error)

    writers = [threading.Thread(target=keep_writing, args=(f"w{number}",)) for number in range(3)]
    for writer in writers:
        writer.start()
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        remove_leftovers(folder)
    stop.set()
    for writer in writers:
        writer.join()
    assert failed == []
    assert len(read_all(folder)[0]) == 3


def test_what_cannot_be_used_is_set_aside_and_never_lost(folder):
    assert set_aside(folder) == []
    write(folder, sidecar("good"))
    assert set_aside(folder) == []
    assert os.listdir(os.path.dirname(folder)) == ["checkpoints"], "nothing is made for nothing"
    os.symlink("good.json", os.path.join(folder, "link.json"))
    for data in (b"{", b"[", b"{}"):
        put(folder, "bad.json", data)
        put(folder, "newer.json", body(checkpoint_id="newer", schema_version=2))
        put(folder, "notes.txt", b"hello")
        (moved,) = set_aside(folder)
        with open(moved, "rb") as file:
            assert file.read() == data
    assert sorted(os.listdir(f"{folder}.set-aside")) == ["bad.json", "bad.json.1", "bad.json.2"]
    assert sorted(os.listdir(folder)) == ["good.json", "link.json", "newer.json", "notes.txt"]


def test_of_two_milestones_with_one_number_the_newer_is_the_last(tmp_path):
    kit = Kit(tmp_path)
    place = GitWorkspace(str(kit.top), kit.environ)
    sha, tree = kit.git("rev-parse", "HEAD"), kit.git("rev-parse", "HEAD^{tree}")
    for name, at in (("a-new", "2026-01-01T10:00:00Z"), ("b-old", "2026-01-01T11:00:00+02:00")):
        place.write_sidecar(msgspec.structs.replace(sidecar(name, sha=sha, tree=tree), created_at=at))
    place.write_sidecar(sidecar("c-other", sha=sha, tree=tree, run_id="run-2", milestone_index=9))
    assert [one.checkpoint_id for one in place.recovered("run-1")[0]] == ["b-old", "a-new"]
