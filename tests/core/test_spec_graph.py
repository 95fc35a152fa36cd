"""The shapes in which people write down what needs what."""

from __future__ import annotations

import pytest

from holdfast.core.spec import Phase, Task
from holdfast.core.spec_graph import files_of, read_graph, words

TASKS = [Task(id="T1"), Task(id="T2"), Task(id="T3")]
CHAIN = {"T2": ("T1",), "T3": ("T2",)}
SHAPES = {
    "A": {
        "phases": [{"id": "p", "tasks": [{"id": "T1"}, {"id": "T2", "depends_on": ["T1"]}, {"id": "T3", "deps": "T2"}]}]
    },
    "B, by tasks": {
        "phases": [{"id": "a", "tasks": ["T1"]}, {"id": "b", "tasks": ["T2"], "depends_on": ["T1"]}],
        "edges": {"T3": ["T2"]},
    },
    "B, by phases": {
        "phases": [
            {"id": "a", "tasks": ["T1"], "depends_on": ["a"]},
            {"title": "b", "tasks": ["T2"], "depends_on": "a"},
            {"id": "c", "tasks": ["T3"], "depends_on": ["b"]},
        ]
    },
    "B, by tasks in a map": {
        "phases": [{"id": "a", "tasks": {"T1": {}, "T2": {"depends_on": "T1"}, "T3": {"needs": ["T2"]}}}]
    },
    "B, by names beside ids": {
        "phases": [
            {"id": "a", "name": "first", "tasks": ["T1"]},
            {"id": "b", "name": "then", "tasks": ["T2"], "depends_on": "first"},
            {"id": "c", "task_ids": ["T3"], "depends_on": ["then"]},
        ]
    },
    "C": {"phases": [{"name": "a", "tasks": ["T1"]}, {"name": "b", "tasks": ["T2"]}, {"name": "c", "tasks": ["T3"]}]},
    "C, as a map": {"phases": {"a": ["T1"], "b": {"tasks": ["T2"]}, "c": ["T3"]}},
    "D": {"internal": [{"from": "T3", "to": ["T2"]}, {"from": ["T2"], "to": "T1", "reason": "x"}]},
    "D, as arrows": {"edges": ["T1 -> T2", "T2 -> T3", "nothing", None, ["T1"]]},
    "D, as a chain": {"edges": ["T1 -> T2 -> T3"]},
    "edges with ids": {"edges": [{"id": "T9", "needs": "T8", "from": "T2", "to": "T1"}, {"from": "T3", "to": "T2"}]},
    "E": {"spec": "s", "version": "1", "T1": [], "T2": ["T1"], "T3": ["T2"]},
    "F": {"graph": {"T1": [], "T2": ["T1"], "T3": ["T2"]}},
    "G": {"nodes": {"T1": {"name": "x"}, "T2": {"depends_on": ["T1"]}, "T3": {"deps": ["T2"]}}},
    "H": {"tasks": {"T1": {"blocks": ["T2"]}, "T3": {"depends_on": ["T2"]}}},
    "needs with a word each": {"tasks": {"T2": {"depends_on": {"T1": "hard"}}, "T3": {"needs": {"T2": None}}}},
    "D, as pairs": {"edges": [["T1", "T2"], ["T2", "T3"], ["T1"]]},
    "needs in maps": {"dependencies": {"T2": {"T1": {"reason": "x"}}, "T3": {"depends_on": {"T2": {"why": "y"}}}}},
    "needs with a word each, in maps": {"dependencies": {"T2": {"T1": "hard"}, "T3": {"T2": None}}},
    "a list by task": {"dependencies": [{"task": "T2", "depends_on": ["T1"]}, {"task_id": "T3", "needs": "T2"}]},
    "under another name": {"task_dependencies": {"T1": [], "T2": ["T1"]}, "needs": {"T3": "T2"}},
    "a list": {"dependencies": [{"id": "T2", "needs": "T1"}, {"id": "T3", "requires": ["T2"]}, {"id": None}, "x"]},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_gives_the_same_needs(shape):
    assert read_graph(SHAPES[shape], TASKS).needs == CHAIN


@pytest.mark.parametrize(
    "data",
    [
        {"edges": [["T1", "T2", "T3"]]},
        {"dependencies": [{"of": "T2", "on": "T1"}]},
        {"order": {"T2": {"parents": ["T1"]}}},
        {"rows": [{"task": "T2", "parent": "T1"}]},
        {"phases": [{"id": "a", "tasks": [{"id": "T2", "parents": ["T1"]}]}]},
    ],
)
def test_needs_that_nobody_understands_are_remarked_on(data):
    found = read_graph(data, TASKS)
    assert found.needs == {}
    assert [remark for remark in found.remarks if "no need of any was understood" in remark]


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"dependencies": None, "edges": [], "internal": []},
        {"spec": "T1", "T1": [], "T2": [], "T3": None},
        {"graph": {"T1": [], "T2": {}, "T3": {"depends_on": []}}},
        {"dependencies": [{"task": "T1", "depends_on": []}, {"id": "T2", "needs": None}]},
        {"phases": [{"id": "a", "tasks": ["T1", "T2", {"id": "T3", "file": "x"}]}], "batches": [["T1", "T2"], ["T3"]]},
        {
            "nodes": {"T1": {"name": "T1", "blocks": []}},
            "critical_path": {"T1": "T2"},
            "parallel_groups": [["T1", "T2"]],
        },
    ],
)
def test_a_file_that_says_that_nothing_is_needed_is_not_remarked_on(data):
    assert read_graph(data, TASKS)[:1] + read_graph(data, TASKS)[4:] == ({}, ())


