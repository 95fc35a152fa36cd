"""A path without links is what `os.path.realpath` says it is, whoever is asked."""

import os
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.adapters import paths
from holdfast.adapters.paths import meant_path, real_path
from holdfast.core.errors import BadInput

STRANGE = os.fsdecode(b"caf\xe9")  # no UTF-8
NAMES = (
    "one",
    "two",
    "file",
    "link",
    "away",
    "up",
    "loop",
    "round",
    "dead",
    "chain",
    STRANGE,
    "new\nline",
    "x (deleted)",
)
LINKS = {
    "link": "one",
    "away": "..",
    "up": "../one/two",
    "loop": "loop",
    "round": "chain/round",
    "dead": "nowhere/at/all",
    "chain": "link/",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    top = tmp_path_factory.mktemp("paths")
    for place in (top, top / "one", top / "one" / "two", top / STRANGE, top / "new\nline", top / "x (deleted)"):
        place.mkdir(exist_ok=True)
        (place / "file").write_text("")
        for name, target in LINKS.items():
            (place / name).symlink_to(target)
    return str(top)


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from((*NAMES, ".", "..", "", "missing")), max_size=6), st.sampled_from(("/", "//", "/./")))
def test_a_path_leads_where_realpath_says(folder, names, slash):
    path = slash.join((folder, *names))
    assert real_path(path) == os.path.realpath(path)


@pytest.mark.parametrize("path", ["", ".", "..", "one/..", "link/two", "//", "/", "/proc/self/cwd", "/proc/self/fd/0"])
def test_a_path_from_here_leads_where_realpath_says(folder, monkeypatch, path):
    monkeypatch.chdir(folder)
    assert real_path(path) == os.path.realpath(path)


def test_a_folder_that_was_removed_behind_an_open_file_keeps_its_name(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    fd = os.open(gone, os.O_RDONLY)
    try:
        gone.rmdir()
        path = f"/proc/self/fd/{fd}"
        assert real_path(path) == os.path.realpath(path)
    finally:
        os.close(fd)


def test_it_is_found_out_without_the_help_of_the_kernel_too(folder, monkeypatch):
    monkeypatch.setattr(paths, "_LOOK", None)
    assert real_path(f"{folder}/chain/two/..") == f"{folder}/one"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells where an open file is")
def test_what_is_there_takes_one_question(folder, monkeypatch):
    monkeypatch.setattr(os.path, "realpath", None)
    assert real_path(f"{folder}/chain/two/..") == f"{folder}/one"


def test_a_name_that_no_path_can_have_is_refused():
    with pytest.raises(ValueError, match="null"):
        real_path("a\0b")
    with pytest.raises(BadInput, match=r"'a\\x00b' is no path: .*embedded null"):
        meant_path("a\0b")


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="/proc lists the open files here")
def test_nothing_is_left_open(folder):
    before = os.listdir("/proc/self/fd")
    for name in ("one", "missing", "loop", "x (deleted)"):
        real_path(os.path.join(folder, name))
    assert os.listdir("/proc/self/fd") == before
