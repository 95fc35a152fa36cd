"""FileWrite: a file is whole or untouched wherever its writer is cut off, and the probe knows which."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import stat

import pytest

from holdfast.adapters.probes import EffectError, FileWrite
from holdfast.core.errors import UsageError
from holdfast.core.plain import check_plain
from holdfast.testing.crashlab import available, errno_everywhere, kill_everywhere, power_loss, table
from tests.adapters.probes.file_work import FileWork

KEY = "write-1"
needs_shim = pytest.mark.skipif(not available(), reason=available().why)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file.txt"


def test_a_new_file_is_written_once_and_found_with_the_same_receipt(path):
    effect = FileWrite.prepare(path, b"hello")
    assert (effect.before, effect.probe(KEY).settled_as) == (None, "not_done")
    receipt = effect.act(KEY)
    assert path.read_bytes() == b"hello"
    assert effect.probe(KEY)[::2] == ("done", receipt) and effect.act(KEY) == receipt
    assert os.listdir(path.parent) == ["file.txt"]


def test_an_old_file_is_replaced_and_keeps_its_mode(path):
    path.write_bytes(b"old")
    path.chmod(0o4751)
    effect = FileWrite.prepare(path, b"new")
    assert effect.before == sha256(b"old") and effect.probe(KEY).settled_as == "not_done"
    effect.act(KEY)
    assert path.read_bytes() == b"new" and stat.S_IMODE(path.stat().st_mode) == 0o751
    assert effect.probe(KEY).settled_as == "done"


def test_a_new_file_has_the_mode_that_any_new_file_would_have(path):
    FileWrite(str(path), b"x").act(KEY)
    other = path.with_name("other")
    other.write_bytes(b"x")
    assert path.stat().st_mode == other.stat().st_mode


def test_missing_folders_are_made(tmp_path):
    for within in (None, str(tmp_path)):
        path = tmp_path / f"a-{within is None}" / "b" / "c.txt"
        effect = FileWrite.prepare(path, b"x", within)
        assert effect.probe(KEY).settled_as == "not_done" and not path.parent.parent.exists()
        effect.act(KEY)
        assert path.read_bytes() == b"x"


def test_what_is_already_as_wanted_is_done(path):
    path.write_bytes(b"same")
    effect = FileWrite.prepare(path, b"same")
    assert effect.probe(KEY).settled_as == "done"
    inode = path.stat().st_ino
    effect.act(KEY)
    assert path.stat().st_ino == inode


@pytest.mark.parametrize("before", [None, sha256(b"old")])
@pytest.mark.parametrize("now", [b"somebody else's", b"ol", b""])
def test_a_third_content_is_unknown_and_never_overwritten(path, before, now):
    path.write_bytes(now)
    effect = FileWrite(str(path), b"new", before)
    answer = effect.probe(KEY)
    assert answer.settled_as == "unknown" and sha256(now) in answer.evidence
    with pytest.raises(EffectError, match="not what it was"):
        effect.act(KEY)
    assert path.read_bytes() == now


def test_a_file_that_is_gone_is_unknown(path):
    effect = FileWrite(str(path), b"new", sha256(b"old"))
    assert effect.probe(KEY).settled_as == "unknown"
    with pytest.raises(EffectError, match="not what it was"):
        effect.act(KEY)


def test_a_file_that_appears_at_the_last_moment_is_not_overwritten(path, monkeypatch):
    effect = FileWrite(str(path), b"ours")
    fsync = os.fsync

    def appear(fd):
        path.write_bytes(b"theirs")
        fsync(fd)

    monkeypatch.setattr(os, "fsync", appear)
    with pytest.raises(EffectError, match="exists"):
        effect.act(KEY)
    assert path.read_bytes() == b"theirs" and os.listdir(path.parent) == ["file.txt"]


def make_socket(path):
    os.chdir(path.parent)  # the address of a socket is short
    with socket.socket(socket.AF_UNIX) as plug:
        plug.bind(path.name)


KINDS = {
    "a symbolic link": lambda path: path.symlink_to(path.with_name("aim")),
    "a folder": lambda path: path.mkdir(),
    "a pipe": os.mkfifo,
    "a socket": make_socket,
}


@pytest.mark.parametrize("kind", KINDS)
def test_only_files_are_written(path, kind, monkeypatch):
    monkeypatch.chdir("/")
    aim = path.with_name("aim")
    aim.write_bytes(b"aim")
    KINDS[kind](path)
    effect = FileWrite(str(path), b"new")
    with pytest.raises(EffectError, match=kind):
        effect.act(KEY)
    with pytest.raises(EffectError, match=kind):
        FileWrite.prepare(path, b"new")
    answer = effect.probe(KEY)
    assert answer.settled_as == "unknown" and kind in answer.evidence
    assert aim.read_bytes() == b"aim" and sorted(os.listdir(path.parent)) == ["aim", "file.txt"]


def test_a_device_is_not_opened():
    answer = FileWrite("/dev/null", b"new").probe(KEY)
    assert answer.settled_as == "unknown" and "a device" in answer.evidence


def test_below_a_folder_no_link_is_followed(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    effect = FileWrite(str(inside / "link" / "file"), b"x", None, str(inside))
    assert effect.probe(KEY).settled_as == "unknown"
    with pytest.raises(EffectError):
        effect.act(KEY)
    assert os.listdir(outside) == []
    FileWrite(str(inside / "link" / "file"), b"x").act(KEY)
    assert (outside / "file").read_bytes() == b"x"


@pytest.mark.parametrize("name", ["../out", "a/../../out", "", "a\0b", "/elsewhere", "x/."])
def test_a_path_that_leads_out_is_refused(tmp_path, name):
    with pytest.raises(UsageError):
        FileWrite(f"{tmp_path}/{name}" if not name.startswith("/") else name, b"", None, str(tmp_path))


def test_leftovers_of_a_killed_writer_are_told_and_removed_by_the_next(path):
    effect = FileWrite(str(path), b"new")
    leftover = path.with_name(effect._temporary(KEY))
    leftover.write_bytes(b"ne")
    answer = effect.probe(KEY)
    assert answer.settled_as == "not_done" and "2 bytes of an unfinished write" in answer.evidence
    assert leftover.exists(), "a probe writes nothing"
    effect.act(KEY)
    assert os.listdir(path.parent) == ["file.txt"]


def test_a_leftover_that_became_a_link_is_removed_and_not_followed(path):
    effect = FileWrite(str(path), b"new")
    aim = path.with_name("aim")
    aim.write_bytes(b"aim")
    path.with_name(effect._temporary(KEY)).symlink_to(aim)
    effect.act(KEY)
    assert (aim.read_bytes(), path.read_bytes()) == (b"aim", b"new") and len(os.listdir(path.parent)) == 2


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_failed_write_leaves_nothing(path, monkeypatch, number):
    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(EffectError, match=os.strerror(number)):
        FileWrite(str(path), b"new").act(KEY)
    assert os.listdir(path.parent) == []


def test_what_cannot_be_looked_at_is_unknown(path, monkeypatch):
    def fail(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "stat", fail)
    assert FileWrite(str(path), b"new").probe(KEY).settled_as == "unknown"


def test_its_arguments_are_plain_and_small(path):
    effect = FileWrite(str(path), b"x" * 1_000_000)
    check_plain(effect.arguments)
    assert len(str(effect.arguments)) < 1000 and "xxx" not in repr(effect)
    assert effect.arguments != FileWrite(str(path), b"y" * 1_000_000).arguments


@pytest.mark.parametrize("key", ["", " a", "two\nlines", "é", "k" * 201])
def test_a_key_that_would_not_fit_on_a_line_is_refused(path, key):
    with pytest.raises(UsageError, match="cannot be the key"):
        FileWrite(str(path), b"x").act(key)
    assert FileWrite(str(path), b"x").probe(key).settled_as == "unknown" and not path.exists()


# --- cut off at every call


def outcome(report, record_property, name):
    record_property("crash", (name, report.points, report.counts, len(report.violations)))
    assert report.violations == [], table([report])
    assert report.points > 20


@pytest.mark.crash
@needs_shim
def test_killed_at_every_call_the_probe_says_what_is_there(record_property):
    outcome(kill_everywhere(FileWork()), record_property, "file write: kill at calls")


@pytest.mark.crash
@needs_shim
def test_with_an_error_at_every_call_the_probe_says_what_is_there(record_property):
    outcome(errno_everywhere(FileWork(), sticky=(False,)), record_property, "file write: errno at calls")


@pytest.mark.crash
@needs_shim
def test_a_loss_of_power_undoes_nothing_that_was_done(record_property):
    outcome(power_loss(FileWork(), images=300), record_property, "file write: power loss")