def test_a_task_that_is_called_like_a_key_is_not_needed_for_that():
    tasks = [*TASKS, Task(id="name")]
    assert read_graph({"tasks": {"T1": {"name": "x", "depends_on": ["T2"]}}}, tasks).needs == {"T1": ("T2",)}


def test_arrows_point_as_what_else_is_known_says():
    arrows = [{"from": "T1", "to": "T2"}, {"from": "T2", "to": "T3"}]
    known = [Task(id="T1", depends_on=("T2",)), Task(id="T2"), Task(id="T3")]
    assert read_graph({"edges": arrows}, known).needs == {"T1": ("T2",), "T2": ("T3",)}
    phases = [{"name": "first", "tasks": ["T3"]}, {"name": "then", "tasks": ["T2", "T1", "T9"]}]
    found = read_graph({"edges": arrows, "phases": phases}, TASKS)
    assert (found.needs, found.remarks) == ({"T1": ("T2",), "T2": ("T3",)}, ())
    guessed = read_graph({"edges": arrows}, TASKS)
    assert guessed.needs == CHAIN
    assert "Nothing says which way" in guessed.remarks[0]


def test_arrows_that_disagree_are_remarked_on():
    arrows = [{"from": "T2", "to": "T1"}, {"from": "T3", "to": "T2"}, {"from": "T1", "to": "T3"}]
    known = [Task(id="T1"), Task(id="T2", depends_on=("T1",)), Task(id="T3", depends_on=("T2", "T1"))]
    assert read_graph({"edges": arrows}, known).remarks == (
        "Some of its `from` and `to` point the other way than most do.",
    )
    odd = [{"from": "T1", "to": "T2"}, {"from": "T2", "to": "T1"}]
    assert "Nothing says" in read_graph({"edges": odd}, TASKS).remarks[0]


def test_an_arrow_that_nothing_speaks_for_leads_to_what_needs_its_start():
    odd = [{"from": "T1", "to": "T2"}, {"from": "T3", "to": "T1"}]
    found = read_graph({"edges": odd}, TASKS)
    assert (found.needs, len(found.remarks)) == ({"T2": ("T1",), "T1": ("T3",)}, 1)


def test_only_an_arrow_from_one_phase_to_another_tells_which_way_they_point():
    arrows = ["T1 -> T2", "T3 -> T4", "T4 -> T9"]
    tasks = [Task(id=f"T{number}") for number in range(1, 5)]
    phases = [{"name": "a", "tasks": ["T2", "T4", "T3"]}, {"name": "b", "tasks": ["T1"]}]
    found = read_graph({"edges": arrows, "phases": phases}, tasks)
    assert (found.needs, found.remarks) == ({"T1": ("T2",), "T3": ("T4",), "T4": ("T9",)}, ())
    phases = [{"name": "a", "tasks": ["T3"]}, {"name": "b", "tasks": ["T1", "T2", "T4"]}]
    found = read_graph({"edges": ["T3 -> T1", "T1 -> T2", "T2 -> T4"], "phases": phases}, tasks)
    assert (found.needs, found.remarks) == ({"T1": ("T3",), "T2": ("T1",), "T4": ("T2",)}, ())


