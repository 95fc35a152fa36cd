"""What the crash laboratory breaks of snapshots and restores: the calls that our own process makes between those of git."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.adapters.git.restore import in_place
from holdfast.adapters.git.workspace import keep, kept, read, take
from holdfast.adapters.probes.git_place import find_repository
from holdfast.adapters.probes.git_runner import Git
from holdfast.testing.crashlab.workload import Verdict

NOW = "2026-01-02T03:04:05Z"
GOOD = {"a": "good\n", "new": "new\n", "staged": "staged\n"}
RUINED = {"a": "ruined\n", "staged": "staged\n", "later": "later\n"}


class WorkspaceWork:
    """A snapshot of a ruined workspace, then the good one restored over it."""

    name = "workspace"

    def plainly(self, folder: Path, *argv: str) -> str:
        environ = {**self.environ(folder), "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(
            ["git", *argv], cwd=folder / "repo", env=environ, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def environ(self, folder: Path) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(folder / "home")}

    def git(self, folder: Path) -> Git:
        return Git(find_repository(str(folder / "repo")), self.environ(folder))

    def files(self, folder: Path) -> dict[str, str]:
        repo = folder / "repo"
        return {path.name: path.read_text() for path in repo.iterdir() if path.is_file()}

    def lay(self, folder: Path, files: dict[str, str]) -> None:
        for path in (folder / "repo").iterdir():
            if path.is_file():
                path.unlink()
        for name, text in files.items():
            (folder / "repo" / name).write_text(text)

    def prepare(self, folder: Path) -> None:
        (folder / "home").mkdir()
        (folder / "home" / ".gitconfig").write_text("[user]\n\tname = S\n\temail = s@example.invalid\n")
        (folder / "repo").mkdir()
        self.plainly(folder, "init", "-q", "-b", "main")
        self.lay(folder, {"a": "committed\n"})
        self.plainly(folder, "add", "-A")
        self.plainly(folder, "commit", "-q", "-m", "the first")
        self.lay(folder, GOOD)
        self.plainly(folder, "add", "staged")
        git = self.git(folder)
        keep(git, "good", take(git, "good", NOW))
        self.lay(folder, RUINED)
        self.plainly(folder, "add", "-A")

    def work(self, folder: Path, ack: Callable[[str], None]) -> None:
        git = self.git(folder)
        keep(git, "c1", take(git, "c1", NOW))
        ack("c1")
        in_place(git, "good", "before", NOW)
        ack("restored")

    def check(self, folder: Path, acked: Sequence[str]) -> Verdict:
        git = self.git(folder)
        held = kept(git)
        for name in {"c1", "before"} & {*held}:
            tree = {path: self.plainly(folder, "show", f"{held[name]}:{path}") + "\n" for path in RUINED}
            if tree != RUINED or read(git, name).branch != "refs/heads/main":
                return Verdict(False, "corrupt", f"{name}: {tree}")
        if "c1" in acked and "c1" not in held:
            return Verdict(False, "lost", "c1")
        here = self.files(folder)
        if "before" not in held and here != RUINED:
            return Verdict(False, "lost", f"nothing kept, and here is {here}")
        if "restored" in acked and here != GOOD:
            return Verdict(False, "lost", f"restored, and here is {here}")
        return self.go_on(folder, git, len(held))

    def go_on(self, folder: Path, git: Git, count: int) -> Verdict:
        """The next snapshot and the next restore work, and nothing is left that would stand in the user's way."""
        keep(git, f"next{count}", take(git, f"next{count}", NOW))
        in_place(git, "good", f"again{count}", NOW)
        left = [str(path) for path in (folder / "repo" / ".git").rglob("*.lock")]
        left += [str(path) for path in (folder / "repo" / ".git" / "holdfast").glob("work-*")]
        said = self.plainly(folder, "fsck", "--strict", "--no-dangling"), self.plainly(folder, "status", "--porcelain")
        whole = self.files(folder) == GOOD and not left and said == ("", "M a\nA  staged\n?? new")
        return Verdict(whole, "whole" if whole else "corrupt", f"{self.files(folder)} {said} {left}")
