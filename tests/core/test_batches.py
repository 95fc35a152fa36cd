"""Which tasks go together, whatever order they are told in."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from holdfast.core import batches
from holdfast.core.batches import Batch, faults, held, held_said, plan
from holdfast.core.spec import SpecError, Task, digest_of


def task(name, needs=(), files=(), **more):
    return Task(id=name, depends_on=tuple(needs), files=tuple(files), **more)


def names(tasks, **how):
    return [batch.tasks for batch in plan(tasks, **how)]


def test_each_comes_as_early_as_what_it_needs_allows():
    tasks = [task("T1", (), ["a"]), task("T10", (), ["b"]), task("T2", ["T1"], ["c"]), task("T3", ["T2"], ["d"])]
    assert plan(tasks) == (Batch(("T1", "T10"), True), Batch(("T2",), False), Batch(("T3",), False))


def test_one_file_is_never_touched_twice_in_a_batch():
    assert names([task("T1", (), ["a"]), task("T2", (), ["b", "a"]), task("T3", (), ["b"])]) == [("T1", "T3"), ("T2",)]
    assert names([task("T1", (), ["a"]), task("T2", (), ["a"]), task("T3", (), ["a", "b"])]) == [
        ("T1",), ("T2",), ("T3",),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("./src//a.py", "src/a.py"),
        ("src/x/../a.py", "src/a.py"),
        ("src/", "src/a.py"),
        ("src", "src/deep/a.py"),
        ("src/*.py", "src/a.py"),
        ("**/a.py", "docs/b.md"),
        (".", "docs/b.md"),
        ("src\\a.py", "src/a.py"),
        ("Src/A.py", "src/a.py"),
        ("../x/a", "../x"),
    ],
)
def test_two_spellings_of_a_place_or_a_folder_and_what_is_in_it_collide(one, other):
    assert names([task("T1", (), [one]), task("T2", (), [other])]) == [("T1",), ("T2",)]
    assert names([task("T1", (), [other]), task("T2", (), [one])]) == [("T1",), ("T2",)]


def test_names_that_only_begin_alike_do_not_collide():
    assert names([task("T1", (), ["src/a"]), task("T2", (), ["src/ab"])]) == [("T1", "T2")]


def test_what_is_blocked_and_what_waits_for_it_is_in_no_batch():
    blocked = task("T2", (), ["b"], status="blocked")
    tasks = [task("T1", (), ["a"]), blocked, task("T3", ["T2"], ["c"]), task("T4", ["T3", "T1"], ["d"])]
    assert names(tasks) == [("T1",)]
    assert held(tasks) == {"T2": ("T3", "T4")}
    assert held_said(held(tasks)) == ["T2 is blocked, and T3, T4 wait for it"]
    assert held_said(held(tasks[:3])) == ["T2 is blocked, and T3 waits for it"]
    assert held_said(held([blocked])) == ["T2 is blocked"] and names([blocked]) == []
    assert faults([task("T2", ["T3"], status="blocked"), task("T3", ["T2"])]) == [
        "T2 needs T3 needs T2, which is a cycle."
    ]
    assert digest_of([blocked]) != digest_of([task("T2", (), ["b"])])


@pytest.mark.parametrize(("count", "last"), [(10, "T10, T11"), (11, "T11 and 1 more")])
def test_of_many_that_wait_ten_are_named_in_the_order_of_their_numbers(count, last):
    tasks = [task("T1", status="blocked"), *(task(f"T{number}", ["T1"]) for number in range(2, 2 + count))]
    [sentence] = held_said(held(tasks))
    assert sentence.startswith("T1 is blocked, and T2, T3, ") and sentence.endswith(f"{last} wait for it")


def test_a_task_without_a_file_is_alone_and_holds_nobody_else_up():
    tasks = [task("T1", (), ["a"]), task("T2"), task("T3", (), ["b"]), task("T4", (), [" "])]
    assert names(tasks) == [("T1", "T3"), ("T2",), ("T4",)]


def test_what_is_complete_counts_as_done_and_what_is_set_aside_is_left_out():
    tasks = [
        task("T1", (), ["a"], status="complete"),
        task("T2", ["T1"], ["b"], status="in_progress"),
        task("T3", (), ["c"], status="deferred"),
        task("T4", ["T3"], ["d"], status="complete"),
        task("T5", (), ["b"], status="awaiting_review"),
    ]
    assert names(tasks) == [("T2",), ("T5",)]


def test_a_phase_breaks_a_batch_only_when_asked():
    tasks = [
        task("T1", (), ["a"], phase="two"),
        task("T2", (), ["b"], phase="one"),
        task("T3", ["T1"], ["c"], phase="two"),
        task("T4", ["T3"], ["d"], phase="one"),
    ]
    assert names(tasks) == [("T1", "T2"), ("T3",), ("T4",)]
    assert names(tasks, break_on_phase=True) == [("T1",), ("T3",), ("T2", "T4")]


def test_all_that_is_wrong_is_told_at_once_and_by_name():
    tasks = [
        task("T1", ["T1"]),
        task("T2", ["T9", "T9"]),
        task("T3", ["T4"]),
        task("T4", ["T5"]),
        task("T5", ["T3"]),
        task("T6", ["T3", "T7"]),
        task("T7", (), status="dropped"),
        task("T8"),
        task("T8"),
    ]
    with pytest.raises(SpecError) as caught:
        plan(tasks)
    assert [problem.message for problem in caught.value.problems] == [
        "The id T8 is given to 2 tasks.",
        "T1 needs itself.",
        "T2 needs T9, and there is no such task.",
        "T6 needs T7, which is dropped.",
        "T3 needs T4 needs T5 needs T3, which is a cycle.",
    ]
    assert caught.value.reason == "bad_input"
    assert {problem.path for problem in caught.value.problems} == {"tasks.yaml"}
    assert all(problem.message in str(caught.value) for problem in caught.value.problems)


def test_a_task_that_needs_nothing_but_what_is_set_aside_is_told():
    assert faults([task("T1", status="dropped"), task("T2", ["T1"])]) == ["T2 needs T1, which is dropped."]


def test_two_cycles_are_two_and_a_finished_task_breaks_one():
    ring = [task("A", ["B"]), task("B", ["A"]), task("C", ["D"]), task("D", ["C"]), task("E", ["A"])]
    assert len(faults(ring)) == 2
    assert faults([task("A", ["B"], status="complete"), task("B", ["A"])]) == []


def test_faults_are_told_in_the_order_of_the_numbers():
    twins = [task("T10"), task("T9"), task("T10"), task("T9")]
    assert [one[:12] for one in faults(twins)] == ["The id T9 is", "The id T10 i"]
    rings = [task("T10", ["T11"]), task("T11", ["T10"]), task("T9", ["T8"]), task("T8", ["T9"])]
    assert faults(rings) == [
        "T8 needs T9 needs T8, which is a cycle.",
        "T10 needs T11 needs T10, which is a cycle.",
    ]
    assert faults([task("T10", ["T9"]), task("T9", ["T10"])]) == ["T9 needs T10 needs T9, which is a cycle."]
    assert faults([task("T9", ["T10"]), task("T10", ["T20", "T9"]), task("T20", ["T10"])])[0].startswith("T9 needs T10")


def test_a_cycle_is_told_without_the_tasks_that_only_lead_to_it():
    tasks = [task("T1", ["T2"]), task("T2", ["T3"]), task("T3", ["T4"]), task("T4", ["T3"])]
    assert faults(tasks) == ["T3 needs T4 needs T3, which is a cycle."]


def test_a_cycle_of_a_hundred_is_told_whole():
    [sentence] = faults([task(f"T{number}", [f"T{(number + 1) % 100}"]) for number in range(100)])
    assert "more)" not in sentence and "T98 needs T99 needs T0" in sentence


def test_tasks_of_two_phases_go_by_their_names_unless_asked():
    tasks = [task("T1", (), ["a"], phase="p"), task("T2", (), ["b"], phase="q"), task("T3", (), ["a", "b"], phase="p")]
    assert names(tasks) == [("T1", "T2"), ("T3",)]
    assert names([tasks[0], tasks[1], task("T3", (), ["b"], phase="p")]) == [("T1", "T2"), ("T3",)]


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("a/b/../c", "a/c", False),
        ("a/b/c/../../d", "a/d", False),
        ("../../a", "../a", True),
        ("../../a", "../../a/b", False),
        ("../a/../b", "../b", False),
        ("../../a", "a", True),
        ("x/../../a", "../a", False),
    ],
)
def test_a_step_up_takes_back_one_folder_and_no_other_step_up(one, other, together):
    found = names([task("T1", (), [one]), task("T2", (), [other])])
    assert found == ([("T1", "T2")] if together else [("T1",), ("T2",)])


def test_a_very_long_cycle_is_not_told_for_ever():
    [sentence] = faults([task(f"T{number}", [f"T{(number + 1) % 500}"]) for number in range(500)])
    assert sentence.startswith("T0 needs T1 needs T2")
    assert "(400 more) needs T0" in sentence


def test_nothing_to_do_is_no_batch():
    assert plan([]) == plan([task("T1", status="complete")]) == ()


FILES = some.sampled_from(["a", "b", "src/", "src/a", "src/b", "lib/*.c", "lib/x.c"])


@some.composite
def graphs(draw):
    count = draw(some.integers(1, 14))
    tasks = []
    for number in range(count):
        needs = draw(some.sets(some.integers(0, number - 1), max_size=3)) if number else set()
        files = draw(some.lists(FILES, max_size=2))
        state = draw(some.sampled_from(["pending", "pending", "complete"]))
        phase = draw(some.sampled_from([None, "one", "two"]))
        tasks.append(task(f"T{number}", [f"T{need}" for need in needs], files, status=state, phase=phase))
    return tasks


@given(graphs(), some.randoms(use_true_random=False), some.booleans())
def test_batches_hold_every_promise_for_any_tasks_in_any_order(tasks, chance, by_phase):
    batches = plan(tasks, break_on_phase=by_phase)
    shuffled = list(tasks)
    chance.shuffle(shuffled)
    assert plan(shuffled, break_on_phase=by_phase) == batches
    place = {name: number for number, batch in enumerate(batches) for name in batch.tasks}
    left = {one.id: one for one in tasks if one.status != "complete"}
    assert sorted(name for batch in batches for name in batch.tasks) == sorted(left)
    for one in left.values():
        assert all(place[need] < place[one.id] for need in one.depends_on if need in left)
    for batch in batches:
        held = [file for name in batch.tasks for file in set(left[name].files)]
        assert len(batch.tasks) == 1 or (len(held) == len(set(held)) and all(left[name].files for name in batch.tasks))
        assert batch.parallel == (len(batch.tasks) > 1)
        assert not by_phase or len({left[name].phase for name in batch.tasks}) == 1
        folders = [file for file in held if file == "src/"]
        assert (
            len(batch.tasks) == 1 or not folders or not any(file.startswith("src/") and file != "src/" for file in held)
        )


@pytest.mark.parametrize("shape", ["chain", "one file", "no file", "cycle", "two files", "phases"])
def test_ten_thousand_tasks_take_no_time_that_grows_with_their_square(shape):
    first = tuple(f"T{number}" for number in range(5000))
    made = {
        "phases": lambda number: task(f"T{number}", first if number >= 5000 else (), [f"f{number}"]),
        "chain": lambda number: task(f"T{number}", [f"T{number - 1}"] if number else [], [f"f{number}"]),
        "one file": lambda number: task(f"T{number}", [], ["a"]),
        "no file": lambda number: task(f"T{number}"),
        "cycle": lambda number: task(f"T{number}", [f"T{(number + 1) % 10_000}"]),
        "two files": lambda number: task(f"T{number}", [], ["a", "b"] if number > 5000 else ["ab"[number % 2]]),
    }[shape]
    tasks = [made(number) for number in range(10_000)]
    random.Random(1).shuffle(tasks)
    began = time.process_time()
    faults(tasks) if shape == "cycle" else plan(tasks)
    assert time.process_time() - began < 5


STATUSES = ("pending", "in_progress", "blocked", "complete", "deferred", "dropped")


def someone(chance, status="pending"):
    needs = [f"T{number}" for number in chance.sample(range(6), chance.choice((0, 0, 1, 2)))]
    return task(f"T{chance.randrange(6)}", needs, [f"f{chance.randrange(3)}"], status=status)


def test_what_is_left_of_tasks_with_an_order_has_the_one_that_it_would_have_without_them():
    chance, helped = random.Random(5), 0
    for _ in range(4000):
        sound = [
            task(f"T{number}", [f"T{one}" for one in range(number) if chance.random() < 0.3]) for number in range(5)
        ]
        sound = [replace(one, status=chance.choice(STATUSES)) for one in sound]
        if faults(sound):
            continue
        now = [replace(one, status=chance.choice(STATUSES[:4])) if chance.random() < 0.4 else one for one in sound]
        now = now if chance.random() < 0.8 else [someone(chance) if chance.random() < 0.2 else one for one in now]
        now = now if chance.random() < 0.9 else [*now, someone(chance)]
        wrong = faults(now)
        assert faults(now, sound) == wrong, (sound, now)
        if wrong:
            with pytest.raises(SpecError):
                plan(now, sound=sound)
        else:
            assert plan(now, sound=sound) == plan(now)
            helped += now != sound
    assert helped > 500


def test_an_order_is_not_looked_for_twice_where_tasks_only_came_to_their_end(monkeypatch):
    sound = [task("T1"), task("T2", ["T1"])]
    monkeypatch.setattr(batches, "_faults", lambda tasks, left: ["looked"])
    done = [replace(sound[0], status="complete"), sound[1]]
    assert faults(done, sound) == [] and len(plan(done, sound=sound)) == 1
    for other in ([sound[1]], [sound[0], task("T2")], [sound[0], replace(sound[1], status="dropped")]):
        assert faults(other, sound) == ["looked"]
    assert faults(sound, done) == ["looked"] and faults([], []) == ["looked"]


def test_tasks_that_touch_nothing_in_common_are_planned_as_if_they_might(monkeypatch):
    chance, free, collide = random.Random(4), 0, batches._collide
    for _ in range(500):
        tasks = [
            Task(
                f"T{number}",
                files=tuple(
                    chance.choice((f"a/{number}", f"b{number}/x", f"f{chance.randrange(30)}", "a"))
                    for _ in range(chance.choice((1, 1, 1, 2)))
                ),
                depends_on=tuple(f"T{one}" for one in range(number) if chance.random() < 0.2),
            )
            for number in range(chance.randrange(1, 7))
        ]
        chance.shuffle(tasks)
        free += not collide(tasks)
        monkeypatch.setattr(batches, "_collide", collide)
        found = plan(tasks)
        monkeypatch.setattr(batches, "_collide", lambda tasks: True)
        assert found == plan(tasks), tasks
    assert 50 < free < 450
