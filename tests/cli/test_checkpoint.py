"""`holdfast init`, `checkpoint`, `show --diff` and `restore`, and what `doctor` says of a repository, as a user types them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.forked import holdfast_says


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / ".gitconfig").write_text("[user]\n\tname = A. User\n\temail = user@example.org\n")
    return folder


@pytest.fixture
def environ(home):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "GIT_"))}
    return {**kept, "HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "NO_COLOR": "1"}


@pytest.fixture
def repo(tmp_path, environ):
    top = tmp_path / "project"
    top.mkdir()
    run(["git", "init", "-q", "-b", "main"], top, environ)
    (top / "readme.txt").write_text("hello\n")
    run(["git", "add", "-A"], top, environ)
    run(["git", "commit", "-q", "-m", "first"], top, environ)
    return top


def run(command, cwd, environ, code=0):
    done = subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, (command, done.stdout, done.stderr)
    return done.stdout


def holdfast(repo, environ, *words, code=0):
    done = holdfast_says(words, repo, environ)
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done.stdout


def told(repo, environ, *words, code=0):
    return json.loads(holdfast(repo, environ, *words, "--json", code=code))


def test_init_gives_settings_to_begin_with(repo, environ):
    from holdfast.core.settings import TEMPLATE, read

    assert told(repo, environ, "init", "--config")["done"]
    assert (repo / "holdfast.toml").read_text() == TEMPLATE
    filled = "\n".join(line.removeprefix("# ") if " = " in line else line for line in TEMPLATE.splitlines())
    assert read(filled.encode(), "holdfast.toml").values["verify"]["tier1"] == (("make", "test"),)
    (repo / "holdfast.toml").write_text("[run]\n")
    assert told(repo, environ, "init", "--config")["done"] == []
    assert (repo / "holdfast.toml").read_text() == "[run]\n"


def test_init_twice_changes_nothing_the_second_time(repo, environ):
    assert told(repo, environ, "init")["done"]
    assert (repo / ".gitignore").read_text().splitlines().count(".holdfast/") == 1
    before = (repo / ".gitignore").read_bytes()
    assert told(repo, environ, "init")["done"] == []
    assert (repo / ".gitignore").read_bytes() == before


def test_a_checkpoint_is_taken_shown_and_restored_beside_the_repository(repo, environ):
    holdfast(repo, environ, "init")
    (repo / "new.txt").write_text("not yet committed\n")
    mark = told(repo, environ, "checkpoint", "before lunch")
    assert mark["commit"] is None and mark["snapshot"]
    (repo / "new.txt").unlink()
    assert "not yet committed" in holdfast(repo, environ, "show", mark["checkpoint_id"], "--diff")
    assert "before lunch" in holdfast(repo, environ, "show", mark["checkpoint_id"])
    done = told(repo, environ, "restore", mark["checkpoint_id"][-8:])["restored"]
    assert os.path.dirname(done["path"]) == str(repo.parent)
    with open(os.path.join(done["path"], "new.txt")) as file:
        assert file.read() == "not yet committed\n"
    assert not (repo / "new.txt").exists()
    assert "snapshot" in holdfast(repo, environ, "checkpoint", "--list")


def test_a_checkpoint_is_shown_where_the_store_is_gone_and_what_is_none_is_said_to_be_missing_as_before(repo, environ):
    holdfast(repo, environ, "init")
    mark = told(repo, environ, "checkpoint", "before lunch")
    assert "checkpoint" in holdfast_says(["show", "nowhere"], repo, environ).stderr
    shutil.rmtree(repo / ".holdfast")
    for name in (mark["checkpoint_id"], mark["checkpoint_id"][-8:]):
        assert told(repo, environ, "show", name)["snapshot"] == mark["snapshot"]
    assert "There is no store" in holdfast_says(["show", "nowhere"], repo, environ).stderr
    assert not (repo / ".holdfast").exists()


def test_a_milestone_is_committed_and_found_again_after_a_rebase(repo, environ):
    holdfast(repo, environ, "init", "--hooks")
    run(["git", "switch", "-q", "-c", "work"], repo, environ)
    (repo / "parser.py").write_text("pass\n")
    mark = told(repo, environ, "checkpoint", "--commit", "parser works")
    assert (mark["index"], mark["sidecar_written"]) == (0, True)
    assert run(["git", "status", "--porcelain"], repo, environ) == ""
    run(["git", "switch", "-q", "main"], repo, environ)
    (repo / "other.txt").write_text("meanwhile\n")
    run(["git", "add", "-A"], repo, environ)
    run(["git", "commit", "-q", "-m", "meanwhile"], repo, environ)
    run(["git", "switch", "-q", "work"], repo, environ)
    run(["git", "rebase", "-q", "main"], repo, environ)
    shown = told(repo, environ, "show", mark["checkpoint_id"])
    assert shown["now_at"] == run(["git", "rev-parse", "HEAD"], repo, environ).strip() != mark["commit"]
    assert shown["source"] in ("post_rewrite", "git_log_run_specific")


def test_in_place_shows_first_what_it_would_do_and_keeps_what_is_there(repo, environ):
    holdfast(repo, environ, "init")
    (repo / "readme.txt").write_text("version one\n")
    mark = told(repo, environ, "checkpoint", "one")
    (repo / "readme.txt").write_text("version two\n")
    assert "readme.txt" in holdfast(repo, environ, "restore", mark["checkpoint_id"], "--in-place", "--preview")
    assert (repo / "readme.txt").read_text() == "version two\n"
    done = told(repo, environ, "restore", mark["checkpoint_id"], "--in-place")["restored"]
    assert (repo / "readme.txt").read_text() == "version one\n"
    told(repo, environ, "restore", done["kept"], "--in-place")
    assert (repo / "readme.txt").read_text() == "version two\n"


def test_doctor_names_what_is_not_well_and_its_advice_runs(repo, environ):
    found = told(repo, environ, "doctor")["findings"]
    (ignored,) = [one for one in found if one["check"] == "ignored"]
    assert (ignored["level"], ignored["fix"]) == ("warn", "holdfast init")
    holdfast(repo, environ, "init")
    (repo / "a.txt").write_text("a\n")
    mark = told(repo, environ, "checkpoint", "--commit", "a")
    sidecar = repo / ".holdfast" / "checkpoints" / f"{mark['checkpoint_id']}.json"
    sidecar.unlink()
    found = told(repo, environ, "doctor")["findings"]
    (missing,) = [one for one in found if one["check"] == "sidecars"]
    assert missing["fix"] == "holdfast doctor --fix"
    assert any("Wrote the sidecar" in line for line in told(repo, environ, "doctor", "--fix")["done"])
    assert json.loads(sidecar.read_text())["sha"] == mark["commit"]
    assert all(one["level"] == "ok" for one in told(repo, environ, "doctor")["findings"])


def test_doctor_links_a_sidecar_to_the_commit_that_took_the_place_of_its_own(repo, environ):
    holdfast(repo, environ, "init")
    (repo / "a.txt").write_text("a\n")
    mark = told(repo, environ, "checkpoint", "--commit", "a")
    run(["git", "commit", "-q", "--amend", "--no-edit", "--date", "2020-01-01T00:00:00Z"], repo, environ)
    run(["git", "reflog", "expire", "--expire=now", "--all"], repo, environ)
    run(["git", "update-ref", "-d", f"refs/holdfast/checkpoints/{mark['checkpoint_id']}"], repo, environ)
    run(["git", "gc", "-q", "--prune=now"], repo, environ)
    now = run(["git", "rev-parse", "HEAD"], repo, environ).strip()
    done = told(repo, environ, "doctor", "--fix")["done"]
    assert any(now[:12] in line and mark["commit"][:12] in line for line in done)


@pytest.mark.parametrize("words", [
    ("checkpoint", "x"), ("checkpoint", "--list"), ("restore", "abcdef"), ("init",), ("show", "abcdef", "--diff"),
])  # fmt: skip
def test_outside_of_a_repository_it_says_so(tmp_path, environ, words):
    folder = tmp_path / "plain"
    folder.mkdir()
    answer = holdfast_says(words, folder, environ)
    assert answer.returncode not in (0, 1) and "Traceback" not in answer.stderr
    assert "git" in answer.stderr


@pytest.mark.parametrize("more", [["-o", "kept"], ["--diff", "-o", "kept"], ["--raw"], ["--diff", "--raw"]])
def test_the_bytes_of_a_checkpoint_are_refused_and_not_passed_over(repo, environ, more):
    mark = told(repo, environ, "checkpoint", "before lunch")
    done = holdfast_says(["show", mark["checkpoint_id"], *more], repo, environ)
    assert (done.returncode, done.stdout) == (64, "") and "are for events and artifacts" in done.stderr
    assert not (repo / "kept").exists()


def test_a_preview_of_a_new_work_tree_is_refused(repo, environ):
    mark = told(repo, environ, "checkpoint", "before lunch")
    refused = holdfast_says(["restore", mark["checkpoint_id"], "--into", "there", "--preview"], repo, environ)
    assert (refused.returncode, refused.stdout) == (64, "") and "--preview exclude each other" in refused.stderr


@pytest.mark.parametrize("words", ["checkpoint x", "init", "trust --show", "restore abcd", "run -- true", "status"])
def test_in_a_folder_that_is_gone_it_says_so(tmp_path, environ, words):
    command = f"mkdir gone && cd gone && rmdir ../gone && {sys.executable} -m holdfast {words}"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()) == (
        64,
        ["holdfast: The current folder no longer exists.", "  Change to another folder."],
    )


def test_an_unknown_checkpoint_makes_nothing(repo, environ):
    before = sorted(path.name for path in repo.iterdir())
    for words in (("restore", "0123456789"), ("show", "0123456789", "--diff"), ("resume", "0123456789", "--plan")):
        holdfast(repo, environ, *words, code=66)
    assert sorted(path.name for path in repo.iterdir()) == before


def test_a_hundred_checkpoints_at_once_in_ten_worktrees_have_ids_of_their_own(repo, environ, tmp_path):
    holdfast(repo, environ, "init")
    run(["git", "add", "-A"], repo, environ)
    run(["git", "commit", "-q", "-m", "ignore"], repo, environ)
    trees = []
    for number in range(10):
        trees.append(tmp_path / f"tree-{number}")
        run(["git", "worktree", "add", "-q", "-b", f"side-{number}", str(trees[-1])], repo, environ)
        (trees[-1] / "work.txt").write_text(f"{number}\n")
    with ThreadPoolExecutor(8) as pool:
        marks = list(pool.map(lambda at: told(trees[at % 10], environ, "checkpoint", f"c{at}"), range(100)))
    assert len({mark["checkpoint_id"] for mark in marks}) == 100
    status = told(repo, environ, "status", "--all")
    assert len({one["run_id"] for one in status["runs"]}) == 100
    assert len(told(repo, environ, "checkpoint", "--list")["checkpoints"]) == 100
    assert not list(repo.rglob("*.lock"))


def everything(repo):
    """Every file of the repository, of git's folder and of ours, with its bytes and its time."""
    paths = sorted(path for path in repo.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}


