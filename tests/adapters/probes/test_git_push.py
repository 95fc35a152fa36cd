"""GitPush: the remote is at our commit, or where it was, or somebody else was there; and nobody is ever overwritten."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess

import pytest

from holdfast.adapters.probes import EffectError, GitPush
from holdfast.adapters.probes.git_push import protocol_of
from holdfast.adapters.probes.git_runner import complaint
from holdfast.adapters.probes.programs import Finished
from holdfast.core.errors import UsageError
from holdfast.core.plain import check_plain
from tests.adapters.probes.serving import Quiet, answer, body_of, handler, serving

KEY = "effect-1"
MAIN = "refs/heads/main"


@pytest.fixture
def push(repo, bare, environ):
    def prepare(**more):
        made = GitPush.prepare(str(repo), str(bare), "main", environ=environ)
        return GitPush(made.repo, made.remote, made.ref, made.commit, made.before, environ=environ, **more)

    return prepare


@pytest.fixture
def somebody(bare, git, tmp_path):
    """Pushes a commit of somebody else to `main`."""

    def act(text="theirs", *more):
        clone = tmp_path / f"clone-{text}"
        git(tmp_path, "clone", "-q", str(bare), str(clone))
        git(clone, "commit", "-q", "--allow-empty", "-m", text)
        git(clone, "push", "-q", *more, "origin", f"HEAD:{MAIN}")
        return git(clone, "rev-parse", "HEAD")

    return act


def test_a_push_is_done_once_and_found(repo, bare, git, push):
    effect = push()
    assert effect.before is None and effect.probe(KEY).settled_as == "not_done"
    receipt = effect.act(KEY)
    assert receipt == {"ref": MAIN, "commit": git(repo, "rev-parse", "main")}
    assert git(bare, "rev-parse", "main") == effect.commit
    assert effect.probe(KEY)[::2] == ("done", receipt) and effect.act(KEY) == receipt
    assert [name for name in os.listdir(repo / ".git") if "holdfast" in name] == []


def test_the_next_push_goes_on_from_there(repo, bare, git, push):
    push().act(KEY)
    first = git(repo, "rev-parse", "main")
    git(repo, "commit", "-q", "-a", "-m", "two")
    effect = push()
    assert effect.before == first and effect.probe(KEY).settled_as == "not_done"
    effect.act(KEY)
    assert effect.probe(KEY).settled_as == "done" and git(bare, "rev-parse", "main") == effect.commit


def test_nothing_to_push_is_done(push):
    push().act(KEY)
    effect = push()
    assert effect.before == effect.commit and effect.probe(KEY).settled_as == "done"


def test_somebody_else_is_never_overwritten(repo, bare, git, push, somebody):
    push().act(KEY)
    git(repo, "commit", "-q", "-a", "-m", "ours")
    effect = push()
    theirs = somebody()
    answer = effect.probe(KEY)
    assert answer.settled_as == "unknown" and theirs in answer.evidence
    with pytest.raises(EffectError, match=r"refused.*(stale|fetch first)"):
        effect.act(KEY)
    with pytest.raises(EffectError, match=r"refused.*stale"):
        push_of(effect, rewrite=True).act(KEY)
    assert git(bare, "rev-parse", "main") == theirs


def push_of(effect, **more):
    return GitPush(effect.repo, effect.remote, effect.ref, effect.commit, effect.before, environ=effect.environ, **more)


def test_a_branch_that_appeared_meanwhile_is_not_overwritten(repo, bare, git, push, somebody, tmp_path):
    effect = push()
    theirs = somebody()
    assert effect.probe(KEY).settled_as == "unknown"
    with pytest.raises(EffectError, match="refused"):
        effect.act(KEY)
    assert git(bare, "rev-parse", "main") == theirs


def test_history_is_replaced_only_if_that_is_meant(repo, bare, git, push):
    push().act(KEY)
    git(repo, "commit", "-q", "--amend", "-a", "-m", "rewritten")
    effect = push()
    with pytest.raises(EffectError, match="does not contain"):
        effect.act(KEY)
    assert effect.probe(KEY).settled_as == "not_done"
    push_of(effect, rewrite=True).act(KEY)
    assert git(bare, "rev-parse", "main") == effect.commit


def test_a_tag_can_be_pushed(repo, bare, git, environ):
    git(repo, "tag", "v1")
    effect = GitPush(str(repo), str(bare), "refs/tags/v1", git(repo, "rev-parse", "main"), environ=environ)
    effect.act(KEY)
    assert effect.probe(KEY).settled_as == "done" and git(bare, "rev-parse", "v1") == effect.commit


def test_a_ref_with_the_same_ending_is_not_ours(repo, bare, git, push):
    git(repo, "push", "-q", str(bare), "main:refs/x/refs/heads/main")
    assert push().probe(KEY).settled_as == "not_done"


def test_a_shallow_clone_a_linked_work_tree_and_a_sha256_repository(tmp_path, git, environ):
    for number, (kind, options) in enumerate([("shallow", []), ("linked", []), ("sha256", ["--object-format=sha256"])]):
        folder = tmp_path / f"{kind}{number}"
        folder.mkdir()
        bare, source, repo = folder / "remote.git", folder / "source", folder / "repo"
        git(folder, "init", "-q", "--bare", "-b", "main", *options, str(bare))
        git(folder, "init", "-q", "-b", "main", *options, str(source))
        for text in ("one", "two"):
            git(source, "commit", "-q", "--allow-empty", "-m", text)
        git(source, "push", "-q", str(bare), "main")
        if kind == "linked":
            git(source, "worktree", "add", "-q", "-b", "side", str(repo))
        else:
            git(folder, "clone", "-q", *(["--depth=1"] if kind == "shallow" else []), f"file://{bare}", str(repo))
        git(repo, "commit", "-q", "--allow-empty", "-m", "three")
        git(source, "commit", "-q", "--allow-empty", "-m", "meanwhile")
        git(source, "push", "-q", str(bare), "HEAD:main")
        git(repo, "switch", "-q", "-c", "mine")
        branch = git(repo, "branch", "--show-current")
        effect = GitPush.prepare(str(repo), f"file://{bare}", branch, environ=environ)
        effect.act(KEY)
        assert effect.probe(KEY).settled_as == "done" and git(bare, "rev-parse", branch) == effect.commit, kind
        assert git(bare, "fsck") == ""


def test_a_named_remote_is_reached_by_the_ssh_of_the_user_and_not_of_the_repository(repo, bare, git, environ, tmp_path):
    for name in ("users", "repositorys"):
        (tmp_path / name).write_text(f'#!/bin/sh\ntouch {tmp_path}/{name}.ran\nshift\nexec sh -c "$*"\n')
        (tmp_path / name).chmod(0o755)
    home = tmp_path / "other-home"
    shutil.copytree(environ["HOME"], home)
    git(repo, "config", "--file", str(home / ".gitconfig"), "core.sshCommand", str(tmp_path / "users"))
    git(repo, "config", "--file", str(home / ".gitconfig"), "ssh.variant", "simple")
    git(repo, "config", "core.sshCommand", str(tmp_path / "repositorys"))
    git(repo, "config", "remote.origin.url", f"git@host.invalid:{bare}")
    effect = GitPush.prepare(str(repo), "origin", "main", environ={**environ, "HOME": str(home)})
    effect.act(KEY)
    assert effect.probe(KEY).settled_as == "done" and git(bare, "rev-parse", "main") == effect.commit
    assert (tmp_path / "users.ran").exists() and not (tmp_path / "repositorys.ran").exists()


def test_a_named_remote_is_reached_by_http(repo, bare, git, environ):
    git(bare, "config", "http.receivepack", "true")
    with serving(Quiet(("127.0.0.1", 0), backend_for(bare, git(bare, "--exec-path")))) as server:
        git(repo, "config", "remote.origin.url", f"http://127.0.0.1:{server.server_port}/{bare.name}")
        effect = GitPush.prepare(str(repo), "origin", "main", environ=environ)
        assert effect.probe(KEY).settled_as == "not_done"
        effect.act(KEY)
        assert effect.probe(KEY).settled_as == "done" and git(bare, "rev-parse", "main") == effect.commit
    assert effect.probe(KEY).settled_as == "unknown"


def backend_for(bare, programs):
    """Git's own server program behind a small HTTP server."""

    def respond(request):
        path, _, query = request.path.partition("?")
        variables = {
            "GIT_PROJECT_ROOT": str(bare.parent),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH": os.environ["PATH"],
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": request.command,
            "REMOTE_USER": "x",
            "CONTENT_TYPE": request.headers.get("content-type", ""),
        }
        command = [f"{programs}/git-http-backend"]
        said = subprocess.run(command, env=variables, input=body_of(request), capture_output=True, check=True)
        head, _, rest = said.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        answer(request, int(headers.pop("Status", "200").split()[0]), rest, headers)

    return handler(respond)


