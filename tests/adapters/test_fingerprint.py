"""The fingerprint of an environment: every lockfile, every agent, nothing started, nothing endless."""

from __future__ import annotations

import hashlib
import os
import sys

import msgspec
import pytest

from holdfast.adapters import fingerprint
from holdfast.adapters.fingerprint import LOCKFILES, take
from holdfast.core.fingerprint import differences
from tests.adapters.git_kit import Kit


@pytest.fixture
def kit(tmp_path):
    return Kit(tmp_path)


@pytest.fixture
def taken(kit):
    return lambda **more: take(str(kit.top), kit.environ, **more)


def program(folder, name, text="#!/bin/sh\necho started >> $HOME/started\n"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)
    return folder / name


def test_it_names_the_interpreter_and_the_platform(taken):
    found = taken()
    assert list(found) == sorted(found)
    assert found["python"].endswith(os.path.realpath(sys.executable))
    assert found["platform"] == f"{os.uname().sysname} {os.uname().machine}"
    assert found["tool:git"].startswith("/")
    assert taken() == found


@pytest.mark.parametrize(
    "name", [*sorted(LOCKFILES), "requirements.txt", "requirements-dev.txt", "constraints.txt", "pylock.test.toml"]
)
def test_a_lockfile_is_known_wherever_it_is_tracked_and_at_the_top_even_if_not(kit, taken, name):
    kit.write(f"deep/down/{name}", "1")
    kit.git("add", "-A")
    kit.write(name, "2")
    found = taken()
    assert found[f"lockfile:{name}"] == hashlib.sha256(b"2").hexdigest()
    assert found[f"lockfile:deep/down/{name}"] == hashlib.sha256(b"1").hexdigest()


@pytest.mark.parametrize(
    "path",
    [
        *("requirements.lock", "requirements/base.txt", "sub/requirements/base.txt", "renv.lock", "Manifest.toml"),
        *("conda-lock.yaml", "cpanfile.snapshot", "shard.lock", "Cartfile.resolved", "devbox.lock", "mise.lock"),
        *("opam.locked", "x/dub.selections.json", "new-tool.lock.json"),
    ],
)
def test_what_is_tracked_and_called_like_a_lockfile_is_one(kit, taken, path):
    kit.write(path, "1")
    assert f"lockfile:{path}" not in taken()
    kit.git("add", "-A")
    assert taken()[f"lockfile:{path}"] == hashlib.sha256(b"1").hexdigest()


def test_an_agent_of_ones_own_is_known_by_its_program(kit, taken, tmp_path):
    program(kit.top / "tools", "mine")
    own = {"mine": "tools/mine", "none": "tools/none"}
    before = taken(own=own)
    assert before["agent:mine"].startswith(str(kit.top / "tools" / "mine")) and "agent:none" not in before
    program(kit.top / "tools", "mine", "#!/bin/sh\necho another one\n")
    assert [line.split(" ")[0] for line in differences(before, taken(own=own))] == ["agent:mine"]


def test_an_ignored_lockfile_at_the_top_counts_and_one_deep_down_in_node_modules_does_not(kit, taken):
    kit.write(".gitignore", "yarn.lock\nnode_modules/\n")
    kit.write("yarn.lock", "x")
    kit.write("node_modules/p/yarn.lock", "x")
    assert [name for name in taken() if name.startswith("lockfile:")] == ["lockfile:yarn.lock"]


def test_every_change_of_a_lockfile_is_a_named_difference(kit, taken):
    kit.commit("locks", **{"uv.lock": "1", "web/package-lock.json": "1", "api/Cargo.lock": "1", ".nvmrc": "20"})
    before = taken()
    kit.write("web/package-lock.json", "2")
    kit.write("go.sum", "new")
    os.unlink(kit.top / "uv.lock")
    kit.write(".nvmrc", "22")
    said = differences(before, taken())
    assert [sentence.split(" ")[0] for sentence in said] == [
        "lockfile:go.sum",
        "lockfile:uv.lock",
        "lockfile:web/package-lock.json",
        "pin:.nvmrc",
    ]
    assert said[1].endswith("to missing")