def test_a_phase_does_not_need_what_is_set_aside_in_another():
    tasks = [Task(id="T1"), Task(id="T2", status="deferred"), Task(id="T3")]
    phases = [{"id": "a", "tasks": ["T1", "T2"]}, {"id": "b", "tasks": ["T3"], "depends_on": ["a"]}]
    assert read_graph({"phases": phases}, tasks).needs == {"T3": ("T1",)}


def test_phases_that_follow_one_another_skip_what_is_empty_or_set_aside():
    tasks = [Task(id="T1"), Task(id="T2", status="deferred"), Task(id="T3"), Task(id="T4", status="dropped")]
    rows = {"a": ["T1", "T2"], "b": [], "c": ["T4"], "d": ["T3"]}
    assert read_graph({"phases": rows}, tasks).needs == {"T3": ("T1",)}


def test_needs_under_several_names_all_count():
    assert read_graph({"T2": {"depends_on": [], "blocked_by": ["T1"]}}, TASKS).needs == {"T2": ("T1",)}
    phases = [{"id": "a", "tasks": ["T1"]}, {"id": "b", "tasks": ["T2"], "deps": [], "needs": ["a"]}]
    assert read_graph({"phases": phases}, TASKS).needs == {"T2": ("T1",)}


def test_files_phases_and_batches_are_read_too():
    data = {
        "phases": [
            {"id": "a", "name": "First", "tasks": [{"id": "T1", "file": "x.py, y.py"}, "T2"], "description": "d"},
            "?",
        ],
        "nodes": {"T2": {"files": [{"path": "z.py"}]}, "T3": []},
        "batches": [{"batch": "1", "tasks": ["T1", "T2"]}, ["T3"]],
    }
    found = read_graph(data, TASKS)
    assert found.files == {"T1": ("x.py", "y.py"), "T2": ("z.py",)}
    assert [(phase.name, phase.tasks, phase.description) for phase in found.phases] == [("First", ("T1", "T2"), "d")]
    assert found.batches == (("T1", "T2"), ("T3",))
    mapped = read_graph({"batches": {"1": ["T1"]}, "tasks": [{"id": "T1", "file": "q"}]}, TASKS)
    assert (mapped.files, mapped.batches) == ({"T1": ("q",)}, (("T1",),))
    assert read_graph({"batches": "none", "phases": "none", "edges": "none"}, TASKS).batches == ()


def test_a_phase_knows_its_name_its_tasks_and_what_is_to_be_reached():
    reached = {"description": "It runs.", "criteria": ["tests pass", " ", 3, "docs "]}
    rows = [
        {"title": "First", "id": "a", "tasks": {"T1": {}, "T2": None}, "checkpoint": reached},
        {"id": "b", "description": "said", "checkpoint": {"description": "not said", "criteria": "x"}},
        {"name": "c", "tasks": 3, "checkpoint": "soon"},
    ]
    assert read_graph({"phases": rows}, TASKS).phases == (
        Phase("First", ("T1", "T2"), "It runs.", ("tests pass", "docs")),
        Phase("b", (), "said", ()),
        Phase("c", (), "", ()),
    )
    assert [one.name for one in read_graph({"phases": {"a": ["T1"], "b": {"tasks": []}}}, TASKS).phases] == ["a", "b"]


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"path": "a.py", "why": "x"}, ("a.py",)),
        ({"create": ["a.py", "b.py"], "change": "c"}, ("a.py", "b.py", "c")),
        ({"a.py": "create", "src/b": "change", "Makefile": "d"}, ("a.py", "src/b", "d")),
    ],
)
def test_files_are_read_with_what_becomes_of_them(files, named):
    assert files_of({"files": files}) == named


def test_names_are_read_from_anything_that_holds_names():
    assert words("a, b,,") == ("a", "b")
    assert words(["a", {"id": "b"}, {"path": "c"}, {}, None, ["d"]]) == ("a", "b", "c", "d")
    assert words([{"file": "a.py", "action": "create"}, {"name": "b"}]) == ("a.py", "b")
    assert words(None) == ()
