"""A repository that tries to run its own programs, in every way we could think of: none of them runs, and the work is done."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.adapters.probes import EffectError, GitBranch, GitCommit, GitPush, GitTag
from holdfast.adapters.probes.git_config import FIXED, LOCAL, overrides, parse_settings
from holdfast.adapters.probes.git_place import find_repository
from holdfast.adapters.probes.git_runner import Git

_HOOKS = (
    "applypatch-msg commit-msg fsmonitor-watchman post-applypatch post-checkout post-commit post-index-change post-merge "
    "post-receive post-rewrite post-update pre-applypatch pre-auto-gc pre-commit pre-merge-commit pre-push pre-rebase "
    "pre-receive prepare-commit-msg proc-receive push-to-checkout query-watchman reference-transaction "
    "sendemail-validate update"
)
HOOKS = _HOOKS.split()

# Settings whose value is a program; the program leaves a file named after its setting.
_PROGRAMS = (
    "alias.{command} browser.evil.cmd core.alternateRefsCommand core.askPass core.editor core.fsmonitor core.gitProxy "
    "core.pager core.sshCommand credential.helper credential.https://example.invalid.helper diff.evil.command "
    "diff.evil.textconv diff.external difftool.evil.cmd filter.evil.clean filter.evil.process filter.evil.smudge "
    "filter.a=b.clean filter.a=b.process gc.recentObjectsHook gpg.evil.program gpg.program gpg.ssh.defaultKeyCommand "
    "gpg.ssh.program gpg.x509.program guitool.evil.cmd hook.evil.command imap.tunnel interactive.diffFilter "
    "man.evil.cmd merge.evil.driver mergetool.evil.cmd pager.{command} remote.origin.receivepack remote.origin.uploadpack "
    "remote.evil.uploadpack remote.evil.receivepack sequence.editor tar.evil.command trailer.evil.cmd trailer.evil.command "
    "uploadpack.packObjectsHook web.browser"
)
PROGRAMS = _PROGRAMS.split()
_COMMANDS = (
    "cat-file commit-tree config for-each-ref log ls-remote push read-tree rev-list status update-index update-ref"
)
COMMANDS = _COMMANDS.split()

# Settings that switch programs on, or lead git to them.
SWITCHES = {
    "commit.gpgSign": "true",
    "tag.gpgSign": "true",
    "tag.forceSignAnnotated": "true",
    "push.gpgSign": "true",
    "log.showSignature": "true",
    "gpg.format": "ssh",
    "gc.auto": "1",
    "maintenance.auto": "true",
    "filter.evil.required": "true",
    "filter.a=b.required": "true",
    "diff.guitool": "evil",
    "hook.evil.event": "reference-transaction",
    "hook.evil.enabled": "true",
    "protocol.allow": "always",
    "protocol.ext.allow": "always",
    "push.recurseSubmodules": "check",
    "submodule.recurse": "true",
    "core.untrackedCache": "true",
    "feature.manyFiles": "true",
    "extensions.partialClone": "origin",
    "extensions.worktreeConfig": "true",
    "core.repositoryFormatVersion": "1",
    "remote.origin.promisor": "true",
    "remote.origin.partialclonefilter": "blob:none",
    "core.worktree": "/",
    "core.bare": "true",
    "core.logAllRefUpdates": "always",
}
PLAIN = (
    ["add", "old.txt"],
    ["add", "new.txt"],
    ["commit", "--allow-empty", "-m", "x"],
    ["-c", "commit.gpgSign=false", "commit", "--allow-empty", "-m", "x"],
    ["update-ref", "refs/heads/y", "kept"],
    ["tag", "-a", "-m", "x", "y"],
    ["ls-remote", "origin"],
    ["cat-file", "-p", "12" * 20],
)
VARIABLES = (
    "GIT_SSH GIT_SSH_COMMAND GIT_ASKPASS SSH_ASKPASS GIT_EDITOR GIT_PAGER GIT_EXTERNAL_DIFF GIT_PROXY_COMMAND EDITOR "
    "VISUAL PAGER GIT_SEQUENCE_EDITOR"
)
KEY = "effect-1"


@pytest.fixture
def canaries(tmp_path):
    folder = tmp_path / "canaries"
    folder.mkdir()
    return folder


@pytest.fixture
def program(tmp_path, canaries):
    """Makes a program that leaves a canary."""
    numbers = itertools.count()

    def make(name):
        path = tmp_path / "programs" / f"p{next(numbers)}"
        path.parent.mkdir(exist_ok=True)
        canary = re.sub(r"[^A-Za-z0-9.=-]", "_", name)
        path.write_text(f"#!/bin/sh\ntouch '{canaries}/{canary}'\n")
        path.chmod(0o755)
        return str(path)

    return make


@pytest.fixture
def hostile(repo, git, program, canaries):
    """The repository of the other tests, after an attacker had its git folder. Its filters are bound to two of three files."""
    (repo / "plain.txt").write_text("plain\n")
    (repo / ".gitattributes").write_text("old.txt filter=evil diff=evil merge=evil\nnew.txt filter=a=b diff=evil\n")
    git(repo, "update-ref", "refs/heads/kept", "main")
    for hook in HOOKS:
        shutil.copy(program(f"hooks.{hook}"), repo / ".git" / "hooks" / hook)
    names = [name.format(command=command) for name in PROGRAMS for command in COMMANDS]
    for name in dict.fromkeys(names):
        git(repo, "config", "--file", ".git/evil.cfg", name, program(name))
    for name, value in SWITCHES.items():
        git(repo, "config", "--file", ".git/switches.cfg", name, value)
    in_tree = program("worktree.core.fsmonitor")
    git(repo, "config", "--file", ".git/config.worktree", "core.fsmonitor", in_tree)
    git(repo, "config", "--file", ".git/config.worktree", "filter.tree.clean", program("worktree.filter"))
    redirect = f"ext::{program('url.insteadOf')} %S"
    git(repo, "config", "--file", ".git/config", f"url.{redirect}.insteadOf", "/")
    git(repo, "config", "--file", ".git/config", f"url.{redirect}.pushInsteadOf", "/")
    git(repo, "config", "--file", ".git/config", "remote.origin.url", f"ext::{program('remote.origin.url')} %S")
    git(repo, "config", "--file", ".git/config", "include.path", "evil.cfg")
    git(repo, "config", "--file", ".git/config", "--add", "include.path", "switches.cfg")
    with open(repo / ".git" / "config", "a") as file:  # read with the repository itself, not only by settings
        file.write(
            "[extensions]\n\tpartialClone = origin\n\tworktreeConfig = true\n[core]\n\trepositoryFormatVersion = 1\n"
        )
        file.write("\tworktree = /\n")
    return repo


def fired(canaries):
    return sorted(os.listdir(canaries))


def plainly(repo, environ, *argv):
    env = {**environ, "GIT_WORK_TREE": str(repo), "GIT_DIR": str(repo / ".git")}
    subprocess.run(
        ["git", *argv], cwd=repo, env=env, capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=False
    )


def test_plain_git_does_run_them(hostile, environ, canaries):
    """Or the other tests would show nothing."""
    plainly(hostile, environ, "status")
    assert fired(canaries) == ["hooks.post-index-change", "worktree.core.fsmonitor"]
    for argv in PLAIN:
        plainly(hostile, environ, *argv)
    seen = set(fired(canaries))
    assert {"filter.evil.process", "filter.a=b.process", "remote.origin.url"} <= seen
    assert {"hooks.pre-commit", "hooks.reference-transaction", "hooks.post-commit"} <= seen
    assert len(seen) >= 10, seen


def effects(repo, environ, bare):
    return {
        "commit of paths": lambda: GitCommit.prepare(str(repo), "m", ["plain.txt"], environ),
        "commit of the index": lambda: GitCommit.prepare(str(repo), "m", None, environ),
        "branch": lambda: GitBranch.prepare(str(repo), "x", environ=environ),
        "branch moved": lambda: GitBranch.prepare(str(repo), "kept", environ=environ),
        "tag": lambda: GitTag.prepare(str(repo), "v1", environ=environ),
        "annotated tag": lambda: GitTag.prepare(str(repo), "v2", message="m", environ=environ),
        "push": lambda: GitPush.prepare(str(repo), str(bare), "main", environ=environ),
    }


@pytest.mark.parametrize("name", effects(Path(), {}, Path()))
def test_no_probe_and_no_act_runs_any(hostile, environ, canaries, bare, git, name):
    if name == "commit of the index":  # staged by somebody who has no evil settings
        clean = {**environ, "GIT_WORK_TREE": str(hostile), "GIT_DIR": str(hostile.parent / "clean")}
        shutil.copytree(hostile / ".git", hostile.parent / "clean")
        (hostile.parent / "clean" / "config").write_text("[core]\n\trepositoryFormatVersion = 0\n")
        shutil.rmtree(hostile.parent / "clean" / "hooks")
        subprocess.run(["git", "add", "plain.txt"], cwd=hostile, env=clean, check=True)
        shutil.copy(hostile.parent / "clean" / "index", hostile / ".git" / "index")
        shutil.rmtree(hostile / ".git" / "objects")
        shutil.copytree(hostile.parent / "clean" / "objects", hostile / ".git" / "objects")
    effect = effects(hostile, environ, bare)[name]()
    if name == "branch moved":
        object.__setattr__(
            effect, "commit", GitCommit.prepare(str(hostile), "m", ["plain.txt"], environ).act("k")["commit"]
        )
    assert effect.probe(KEY).settled_as == "not_done"
    receipt = effect.act(KEY)
    assert effect.probe(KEY)[::2] == ("done", receipt) and effect.act(KEY) == receipt
    assert fired(canaries) == []
    if name.startswith("commit"):
        assert read_out(hostile, git, "ls-tree", "--name-only", "-r", receipt["commit"]) == "old.txt\nplain.txt"


def read_out(repo, git, *argv):
    """What plain git says about the objects of a repository, without reading its settings."""
    reader = repo.parent / "reader"
    if not reader.exists():
        git(repo.parent, "init", "-q", "--bare", str(reader))
        (reader / "objects" / "info" / "alternates").write_text(f"{repo}/.git/objects\n")
    return git(reader, *argv)


@pytest.mark.parametrize("path", ["old.txt", "new.txt"])
def test_a_file_that_goes_through_a_filter_of_the_repository_is_not_committed_wrongly(hostile, environ, canaries, path):
    effect = GitCommit.prepare(str(hostile), "m", [path], environ)
    with pytest.raises(EffectError, match="only the repository defines"):
        effect.act(KEY)
    assert effect.probe(KEY).settled_as == "not_done" and fired(canaries) == []


def test_a_filter_of_the_user_is_run_and_the_repository_cannot_replace_it(hostile, environ, canaries, git, tmp_path):
    home = tmp_path / "other-home"
    shutil.copytree(environ["HOME"], home)
    with open(home / ".gitconfig", "a") as file:
        file.write('[filter "evil"]\n\tclean = tr a-z A-Z\n\trequired = true\n')
    mine = {**environ, "HOME": str(home)}
    with pytest.raises(EffectError, match="only the repository defines"):  # its `process` hides the user's `clean`
        GitCommit.prepare(str(hostile), "m", ["old.txt"], mine).act(KEY)
    git(hostile.parent, "config", "--file", str(hostile / ".git" / "evil.cfg"), "--unset", "filter.evil.process")
    effect = GitCommit.prepare(str(hostile), "m", ["old.txt"], mine)
    commit = effect.act(KEY)["commit"]
    assert read_out(hostile, git, "cat-file", "blob", f"{commit}:old.txt") == "CHANGED" and fired(canaries) == []


def test_a_missing_object_is_not_fetched(hostile, environ, canaries, git):
    """A partial clone fetches what it lacks, by the programs of its remote."""
    effect = GitBranch(str(hostile), "x", "12" * 20, environ=environ)
    with pytest.raises(EffectError, match="There is no commit"):
        effect.act(KEY)
    gone = GitCommit(str(hostile), "m", "main", "12" * 20, environ=environ)
    assert gone.probe(KEY).settled_as == "unknown" and fired(canaries) == []


@pytest.mark.parametrize("remote", ["origin", "local", "helper", "other"])
def test_a_remote_of_the_repository_cannot_be_a_program_or_a_folder(
    hostile, environ, canaries, git, program, bare, remote
):
    for hook in HOOKS:
        shutil.copy(program(f"remote.{hook}"), bare / "hooks" / hook)
    config = ("config", "--file", str(hostile / ".git" / "config"))
    git(hostile, *config, "remote.local.url", str(bare))
    git(hostile, *config, "remote.helper.url", f"evil://{bare}")
    git(hostile, *config, "remote.other.url", "https://user:word@127.0.0.1:1/x.git")
    git(hostile, *config, "remote.other.vcs", "ext")
    git(hostile, *config, "http.proxy", "http://127.0.0.1:2")
    at = git(hostile, "rev-parse", "HEAD") if not (hostile / ".git").exists() else find_head(hostile, environ)
    effect = GitPush(str(hostile), remote, "refs/heads/main", at, environ=environ, seconds=20)
    answer = effect.probe(KEY)
    assert answer.settled_as == "unknown" and "word" not in answer.evidence
    with pytest.raises(EffectError) as caught:
        effect.act(KEY)
    assert "word" not in str(caught.value)
    assert fired(canaries) == []


def find_head(repo, environ):
    return Git(find_repository(str(repo)), environ).resolve("refs/heads/kept")


@pytest.mark.parametrize(
    "remote", ["-oProxyCommand=touch x", "--upload-pack=touch", "ext::sh", "evil::x", "../x", "a b:c\0d"]
)
def test_an_address_that_is_an_option_or_a_helper_is_refused(repo, environ, git, remote):
    at = git(repo, "rev-parse", "main")
    with pytest.raises(Exception, match=r"neither a URL|must have a name|does not answer|addresses") as caught:
        GitPush(str(repo), remote, "refs/heads/main", at, environ=environ, seconds=20).act(KEY)
    assert caught.type.__name__ in ("EffectError", "UsageError") and not (repo / "x").exists()


def test_the_environment_of_the_caller_does_not_reach_git(repo, environ, canaries, program, bare, git):
    evil = {name: program(name) for name in VARIABLES.split()}
    evil |= {
        "GIT_DIR": "/nowhere",
        "GIT_INDEX_FILE": "/nowhere",
        "GIT_OBJECT_DIRECTORY": "/nowhere",
        "GIT_TRACE": "/tmp/x",
    }
    evil |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsmonitor", "GIT_CONFIG_VALUE_0": program("GIT_CONFIG")}
    evil |= {
        "GIT_EXEC_PATH": str(canaries.parent / "programs"),
        "GIT_TEMPLATE_DIR": "/nowhere",
        "LD_LIBRARY_PATH": "/nowhere",
    }
    for effect in [make() for make in effects(repo, {**evil, **environ}, bare).values()][2:]:
        if effect.probe(KEY).settled_as == "not_done":
            effect.act(KEY)
        assert effect.probe(KEY).settled_as == "done"
    assert fired(canaries) == []


def test_hooks_of_the_user_are_off_too(repo, environ, canaries, program, bare, git, tmp_path):
    home = tmp_path / "other-home"
    shutil.copytree(environ["HOME"], home)
    (home / "hooks").mkdir()
    for hook in HOOKS:
        shutil.copy(program(hook), home / "hooks" / hook)
    with open(home / ".gitconfig", "a") as file:
        file.write(f"[core]\n\thooksPath = {home}/hooks\n")
    mine = {**environ, "HOME": str(home)}
    for name, make in effects(repo, mine, bare).items():
        (repo / "plain.txt").write_text(name)
        if name not in ("commit of the index", "push"):  # the hooks of a remote are its own, also in this home
            make().act(KEY)
    assert fired(canaries) == []


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_the_repository_of_somebody_else_is_left_alone(repo, environ, git, tmp_path):
    """Git itself refuses it, unless the user said in their own configuration that it is safe."""
    effect = GitBranch.prepare(str(repo), "x", environ=environ)
    for path in (repo, repo / ".git"):
        os.chown(path, 65534, 65534)
    answer = effect.probe(KEY)
    assert answer.settled_as == "unknown" and "ownership" in answer.evidence
    with pytest.raises(EffectError, match="ownership"):
        effect.act(KEY)
    home = tmp_path / "other-home"
    shutil.copytree(environ["HOME"], home)
    git(tmp_path, "config", "--file", str(home / ".gitconfig"), "safe.directory", str(repo))
    trusted = GitBranch(effect.repo, "x", effect.commit, environ={**environ, "HOME": str(home)})
    assert trusted.act(KEY) and trusted.probe(KEY).settled_as == "done"


# --- the tables


def listing(*settings):
    return b"".join(f"{scope}\0{name}\n{value}\0".encode() for scope, name, value in settings)


def test_what_the_repository_sets_is_overridden_and_what_the_user_sets_is_not():
    said = overrides(
        parse_settings(
            listing(
                ("global", "filter.lfs.clean", "git-lfs clean"),
                ("global", "credential.https://x.helper", "mine"),
                ("global", "hook.mine.command", "mine"),
                ("local", "filter.lfs.clean", "evil"),
                ("worktree", "filter.x=y\u00fc.z.process", "evil"),
                ("local", "alias.st", "!evil"),
                ("local", "hook.evil.event", "pre-commit"),
                ("local", "user.name", "harmless"),
            )
        )
    )
    assert said == {
        "filter.lfs.clean": "git-lfs clean",
        "filter.x=y\u00fc.z.process": "",
        "alias.st": "",
        "hook.evil.enabled": "false",
        "hook.mine.enabled": "false",
    }


def test_every_setting_of_a_program_that_git_knows_is_in_a_table():
    """Git lists the settings it knows; those whose names end like programs must be dealt with."""
    known = subprocess.run(["git", "help", "-c"], capture_output=True, text=True, check=True).stdout
    ends = (
        r"(command|cmd|helper|program|hook|hookspath|editor|pager|askpass|driver|external|textconv|clean|smudge|process|"
        r"browser|vcs|receivepack|uploadpack|tunnel|fsmonitor|gitproxy|filter)"
    )
    suspects = {name for name in known.split() if re.fullmatch(rf"[^ ]+\.[^. ]*{ends}", name, re.I)}
    covered = {name.lower() for name in FIXED | LOCAL}
    left = {
        name
        for name in suspects
        if name.lower() not in covered and not overrides([("local", re.sub(r"<[^>]*>|\*", "evil", name).lower(), "x")])
    }
    assert len(suspects) > 30 and left <= {
        *("color.pager", "diff.<driver>.cachetextconv", "gitcvs.dbDriver", "remote.<name>.partialclonefilter"),
        *("uploadpack.allowFilter", "advice.ignoredHook", "advice.waitingForEditor", "column.clean"),
    }
