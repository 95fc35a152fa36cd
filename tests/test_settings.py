"""Reading settings files from a real disk: where they are looked for, and what is refused."""

import os

import pytest

import holdfast
from holdfast import settings
from holdfast.adapters import system
from holdfast.core.errors import BadFile, TooLarge, UsageError
from holdfast.core.settings import Settings


@pytest.fixture
def top(tmp_path):
    made = tmp_path / "repo"
    made.mkdir()
    return made


@pytest.fixture
def environ(tmp_path):
    return {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "config")}


def own(environ, text):
    folder = system.user_folder(environ, "XDG_CONFIG_HOME")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.toml"), "w", encoding="utf-8") as file:
        file.write(text)
    return file.name


def test_without_any_file_everything_is_the_default(top, environ):
    assert settings.load(str(top), environ) == settings.Loaded()
    assert settings.load(None, environ).settings == Settings()


def test_both_files_are_read_and_told_apart(top, environ):
    mine = own(environ, "[run]\nagent='mine'\nparallel=3\nstrictness='max'")
    (top / "holdfast.toml").write_text("[run]\nagent='theirs'\nstrictness='off'")
    found = settings.load(str(top), environ)
    assert (found.settings.run.agent, found.settings.run.parallel, found.settings.run.strictness) == (
        "theirs",
        3,
        "max",
    )
    assert set(found.sources) == {mine, str(top / "holdfast.toml")}
    assert found.files == {"holdfast.toml": (top / "holdfast.toml").read_bytes()}
    assert found.notes == ("run.strictness of holdfast.toml is not taken: yours is kept.",)
    assert settings.load(None, environ).settings.run.agent == "mine"


def test_an_error_names_the_file_it_is_in(top, environ):
    (top / "holdfast.toml").write_text("[run]\nagent=1")
    with pytest.raises(BadFile, match=r"^holdfast.toml, line 2: run.agent"):
        settings.load(str(top), environ)
    (top / "holdfast.toml").unlink()
    mine = own(environ, "\n[rum]")
    with pytest.raises(BadFile, match=f"^{mine}, line 2: rum"):
        settings.load(str(top), environ)


def test_a_link_within_the_repository_is_followed_and_one_that_leaves_it_is_not(top, environ, tmp_path):
    (top / "conf").mkdir()
    (top / "conf" / "h.toml").write_text("[run]\nagent='x'")
    (top / "holdfast.toml").symlink_to("conf/h.toml")
    assert settings.load(str(top), environ).settings.run.agent == "x"
    (tmp_path / "repo-secret.toml").write_text("[run]\nagent='y'")
    for target in (tmp_path / "repo-secret.toml", "../repo-secret.toml", "/dev/zero", tmp_path / "not there"):
        (top / "holdfast.toml").unlink()
        (top / "holdfast.toml").symlink_to(target)
        with pytest.raises(BadFile, match="a link that leads out of the repository"):
            settings.load(str(top), environ)


def test_a_repository_that_is_reached_by_a_link_is_read(top, environ, tmp_path):
    (top / "holdfast.toml").write_text("[run]\nagent='x'")
    (tmp_path / "way").symlink_to(top)
    assert settings.load(str(tmp_path / "way"), environ).settings.run.agent == "x"


def test_what_is_not_a_plain_file_is_refused_at_once(top, environ):
    path = top / "holdfast.toml"
    os.mkfifo(path)
    with pytest.raises(BadFile, match="it is not a plain file"):
        settings.load(str(top), environ)
    path.unlink()
    path.mkdir()
    with pytest.raises(BadFile, match="it is not a plain file"):
        settings.load(str(top), environ)
    path.rmdir()
    path.symlink_to("holdfast.toml")
    with pytest.raises(BadFile, match="it is a link to itself"):
        settings.load(str(top), environ)


def test_a_file_is_read_up_to_its_limit_and_no_further(top, environ):
    path = top / "holdfast.toml"
    path.write_bytes(b"#" * settings.MOST)
    assert settings.load(str(top), environ).settings == Settings()
    path.write_bytes(b"#" * (settings.MOST + 1))
    with pytest.raises(TooLarge, match="65,537 bytes; the limit is 65,536"):
        settings.load(str(top), environ)


def test_no_open_files_are_left_behind(top, environ):
    (top / "holdfast.toml").mkdir()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(BadFile):
            settings.load(str(top), environ)
    assert len(os.listdir("/proc/self/fd")) == before


def test_where_the_users_folders_are():
    assert system.user_folder({"XDG_STATE_HOME": "/s"}, "XDG_STATE_HOME") == "/s/holdfast"
    assert system.user_folder({"XDG_STATE_HOME": "s", "HOME": "/h"}, "XDG_STATE_HOME") == "/h/.local/state/holdfast"
    assert system.user_folder({"HOME": "/h"}, "XDG_CONFIG_HOME") == "/h/.config/holdfast"
    with pytest.raises(UsageError, match="no home folder"):
        system.user_folder({"HOME": "h"}, "XDG_CONFIG_HOME")


# --- the strictness of a run that a program begins


@pytest.fixture
def configured(top, environ, monkeypatch):
    """The strictness of a run that is begun below a repository, by what its log says."""
    (top / ".git").mkdir()
    (top / "deep").mkdir()
    monkeypatch.chdir(top / "deep")
    monkeypatch.delenv("HOLDFAST_STRICTNESS", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    def configured(**options):
        with holdfast.run("m", store=str(top.parent / "r.db"), new=True, **options) as run:
            return run.state.strictness

    return configured


def test_a_run_is_as_strict_as_the_nearest_that_says_so(configured, top, environ, monkeypatch):
    assert configured() == "medium"
    own(environ, "[run]\nstrictness='off'")
    assert configured() == "off"
    (top / "holdfast.toml").write_text("[run]\nstrictness='max'")
    assert configured() == "max"
    monkeypatch.setenv("HOLDFAST_STRICTNESS", "medium")
    assert configured() == "medium"
    assert configured(strictness="off") == "off"


def test_a_repository_makes_no_run_looser(configured, top):
    (top / "holdfast.toml").write_text("[run]\nstrictness='off'")
    assert configured() == "medium"


def test_settings_that_cannot_be_read_are_no_settings_of_less(configured, top):
    (top / "holdfast.toml").write_text("[run]\nstrictness='maximal'")
    with pytest.raises(BadFile, match=r"^holdfast.toml, line 2: run.strictness"):
        configured()
    assert configured(strictness="medium") == "medium"


def test_a_folder_that_is_gone_has_no_settings(configured, top):
    os.rmdir(top / "deep")
    assert configured() == "medium"


def test_a_linked_work_tree_has_settings_of_its_own(configured, top, monkeypatch):
    (top / "deep" / ".git").write_text("gitdir: ../.git/worktrees/deep")
    (top / "deep" / "holdfast.toml").write_text("[run]\nstrictness='max'")
    assert configured() == "max"
