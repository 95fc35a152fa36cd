"""The documentation says what the code does: pages that are made from it are up to date, and links lead somewhere."""

import os
import re
import subprocess
import sys
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


def examples():
    """Every block of Python in the pages, with the page and line where it stands. Those marked `py` need something of yours."""
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        for found in re.finditer(r"^```python\n(.*?)^```", text, re.S | re.M):
            line = text[: found.start()].count("\n") + 2
            if "sys.argv" in found.group(1):
                continue  # it needs a file of yours; tests/engine/test_transfer.py runs it with one
            yield pytest.param(found.group(1), id=f"{path.relative_to(TOP)}:{line}")


@pytest.mark.parametrize("code", list(examples()))
def test_every_example_in_python_runs(code, tmp_path):
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
