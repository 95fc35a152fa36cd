"""The files of a spec as plain data, in the shapes people write, read into the one model."""

from __future__ import annotations

import pytest

from holdfast.core.spec import Deferred, NextBatch, Phase, PhaseCursor, Reviewer, Stage, TaskRef
from holdfast.core.spec_graph import Graph, read_graph
from holdfast.core.spec_shapes import (
    ids_in,
    joined,
    merged,
    open_findings,
    read_checkpoint,
    read_deferred,
    read_reviewers,
    read_tasks,
    said_of,
)


def test_a_task_is_read_in_all_its_spellings():
    rows = [
        {
            "id": "A-1",
            "content": "Do [P]",
            "status": "done",
            "file": "a.py",
            "depends_on": ["A-0"],
            "acceptance": ["x", "y"],
        },
        {
            "task_id": "A-2",
            "title": "Then",
            "name": "Short",
            "files": ["b", "c"],
            "blocked_by": "A-1",
            "parallel": "true",
        },
        {
            "key": "A-3",
            "subject": "At last",
            "phase": "own",
            "activeForm": "At it",
            "note": {"why": "so\nso", "more": None},
        },
    ]
    one, two, three = read_tasks({"tasks": rows}).tasks
    assert (one.title, one.status, one.said, one.files, one.depends_on) == (
        "Do [P]",
        "complete",
        "done",
        ("a.py",),
        ("A-0",),
    )
    assert one.marked_parallel and two.marked_parallel and not three.marked_parallel
    assert one.text == "acceptance:\n  - x\n  - y"
    assert (two.title, two.files, two.depends_on, two.text) == ("Then", ("b", "c"), ("A-1",), "Short")
    assert (three.title, three.status, three.phase) == ("At last", "pending", "own")
    assert three.text == "note:\n  why:\n    so\n    so\n  more:"


@pytest.mark.parametrize(
    ("said", "is_marked"), [("YES", True), ("on", True), ("p", True), ("[P]", True), ("no", False)]
)
def test_a_task_is_marked_in_many_words(said, is_marked):
    (task,) = read_tasks({"tasks": [{"id": "T1", "parallel": said}]}).tasks
    assert task.marked_parallel is is_marked


def test_a_list_in_a_list_is_told_in_steps():
    (task,) = read_tasks({"tasks": [{"id": "T1", "steps": [["x", {"y": "z"}], "a\nb"]}]}).tasks
    assert task.text == "steps:\n  -\n    - x\n    -\n      y: z\n  -\n    a\n    b"


def test_an_unknown_status_is_pending_and_told():
    found = read_tasks({"tasks": [{"id": "T1", "status": "nearly"}]})
    assert found.tasks[0].status == "pending"
    assert found.tasks[0].said == "nearly"
    assert found.remarks == ((0, "T1 has the status 'nearly', which is not known; it counts as pending."),)
    assert said_of(found.tasks) == ("nearly",)


def test_a_task_without_an_id_is_a_flaw():
    assert read_tasks({"tasks": ["T1", {"title": "x"}]}).flaws == ((0, "A task has no id."), (1, "A task has no id."))


def test_tasks_may_stand_in_a_map_in_phases_or_alone():
    assert [task.id for task in read_tasks({"tasks": {"T1": {"title": "x"}, "T2": {}}}).tasks] == ["T1", "T2"]
    assert read_tasks({"tasks": {"T1": "x"}}).flaws
    inside = {"phases": [{"name": "P", "tasks": [{"id": "T1"}, "T9"]}, {"name": "Q"}, "?"]}
    assert [(task.id, task.phase) for task in read_tasks(inside).tasks] == [("T1", "P")]
    assert [task.id for task in read_tasks(merged([{"scope": "s"}, [{"id": "T1"}], "text"])).tasks] == ["T1"]
    assert read_tasks({}).tasks == ()


def test_tasks_of_several_documents_are_all_read():
    whole = merged([{"tasks": [{"id": "T1"}], "phases": [{"name": "P"}]}, {"tasks": [{"id": "T2"}]}, [{"id": "T3"}]])
    assert [task.id for task in read_tasks(whole).tasks] == ["T1", "T2", "T3"]
    assert [task.id for task in read_tasks(merged([whole, {"tasks": None}])).tasks] == ["T1", "T2", "T3"]
    assert merged([{"next_batch": {"number": "2"}}, {"next_batch": None}]) == {"next_batch": None}