def test_agents_and_tools_are_found_on_the_given_path_and_never_started(kit, tmp_path):
    folder = tmp_path / "bin"
    agent = program(folder, "claude")
    program(folder, "npm")
    program(folder, "other-agent")
    (folder / "codex").symlink_to(agent)
    environ = {**kit.environ, "PATH": f"{folder}:{kit.environ['PATH']}"}
    found = take(str(kit.top), environ)
    assert found["agent:claude"].split(" ")[0] == found["agent:codex"].split(" ")[0] == str(agent)
    assert found["tool:npm"].startswith(f"{folder}/npm size ")
    assert "agent:other-agent" not in found and "agent:gemini" not in take(str(kit.top), kit.environ, ["gemini"])
    assert "agent:other-agent" in take(str(kit.top), environ, ["other-agent"])
    assert not (kit.home / "started").exists()
    agent.write_text("#!/bin/sh\n# newer\n")
    changed = differences(found, take(str(kit.top), environ))
    assert [sentence.split(" ")[0] for sentence in changed] == ["agent:claude", "agent:codex"]


def test_a_path_relative_to_the_current_folder_is_not_searched(kit, tmp_path, monkeypatch):
    program(tmp_path / "bin", "claude")
    monkeypatch.chdir(tmp_path)
    assert "agent:claude" not in take(str(kit.top), {**kit.environ, "PATH": f"bin:{kit.environ['PATH']}"}, ["claude"])


def test_strange_files_are_told_apart_and_not_followed(kit, taken, tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "uv.lock").write_text("outside")
    kit.commit("a lock", **{"sub/uv.lock": "inside"})
    os.unlink(kit.top / "sub/uv.lock")
    os.rmdir(kit.top / "sub")
    os.symlink(tmp_path / "secret", kit.top / "sub")
    os.symlink(tmp_path / "secret" / "uv.lock", kit.top / "uv.lock")
    os.mkfifo(kit.top / "yarn.lock")
    (kit.top / "go.sum").mkdir()
    found = taken()
    assert found["lockfile:sub/uv.lock"] == "behind a link"
    assert found["lockfile:uv.lock"] == f"link to {tmp_path}/secret/uv.lock"
    assert found["lockfile:yarn.lock"] == found["lockfile:go.sum"] == "not a regular file"


def test_names_that_are_not_utf_8_can_be_stored(kit, taken):
    kit.write(os.fsdecode(b"\xff\n dir/uv.lock"), "1")
    kit.git("add", "-A")
    found = taken()
    assert "lockfile:\\xff\n dir/uv.lock" in found
    assert msgspec.json.decode(msgspec.json.encode(found)) == found


def test_size_sum_and_number_of_files_are_bounded_and_it_is_said(kit, taken, monkeypatch):
    for number in range(6):
        kit.write(f"d{number}/uv.lock", "x" * 10)
    kit.write("uv.lock", "y" * 100)
    kit.git("add", "-A")
    monkeypatch.setattr(fingerprint, "LARGEST", 50)
    monkeypatch.setattr(fingerprint, "TOTAL", 25)
    monkeypatch.setattr(fingerprint, "COUNT", 5)
    found = {name: text for name, text in taken().items() if name.startswith("lockfile")}
    assert found.pop("lockfiles:not_read") == "2 more than 5"
    assert found.pop("lockfile:uv.lock").startswith("not read: size 100 mtime_ns ")
    digest = hashlib.sha256(b"x" * 10).hexdigest()
    assert [text == digest for text in found.values()] == [True, True, False, False]
    assert list(found) == [f"lockfile:d{number}/uv.lock" for number in range(4)]


def test_a_linked_work_tree_has_a_fingerprint_of_its_own(kit, tmp_path):
    kit.commit("a lock", **{"uv.lock": "1"})
    kit.git("worktree", "add", "-q", "--detach", str(tmp_path / "other"))
    (tmp_path / "other" / "uv.lock").write_text("2")
    one, other = take(str(kit.top), kit.environ), take(str(tmp_path / "other"), kit.environ)
    assert [sentence.split(" ")[0] for sentence in differences(one, other)] == ["lockfile:uv.lock"]
