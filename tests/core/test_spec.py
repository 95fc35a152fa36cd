"""The model of a spec: what changed, and what is newest."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.core.spec import (
    Checkpoint,
    Problem,
    SpecError,
    Task,
    TaskRef,
    batches_behind,
    changes,
    changes_since,
    digest_of,
    natural,
    newest,
    refuse,
    summary_of,
)

ONE = Task(id="T1", title="One", files=("a",))
TWO = Task(id="T2", title="Two", depends_on=("T1",))


def test_numbers_in_names_sort_as_numbers():
    assert sorted(["T10", "T2", "A-1000", "A-999", "T02", ""], key=natural) == [
        "",
        "A-999",
        "A-1000",
        "T02",
        "T2",
        "T10",
    ]
    assert sorted(["T" + "9" * 5000, "T1"], key=natural)[0] == "T1"


def test_the_digest_is_of_what_decides_the_batches():
    assert digest_of([ONE, TWO]) == digest_of([TWO, replace(ONE, text="more", said="todo", status="in_progress")])
    for other in (
        replace(ONE, title="x"),
        replace(ONE, files=()),
        replace(ONE, status="complete"),
        replace(ONE, phase="p"),
    ):
        assert digest_of([other, TWO]) != digest_of([ONE, TWO])


def test_an_id_is_sorted_before_the_same_with_a_number_behind_it():
    assert sorted(["B2", "B", "B10", "Ba", "2", "", "2.1"], key=natural) == ["", "2", "2.1", "B", "B2", "B10", "Ba"]


def test_a_change_is_told_in_sentences():
    after = [
        replace(ONE, title="Uno", status="complete"),
        replace(TWO, depends_on=("T3",), files=("b",), phase="p"),
        Task(id="T10"),
        Task(id="T3", title="Three"),
    ]
    assert changes([ONE, TWO, Task(id="T0")], after) == [
        "T0 was removed.",
        "T1 is called 'Uno' now; it was 'One'.",
        "T1 is complete now; it was pending.",
        "T2 now needs T3.",
        "T2 no longer needs T1.",
        "T2 now touches b.",
        "T2 is in phase p now; it was in (none).",
        "T3 was added: Three.",
        "T10 was added.",
    ]
    assert changes([ONE, TWO], [TWO, ONE]) == []


def test_a_task_that_is_blocked_is_no_other_change_since_a_checkpoint():
    known = Checkpoint(**summary_of([ONE, TWO]), tasks_digest=digest_of([ONE, TWO]))
    assert changes_since(known, [ONE, replace(TWO, status="blocked")]) == []
    assert changes_since(known, [replace(ONE, files=("z",)), replace(TWO, status="blocked")]) != []


def test_a_checkpoint_tells_enough_to_see_a_change():
    lists = summary_of([ONE, TWO, Task(id="T3", status="complete", title="Three"), Task(id="T4", status="dropped")])
    assert {name: [ref.id for ref in refs] for name, refs in lists.items()} == {
        "completed": ["T3"],
        "in_progress": [],
        "pending": ["T1", "T2"],
    }
    three = Task(id="T3", status="complete", title="Three")
    known = Checkpoint(**lists, tasks_digest=digest_of([ONE, TWO, three]))
    assert changes_since(known, [three, TWO, ONE]) == []
    moved = [replace(ONE, files=("z",)), TWO, three]
    assert changes_since(known, moved) == [
        "What a task needs, which files it touches or its phase has changed, or one is no longer blocked."
    ]
    assert changes_since(replace(known, tasks_digest=None), moved) == []
    after = [
        replace(ONE, title="Uno"),
        Task(id="T5"),
        Task(id="T6", status="deferred"),
        replace(three, status="pending"),
    ]
    assert changes_since(known, after) == [
        "T1 is called 'Uno' now; it was 'One'.",
        "T2 was removed.",
        "T3 is pending now; it was complete.",
        "T5 was added.",
    ]
    done = Checkpoint(pending=(TaskRef("T1"),))
    assert changes_since(done, [replace(ONE, status="complete")]) == ["T1 is complete now; it was not complete."]


def test_the_newest_checkpoint_is_the_one_that_says_so():
    said = ["2026-01-22T14:30:00Z", "2026-01-22", "2026-01-22T15:00:00+02:00", "yesterday", ""]
    found = newest([Checkpoint(timestamp=text) for text in said])
    assert found is not None
    assert found.timestamp == said[0]
    more = newest([Checkpoint(timestamp="x"), Checkpoint(timestamp="y", completed=(TaskRef("T1"),))])
    assert more is not None
    assert more.timestamp == "y"
    assert newest([]) is None


def test_only_a_fatal_problem_refuses_and_then_all_are_told():
    small = Problem("a.yaml", 3, "It is odd.")
    refuse([small])
    fatal = [Problem("b.yaml", None, f"It is wrong {number}.", fatal=True) for number in range(25)]
    with pytest.raises(SpecError) as caught:
        refuse([small, *fatal])
    assert caught.value.problems == (small, *fatal)
    assert str(caught.value).startswith("b.yaml: It is wrong 0. b.yaml: It is wrong 1.")
    assert str(caught.value).endswith("And 5 more.")
    assert str(small) == "a.yaml, line 3: It is odd."
    with pytest.raises(SpecError, match=r"^b\.yaml: It is wrong 0\.$"):
        refuse(fatal[:1])
    with pytest.raises(SpecError, match=r"It is wrong 19\.$"):
        refuse(fatal[:20])
    with pytest.raises(SpecError, match=r"It is wrong 19\. And 1 more\.$"):
        refuse(fatal[:21])


def test_an_error_may_bring_advice_of_its_own():
    assert SpecError("x", advice="Look there.").advice == "Look there."
    assert SpecError("x").advice == "Put the files in order and try again. Nothing was changed."


def test_every_number_in_a_name_counts_as_one():
    assert sorted(["a10b2c10", "a10b2c9", "a2b10", "a10b10", "aX2", "a02"], key=natural) == [
        *("a02", "a2b10", "a10b2c9", "a10b2c10", "a10b10", "aX2"),
    ]
    assert sorted(["T1b", "T1aa"], key=natural) == ["T1aa", "T1b"], "what stands between them counts as text"


def test_two_tasks_of_one_id_have_a_digest_too():
    twins = [Task(id="T1"), Task(id="T1", phase="p")]
    assert digest_of(twins) == digest_of(twins) != digest_of(twins[:1])


def test_the_digest_stays_the_same_for_ever():
    """A checkpoint carries it, and an older Holdfast may have written that."""
    later = Task(id="T0", title="Zero", status="complete", phase="p")
    assert digest_of([ONE, TWO, later]) == ("47c279aa837d132bda0bdd500c1ddd1b0fd9f2cf8c27e640e0a60f9586ed2503")


def test_what_a_task_needs_and_touches_is_told_in_the_order_of_the_names():
    was = Task(id="T1", depends_on=("T20", "T3"), files=("a",), phase="p")
    now = Task(id="T1", depends_on=("T10", "T9"), files=("a",))
    assert changes([was], [now]) == [
        "T1 now needs T9, T10.",
        "T1 no longer needs T3, T20.",
        "T1 is in phase (none) now; it was in p.",
    ]


def test_what_came_since_a_checkpoint_is_told_with_its_title_in_the_order_of_the_ids():
    tasks = [Task(id="T10"), Task(id="T9", title="Nine")]
    assert changes_since(Checkpoint(pending=(TaskRef("T10"),)), tasks) == ["T9 was added: Nine."]
    found = changes_since(Checkpoint(completed=(TaskRef("T1"),)), tasks)
    assert found == ["T1 was removed.", "T9 was added: Nine.", "T10 was added."]
    assert changes_since(Checkpoint(branch="x"), tasks) == [], "it names no task, so nobody knows which are new"


@pytest.mark.parametrize(
    ("last", "behind"),
    [("3", 3), ("012-review", 12), ("batch-3", 0), ("", 0), (None, 0), ("-1", 0), ("9999999999", 999999999)],
)
def test_the_number_of_a_batch_is_what_its_name_begins_with(last, behind):
    assert batches_behind(Checkpoint(last_batch=last)) == behind


def test_without_a_checkpoint_no_batch_was_done_before():
    assert batches_behind(None) == 0
