"""Reading a folder: what is there counts, what is broken is told, and nothing leads out of the repository."""

from __future__ import annotations

import os
import random

import pytest

from holdfast.adapters.specs import SpecFolder, find, named, reader
from holdfast.adapters.specs.memory import forget
from holdfast.core import spec_shapes
from holdfast.core.errors import BadFile, NotFound
from holdfast.core.spec import Deferred, Reviewer, SpecError, refuse

TASKS = """\
spec: auth
code: AUT
next_id: 3
tasks:
  - id: AUT-001
    content: First
    status: completed
  - id: AUT-002
    content: Second
    status: nearly
    file: src/a.py
"""


@pytest.fixture
def top(tmp_path):
    (tmp_path / ".git").mkdir()
    return tmp_path


@pytest.fixture
def spec(top):
    folder = top / "specs" / "active" / "auth"
    folder.mkdir(parents=True)
    (folder / "tasks.yaml").write_text(TASKS)
    return folder


def read(folder):
    return SpecFolder(str(folder)).read()


def test_a_file_that_was_changed_is_understood_anew_and_one_that_was_not_is_not(spec):
    folder = SpecFolder(str(spec))
    first = folder.read()
    assert folder.read() is first
    stamp = os.stat(spec / "tasks.yaml")
    (spec / "tasks.yaml").write_text(TASKS.replace("Second", "Secund"))
    os.utime(spec / "tasks.yaml", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # its bytes count, not its age
    assert [task.title for task in folder.read().tasks] == ["First", "Secund"]
    (spec / "dependencies.yaml").write_text("AUT-002: [AUT-001]\n")
    assert folder.read().tasks[1].depends_on == ("AUT-001",)
    (spec / "tasks.yaml").write_text("tasks: [")
    assert refusal(folder) == refusal(folder) != ""
    (spec / "tasks.yaml").unlink()
    with pytest.raises(SpecError):
        folder.read()


def refusal(folder):
    return str(next((problem for problem in folder.read().problems if problem.fatal), ""))


def test_a_spec_is_read_from_all_its_files(spec):
    (spec / "dependencies.yaml").write_text("AUT-002: [AUT-001]\n")
    (spec / "checkpoint.yaml").write_text(
        "checkpoint:\n  last_commit: 0123456\n  next_batch: null\n  deferred_issues: [later]\n"
    )
    (spec / "review.yaml").write_text("deferred_issues:\n  - {id: M1, issue: odd}\n")
    (spec / "validation.yaml").write_text("review_config: {reviewers: [{type: claude, model: opus}]}\n")
    found = read(spec)
    assert (found.name, found.path, found.code, found.next_id) == ("auth", "specs/active/auth", "AUT", 3)
    assert found.tasks[1].depends_on == ("AUT-001",)
    assert (found.checkpoint.last_commit, found.checkpoint.finished) == ("0123456", True)
    assert found.reviewers == (Reviewer("claude", "opus"),)
    assert found.deferred == (Deferred("later"), Deferred("odd", id="M1"))
    [problem] = found.problems
    assert (problem.path, problem.line, problem.fatal) == ("specs/active/auth/tasks.yaml", 8, False)
    assert len(found.digest) == 64


def test_a_broken_file_is_told_and_the_others_still_load(spec):
    (spec / "review.yaml").write_text("a: 1\nb: `c`: d\n")
    (spec / "checkpoint.yaml").write_bytes(b"\xff")
    found = read(spec)
    assert [(os.path.basename(problem.path), problem.line) for problem in found.problems[:2]] == [
        ("checkpoint.yaml", 1),
        ("review.yaml", 2),
    ]
    assert len(found.tasks) == 2
    refuse(found.problems)


def test_broken_tasks_leave_nothing_to_run_by(spec):
    (spec / "tasks.yaml").write_text("tasks:\n  - id: `x`\n")
    found = read(spec)
    assert found.problems[0].fatal
    with pytest.raises(SpecError, match=r"tasks.yaml, line 2"):
        refuse(found.problems)


def test_no_tasks_and_no_file_are_told(spec):
    (spec / "tasks.yaml").write_text("spec: x\n")
    with pytest.raises(SpecError, match="names no task"):
        refuse(read(spec).problems)
    os.remove(spec / "tasks.yaml")
    with pytest.raises(SpecError, match=r"no tasks\.yaml in specs/active/auth"):
        read(spec)


def test_a_flaw_is_told_with_its_line_and_cycles_by_name(spec):
    (spec / "tasks.yaml").write_text("tasks:\n- id: T1\n  depends_on: [T2]\n- id: T2\n  depends_on: [T1]\n- title: x\n")
    told = [str(problem) for problem in read(spec).problems if problem.fatal]
    assert told == [
        "specs/active/auth/tasks.yaml, line 6: A task has no id.",
        "specs/active/auth/tasks.yaml: T1 needs T2 needs T1, which is a cycle.",
    ]


def test_phases_without_needs_go_on_past_a_task_that_was_deferred(spec):
    rows = "tasks: [{id: T1, status: deferred}, {id: T2, file: b}, {id: T3, file: c}]\n"
    (spec / "tasks.yaml").write_text(rows + "phases: [{name: a, task_ids: [T1, T2]}, {name: b, task_ids: [T3]}]\n")
    found = read(spec)
    assert not found.problems and found.tasks[2].depends_on == ("T2",)


@pytest.mark.parametrize(("batches", "told"), [("[[AUT-001], [AUT-002]]", 0), ("[[AUT-001, AUT-002]]", 1)])
def test_batches_in_the_file_that_are_not_ours_are_remarked_on(spec, batches, told):
    (spec / "dependencies.yaml").write_text(f"batches: {batches}\nAUT-002: [AUT-001]\nedges: {{AUT-009: [AUT-001]}}\n")
    messages = [problem.message for problem in read(spec).problems]
    assert sum("Its batches are not" in message for message in messages) == told
    assert "It tells what AUT-009 needs, and tasks.yaml has no such task." in messages


def test_links_that_leave_the_repository_are_refused_by_name(spec, top, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "review.yaml").write_text("a: 1\n")
    (spec / "review.yaml").symlink_to(outside / "review.yaml")
    (top / "shared.yaml").write_text("review_config: {reviewers: [x]}\n")
    (spec / "validation.yaml").symlink_to(top / "shared.yaml")
    found = read(spec)
    assert "leaves the repository" in found.problems[0].message
    assert found.problems[0].path.endswith("review.yaml")
    assert found.reviewers == (Reviewer("x"),)
    (outside / "tasks.yaml").write_text(TASKS)
    (top / "specs" / "away").symlink_to(outside)
    with pytest.raises(SpecError, match="leaves the repository"):
        SpecFolder("specs/away", str(top)).read()


def test_pipes_folders_and_giants_are_refused(spec):
    os.mkfifo(spec / "review.yaml")
    (spec / "validation.yaml").mkdir()
    with open(spec / "checkpoint.yaml", "wb") as file:
        file.truncate(50_000_000)
    assert len(read(spec).problems) == 4


def test_specs_are_found_in_the_usual_places(top, spec):
    for place in ("scopes/draft/one", "scopes/done/auth", "specs/plain", "specs/empty"):
        (top / place).mkdir(parents=True)
        if "empty" not in place:
            (top / place / "tasks.yaml").write_text(TASKS)
    assert find(str(top)) == ["specs/active/auth", "specs/plain", "scopes/draft/one", "scopes/done/auth"]
    assert named(str(top), "plain").path == "specs/plain"
    assert named(str(top), "scopes/done/auth/tasks.yaml").path == "scopes/done/auth"
    assert named(str(top), str(spec)).path == "specs/active/auth"
    with pytest.raises(SpecError, match="2 specs called 'auth': specs/active/auth, scopes/done/auth"):
        named(str(top), "auth")
    with pytest.raises(NotFound) as caught:
        named(str(top), "nope")
    assert "specs/plain" in caught.value.advice
    assert find(str(top / "specs" / "empty")) == []


def test_outside_a_repository_a_folder_is_its_own_top(tmp_path):
    (tmp_path / "tasks.yaml").write_text(TASKS)
    assert read(tmp_path).path == str(tmp_path)


def some_files(chance):
    """The files of a spec, as somebody may have left them."""
    numbers = range(chance.choice((0, 11, 12, 12, 12)))
    status = {number: chance.choice(("pending", "done", "nearly", "dropped", "blocked")) for number in numbers}
    tasks = [
        "spec: x",
        *(["phases: [{name: a, tasks: [T1, T2]}, {name: b, tasks: T3}]"] if chance.random() < 0.4 else []),
    ]
    for number in numbers:
        tasks += ([] if tasks[-1:] and "tasks:" in tasks else ["tasks:"]) + [
            f"  - id: T{number}",
            f"    title: Part {number}",
        ]
        tasks += [f"    status: {status[number]}"] if chance.random() < 0.6 else []
        tasks += [f"    blocks: T{chance.randrange(14)}"] if chance.random() < 0.05 else []
        tasks += [f"    needs: [T{chance.randrange(14)}]"] if chance.random() < 0.05 else []
    needs = [
        f"T{number}: [{', '.join(f'T{one}' for one in numbers[:number] if chance.random() < 0.1)}]"
        for number in numbers
    ]
    done = ", ".join(f"T{number}" for number in numbers if chance.random() < 0.3)
    checkpoint = ["checkpoint:", f"  last_batch: {chance.randrange(3)}", f"  tasks: {{completed: [{done}]}}"]
    return {
        "tasks": tasks if chance.random() < 0.95 else ["tasks: ["],
        "dependencies": chance.choice(
            (needs, needs, [], ["phases: [{name: a, tasks: [T1, T2], needs: [b]}, {name: b, tasks: [T4]}]"])
        ),
        "checkpoint": checkpoint if chance.random() < 0.95 else ["checkpoint: `"],
    }


def put(spec, files):
    for name, lines in files.items():
        (spec / f"{name}.yaml").write_text("\n".join(lines) + "\n")


def test_a_spec_that_was_changed_reads_as_if_it_were_the_first(top, spec):
    chance, each = random.Random(3), []
    now = some_files(chance)
    for _ in range(400):
        now = now | dict(chance.sample(sorted(some_files(chance).items()), chance.choice((0, 0, 0, 1, 1, 2, 3))))
        if now and chance.random() < 0.7:  # one line of the tasks
            now["tasks"] = [*now.get("tasks", ())]
            lines = [place for place, line in enumerate(now["tasks"]) if "status:" in line or "phases:" in line]
            for place in chance.sample(lines, min(1, len(lines))):
                word = chance.choice(("pending", "done", "dropped", "blocked"))
                is_status = "status:" in now["tasks"][place]
                now["tasks"][place] = (
                    f"    status: {word}" if is_status else f"phases: [{{name: {word}, tasks: [T1, T2]}}]"
                )
        put(spec, now)
        forget()
        each.append((now, SpecFolder(str(spec), str(top)).read()))
    folder = SpecFolder(str(spec), str(top))
    for files, expected in each:
        put(spec, files)
        assert folder.read() == expected


def test_of_a_task_that_is_as_it_was_nothing_is_read_again(spec, top, monkeypatch):
    folder = SpecFolder(str(spec), str(top))
    rows = [f"  - id: T{number}\n    status: pending\n" for number in range(50)]
    (spec / "dependencies.yaml").write_text("T2: [T1]\n")
    (spec / "tasks.yaml").write_text("tasks:\n" + "".join(rows))
    folder.read()
    made, task_of = [], spec_shapes._task
    monkeypatch.setattr(spec_shapes, "_task", lambda row, *more: (made.append(row["id"]), task_of(row, *more))[1])
    monkeypatch.setattr(reader, "read_graph", None)  # and what each needs is not worked out again
    rows[7] = rows[7].replace("pending", "completed")
    (spec / "tasks.yaml").write_text("tasks:\n" + "".join(rows))
    assert folder.read().tasks[7].status == "complete" and made == ["T7"]


def test_a_file_that_is_as_it_was_has_lost_nothing_and_is_not_searched(spec, top, monkeypatch):
    folder, before = SpecFolder(str(spec), str(top)), b"checkpoint:\n  mine: 1  # x\n"
    (spec / "checkpoint.yaml").write_bytes(before)
    assert folder.lost("checkpoint.yaml", before + b"  more: 2\n") == ["more"]
    monkeypatch.setattr(reader, "lost_of_checkpoint", None)
    assert folder.lost("checkpoint.yaml", before) == []
    with pytest.raises(BadFile):
        folder.lost("checkpoint.yaml", b"a: `\n")


ROWS = "tasks: [{id: T1, title: x}, {id: T2, title: y}]\n"
PHASED = "phases: [{name: a, tasks: [T1]}, {name: b, tasks: [T2]}]\n"


@pytest.mark.parametrize(
    ("needs", "before", "after", "then", "now"),
    [
        (PHASED.replace("T2]", "T2], needs: a"), ROWS, ROWS.replace("title: x", "status: dropped"), ("T1",), ()),
        (
            "edges: [[T1, T2]]\n",
            ROWS.replace("title: y", "needs: T1"),
            ROWS.replace("title: x", "needs: T2"),
            ("T1",),
            (),
        ),
        ("{}\n", PHASED + ROWS, PHASED.replace("T2", "T3").replace("T1", "T2").replace("T3", "T1") + ROWS, ("T1",), ()),
    ],
)
def test_what_tasks_need_is_worked_out_again_where_tasks_decide_it(spec, top, needs, before, after, then, now):
    (spec / "dependencies.yaml").write_text(needs)
    folder = SpecFolder(str(spec), str(top))
    for content, wanted in ((before, then), (after, now), (before, then)):
        (spec / "tasks.yaml").write_text(content)
        assert folder.read().tasks[1].depends_on == wanted
