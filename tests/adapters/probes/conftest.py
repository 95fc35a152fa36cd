"""A home of our own, a small repository in it, and plain git to look at both with."""

import os
import subprocess

import pytest


@pytest.fixture(scope="session")
def environ(tmp_path_factory):
    """The environment that an effect is given: a home with an identity, and the path."""
    home = tmp_path_factory.mktemp("home")
    (home / ".gitconfig").write_text("[user]\n\tname = Somebody\n\temail = somebody@example.invalid\n")
    return {"HOME": str(home), "PATH": os.environ["PATH"]}


@pytest.fixture(scope="session")
def git(environ):
    """Plain git, as a user would run it: what it says, without the last newline."""

    def run(folder, *argv, stdin=None, check=True):
        env = {**environ, "LC_ALL": "C", "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(
            ["git", *argv], cwd=folder, env=env, input=stdin, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout.rstrip("\n")

    return run


@pytest.fixture
def repo(tmp_path, git):
    """A repository with one commit on `main`, one changed file and one new one."""
    return make_repo(tmp_path / "repo", git)


def make_repo(folder, git):
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "old.txt").write_text("old\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "the first")
    (folder / "old.txt").write_text("changed\n")
    (folder / "new.txt").write_text("new\n")
    return folder


@pytest.fixture
def bare(tmp_path, git):
    """A remote, empty."""
    folder = tmp_path / "remote.git"
    git(tmp_path, "init", "-q", "--bare", "-b", "main", str(folder))
    return folder
