"""What the crash laboratory breaks of the git effects: the calls that our own process makes between those of git."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.adapters.probes.git import GitCommit, GitPush
from holdfast.testing.crashlab.workload import Verdict

KEY = "effect-1"


def git(folder: Path, *argv: str) -> str:
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder.parent / "home"), "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(
        ["git", *argv], cwd=folder, env=environ, capture_output=True, text=True, check=True
    ).stdout.strip()


class GitWork:
    """A commit of two files, then a push of it."""

    name = "git"

    def prepare(self, folder: Path) -> None:
        (folder / "home").mkdir()
        (folder / "home" / ".gitconfig").write_text("[user]\n\tname = S\n\temail = s@example.invalid\n")
        repo = folder / "repo"
        repo.mkdir()
        git(folder / "home", "init", "-q", "--bare", str(folder / "remote.git"))
        git(repo, "init", "-q", "-b", "main")
        git(repo, "commit", "-q", "--allow-empty", "-m", "the first")
        for name in ("a", "b", "staged"):
            (repo / name).write_text(name)
        git(repo, "add", "staged")

    def commit(self, folder: Path) -> GitCommit:
        before = git(folder / "repo", "rev-list", "--max-parents=0", "main")
        return GitCommit(str(folder / "repo"), "m", "main", before, ("a", "b"), environ=self.environ(folder))

    def push(self, folder: Path, commit: str) -> GitPush:
        there = str(folder / "remote.git")
        return GitPush(str(folder / "repo"), there, "refs/heads/main", commit, environ=self.environ(folder))

    def environ(self, folder: Path) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(folder / "home")}

    def work(self, folder: Path, ack: Callable[[str], None]) -> None:
        receipt = self.commit(folder).act(KEY)
        ack("commit")
        self.push(folder, receipt["commit"]).act(KEY)
        ack("push")

    def check(self, folder: Path, acked: Sequence[str]) -> Verdict:
        repo, remote = folder / "repo", folder / "remote.git"
        wanted = {"commit": self.commits(repo), "push": len(git(remote, "for-each-ref").splitlines())}
        for what in acked:
            if not wanted[what]:
                return Verdict(False, "lost", what)
        commit = self.commit(folder)
        if commit.probe(KEY).settled_as != ("done" if wanted["commit"] else "not_done"):
            return Verdict(False, "corrupt", f"the probe says {commit.probe(KEY)}")
        push = self.push(folder, commit.act(KEY)["commit"])
        if push.probe(KEY).settled_as != ("done" if wanted["push"] else "not_done"):
            return Verdict(False, "corrupt", f"the probe says {push.probe(KEY)}")
        push.act(KEY)
        return self.ending(repo, remote)

    def commits(self, repo: Path) -> int:
        return git(repo, "log", "--format=%B", "main").count(f"Holdfast-Effect: {KEY}")

    def ending(self, repo: Path, remote: Path) -> Verdict:
        if self.commits(repo) != 1:
            return Verdict(False, "doubled", f"{self.commits(repo)} commits")
        said = git(repo, "status", "--porcelain"), git(repo, "fsck", "--strict", "--no-dangling"), git(remote, "fsck")
        left = [
            path.name for path in repo.joinpath(".git").iterdir() if path.suffix == ".lock" or "holdfast" in path.name
        ]
        whole = said == ("A  staged", "", "") and not [name for name in left if name.endswith(".lock")]
        return Verdict(whole, "whole" if whole else "corrupt", f"{said} {left}")