@pytest.mark.parametrize(
    "phases",
    [
        {"build": [{"id": "T1"}, {"id": "T2"}], "ship": [{"id": "T3"}]},
        {"build": {"tasks": [{"id": "T1"}, {"id": "T2"}]}, "ship": {"tasks": {"T3": {"title": "c"}}}},
        {
            "build": {"description": "first", "tasks": {"T1": {}, "T2": {}}},
            "p2": {"name": "ship", "tasks": [{"id": "T3"}]},
        },
        [{"name": "build", "tasks": {"T1": {}, "T2": {}}}, {"name": "ship", "tasks": {"T3": {}}}],
    ],
)
def test_tasks_inside_phases_are_read_whether_they_are_lists_or_maps(phases):
    read = read_tasks({"phases": phases})
    assert [(task.id, task.phase) for task in read.tasks] == [("T1", "build"), ("T2", "build"), ("T3", "ship")]
    assert [phase.tasks for phase in read.phases] == [("T1", "T2"), ("T3",)] and not read.flaws


def test_a_map_of_phases_may_only_name_tasks_and_other_phases():
    rows = [{"id": "T1"}, {"id": "T2"}, {"id": "T3"}]
    read = read_tasks({"tasks": rows, "phases": {"build": ["T1", "T2"], "ship": "T3"}})
    assert [task.phase for task in read.tasks] == ["build", "build", "ship"]
    needs = {"p1": {"title": "Build", "tasks": ["T1", "T2"]}, "p2": {"needs": "p1", "tasks": {"T3": {"needs": "T2"}}}}
    assert read_graph({"phases": needs}, read.tasks).needs == {"T3": ("T2", "T1")}


def test_a_list_and_a_map_of_several_documents_are_all_read():
    rows = [{"id": "T1"}], {"tasks": {"T2": {"title": "b"}}}, [{"id": "T3"}]
    for order in (rows, rows[::-1], (rows[1], rows[0], rows[2])):
        read = read_tasks(merged(order))
        assert sorted((task.id, task.title) for task in read.tasks) == [("T1", ""), ("T2", "b"), ("T3", "")]
        assert not read.flaws
    assert read_tasks(merged([[{"id": "T1"}], {"tasks": {"T2": None}}])).flaws == ((1, "A task has no id."),)
    needs = merged([{"dependencies": [{"id": "T3", "needs": "T2"}]}, {"dependencies": {"T2": ["T1"]}}])
    turned = merged([{"dependencies": {"T2": ["T1"]}}, {"dependencies": [{"id": "T3", "needs": "T2"}]}])
    for data in (needs, turned):
        assert read_graph(data, read.tasks).needs == {"T3": ("T2",), "T2": ("T1",)}
    assert merged([{"tasks": "see below"}, {"tasks": [{"id": "T1"}]}]) == {"tasks": [{"id": "T1"}]}
    assert merged([{"edges": ["T1 -> T2"]}, {"edges": {"T2": ["T1"]}}])["edges"] == {"T2": ["T1"]}


def test_maps_of_several_documents_are_all_read():
    plan = merged([{"tasks": {"T1": {"blocks": "T2"}}, "dependencies": {"T2": ["T1"]}}, {"tasks": {"T2": {}}}])
    assert [task.id for task in read_tasks(plan).tasks] == ["T1", "T2"]
    assert merged([plan, {"dependencies": {"T3": "T2"}}])["dependencies"] == {"T2": ["T1"], "T3": "T2"}
    told = {"completed": ["T1"], "pending": []}  # of a checkpoint: the last one counts
    assert merged([{"tasks": {"completed": [], "pending": ["T1"]}}, {"tasks": told}])["tasks"] == told


