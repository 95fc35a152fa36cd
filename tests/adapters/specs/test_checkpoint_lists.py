"""The lists of tasks in a checkpoint: what stays where it is, is not put together again, and nobody can tell."""

from __future__ import annotations

import random

import pytest

from holdfast.adapters.specs import carried, draft
from holdfast.adapters.specs.checkpoint_text import updated
from holdfast.adapters.specs.edit import CannotEdit
from holdfast.adapters.specs.texts import parse
from holdfast.core.errors import BadFile
from holdfast.core.spec import Checkpoint, TaskRef

LISTS = ("completed", "in_progress", "pending")


def row(chance, name, column, odd):
    space = " " * column
    plain = [f"{space}- id: {name}", space + "  name: " + chance.choice(("x", '"x"', f"Part {name}"))]
    if chance.random() > odd:
        return [*plain, *chance.choice(([], [f"{space}  more: 1"], [f"{space}  # a word"], [""]))]
    return chance.choice(
        (
            [f"{space}- id: {name}   ", *plain[1:]],
            [*plain, "# low"],
            [f"{space}- {name}"],
            [f"{space}-", f"{space}  id: {name}"],
            [f"{space}- {{id: {name}}}"],
            [f"{space}- id: {name}", f"{space}  more: |", f"{space}    two", "", f"{space}    lines  "],
        )
    )


def content(chance, names):
    column = chance.choice((6, 6, 6, 6, 4, 8))
    lines, odd = ["checkpoint:", "  branch: main", "  tasks:"], chance.choice((0, 0.02, 0.2))
    for place, listed in enumerate(LISTS):
        part = (
            names[place::3] if chance.random() < 0.3 else names[place * len(names) // 3 : (place + 1) * len(names) // 3]
        )
        body = [line for name in part for line in row(chance, name, column, odd)]
        lines += [f"    {listed}:", *body] if body else [f"    {listed}: []"]
    lines += ["  earlier_tasks:", "    - id: T99", "      more: 2"] if chance.random() < 0.2 else []
    return chance.choice(("\n", "\n", "\n", "\r\n")).join([*lines, "  last_batch: 1", ""])


def wanted(chance, names):
    shuffled = [*names] if chance.random() < 0.8 else chance.sample(names, len(names))
    one, other = sorted(chance.choices(range(len(names) + 1), k=2))
    refs = [TaskRef(name, f"Part {name}") for name in shuffled if chance.random() < 0.95]
    return Checkpoint(
        completed=tuple(refs[:one]), in_progress=tuple(refs[one:other]), pending=tuple(refs[other:]), branch="main"
    )


def outcome(text, checkpoint):
    try:
        return updated(text, checkpoint)
    except CannotEdit as error:
        return str(error)


def test_a_list_reads_as_if_all_of_it_were_put_together_again(monkeypatch):
    chance, used = random.Random(3), []
    staying = carried.staying
    for _ in range(2000):
        names = [f"T{number}" for number in range(chance.randrange(1, 14))]
        names += chance.choice(([], [], [], ["T1"]))
        data = content(chance, names)
        try:
            text = parse("checkpoint.yaml", data.encode())
        except BadFile:
            continue
        checkpoint = wanted(chance, [*dict.fromkeys(names), "T99"])
        monkeypatch.setattr(draft, "staying", lambda *given: (used.append(staying(*given)), used[-1])[1])
        found = outcome(text, checkpoint)
        monkeypatch.setattr(draft, "staying", lambda *given: None)
        assert found == outcome(text, checkpoint), (data, checkpoint)
    assert sum(one is not None for one in used) > 100 and None in used


def test_of_a_long_list_only_what_moves_is_put_together_again(monkeypatch):
    refs = [TaskRef(f"T{number}", f"Part {number}") for number in range(300)]
    rows = [
        "".join(f"      - id: {one.id}\n        name: {one.name}\n" for one in part)
        for part in (refs[:100], refs[100:])
    ]
    text = parse("c", f"checkpoint:\n  tasks:\n    completed:\n{rows[0]}    pending:\n{rows[1]}".encode())
    seen, items_of = [], carried.items_of
    monkeypatch.setattr(draft, "items_of", lambda *given: (seen.append(one) or one for one in items_of(*given)))
    after = updated(text, Checkpoint(completed=tuple(refs[:101]), pending=tuple(refs[101:])))
    assert [one.about for one in seen] == ["T100"]
    assert after.index("- id: T100") < after.index("pending:") < after.index("- id: T101")


def test_an_item_that_came_out_different_where_it_stayed_is_refused(monkeypatch):
    text = parse("c", b"tasks:\n  completed:\n    - id: T1\n      more: 1\n  pending:\n    - id: T2\nlast_batch: 1\n")
    staying = carried.staying
    odd = carried.Written(("- id: T1", "  more: 2"))
    monkeypatch.setattr(draft, "staying", lambda *given: (found := staying(*given)) and found._replace(before=odd))
    with pytest.raises(CannotEdit, match="came out different"):
        updated(text, Checkpoint(completed=(TaskRef("T1"), TaskRef("T2"))))