def test_a_remote_that_does_not_answer_is_unknown(repo, git, environ, bare, push):
    effect = push()
    shutil.move(bare, bare.with_name("away"))
    assert effect.probe(KEY).settled_as == "unknown"
    with pytest.raises(EffectError, match="does not answer"):
        effect.act(KEY)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"git://127.0.0.1:{silent.getsockname()[1]}/x"
        answer = GitPush(str(repo), address, MAIN, effect.commit, environ=environ, seconds=1).probe(KEY)
    assert answer.settled_as == "unknown" and "1 seconds" in answer.evidence


def test_a_remote_that_refuses(repo, bare, git, push):
    hook = bare / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho not today >&2\nexit 1\n")
    hook.chmod(0o755)
    effect = push()
    with pytest.raises(EffectError, match="refused"):
        effect.act(KEY)
    assert effect.probe(KEY).settled_as == "not_done"


def test_a_probe_changes_nothing(repo, bare, push):
    effect = push()
    before = {path: path.stat().st_mtime_ns for folder in (repo, bare) for path in folder.rglob("*")}
    effect.probe(KEY)
    assert {path: path.stat().st_mtime_ns for folder in (repo, bare) for path in folder.rglob("*")} == before


def test_its_arguments_are_plain(push):
    check_plain(push().arguments)


