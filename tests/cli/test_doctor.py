"""`holdfast doctor` finds what is not sound, changes nothing, and with --fix repairs mirrors and nothing else."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast import app
from holdfast.core import stops
from holdfast.core.errors import StoreUnreadable
from holdfast.core.events import RunFinished, RunStarted
from holdfast.engine import health
from holdfast.engine.health import Seen, examine
from holdfast.engine.log import RunLog, verify_run
from holdfast.testing.postgres import available, shared_server


def levels(answer) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for finding in answer.data["findings"]:
        found.setdefault(finding["check"], set()).add(finding["level"])
    return found


def sound(holdfast) -> dict[str, set[str]]:
    return levels(holdfast("doctor", "--json"))


def test_a_sound_store_has_nothing_but_ok(holdfast, make_run):
    make_run("run-1", ending="finished")
    answer = holdfast("doctor", "--json")
    assert (answer.code, answer.data["schema_version"]) == (0, 1)
    assert {level for found in levels(answer).values() for level in found} == {"ok"}
    assert {"store", "disk", "modes", "engine", "witness", "clock", "owners", "snapshots"} <= set(levels(answer))


def test_without_a_store_nothing_is_wrong_and_nothing_is_made(holdfast):
    for arguments in (["doctor"], ["doctor", "--fix"]):
        answer = holdfast(*arguments)
        assert answer.code == 0
        assert "no store" in answer.out
        assert not holdfast.place.parent.exists()


def test_a_dead_owner_is_named_and_a_live_one_is_not(holdfast, writer):
    process = writer("run-1")
    assert sound(holdfast)["owners"] == {"ok"}
    process.kill()
    process.wait()
    out = holdfast("doctor").out
    assert f"Run run-1 was interrupted after event 5; its owner was process {process.pid}" in out
    assert "`holdfast resume run-1` says from where" in out
    assert sound(holdfast)["owners"] == {"ok"}, "it harms nothing, and no command of ours can go on with it"


def test_files_that_others_may_read_are_named(holdfast, make_run):
    make_run("run-1")
    holdfast.place.chmod(0o644)
    out = holdfast("doctor").out
    assert f"chmod 600 '{holdfast.place}'" in out


@pytest.mark.parametrize(
    ("mode", "sentence", "fix"),
    [
        (0o755, "Only you may read the store.", ""),
        (0o777, "Others may use {folder} (mode 777).", "chmod 700 '{folder}'"),
        (
            0o1777,
            "The folder {folder} is shared: others may keep files there, too. Keep the store in one of your own.",
            "",
        ),
    ],
)
def test_a_folder_that_is_not_ours_is_named_if_others_may_write_it_and_a_shared_one_stays_shared(
    holdfast, tmp_path, mode, sentence, fix
):
    folder = tmp_path / "shared"
    folder.mkdir()
    with closing(app.open_store(str(folder / "runs.db"))):
        folder.chmod(mode)
    answer = holdfast("doctor", "--json", HOLDFAST_STORE=str(folder / "runs.db"))
    said = next(one for one in answer.data["findings"] if one["check"] == "modes")
    assert (said["sentence"], said["fix"]) == (sentence.format(folder=folder), fix.format(folder=folder))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_files_of_another_user_are_not_said_to_be_yours_alone(holdfast, make_run):
    make_run("run-1")
    os.chown(holdfast.place, 65534, 65534)
    (said,) = [one for one in holdfast("doctor", "--json").data["findings"] if one["check"] == "modes"]
    assert said["level"] == "warn"
    assert said["sentence"].startswith(f"{holdfast.place} belongs to another user (uid 65534)")
    os.chown(f"{holdfast.place}-witness", 65534, 65534)
    (said,) = [one for one in holdfast("doctor", "--json").data["findings"] if one["check"] == "modes"]
    assert " more belong to another user (uid 65534)" in said["sentence"]


@pytest.mark.parametrize("end", ["", "-witness"])
def test_a_file_that_its_owner_may_not_write_is_named(holdfast, make_run, end):
    make_run("run-1")
    path = Path(f"{holdfast.place}{end}")
    path.chmod(0o400)
    (said,) = [one for one in holdfast("doctor", "--json").data["findings"] if one["level"] != "ok"]
    assert (said["check"], said["fix"]) == ("modes", f"chmod 600 '{path}'")


def test_a_missing_witness_is_found_and_made_again(holdfast, make_run):
    make_run("run-1", ending="finished")
    witness = Path(f"{holdfast.place}-witness")
    before = witness.read_bytes()
    witness.unlink()
    assert sound(holdfast)["witness"] == {"warn"}
    assert not witness.exists()
    answer = holdfast("doctor", "--fix", "--json")
    assert answer.data["done"] == ["Made a new witness from the log."]
    assert levels(answer)["witness"] == {"ok"}
    assert any(witness.read_bytes()[at : at + 92] in before for at in range(0, len(before), 512))


def lose_the_tail(holdfast, make_run) -> None:
    """Roll the database back to an older copy beside a witness that knows better."""
    make_run("run-1", ending="")
    older = holdfast.place.with_name("older")
    older.mkdir()
    for path in holdfast.place.parent.glob("holdfast.db*"):
        shutil.copy2(path, older)
    from holdfast.core.events import NoteRecorded

    app.record("run-1", NoteRecorded(text="acknowledged"), place=str(holdfast.place))
    for end in ("", "-wal", "-shm"):
        Path(f"{holdfast.place}{end}").unlink()
        if (older / f"holdfast.db{end}").exists():
            shutil.copy2(older / f"holdfast.db{end}", f"{holdfast.place}{end}")
    shutil.rmtree(older)


def test_a_lost_tail_is_accepted_only_by_the_word(holdfast, make_run):
    lose_the_tail(holdfast, make_run)
    looked = holdfast("doctor")
    assert looked.code == 101
    assert "holdfast doctor --fix --accept-loss" in looked.out
    assert holdfast("status").code == 101
    refused = holdfast("doctor", "--fix")
    assert refused.code == 101
    assert "--accept-loss" in refused.out
    assert holdfast("status").code == 101
    accepted = holdfast("doctor", "--fix", "--accept-loss", "--json")
    assert accepted.code == 0
    assert "Accepted" in accepted.data["done"][0]
    assert list(holdfast.place.parent.glob("holdfast.db-witness.kept-*"))
    assert holdfast("status").code == 0


def test_a_run_that_was_cut_off_is_found_and_accepted_only_by_the_word(holdfast, make_run):
    place = holdfast.place
    make_run("run-1", ending="stopped")
    connection = apsw.Connection(str(place))
    connection.execute("delete from events_1 where place = (select max(place) from events_1)")
    connection.close()
    os.unlink(f"{place}-witness")
    assert sound(holdfast)["tails"] == {"fail"}
    assert holdfast("verify", "--all").code == 100
    check_less_is_not_shown(holdfast)
    accepted = holdfast("doctor", "--fix", "--accept-loss", "--json")
    assert accepted.code == 0
    assert any("Accepted that run run-1" in sentence for sentence in accepted.data["done"])
    assert holdfast("verify", "--all").code == 0


def check_less_is_not_shown(holdfast):
    """Nothing folds what is left of a log as if it were all of it, and nobody writes to it."""
    for words in (["show"], ["diagnose"], ["resume", "--plan"], ["cancel"]):
        answer = holdfast(*words, "run-1")
        assert (answer.code, answer.out) == (stops.exit_code("tail_lost"), ""), words


@pytest.mark.postgres
@pytest.mark.skipif(available() is not None, reason=available() or "")
@pytest.mark.parametrize("lost", ["seq = 6", "seq > 3", "true"])
def test_a_run_that_was_cut_off_on_a_server_is_found_and_accepted_only_by_the_word(holdfast, make_run, lost):
    server = shared_server()
    with server.database() as holdfast.place:
        make_run("run-1", ending="stopped")
        make_run("run-2", ending="finished")
        server.execute(
            f"delete from holdfast.events where run_id = 'run-1' and {lost}", holdfast.place.rpartition("/")[2]
        )
        assert "fail" in sound(holdfast)["tails"]
        assert holdfast("doctor", "--fix").code == 101
        assert holdfast("verify", "--all").code == 100
        check_less_is_not_shown(holdfast)
        accepted = holdfast("doctor", "--fix", "--accept-loss", "--json")
        assert accepted.code == 0
        assert any("Accepted that run run-1" in sentence for sentence in accepted.data["done"])
        assert holdfast("verify", "--all").code == 0
        make_run("run-3")
        assert {run["run_id"] for run in holdfast("status", "--json").data["runs"]} >= {"run-2", "run-3"}


def test_a_database_that_is_gone_beside_its_pages_and_its_witness_is_a_loss_and_no_new_one_takes_them_over(
    holdfast, make_run, tmp_path
):
    place = holdfast.place
    make_run("run-1", ending="stopped")
    export = tmp_path / "run.jsonl"
    assert holdfast("export", "run-1", str(export)).code == 0
    place.unlink()
    left = {path.name: path.read_bytes() for path in place.parent.iterdir()}
    for command in (["status"], ["verify"], ["doctor"], ["doctor", "--fix"], ["import", str(export)]):
        answer = holdfast(*command)
        assert answer.code == 101, command
        assert "the database file is gone" in answer.out + answer.err
        assert {path.name: path.read_bytes() for path in place.parent.iterdir()} == left
    accepted = holdfast("doctor", "--fix", "--accept-loss", "--json")
    assert accepted.code == 0
    kept = {path.read_bytes() for path in place.parent.glob("*.kept-*")}
    assert kept == {left[f"{place.name}-wal"], left[f"{place.name}-witness"]}
    assert holdfast("status", "--json").data["runs"] == []
    assert holdfast("import", str(export)).code == 0
    assert holdfast("verify").code == 0


def test_a_database_that_was_emptied_beside_its_pages_is_a_loss_and_no_command_takes_them_away(
    holdfast, make_run, tmp_path
):
    place = holdfast.place
    make_run("run-1", ending="stopped")
    export = tmp_path / "run.jsonl"
    assert holdfast("export", "run-1", str(export)).code == 0
    place.write_bytes(b"")
    left = {path.name: path.read_bytes() for path in place.parent.iterdir()}
    for command in (["status"], ["log", "run-1"], ["verify"], ["doctor"], ["doctor", "--fix"], ["import", str(export)]):
        answer = holdfast(*command)
        assert {path.name: path.read_bytes() for path in place.parent.iterdir()} == left, command
        assert answer.code == 101, command
        assert "the database file is empty" in answer.out + answer.err
    place.with_name(f"{place.name}-shm").unlink()
    assert f"{place} has lost the end of its log" in holdfast("status").err
    accepted = holdfast("doctor", "--fix", "--accept-loss", "--json")
    assert accepted.code == 0
    kept = {path.read_bytes() for path in place.parent.glob("*.kept-*")}
    assert kept == {b"", left[f"{place.name}-wal"], left[f"{place.name}-witness"]}
    assert holdfast("import", str(export)).code == 0
    assert holdfast("verify").code == 0


def test_a_witness_alone_and_pages_alone_are_remains_too(holdfast, make_run):
    place = holdfast.place
    make_run("run-1", ending="stopped")
    place.unlink()
    pages = place.with_name(f"{place.name}-wal")
    kept = pages.read_bytes()
    pages.unlink()
    assert holdfast("status").code == 101
    place.with_name(f"{place.name}-witness").unlink()
    assert holdfast("status").code == 0
    pages.write_bytes(kept)
    assert holdfast("status").code == 101


def test_accepting_a_loss_needs_fix(holdfast):
    assert holdfast("doctor", "--accept-loss").code == 64


def test_a_drifted_snapshot_is_found_and_made_again(holdfast, make_run):
    make_run("run-1", ending="finished")
    with closing(app.open_store(str(holdfast.place))) as store:
        store.save_snapshot("run-1", 6, b'{"schema_version":"1.0.0","seq":6}')
    assert sound(holdfast)["snapshots"] == {"warn"}
    answer = holdfast("doctor", "--fix", "--json")
    assert answer.data["done"] == ["Made the snapshot of run run-1 again from its log."]
    with closing(app.open_store(str(holdfast.place), read_only=True)) as store:
        assert verify_run(store, "run-1").findings == ()


def test_an_old_draft_is_removed_and_a_fresh_one_is_left(holdfast, make_run):
    make_run("run-1", ending="finished")
    old, fresh = (Path(f"{holdfast.place}.new-{name}") for name in ("0123", "4567"))
    for draft in (old, fresh):
        draft.write_bytes(b"")
        draft.chmod(0o600)
    os.utime(old, (time.time() - 3600,) * 2)
    assert sound(holdfast)["drafts"] == {"warn"}
    assert old.exists()
    assert "Removed the unfinished draft" in holdfast("doctor", "--fix").out
    assert not old.exists() and fresh.exists()


def test_a_file_that_is_no_store_fails_with_its_reason(holdfast):
    holdfast.place.parent.mkdir()
    holdfast.place.write_bytes(b"no database at all" * 100)
    assert holdfast("doctor").code == 78
    assert holdfast("doctor", "--fix").code == 78
    assert holdfast.place.read_bytes() == b"no database at all" * 100


# --- the judgements, on values


class Facts:
    """A store that is only what it says of itself."""

    def __init__(self, **facts: object) -> None:
        self._facts = {"engine": "sqlite", "engine_version": "3.54.0", "runs": 0, "events": 0} | facts

    def facts(self) -> dict[str, object]:
        return self._facts

    def heads(self, limit=None, after=None, unfinished=False):
        return iter(())

    def strays(self):
        return []


def judged(seen: Seen, store=None, problem=None) -> dict[str, str]:
    return {finding.check: finding.level for finding in examine(store, problem, seen)}


NOW = "2026-01-02T03:04:05.000000Z"


@pytest.mark.parametrize(
    ("version", "level"), [("3.51.2", "fail"), ("3.51.3", "ok"), ("3.9.99", "fail"), ("4.0.0", "ok")]
)
def test_an_unsafe_sqlite_is_a_failure(version, level):
    assert judged(Seen("here", NOW), Facts(engine_version=version))["engine"] == level


@pytest.mark.parametrize(("free", "level"), [(1 << 40, "ok"), (1 << 29, "warn"), (1 << 20, "fail")])
def test_a_full_disk_is_a_failure_and_a_filling_one_a_warning(free, level):
    assert judged(Seen("here", NOW, free_bytes=free))["disk"] == level


@pytest.mark.parametrize(("kind", "level"), [("ext4", "ok"), ("nfs4", "warn"), ("fuse.sshfs", "warn")])
def test_a_network_file_system_is_a_warning(kind, level):
    assert judged(Seen("here", NOW, filesystem=kind))["file system"] == level


def test_a_server_that_may_lose_events_is_a_failure():
    store: Any = Facts(engine="postgresql", engine_version="16.1", fsync="off")
    assert [f.level for f in examine(store, None, Seen("here", NOW)) if f.check == "engine"] == ["ok", "fail"]


def clock_at(holdfast, now):
    with closing(app.open_store(str(holdfast.place), read_only=True)) as store:
        (said,) = [one for one in examine(store, None, Seen("here", now)) if one.check == "clock"]
    return said


def test_a_clock_behind_the_newest_event_is_a_warning(holdfast, make_run):
    make_run("run-1")
    said = clock_at(holdfast, "2001-01-01T00:00:00.000000Z")
    assert (said.level, said.fix) == ("warn", "date -u")


def test_a_clock_that_ran_ahead_as_a_run_began_is_a_warning(holdfast):
    times = iter(["2036-01-01T00:00:00.000000Z", "2016-01-01T00:00:00.000000Z"])
    with closing(app.open_store(str(holdfast.place))) as store:
        log = RunLog(store, "run-1", app.world()._replace(now=lambda: next(times)))
        log.record(RunStarted(mission_id="m"))
        log.record(RunFinished())
        log.close()
    said = clock_at(holdfast, "2026-01-01T00:00:00.000000Z")
    assert (said.level, said.sentence.partition(".")[0]) == ("warn", "The clock is 315,532,800 s behind an event")


def test_a_store_that_cannot_be_opened_is_a_failure_with_its_reason():
    finding = next(iter(examine(None, StoreUnreadable("here", "it is damaged"), Seen("here", NOW))))
    assert (finding.level, finding.reason) == (health.FAIL, "store_unreadable")