def test_what_a_task_blocks_needs_it():
    rows = [
        {"id": "T1", "blocks": ["T2"]},
        {"id": "T2", "depends_on": "T3"},
        {"id": "T3"},
        {"id": "T4", "blockedBy": "T1"},
    ]
    assert [task.depends_on for task in read_tasks({"tasks": rows}).tasks] == [(), ("T3", "T1"), (), ("T1",)]
    assert read_tasks({"tasks": rows}).remarks == ()
    stranger = read_tasks({"tasks": [{"id": "T1", "blocks": "the release"}, {"id": "T2", "blocks": "T9"}]})
    assert not stranger.flaws and stranger.remarks == (
        (0, "T1 blocks the release, and there is no such task."),
        (1, "T2 blocks T9, and there is no such task."),
    )


@pytest.mark.parametrize(
    "said",
    [
        {"files": {"create": ["a.py", "b.py"], "modify": "c.py"}},
        {"files": {"a.py": "create", "b.py": None, "c.py": ["new"]}},
        {"file": "a.py", "files": ["b.py", {"path": "c.py"}, "a.py"]},
    ],
)
def test_files_may_stand_beside_what_becomes_of_them(said):
    assert read_tasks({"tasks": [{"id": "T1", **said}]}).tasks[0].files == ("a.py", "b.py", "c.py")


def test_the_head_of_the_file_and_its_phases_are_read():
    goal = {"description": "It works", "criteria": ["a", None, "b"]}
    data = {
        "scope": "s",
        "code": "AB",
        "next_id": "12",
        "phases": [{"name": "P", "task_ids": ["T1"], "checkpoint": goal}],
    }
    found = read_tasks(data)
    assert (found.name, found.code, found.next_id) == ("s", "AB", 12)
    assert found.phases == (Phase("P", ("T1",), "It works", ("a", "b")),)
    assert read_tasks({"next_id": "x"}).next_id is None
    assert read_tasks({"spec": "a", "name": "b"}).name == "a" and read_tasks({"name": "b"}).name == "b"


def test_the_dependency_file_adds_to_the_tasks():
    tasks = read_tasks({"tasks": [{"id": "T1", "depends_on": ["T0"]}, {"id": "T2"}]}).tasks
    graph = Graph({"T1": ("T0", "T2")}, {"T1": ("a",)}, (Phase("P", ("T1",)),))
    one, two = joined(tasks, graph)
    assert (one.depends_on, one.files, one.phase) == (("T0", "T2"), ("a",), "P")
    assert two == tasks[1]


SEED = {
    "checkpoint": {
        "spec_name": "auth",
        "spec_path": "./specs/active/auth",
        "branch": "feat/auth",
        "timestamp": "2026-01-22T14:30:00Z",
        "last_batch": "2c",
        "last_commit": "0123456",
        "tasks": {
            "completed": [{"id": "T1", "name": "One"}],
            "in_progress": [],
            "pending": [{"id": "T2", "name": "Two"}],
        },
        "next_batch": {"number": "3", "tasks": [{"id": "T2", "name": "Two", "file": "a.py"}], "parallel": "false"},
        "deferred_issues": [{"batch": "2", "severity": "minor", "description": "Names", "location": "a.py:4"}],
        "review_config": {"reviewers": ["one/model", {"type": "claude", "model": "opus"}, {}, ""]},
        "phase_cursor": {"batch": "2", "phase": "fix", "status": "failed", "tasks": ["T1"], "updated_at": "x"},
        "incomplete_stages": [{"batch": "2", "task": "T1", "phase": "fix", "agent": "a", "status": "failed"}, "?"],
        "tasks_digest": "ab",
    }
}


def test_a_checkpoint_of_the_format_is_read_whole():
    found = read_checkpoint(SEED)
    assert (found.spec_name, found.spec_path) == ("auth", "./specs/active/auth")
    assert (found.branch, found.timestamp, found.in_progress) == ("feat/auth", "2026-01-22T14:30:00Z", ())
    assert (found.last_batch, found.last_commit, found.tasks_digest) == ("2c", "0123456", "ab")
    assert (found.completed, found.pending) == ((TaskRef("T1", "One"),), (TaskRef("T2", "Two"),))
    assert found.next_batch == NextBatch("3", (TaskRef("T2", "Two", "a.py"),), False)
    assert found.deferred == (Deferred("Names", "medium", batch="2", location="a.py:4"),)
    assert found.reviewers == (Reviewer("one/model"), Reviewer("claude", "opus"))
    assert found.cursor == PhaseCursor("2", "fix", "failed", ("T1",), "x")
    assert found.incomplete == (Stage("2", "T1", "fix", "a", "failed"),)
    assert not found.finished


