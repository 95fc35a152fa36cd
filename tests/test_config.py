"""Where the store is: the environment first, then the repository, then home; nothing a repository planted is followed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from holdfast import config
from holdfast.core.errors import StoreForeign, UsageError

GIT = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "protocol.file.allow=always"]


def git(*arguments: str) -> None:
    subprocess.run([*GIT, *arguments], check=True, capture_output=True)


def place(cwd: Path, **environ: str) -> str:
    return config.load(environ={"HOME": "/home/somebody", **environ}, cwd=str(cwd)).place


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    top = tmp_path / "repo"
    git("init", "-q", str(top))
    git("-C", str(top), "commit", "-q", "--allow-empty", "-m", "x")
    return top


def test_a_repository_keeps_its_store_at_its_top(repository):
    deep = repository / "a" / "b"
    deep.mkdir(parents=True)
    assert place(deep) == place(repository) == str(repository / ".holdfast" / "holdfast.db")


def test_work_trees_share_the_store_of_the_main_one(repository, tmp_path):
    git("-C", str(repository), "worktree", "add", "-q", str(tmp_path / "tree"))
    assert place(tmp_path / "tree") == place(repository)


def test_a_work_tree_of_a_bare_repository_keeps_its_store_in_it(repository, tmp_path):
    git("clone", "-q", "--bare", str(repository), str(tmp_path / "bare.git"))
    git("-C", str(tmp_path / "bare.git"), "worktree", "add", "-q", str(tmp_path / "tree"))
    assert place(tmp_path / "tree") == str(tmp_path / "bare.git" / ".holdfast" / "holdfast.db")


def test_a_submodule_has_its_own_store(repository, tmp_path):
    git("init", "-q", str(tmp_path / "sub"))
    git("-C", str(tmp_path / "sub"), "commit", "-q", "--allow-empty", "-m", "x")
    git("-C", str(repository), "submodule", "add", "-q", str(tmp_path / "sub"), "sub")
    assert place(repository / "sub") == str(repository / "sub" / ".holdfast" / "holdfast.db")


def test_a_folder_that_names_a_repository_which_does_not_name_it_back_stays_alone(repository, tmp_path):
    git("-C", str(repository), "worktree", "add", "-q", str(tmp_path / "tree"))
    planted = tmp_path / "planted"
    planted.mkdir()
    (planted / ".git").write_text((tmp_path / "tree" / ".git").read_text())
    assert place(planted) == str(planted / ".holdfast" / "holdfast.db")


@pytest.mark.parametrize("content", ["", "gitdir: ", "gitdir: /nowhere\n", "x" * 100_000, "gitdir: \0\n"])
def test_a_strange_git_file_leads_nowhere(tmp_path, content):
    (tmp_path / ".git").write_text(content)
    assert place(tmp_path) == str(tmp_path / ".holdfast" / "holdfast.db")


def test_something_else_called_git_does_not_hang_or_count(tmp_path):
    os.mkfifo(tmp_path / ".git")
    assert place(tmp_path) == "/home/somebody/.local/share/holdfast/holdfast.db"


def test_a_linked_store_folder_is_refused(repository, tmp_path):
    (repository / ".holdfast").symlink_to(tmp_path)
    with pytest.raises(StoreForeign):
        place(repository)


def test_outside_a_repository_the_store_is_at_home(tmp_path):
    assert place(tmp_path) == "/home/somebody/.local/share/holdfast/holdfast.db"
    assert place(tmp_path, XDG_DATA_HOME="/data") == "/data/holdfast/holdfast.db"
    assert place(tmp_path, XDG_DATA_HOME="relative") == "/home/somebody/.local/share/holdfast/holdfast.db"


def test_the_environment_overrides(repository, tmp_path):
    assert place(repository, HOLDFAST_STORE=str(tmp_path)) == str(tmp_path / "holdfast.db")
    assert place(repository, HOLDFAST_STORE=str(tmp_path / "new")) == str(tmp_path / "new" / "holdfast.db")
    assert place(repository, HOLDFAST_STORE=str(tmp_path / "my.db")) == str(tmp_path / "my.db")
    (tmp_path / "plain").write_bytes(b"")
    assert place(repository, HOLDFAST_STORE=str(tmp_path / "plain")) == str(tmp_path / "plain")
    assert place(repository, HOLDFAST_STORE="postgresql://host/db") == "postgresql://host/db"
    assert place(repository, HOLDFAST_STORE="") == str(repository / ".holdfast" / "holdfast.db")


@pytest.mark.parametrize("value", ["mysql://x", "http://x/y.db", "/dev/null", "/dev/zero"])
def test_a_place_that_cannot_be_a_store_is_refused(tmp_path, value):
    with pytest.raises(UsageError) as caught:
        place(tmp_path, HOLDFAST_STORE=value)
    assert caught.value.advice


def test_the_witness_is_lagging_strict_or_refused(tmp_path):
    assert config.load(environ={"HOME": "/h"}, cwd=str(tmp_path)).witness == "lagging"
    assert config.load(environ={"HOME": "/h", "HOLDFAST_WITNESS": "strict"}, cwd=str(tmp_path)).witness == "strict"
    with pytest.raises(UsageError):
        config.load(environ={"HOME": "/h", "HOLDFAST_WITNESS": "on"}, cwd=str(tmp_path))


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://user:pass@host:5432/db?sslkey=secret", "postgresql://host:5432/db"),
        ("postgres://host/db", "postgres://host/db"),
        ("postgresql://u:p@ss@host/db", "postgresql://host/db"),
        ("postgresql://u:p?a/b@host/db", "postgresql://host/db"),
        ("postgresql://u:p?a=/b@host/db", "postgresql://..."),
        ("postgresql://host/db?password=p@ss", "postgresql://..."),
        ("/a/b@c?d.db", "/a/b@c?d.db"),
    ],
)
def test_an_address_is_shown_without_what_is_secret_in_it(address, shown):
    assert config.Config(address).shown == shown


def test_a_deleted_current_folder_is_said_plainly(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(UsageError):
        config.load(environ={"HOME": "/h"})