def test_what_is_not_a_ref_or_a_commit_is_refused(repo, bare, environ, git):
    at = git(repo, "rev-parse", "main")
    for ref in ("main", "--all", ""):
        with pytest.raises(UsageError):
            GitPush(str(repo), str(bare), ref, at, environ=environ)
    for commit in ("main", "", "+" + at):
        with pytest.raises(EffectError):
            GitPush(str(repo), str(bare), MAIN, commit, environ=environ)
    assert GitPush(str(repo), str(bare), "refs/heads/a:b", at, environ=environ).probe(KEY).settled_as == "unknown"


@pytest.mark.parametrize(
    ("address", "protocol"),
    [
        ("https://x/y", "https"),
        ("ssh://git@x/y", "ssh"),
        ("git@host:me/it.git", "ssh"),
        ("/srv/it.git", "file"),
        ("file:///srv/it.git", "file"),
        ("ftp://x/y", "ftp"),
        ("ext::sh -c x", None),
        ("x::/y", None),
        ("-x:y", None),
        ("ssh://-oProxyCommand=x/y", None),
        ("it.git", None),
        ("../it.git", None),
        ("./a:b", None),
    ],
)
def test_how_an_address_is_reached(address, protocol):
    if protocol is None:
        with pytest.raises(EffectError, match="neither"):
            protocol_of(address)
    else:
        assert protocol_of(address) == protocol


def test_what_git_complains_about_shows_no_password():
    said = Finished(128, b"", b"fatal: https://me:word@host/x and\nssh://word@host\x1b[0m")
    assert complaint(said) == "fatal: https://host/x and ssh://host?[0m"
