"""PackageInstall: tiny wheels made by hand, a real pip in a real environment, no network; and pip killed at any time."""

from __future__ import annotations

import base64
import ensurepip
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from holdfast.adapters.probes import EffectError, PackageInstall
from holdfast.core.errors import UsageError
from holdfast.core.plain import check_plain
from tests.adapters.probes.killing import in_child

KEY = "install-1"
FILES = 40
SYSTEMS = "/usr/bin/python3"


def make_wheel(folder, version, name="tiny_thing"):
    """A wheel with some files, one of which would leave a canary if it were imported."""
    info = f"{name}-{version}.dist-info"
    canary = "import os, pathlib\npathlib.Path(__file__).with_name('canary').touch()\n"
    files = {
        f"{name}/__init__.py": canary,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
    }
    files |= {f"{name}/part{number}.py": f"VALUE = {number}\n" * 50 for number in range(FILES)}
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = [f"{path},sha256={sha256(text.encode())},{len(text)}" for path, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,"]) + "\n"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)


def sha256(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


@pytest.fixture(scope="session")
def wheels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheels")
    for version in ("1.0", "2.0"):
        make_wheel(folder, version)
    return folder


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """An environment with pip in it, unpacked from the wheel that comes with Python."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    python = os.path.realpath(sys.executable)
    subprocess.run([python, "-I", "-m", "venv", "--without-pip", str(folder)], check=True)
    with zipfile.ZipFile(bundled_pip()) as wheel:
        wheel.extractall(sites_of(folder))
    return folder


def bundled_pip():
    """Where Python keeps it; some distributions keep it where their other wheels are."""
    folders = Path(ensurepip.__file__).parent / "_bundled", Path("/usr/share/python-wheels")
    return next(wheel for folder in folders for wheel in sorted(folder.glob("pip-*.whl")))


def sites_of(venv):
    return next(venv.glob("lib/python*/site-packages"))


@pytest.fixture
def venv(template):
    """The environment, emptied of what a test put there."""
    yield template
    clear(template)


def clear(venv):
    for path in sites_of(venv).iterdir():
        if not path.name.startswith("pip"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.fixture
def install(venv, wheels):
    def make(version="1.0", before=None, **more):
        return PackageInstall(str(venv / "bin" / "python"), "Tiny.Thing", version, before, str(wheels), **more)

    return make


@pytest.fixture
def unpack(venv, wheels):
    """Puts the package there as pip would, but sooner."""

    def act(version="1.0"):
        with zipfile.ZipFile(wheels / f"tiny_thing-{version}-py3-none-any.whl") as wheel:
            wheel.extractall(sites_of(venv))

    return act


def installed(venv):
    """An independent look: the version by pip's own list, and whether each file of the wheel is there whole."""
    site = sites_of(venv)
    infos = sorted(path.name for path in site.glob("tiny_thing-*.dist-info"))
    versions = [name.removeprefix("tiny_thing-").removesuffix(".dist-info") for name in infos]
    parts = [site / "tiny_thing" / f"part{number}.py" for number in range(FILES)]
    whole = all(path.exists() and path.read_text() == f"VALUE = {number}\n" * 50 for number, path in enumerate(parts))
    records = list(site.glob("tiny_thing-*.dist-info/RECORD"))
    return versions, whole and len(records) == 1 and records[0].stat().st_size > 0


def test_a_package_is_installed_once_and_found(venv, install):
    effect = install()
    assert effect.probe(KEY).settled_as == "not_done"
    receipt = effect.act(KEY)
    assert installed(venv) == (["1.0"], True)
    assert effect.probe(KEY)[::2] == ("done", receipt) and effect.act(KEY) == receipt
    assert not list(venv.rglob("canary")), "it is never imported"
    check_plain(receipt)
    check_plain(effect.arguments)


@pytest.mark.skipif(not os.path.exists(SYSTEMS), reason="the system has no Python of its own")
def test_an_environment_of_the_systems_python_is_looked_at_where_it_keeps_its_packages(tmp_path, wheels):
    subprocess.run([SYSTEMS, "-I", "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    effect = PackageInstall(str(tmp_path / "venv" / "bin" / "python"), "Tiny.Thing", "1.0", None, str(wheels))
    assert effect.probe(KEY).settled_as == "not_done"
    with zipfile.ZipFile(wheels / "tiny_thing-1.0-py3-none-any.whl") as wheel:
        wheel.extractall(sites_of(tmp_path / "venv"))
    assert effect.probe(KEY).settled_as == "done"


def test_another_version_is_unknown_unless_it_was_expected(venv, install):
    install("1.0").act(KEY)
    stranger = install("2.0")
    assert stranger.probe(KEY).settled_as == "unknown"
    with pytest.raises(EffectError, match="not as it was"):
        stranger.act(KEY)
    assert installed(venv) == (["1.0"], True)
    upgrade = PackageInstall.prepare(stranger.python, stranger.name, "2.0", wheels=stranger.wheels)
    assert upgrade.before == "1.0" and upgrade.probe(KEY).settled_as == "not_done"
    upgrade.act(KEY)
    assert installed(venv) == (["2.0"], True) and upgrade.probe(KEY).settled_as == "done"
    assert install("1.0").probe(KEY).settled_as == "unknown"


def remove_file(site):
    (site / "tiny_thing" / "part7.py").unlink()


def change_file(site):
    (site / "tiny_thing" / "part7.py").write_text("VALUE = 8\n" * 50)


def replace_by_pipe(site):
    remove_file(site)
    os.mkfifo(site / "tiny_thing" / "part7.py")


def remove_record(site):
    (site / "tiny_thing-1.0.dist-info" / "RECORD").unlink()


def remove_metadata(site):
    (site / "tiny_thing-1.0.dist-info" / "METADATA").unlink()


def empty_info(site):
    for path in (site / "tiny_thing-1.0.dist-info").iterdir():
        path.unlink()


def double(site):
    shutil.copytree(site / "tiny_thing-1.0.dist-info", site / "tiny_thing-0.9.dist-info")


def spoil_record(site):
    (site / "tiny_thing-1.0.dist-info" / "RECORD").write_text("one,two\n")


DAMAGES = (remove_file, change_file, replace_by_pipe, remove_record, remove_metadata, empty_info, double, spoil_record)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_what_is_half_there_is_unknown_and_left_alone(venv, install, unpack, damage):
    effect = install()
    unpack()
    assert effect.probe(KEY).settled_as == "done"
    damage(sites_of(venv))
    assert effect.probe(KEY).settled_as == "unknown"
    with pytest.raises(EffectError):
        effect.act(KEY)
    assert effect.probe(KEY).settled_as == "unknown"


def test_compiled_files_may_be_missing(venv, install):
    effect = install()
    effect.act(KEY)
    shutil.rmtree(sites_of(venv) / "tiny_thing" / "__pycache__", ignore_errors=True)
    assert effect.probe(KEY).settled_as == "done"


def test_a_package_that_is_not_to_be_had_is_not_done(install, venv):
    effect = install("3.0")
    with pytest.raises(EffectError, match=r"pip ended with code 1 .*3\.0"):
        effect.act(KEY)
    assert effect.probe(KEY).settled_as == "not_done" and installed(venv) == ([], False)


def test_nothing_is_built(venv, install, wheels, tmp_path):
    source = tmp_path / "tiny_thing-1.0"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (source / "backend.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w')\n")
    shutil.make_archive(str(tmp_path / "tiny_thing-1.0"), "gztar", tmp_path, "tiny_thing-1.0")
    effect = PackageInstall(str(venv / "bin" / "python"), "tiny-thing", "1.0", wheels=str(tmp_path))
    with pytest.raises(EffectError, match="was not installed"):
        effect.act(KEY)
    assert not (tmp_path / "canary").exists()


def test_looking_runs_no_code_of_the_environment(venv, install, tmp_path):
    canary = tmp_path / "canary"
    site = sites_of(venv)
    (site / "evil.pth").write_text(f"import pathlib; pathlib.Path({str(canary)!r}).touch()\n")
    (site / "sitecustomize.py").write_text(f"import pathlib; pathlib.Path({str(canary)!r}).touch()\n")
    subprocess.run([venv / "bin" / "python", "-c", ""], check=True)
    assert canary.exists(), "any other start of this interpreter runs it"
    canary.unlink()
    effect = install(environ={"PATH": os.environ["PATH"], "PYTHONSTARTUP": "x", "PYTHONPATH": str(site)})
    assert effect.probe(KEY).settled_as == "not_done" and not canary.exists()


def test_a_probe_changes_nothing(venv, install, unpack):
    unpack()
    before = {path: path.lstat().st_mtime_ns for path in venv.rglob("*")}
    assert install().probe(KEY).settled_as == "done"
    assert {path: path.lstat().st_mtime_ns for path in venv.rglob("*")} == before


def test_settings_of_pip_in_the_environment_have_no_say(venv, install, tmp_path):
    evil = {"PIP_INDEX_URL": "http://127.0.0.1:1/", "PIP_TARGET": str(tmp_path / "elsewhere"), "PIP_NO_INDEX": "0"}
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "pip.conf").write_text(f"[install]\ntarget = {tmp_path}/elsewhere\n")
    effect = install(environ={**evil, "PATH": os.environ["PATH"], "XDG_CONFIG_HOME": str(tmp_path)})
    effect.act(KEY)
    assert installed(venv) == (["1.0"], True) and not (tmp_path / "elsewhere").exists()


def test_an_interpreter_that_is_none_is_unknown(install, tmp_path, wheels):
    for text, mode in (
        ("", 0o644),
        ("#!/bin/sh\necho {}\n", 0o755),
        ("#!/bin/sh\nexit 3\n", 0o755),
        ("#!/bin/sh\nsleep 60", 0o755),
    ):
        python = tmp_path / "python"
        python.write_text(text)
        python.chmod(mode)
        effect = PackageInstall(str(python), "tiny", "1.0", wheels=str(wheels), seconds=0.5)
        assert effect.probe(KEY).settled_as == "unknown", text
        with pytest.raises(EffectError):
            effect.act(KEY)


@pytest.mark.parametrize(
    ("name", "version", "more"),
    [
        ("--upgrade", "1", {}),
        ("tiny", "1 --pre", {}),
        ("tiny", "", {}),
        ("tiny @ https://x", "1", {}),
        ("tiny[extra]", "1", {}),
        ("../tiny", "1", {}),
        ("tiny", "1", {"wheels": "here"}),
        ("tiny", "1", {"index": "ftp://x"}),
        ("tiny", "1", {"index": "https://x", "wheels": "/x"}),
    ],
)
def test_what_pip_could_take_for_something_else_is_refused(name, version, more):
    with pytest.raises(UsageError):
        PackageInstall("/usr/bin/python3", name, version, **more)
    with pytest.raises(UsageError):
        PackageInstall("python3", "tiny", "1")


# Runs in the environment's interpreter before pip does, counts what pip writes there, and strikes at one of them.
STRIKE = """
import os, sys, time
at, how, calls = {at}, {how!r}, 0

def watch(event, args):
    global calls
    path = str(args[event == "os.rename"]) if event in ("open", "os.rename") else ""
    written = event == "os.rename" or "w" in (event == "open" and args[1] or "")
    if written and path.startswith({site!r}) and "tiny_thing" in path:
        calls += 1
        with open({count!r}, "a") as file:
            file.write("x")
        if calls == at:
            os.kill(os.getppid(), 9)
            time.sleep(0.3) if how == "orphan" else os.kill(os.getpid(), 9)

if "pip" in sys.orig_argv:
    sys.addaudithook(watch)
"""


@pytest.mark.crash
@pytest.mark.slow
def test_killed_at_any_write_of_pip_the_probe_says_what_is_there(venv, install, tmp_path, tries, record_property):
    """With pip, or only the process that started it: then pip goes on, and the probe waits for it."""
    hook, count = sites_of(venv) / "strike.py", tmp_path / "count"

    def act(at, how):
        clear(venv)
        hook.write_text(STRIKE.format(at=at, how=how, site=str(sites_of(venv)), count=str(count)))
        hook.with_suffix(".pth").write_text("import strike\n")
        status = in_child(lambda: install().act(KEY))
        hook.unlink()
        hook.with_suffix(".pth").unlink()
        return status

    assert act(0, "never") == 0 and installed(venv) == (["1.0"], True)
    writes = len(count.read_text())
    chance, seen = random.Random(7), Counter()
    points = [1, writes // 4, 2, writes, *(chance.sample(range(3, writes - 1), 6) if tries.whole else ())]
    for number, at in enumerate(points):
        how = "orphan" if number % 3 == 2 else "both"
        assert act(at, how) == signal.SIGKILL
        answer = install().probe(KEY)
        versions, whole = installed(venv)
        seen[answer.settled_as] += 1
        where = (at, how, answer, versions, whole)
        assert answer.settled_as == ("not_done" if not versions else "done" if whole else "unknown"), where
        assert how != "orphan" or answer.settled_as == "done", where
        if answer.settled_as == "not_done":
            install().act(KEY)
            assert installed(venv) == (["1.0"], True), where
    record_property(
        "crash", ("package install: kill at writes of pip", len(points), {"whole": len(points), "refused": 0}, 0)
    )
    assert writes > FILES and set(seen) == {"done", "not_done", "unknown"}, seen