def test_looking_at_a_repository_changes_nothing_in_it(repo, environ):
    program = repo.parent / "work.py"
    program.write_text(
        "import os, signal, holdfast\n"
        "with holdfast.run('mission') as run:\n"
        "    place = run.workspace('.')\n"
        "    open('a.txt', 'w').write('a')\n"
        "    place.milestone('part a')\n"
        "    open('half.txt', 'w').write('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    holdfast(repo, environ, "init")
    run([sys.executable, str(program)], repo, environ, code=-9)
    (mark,) = told(repo, environ, "checkpoint", "--list")["checkpoints"]
    run_id = mark["run_id"]
    before = everything(repo)
    for words in (
        ["resume", run_id, "--plan"], ["resume", run_id, "--plan", "--json"], ["show", mark["checkpoint_id"]],
        ["show", mark["checkpoint_id"], "--diff"], ["doctor"], ["checkpoint", "--list"], ["status"], ["resume"],
    ):  # fmt: skip
        holdfast(repo, environ, *words)
        assert everything(repo) == before, words
    holdfast(
        repo, environ, "restore", mark["checkpoint_id"], "--in-place", "--preview", code=43
    )  # HEAD has moved since
    assert everything(repo) == before
    plan = told(repo, environ, "resume", run_id, "--plan")
    (seen,) = plan["repositories"]
    assert (seen["checkpoint"]["source"], seen["checkpoint"]["index"]) == ("log", 0)
    assert [one["drift"] for one in seen["drift"]] == ["tree"] and "half.txt" in seen["drift"][0]["lines"][0]
    text = holdfast(repo, environ, "resume", run_id, "--plan")
    assert "half.txt" in text and "milestone 0" in text, "text and JSON agree"


def test_a_run_known_only_by_its_mirrors_is_listed_and_can_go_on(repo, environ, tmp_path):
    program = tmp_path / "work.py"
    program.write_text(
        "import os, signal, sys, holdfast\n"
        "with holdfast.run('mission') as run:\n"
        "    place = run.workspace('.')\n"
        "    for name in 'ab':\n"
        "        open(name + '.txt', 'w').write(name)\n"
        "        place.milestone('part ' + name)\n"
        "        if name == sys.argv[1]: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    holdfast(repo, environ, "init")
    run([sys.executable, str(program), "a"], repo, environ, code=-9)
    clone = tmp_path / "clone"
    run(["git", "clone", "-q", "--no-local", str(repo), str(clone)], tmp_path, environ)
    (known,) = told(clone, environ, "resume")["mirrored"]
    assert (known["milestone"], known["title"], known["source"]) == (0, "part a", "git_log_run_specific")
    assert "-- COMMAND" in holdfast(clone, environ, "resume", known["run_id"], "--plan")
    assert not (clone / ".holdfast").exists(), "looking made nothing"
    holdfast(clone, environ, "resume", known["run_id"], "--", sys.executable, str(program), "none")
    subjects = run(["git", "log", "--format=%s", "-2"], clone, environ).splitlines()
    assert subjects == ["checkpoint: part b", "checkpoint: part a"]
    (one,) = told(clone, environ, "status", "--all")["runs"]
    assert (one["run_id"], one["status"]) == (known["run_id"], "finished")


CRASHING = (
    "import os, signal, sys, holdfast\n"
    "with holdfast.run('mission') as run:\n"
    "    place = run.workspace('.')\n"
    "    for name in 'ab':\n"
    "        open(name + '.txt', 'w').write(name)\n"
    "        place.milestone('part ' + name)\n"
    "        if sys.argv[1:] == [name]:\n"
    "            os.kill(os.getpid(), signal.SIGKILL)\n"
)


@pytest.fixture
def crashed(repo, environ, tmp_path):
    """A run that was killed after its first milestone, and the words that go on with it."""
    program = tmp_path / "program.py"
    program.write_text(CRASHING)
    holdfast(repo, environ, "init")
    run(["git", "add", "-A"], repo, environ)
    run(["git", "commit", "-q", "-m", "ignore"], repo, environ)
    run([sys.executable, str(program), "a"], repo, environ, code=-9)
    (row,) = told(repo, environ, "resume")["unfinished"]
    return row["run_id"], ["--", sys.executable, str(program)]


def test_uncommitted_work_is_refused_kept_aside_restored_and_settled(repo, environ, crashed):
    run_id, behind = crashed
    (repo / "by hand.txt").write_text("mine\n")
    plan = told(repo, environ, "resume", run_id)
    assert plan["plan"]["verdict"] == "ask" and "tree" in plan["plan"]["why"]
    holdfast(repo, environ, "resume", run_id, *behind, code=4)
    holdfast(repo, environ, "resume", run_id, "--snapshot", *behind)
    (pending,) = [one for one in told(repo, environ, "doctor")["findings"] if one["check"] == "kept aside"]
    verb, kept = pending["fix"].split()[1:]
    assert verb == "restore"
    told(repo, environ, "restore", kept)
    assert not [one for one in told(repo, environ, "doctor")["findings"] if one["check"] == "kept aside"]


def test_what_is_kept_aside_can_be_dropped(repo, environ, crashed):
    run_id, behind = crashed
    (repo / "by hand.txt").write_text("mine\n")
    holdfast(repo, environ, "resume", run_id, "--snapshot", *behind)
    (kept,) = [one for one in told(repo, environ, "checkpoint", "--list")["checkpoints"] if one["pending"]]
    assert told(repo, environ, "checkpoint", "--drop", kept["checkpoint_id"]) == {
        "schema_version": 1,
        "checkpoint_id": kept["checkpoint_id"],
        "dropped": True,
    }
    assert not [one for one in told(repo, environ, "checkpoint", "--list")["checkpoints"] if one["pending"]]


def test_allow_dirty_goes_on_over_it(repo, environ, crashed):
    run_id, behind = crashed
    (repo / "by hand.txt").write_text("mine\n")
    holdfast(repo, environ, "resume", run_id, "--allow-dirty", *behind)
    assert told(repo, environ, "status", "--all")["runs"][0]["status"] == "finished"


def test_an_approved_plan_covers_the_repository_as_it_was_shown(repo, environ, crashed):
    run_id, behind = crashed
    clean = told(repo, environ, "resume", run_id)["plan"]["plan_id"]
    (repo / "by hand.txt").write_text("mine\n")
    dirty = told(repo, environ, "resume", run_id)["plan"]["plan_id"]
    assert clean != dirty and clean.partition(".")[0] == dirty.partition(".")[0]
    holdfast(repo, environ, "resume", run_id, "--approve", clean, *behind, code=44)
    holdfast(repo, environ, "resume", run_id, "--approve", dirty, *behind)
    assert told(repo, environ, "status", "--all")["runs"][0]["status"] == "finished"


def test_a_milestone_that_was_reset_away_is_not_gone_on_from(repo, environ, crashed):
    run_id, behind = crashed
    run(["git", "reset", "-q", "--hard", "HEAD~1"], repo, environ)
    holdfast(repo, environ, "resume", run_id, *behind, code=41)


def test_a_failed_checkpoint_leaves_no_run_that_waits_for_somebody(repo, environ):
    holdfast(repo, environ, "init")
    run(["git", "switch", "-q", "--detach"], repo, environ)
    holdfast(repo, environ, "checkpoint", "--commit", "x", code=87)
    assert told(repo, environ, "resume")["unfinished"] == []


def test_milestones_taken_by_hand_are_counted(repo, environ):
    holdfast(repo, environ, "init")
    marks = []
    for name in ("a", "b"):
        (repo / f"{name}.txt").write_text(name)
        marks.append(told(repo, environ, "checkpoint", "--commit", name)["index"])
    assert marks == [0, 1]


@pytest.mark.parametrize("index", [2**31, 2**53 + 1])
def test_a_number_that_no_milestone_can_have_is_refused_before_the_milestone_is_begun(repo, environ, index):
    (repo / "new.txt").write_text("one\n")
    done = holdfast_says(["checkpoint", "--commit", "--index", str(index), "one"], repo, environ)
    assert done.returncode == 64 and f"{index} cannot be the number of a milestone" in done.stderr
    assert told(repo, environ, "checkpoint", "--list")["checkpoints"] == []
    assert [one["status"] for one in told(repo, environ, "status")["runs"]] == ["finished"]
    assert told(repo, environ, "checkpoint", "--commit", "--index", str(2**31 - 1), "one")["index"] == 2**31 - 1
    (repo / "new.txt").write_text("two\n")
    assert "--index" in holdfast_says(["checkpoint", "--commit", "two"], repo, environ).stderr
    assert told(repo, environ, "checkpoint", "--commit", "--index", "7", "two")["index"] == 7


def test_a_title_used_twice_for_one_run_is_two_checkpoints(repo, environ, crashed):
    run_id, _ = crashed
    (repo / "x.txt").write_text("one\n")
    first = told(repo, environ, "checkpoint", "same", run_id)
    (repo / "x.txt").write_text("two\n")
    second = told(repo, environ, "checkpoint", "same", run_id)
    assert first["checkpoint_id"] != second["checkpoint_id"] and first["snapshot"] != second["snapshot"]


def test_the_undo_of_a_restore_in_place_is_what_it_prints(repo, environ):
    holdfast(repo, environ, "init")
    (repo / "readme.txt").write_text("one\n")
    mark = told(repo, environ, "checkpoint", "one")
    (repo / "readme.txt").write_text("two\n")
    said = holdfast(repo, environ, "restore", mark["checkpoint_id"], "--in-place")
    undo = said.split("`")[1].split()
    assert undo[0] == "holdfast"
    holdfast(repo, environ, *undo[1:])
    assert (repo / "readme.txt").read_text() == "two\n"
    assert not [one for one in told(repo, environ, "doctor")["findings"] if "no log here knows it" in one["sentence"]]


def test_ignored_files_are_kept_by_pattern_shown_and_restored(repo, environ, tmp_path):
    holdfast(repo, environ, "init")
    (repo / ".gitignore").write_text(".holdfast/\n.env\nbuild/\n*.log\n")
    for name in (".env", "x.log"):
        (repo / name).write_text(f"{name}\n")
    (repo / "build").mkdir()
    (repo / "build" / "out").write_text("out\n")
    mark = told(repo, environ, "checkpoint", "all", "--ignored", ".env", "--ignored", "build/**")
    assert mark["ignored"] == [".env", "build/out"]
    assert told(repo, environ, "show", mark["checkpoint_id"])["ignored"] == [".env", "build/out"]
    holdfast(repo, environ, "restore", mark["checkpoint_id"], "--into", str(tmp_path / "beside"))
    assert (tmp_path / "beside" / ".env").read_text() == ".env\n"
    assert (tmp_path / "beside" / "build" / "out").exists() and not (tmp_path / "beside" / "x.log").exists()
    said = holdfast(repo, environ, "checkpoint", "again", "--ignored", "*")
    assert "Kept although git ignores it: .env" in said and "build" not in said
    holdfast(repo, environ, "checkpoint", "wrong", "--ignored", "/etc/*", code=64)


def test_a_checkpoint_is_named_by_one_key_in_all_json(repo, environ):
    holdfast(repo, environ, "init")
    mark = told(repo, environ, "checkpoint", "one")
    name = mark["checkpoint_id"]
    (listed,) = told(repo, environ, "checkpoint", "--list")["checkpoints"]
    (repo / "readme.txt").write_text("changed\n")
    answers = [
        mark,
        listed,
        told(repo, environ, "show", name),
        told(repo, environ, "show", name, "--diff"),
        told(repo, environ, "restore", name, "--in-place", "--preview"),
        told(repo, environ, "restore", name),
        told(repo, environ, "checkpoint", "--drop", name),
    ]
    assert [(one["checkpoint_id"], "checkpoint" in one) for one in answers] == [(name, False)] * len(answers)


def test_a_store_in_the_work_tree_is_never_part_of_a_checkpoint(repo, environ):
    environ = {**environ, "HOLDFAST_STORE": str(repo / "state")}
    (repo / "new.txt").write_text("new\n")
    first = told(repo, environ, "checkpoint", "one", "--ignored", "**")
    made = told(repo, environ, "checkpoint", "--commit", "two")
    for sha in (first["snapshot"], made["snapshot"], made["commit"]):
        assert run(["git", "ls-tree", "-r", "--name-only", sha], repo, environ).split() == ["new.txt", "readme.txt"]
    (repo / "new.txt").write_text("ruined\n")
    told(repo, environ, "restore", made["checkpoint_id"], "--in-place", code=43)
    last = told(repo, environ, "checkpoint", "three")
    (repo / "new.txt").write_text("ruined again\n")
    told(repo, environ, "restore", last["checkpoint_id"], "--in-place")
    assert told(repo, environ, "verify")["schema_version"] == 1
    assert (repo / "state" / "holdfast.db").exists() and (repo / "new.txt").read_text() == "ruined\n"


def test_what_is_not_kept_is_named_truly(repo, environ, tmp_path):
    holdfast(repo, environ, "init")
    run(["git", "config", "filter.evil.clean", "false"], repo, environ)
    (repo / ".gitattributes").write_text("*.evil filter=evil\n")
    (repo / "x.evil").write_text("words\n")
    (repo / "deep").mkdir()
    os.mkfifo(repo / "deep" / "pipe")
    (repo / ".holdfast").mkdir()
    os.mkfifo(repo / ".holdfast" / "pipe")
    (repo / ".gitignore").write_text(".holdfast/\n*.fifo\n")
    os.mkfifo(repo / "x.fifo")
    run(["git", "init", "-q", "inner"], repo, environ)
    os.mkfifo(repo / "inner" / "pipe")
    said = holdfast(repo, environ, "checkpoint", "one").splitlines()
    assert [line for line in said if line.startswith("Not kept")] == [
        "Not kept: deep/pipe: it is a pipe",
        "Not kept: inner/: it is a repository of its own",
    ]
    (kept,) = [line for line in said if line.startswith("Kept")]
    assert kept.startswith("Kept: x.evil: its filter 'evil'") and kept.endswith("it is kept just as it is on disk")
    back = holdfast(repo, environ, "restore", said[0].split()[1].rstrip("."), "--into", str(tmp_path / "back"))
    assert kept in back.splitlines() and (tmp_path / "back" / "x.evil").read_text() == "words\n"


@pytest.mark.parametrize(("commit", "label"), [(None, "Not kept"), ("a" * 40, "Not in the snapshot")])
def test_what_is_not_in_the_snapshot_may_be_in_the_commit(capsys, commit, label):
    from holdfast.cli.checkpoint import show
    from holdfast.engine.workspaces import Mark

    show(Mark("c1", "b" * 40, commit, 0, True, ("big: it is 104,857,601 bytes, and the limit is 104,857,600",)), False)
    assert f"\n{label}: big: it is 104,857,601 bytes" in capsys.readouterr().out


def test_a_milestone_for_a_run_with_a_scope_says_how_many_ignored_files_are_outside(repo, environ):
    holdfast(repo, environ, "init")
    (repo / ".gitignore").write_text(".holdfast/\n*.log\n")
    run(["git", "add", "-A"], repo, environ)
    run(["git", "commit", "-q", "-m", "ready"], repo, environ)
    program = (
        "import holdfast, os\n"
        "with holdfast.run('m', run_id='run-1') as run:\n"
        "    run.workspace('.', allow=['src/**'])\n"
        "    os._exit(0)\n"
    )
    run([sys.executable, "-c", program], repo, environ)
    (repo / "src").mkdir()
    (repo / "src" / "a").write_text("a")
    (repo / "noise.log").write_text("noise")
    assert told(repo, environ, "checkpoint", "one", "run-1", "--commit")["ignored_outside"] == 1
    (repo / "src" / "a").write_text("b")
    assert "Ignored files outside" in holdfast(repo, environ, "checkpoint", "two", "run-1", "--commit")


@pytest.mark.parametrize("at", ["_make", "_complete"])
def test_what_a_killed_checkpoint_left_is_settled_by_the_next_one(repo, environ, at):
    """Killed before its snapshot it is given up, behind its commit it is completed; no milestone has the number of another."""
    holdfast(repo, environ, "init")
    dies = (
        "import os, signal; from holdfast.engine.workspaces import Workspaces; from holdfast.cli import main\n"
        f"Workspaces.{at} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "main()"
    )
    (repo / "one.txt").write_text("1\n")
    run([sys.executable, "-c", dies, "checkpoint", "--commit", "one"], repo, environ, code=-9)
    (repo / "two.txt").write_text("2\n")
    made = told(repo, environ, "checkpoint", "--commit", "two")
    subjects = run(["git", "log", "--format=%s", "-3"], repo, environ).splitlines()
    whole = at == "_complete"
    assert made["index"] == int(whole) and ("checkpoint: one" in subjects) is whole
    assert len(list((repo / ".holdfast" / "checkpoints").glob("*.json"))) == 1 + whole
    assert told(repo, environ, "resume")["unfinished"] == []
    assert "begun and not completed" not in holdfast(repo, environ, "doctor")


def test_a_run_of_somebody_elses_is_not_ended_by_a_checkpoint(repo, environ):
    holdfast(repo, environ, "init")
    work = "import holdfast, os\nwith holdfast.run('workspace') as run:\n run.step('one', int)\n os._exit(9)\n"
    run([sys.executable, "-c", work], repo, environ, code=9)
    holdfast(repo, environ, "checkpoint", "x")
    (row,) = told(repo, environ, "resume")["unfinished"]
    assert row["mission_id"] == "workspace"
