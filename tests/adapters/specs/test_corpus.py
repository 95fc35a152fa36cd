"""The whole collection of real spec files: each one loads or is reported with its line, and is written back as it was."""

from __future__ import annotations

import difflib
import os
import shutil
from collections import defaultdict

import pytest
from msgspec.structs import replace

from holdfast.adapters.specs import SpecFolder
from holdfast.adapters.specs.texts import parse
from holdfast.core.batches import plan
from holdfast.core.errors import BadFile
from holdfast.core.spec import NextBatch, SpecError, TaskRef
from holdfast.core.statuses import status

NOT_YAML = 15


@pytest.fixture
def files(corpus):
    return sorted((corpus / "spec-batches").rglob("*.yaml"))


def folders(corpus):
    """Every folder at every moment of its history: of each kind of file the newest that was there."""
    for folder in sorted(path for path in (corpus / "spec-batches").glob("*/*") if path.is_dir()):
        kinds = defaultdict(dict)
        for path in folder.iterdir():
            kind, number, *_ = path.name.split(".")
            kinds[kind][int(number)] = path
        for moment in sorted({number for kind in kinds.values() for number in kind}):
            past = {kind: [number for number in known if number <= moment] for kind, known in kinds.items()}
            yield {kind: kinds[kind][max(numbers)] for kind, numbers in past.items() if numbers}


def put(folder, chosen):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for kind, path in chosen.items():
        shutil.copyfile(path, folder / f"{kind}.yaml")
    return SpecFolder(str(folder), str(folder.parent))


def test_every_file_loads_or_is_reported_with_its_line(files):
    reported = []
    for path in files:
        try:
            assert parse(str(path), path.read_bytes()).data
        except BadFile as error:
            reported.append((path.name, error.line))
    assert len(files) == 165
    assert len(reported) == NOT_YAML
    assert all(line for _, line in reported)


def test_every_folder_becomes_a_spec_with_batches_or_named_errors(corpus, tmp_path):
    made = refused = 0
    for chosen in folders(corpus):
        spec = put(tmp_path / "spec", chosen).read()
        left = {task.id for task in spec.tasks if task.status not in ("complete", "deferred", "dropped")}
        try:
            batches = plan(spec.tasks)
        except SpecError as error:
            assert any(name in str(error) for name in left)
            assert any(problem.fatal for problem in spec.problems)
            refused += 1
        else:
            assert sorted(name for batch in batches for name in batch.tasks) == sorted(left)
            made += bool(spec.tasks)
    assert made >= 50
    assert refused < 15


def test_files_that_point_both_ways_give_the_needs_their_tasks_tell(corpus, tmp_path):
    for chosen in folders(corpus):
        spec = put(
            tmp_path / "spec", {kind: path for kind, path in chosen.items() if kind in ("tasks", "dependencies")}
        )
        bare = put(tmp_path / "bare", {"tasks": chosen["tasks"]}).read()
        told = {task.id: set(task.depends_on) for task in spec.read().tasks}
        if "depends_on" not in chosen["tasks"].read_text():
            continue  # then the order of its phases stands in for needs, until a file tells of some
        assert all(told[task.id] >= set(task.depends_on) for task in bare.tasks)