def test_a_checkpoint_of_another_hand_is_read_too():
    found = read_checkpoint({"checkpoint": {"scope_name": "s", "tasks": {"done": ["T1", ""], "pending": "T2, T3"}}})
    assert (found.spec_name, found.completed, [ref.id for ref in found.pending]) == (
        "s",
        (TaskRef("T1"),),
        ["T2", "T3"],
    )
    assert not found.finished
    assert read_checkpoint({"tasks": {"in_progress": ["T4"]}}).in_progress == (TaskRef("T4"),)
    titled = [{"id": "T2", "content": "Two", "files": ["a", "b"]}, {"id": "T3", "title": "Three"}]
    batch = {"batch": "4", "tasks": [*titled, {"id": "T4", "subject": "Four"}], "parallel": "yes"}
    refs = (TaskRef("T2", "Two", "a, b"), TaskRef("T3", "Three"), TaskRef("T4", "Four"))
    assert read_checkpoint({"next_batch": batch}).next_batch == NextBatch("4", refs, True)
    bare = read_checkpoint({"branch": "main", "tasks": "?"})
    assert (bare.branch, bare.finished, bare.next_batch) == ("main", False, None)


def test_nothing_to_come_is_the_end():
    assert read_checkpoint({"next_batch": None}).finished
    assert read_checkpoint({"all_tasks_complete": "true"}).finished
    assert read_checkpoint({"tasks": {"done": ["T1"]}}).finished
    assert not read_checkpoint({"tasks": {"done": ["T1"], "in_progress": ["T2"]}}).finished


def test_findings_are_read_as_sentences_labels_or_objects():
    found = list(
        read_deferred(
            [
                "AB-12: later",
                "[AB-3] also",
                "plain",
                {"AB-5-M1 (low)": "small"},
                {"M1 (note)": "tiny"},
                {"id": "M2", "issue": "odd", "owner": "AB-1", "found_by": ["x", "y"], "status": "RESOLVED in batch 4"},
                {"strange": "key"},
                {"one": "1", "two": "2"},
                {"M3 (low)": "x", "note": "y"},
                {"text": "bad", "severity": "low", "task": ["T1", "T2"], "owner": "me", "source": "x", "area": "b"},
                None,
            ]
        )
    )
    assert found == [
        Deferred("AB-12: later", task="AB-12"),
        Deferred("[AB-3] also", task="AB-3"),
        Deferred("plain"),
        Deferred("small", "low", "AB-5-M1", task="AB-5"),
        Deferred("tiny", "low", "M1"),
        Deferred("odd", "medium", "M2", task="AB-1", reviewer="x, y", status="resolved"),
        Deferred("strange: key"),
        Deferred("one: 1 two: 2"),
        Deferred("M3 (low): x note: y"),
        Deferred("bad", "low", task="T1, T2", location="b", reviewer="x"),
    ]
    assert list(read_deferred("none")) == []


def test_only_what_is_still_put_off_is_carried_on_and_once():
    one, two = Deferred("one", id="M1"), Deferred("two")
    settled = Deferred("one", id="M1", status="resolved")
    assert open_findings([one, two], [two]) == (one, two)
    assert open_findings([one, two], [settled]) == (two,)
    assert open_findings([settled, Deferred("gone", status="resolved")], [one]) == ()


def test_reviewers_may_stand_at_the_top_or_be_missing():
    assert read_reviewers({"reviewers": "a, b"}) == (Reviewer("a"), Reviewer("b"))
    assert read_reviewers({"review_config": {}, "reviewers": ["a"]}) == ()
    named = [{"name": "a", "id": "z"}, {"id": "b"}, {"agent": "c"}, {"model": "m"}]
    assert read_reviewers({"reviewers": named}) == (Reviewer("a"), Reviewer("b"), Reviewer("c"), Reviewer("m", "m"))


def test_every_id_is_found_however_deep_it_stands():
    data = {"id": "a", "b": [{"id": "b", "c": {"id": "c"}}, "x", [{"id": "d"}]], "e": {"id": ["no"]}, "f": None}
    assert ids_in(data) == ["a", "b", "c", "d"]
