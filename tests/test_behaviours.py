"""The table of behaviours: every number once, in order, and every test that it names is there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TOP = Path(__file__).parent.parent
ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \|$", re.M)
PAGE = (TOP / "docs" / "reference" / "behaviours.md").read_text(encoding="utf-8")
ROWS = ROW.findall(PAGE)
RANGES = (range(1, 76), range(118, 156), range(169, 191))
NOT_YET = {179, 184, 185, 186}


@cache
def names_in(path):
    tree = ast.parse((TOP / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_behaviour_has_its_row():
    numbers = [int(number) for number, _, _ in ROWS]
    assert numbers == sorted(set(numbers))
    assert {number for each in RANGES for number in each} - NOT_YET == set(numbers)


def test_what_is_not_done_yet_is_said():
    said = PAGE.partition("\nNot yet: ")[2].partition("; and ")[0]
    assert {int(number) for number in re.findall(r"\b\d+\b", said)} == NOT_YET


@pytest.mark.parametrize(("number", "shown"), [(number, shown) for number, _, shown in ROWS])
def test_every_test_that_shows_a_behaviour_exists(number, shown):
    named = re.findall(r"`((?:tests|src/holdfast/testing)/[\w/]+\.py)::(test_\w+)`", shown)
    assert named and len(named) == shown.count("::"), number
    assert [name for path, name in named if name not in names_in(path)] == []