def test_nothing_to_change_changes_nothing_and_one_status_is_one_scalar(files, tmp_path):
    changed = 0
    for path in (path for path in files if path.name.startswith("tasks.")):
        folder = put(tmp_path / "spec", {"tasks": path})
        target = tmp_path / "spec" / "tasks.yaml"
        before, spec = path.read_bytes(), folder.read()
        if not spec.tasks:
            continue
        seen = os.stat(target).st_mtime_ns
        folder.mark({task.id: task.status for task in spec.tasks})
        assert target.read_bytes() == before
        assert os.stat(target).st_mtime_ns == seen
        task = spec.tasks[len(spec.tasks) // 2]
        folder.mark({task.id: "blocked"})
        words = [line for line in difflib.ndiff(before.decode().split(), target.read_text().split()) if line[0] in "+-"]
        removed, added = [[line[2:] for line in words if line[0] == sign] for sign in "-+"]
        assert (removed[0], added[0]) == (task.said, "blocked")
        assert len(removed) == len(added) <= 2  # the progress in `meta` is the other
        after = folder.read()
        assert {one.id: one.status for one in after.tasks if one.id != task.id} == {
            one.id: one.status for one in spec.tasks if one.id != task.id
        }
        folder.mark({task.id: task.status})
        undone = target.read_text().split()
        assert [word for word in undone if status(word) != task.status and "/" not in word] == [
            word for word in before.decode().split() if status(word) != task.status and "/" not in word
        ]
        changed += 1
    assert changed == 53


def besides(checkpoint):
    """What a checkpoint says of tasks and batches besides what we write: which, under what key, and what."""
    tasks, following = checkpoint.get("tasks", {}), checkpoint.get("next_batch") or {}
    rows = [item for held in tasks.values() for item in held if isinstance(item, dict)]
    batches = [following, *checkpoint.get("earlier_next_batch", [])]
    rows += [item for batch in batches for item in batch.get("tasks", ()) if isinstance(item, dict)]
    found = {(row.get("id"), key, str(row[key])) for row in rows for key in row.keys() - {"id", "name", "file"}}
    return found | {
        (batch["number"], key, str(batch[key]))
        for batch in filter(None, batches)
        for key in batch.keys() - {"number", "tasks", "parallel"}
    }


def test_a_checkpoint_is_written_over_without_losing_a_word_of_what_is_not_ours(files, tmp_path):
    seen = told = 0
    for path in (path for path in files if path.name.startswith("checkpoint.")):
        (tmp_path / "spec").mkdir(exist_ok=True)
        target = tmp_path / "spec" / "checkpoint.yaml"
        (tmp_path / "spec" / "tasks.yaml").write_text("tasks: [{id: T1}]\n")
        target.write_bytes(path.read_bytes())
        folder = SpecFolder(str(tmp_path / "spec"), str(tmp_path))
        old = folder.read().checkpoint
        folder.write_checkpoint(old)
        assert target.read_bytes() == path.read_bytes() or old.finished, path.name
        new = replace(
            old,
            timestamp="2026-07-01T02:03:04Z",
            last_batch="12",
            last_commit="0123456",
            completed=(*old.completed, TaskRef("X-001", "One: more")),
            next_batch=NextBatch("13", (TaskRef("X-002", "Two", "src/x.py"),), False),
            finished=False,
            tasks_digest="ab" * 32,
        )
        folder.write_checkpoint(new)
        now = folder.read()
        assert not [problem for problem in now.problems if "checkpoint" in problem.path]
        assert [ref.id for ref in now.checkpoint.completed] == [ref.id for ref in new.completed]
        assert now.checkpoint.next_batch.number == "13"
        assert (now.checkpoint.last_commit, now.checkpoint.tasks_digest) == ("0123456", "ab" * 32)
        comments = [line.partition(" #")[2] for line in path.read_text().splitlines() if " # " in line]
        assert [text for text in comments if text not in target.read_text()] == []
        before, after = (parse("x", data).data["checkpoint"] for data in (path.read_bytes(), target.read_bytes()))
        ours = {"timestamp", "last_batch", "last_commit", "tasks", "next_batch", "tasks_digest", "earlier_next_batch"}
        assert {key: value for key, value in before.items() if key not in ours} == {
            key: value for key, value in after.items() if key not in ours
        }
        assert not besides(before) - besides(after), path.name
        assert "next_batch" not in before or after["next_batch"].keys() <= {"number", "tasks", "parallel"}
        again = target.read_bytes()
        folder.write_checkpoint(new)
        assert target.read_bytes() == again
        over = (*old.completed, *old.in_progress, *old.pending)
        target.write_bytes(path.read_bytes())
        folder.write_checkpoint(
            replace(old, completed=over, in_progress=(), pending=(), next_batch=None, finished=True)
        )
        after = parse("x", target.read_bytes()).data["checkpoint"]
        assert not besides(before) - besides(after), path.name
        assert after.get("next_batch") is None and "earlier_tasks" not in after
        told += bool(after.get("earlier_next_batch"))
        seen += 1
    assert (seen, told) == (34, 23)


def test_every_folder_without_an_error_could_be_written_after_the_work(corpus, tmp_path):
    checked = 0
    for chosen in folders(corpus):
        folder = put(tmp_path / "spec", chosen)
        if "tasks" in chosen and not folder.read().problems:
            folder.check_writable()
            checked += 1
    assert checked > 20
