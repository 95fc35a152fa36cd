"""The documentation says what the code does: pages that are made from it are up to date, and links lead somewhere."""

import re
from pathlib import Path

import pytest

import holdfast
from tools.events_page import page

TOP = Path(__file__).parent.parent
PAGES = sorted([*TOP.glob("*.md"), *(TOP / "docs").rglob("*.md")])


def test_the_page_of_events_is_made_from_the_events():
    assert (TOP / "docs" / "reference" / "events.md").read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(TOP)))
def test_links_between_pages_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        assert "://" in target or (path.parent / target).exists(), target


def test_every_decision_is_listed():
    folder = TOP / "docs" / "decisions"
    listed = (folder / "README.md").read_text(encoding="utf-8")
    assert all(file.name in listed for file in folder.glob("[0-9]*.md"))


def test_public_names_are_sorted_and_load():
    assert list(holdfast.__all__) == sorted(holdfast.__all__)
    assert all(getattr(holdfast, name) for name in holdfast.__all__)
    with pytest.raises(AttributeError):
        _ = holdfast.no_such_name
