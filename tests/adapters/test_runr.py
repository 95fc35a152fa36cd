"""Runr's folders, real and broken ones: everything readable is read, everything else is named."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import msgspec
import pytest

from holdfast.adapters import runr
from holdfast.adapters.git.touched import CHECKED, touched
from holdfast.adapters.runr import look, read
from holdfast.adapters.runr_shapes import Problem, RunrMilestone, RunrRun, RunrScope, event_of
from holdfast.core.errors import BadFile, NotFound
from holdfast.core.guards import Scope, judge
from tests.adapters.git_kit import Kit

RUN = "20261115221813"
SHA = "a" * 40


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / ".runr"
    (made / "runs" / RUN).mkdir(parents=True)
    (made / "checkpoints").mkdir()
    return made


def put(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


def sidecar(**more):
    known = {"schema_version": 1, "sha": SHA, "run_id": RUN, "milestone_index": 0, "milestone_title": "one"}
    return {**known, "created_at": "2026-11-15T22:18:17.008Z", **more}


def said(problems):
    return [(os.path.basename(one.path), one.line, one.why) for one in problems]


# --- real folders


def test_every_real_folder_is_read_without_a_problem(corpus):
    folders = sorted((corpus / "runr-runs").glob("*/dot-runr"))
    assert len(folders) >= 6
    for place in folders:
        found = look(str(place))
        assert found.problems == () and len(found.runs) == 1, place
        run = found.runs[0]
        state = json.loads((Path(run.path) / "state.json").read_text())
        lines = (Path(run.path) / "timeline.jsonl").read_text().splitlines()
        assert run.problems == () and run.has_state and run.run_id == state["run_id"]
        assert (run.phase, run.milestone_index) == (state["phase"], state["milestone_index"])
        assert list(run.milestones) == [one["goal"] for one in state["milestones"]]
        assert run.stop_reason == state.get("stop_reason") and run.started_at == state["started_at"]
        assert [one.seq for one in run.timeline] == [json.loads(line)["seq"] for line in lines]
        assert run.scope == RunrScope(*(tuple(state["scope_lock"][key]) for key in ("allowlist", "denylist")))
        assert len(run.sidecars) == len(list(place.glob("checkpoints/*.json"))) and found.strays == ()
        assert run.task and run.title == run.task.splitlines()[0].removeprefix("# ") and run.environment["node_version"]
        assert msgspec.json.decode(msgspec.json.encode(run), type=RunrRun) == run


def test_the_milestones_of_a_real_run_have_sidecars_and_events_that_agree(corpus):
    (run,) = read(str(corpus / "runr-runs/happy-3-milestones/dot-runr"))
    made = {
        one.payload["milestone_index"]: one.payload["commit"]
        for one in run.timeline
        if one.type == "checkpoint_complete"
    }
    assert {one.milestone_index: one.sha for one in run.sidecars} == made and sorted(made) == [0, 1, 2]
    assert {one.milestone_title for one in run.sidecars} == {"one", "two", "three"}
    assert run.stop_reason == "complete" and run.checkpoint_sha == made[2]


def test_every_real_orchestration_of_a_legacy_folder_is_read(corpus, tmp_path):
    for path in sorted((corpus / "runr-repo").glob("agent__orchestrations__*")):
        target = tmp_path / ".agent" / "/".join(path.name.split("__")[1:])
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    found = look(str(tmp_path / ".agent"))
    states = sorted((tmp_path / ".agent").glob("orchestrations/*/state.json"))
    assert found.problems == () and len(found.orchestrations) == len(states) >= 6
    for one, path in zip(found.orchestrations, states, strict=True):
        state = json.loads(path.read_text())
        assert (one.orchestrator_id, one.status, one.started_at) == tuple(
            state[key] for key in ("orchestrator_id", "status", "started_at")
        )
        steps = [step for track in state["tracks"] for step in track["steps"]]
        assert [step.run_id for track in one.tracks for step in track.steps] == [step.get("run_id") for step in steps]


def test_the_caches_of_real_tools_trip_the_guards_only_where_they_are_not_ignored(corpus, tmp_path):
    cases = sorted((corpus / "runr-repo").glob("fixtures__guard-torture__*__expect.json"))
    assert len(cases) >= 6
    for number, path in enumerate(cases):
        case = json.loads(path.read_text())
        (tmp_path / str(number)).mkdir()
        kit = Kit(tmp_path / str(number))
        for pattern in case["patterns"]:
            kit.write(pattern.replace("**/", "sub/").replace("*", "x") + ("cache" if pattern.endswith("/") else ""))
        open_, _ = touched(kit.runner(), "HEAD")
        assert (
            bool(judge(Scope(("src/**",)), open_).violations) == case["expected_without_gitignore"]["guard_violation"]
        )
        kit.write(".git/info/exclude", "\n".join(case["patterns"]) + "\n")
        hidden, how = touched(kit.runner(), "HEAD")
        found = judge(Scope(("src/**",)), hidden)
        assert how == CHECKED and found.violations == () and found.ignored_outside >= 1, case


# --- broken ones


def test_what_is_not_runrs_is_refused(tmp_path):
    with pytest.raises(NotFound):
        read(str(tmp_path / "nowhere"))
    with pytest.raises(BadFile, match="nothing of Runr's"):
        read(str(tmp_path))
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadFile):
        read(str(tmp_path / "file"))


def test_a_run_without_a_state_is_read_from_its_timeline(folder):
    put(
        folder / f"runs/{RUN}/timeline.jsonl",
        '{"type":"plan_generated","seq":1,"payload":{"milestones":[{"goal":"one"},{"title":"two"},"three",4]}}\n',
    )
    (run,) = read(str(folder))
    assert not run.has_state and run.phase is None and run.milestone_index is None and run.problems == ()
    assert list(run.milestones) == ["one", "two", "three", ""]


def test_an_empty_run_folder_is_no_run_and_is_named(folder):
    (folder / f"runs/{RUN}/artifacts").mkdir()
    found = look(str(folder))
    assert found.runs == () and said(found.problems) == [(RUN, None, "it holds nothing of a run")]


TORN = {
    "empty": "",
    "cut": "{",
    "cut later": '{"run_id":',
    "a list": "[]",
    "null": "null",
    "not text": "\xff",
    "deep": '{"a":' * 100_000,
    "NaN": '{"x": NaN}',
}


@pytest.mark.parametrize("state", TORN.values(), ids=TORN)
def test_a_torn_state_costs_only_itself(folder, state):
    (folder / f"runs/{RUN}/state.json").write_bytes(state.encode("latin-1"))
    put(folder / f"runs/{RUN}/timeline.jsonl", '{"type":"stop","seq":7}\n')
    found = look(str(folder))
    (run,) = found.runs
    assert not run.has_state and [one.seq for one in run.timeline] == [7] and found.problems == ()
    ((name, line, why),) = said(run.problems)
    assert (name, line) == ("state.json", None) and "JSON" in why


def test_bad_lines_of_a_timeline_are_named_by_their_number(folder, monkeypatch):
    put(folder / f"runs/{RUN}/state.json", {"run_id": RUN})
    lines = [
        '{"type":"one","seq":1,"timestamp":"t","source":"cli","payload":{"a":1},"new_field":[1]}',
        "not json",
        "",
        "[1]",
        '{"seq":4}',
        '{"type":"x","payload":"' + "y" * 1_100_000 + '"}',
        '{"type":"two","seq":"six","payload":[]}',
        '{"type":"to',
    ]
    put(folder / f"runs/{RUN}/timeline.jsonl", "\n".join(lines))
    (run,) = read(str(folder))
    assert [(one.type, one.line, one.seq, one.payload) for one in run.timeline] == [
        ("one", 1, 1, {"a": 1}),
        ("two", 7, None, {}),
    ]
    assert [(one.path.endswith(f"{RUN}/timeline.jsonl"), one.line) for one in run.problems] == [
        (True, number) for number in (2, 4, 5, 6, 8)
    ]
    assert "1,048,576" in run.problems[3].why


def test_fields_of_another_type_are_unknown_and_named(folder):
    put(
        folder / f"runs/{RUN}/state.json",
        {
            "run_id": "other",
            "phase": 3,
            "milestone_index": True,
            "milestones": "x",
            "stop_reason": None,
            "scope_lock": 1,
        },
    )
    put(folder / "runr.config.json", {"scope": {"allowlist": ["src/**", 5], "denylist": "no"}})
    (run,) = read(str(folder))
    assert (run.run_id, run.phase, run.milestone_index, run.milestones, run.stop_reason) == (RUN, None, None, (), None)
    assert run.scope == RunrScope(("src/**",), ())
    assert sorted(one.why.split(" ")[0] for one in run.problems) == [
        "`milestone_index`",
        "`milestones`",
        "`phase`",
        "it",
    ]


def test_the_scope_comes_from_the_state_then_the_snapshot_then_the_folder(folder):
    place = folder / "runs" / RUN
    put(folder / "agent.config.json", {"scope": {"allowlist": ["folder"]}})
    put(place / "timeline.jsonl", "")
    assert read(str(folder))[0].scope == RunrScope(("folder",))
    put(place / "config.snapshot.json", {"scope": {"allowlist": ["snapshot"], "denylist": ["d"]}})
    assert read(str(folder))[0].scope == RunrScope(("snapshot",), ("d",))
    put(place / "state.json", {"run_id": RUN, "scope_lock": {"allowlist": ["state"]}})
    assert read(str(folder))[0].scope == RunrScope(("state",))


def test_good_sidecars_go_to_their_run_and_strays_are_kept_apart(folder):
    put(folder / f"runs/{RUN}/state.json", {"run_id": RUN})
    put(folder / f"checkpoints/{SHA}.json", sidecar(tier="tier0", verification_commands=["true"], later="field"))
    put(folder / f"checkpoints/{'b' * 40}.json", sidecar(sha="b" * 40, run_id="gone"))
    put(folder / "checkpoints/index.json", {})
    found = look(str(folder))
    (mine,) = found.runs[0].sidecars
    assert (mine.sha, mine.tier, mine.verification_commands) == (SHA, "tier0", ("true",))
    assert [(one.run_id, one.tier, one.verification_commands) for one in found.strays] == [("gone", None, None)]
    assert found.problems == ()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "it is not JSON"),
        ("{}", "it has no schema_version"),
        (sidecar(schema_version=999), "schema_version 999"),
        (sidecar(schema_version=True), "its schema_version is True"),
        (sidecar(schema_version="1"), "its schema_version is '1'"),
        (sidecar(sha="b" * 40), "it is about"),
        (sidecar(milestone_index=-1), "its milestone_index -1"),
        (sidecar(milestone_index=1.5), "of the wrong type"),
        (sidecar(milestone_index=None), "of the wrong type"),
        (json.dumps(sidecar()).replace('"milestone_index": 0', '"milestone_index": NaN'), "it is not JSON"),
        (sidecar(run_id=7), "of the wrong type"),
        (sidecar(milestone_title="x" * 70_000), "bytes; the limit is 65,536"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 40 else "",
)
def test_a_bad_sidecar_is_skipped_with_the_reason(folder, content, why):
    put(folder / f"checkpoints/{SHA}.json", content)
    put(folder / f"runs/{RUN}/state.json", {"run_id": RUN})
    found = look(str(folder))
    assert found.runs[0].sidecars == () and found.strays == ()
    ((name, _, reason),) = said(found.problems)
    assert name == f"{SHA}.json" and why in reason


def test_links_are_refused_and_nothing_behind_them_is_read(folder, tmp_path):
    secret = tmp_path / "secret"
    put(secret / "state.json", {"run_id": "linked", "phase": "SECRET"})
    os.symlink(secret, folder / "runs" / "linked")
    os.symlink(secret / "state.json", folder / f"runs/{RUN}/state.json")
    put(folder / f"runs/{RUN}/timeline.jsonl", '{"type":"x"}\n')
    os.symlink(secret / "state.json", folder / f"checkpoints/{SHA}.json")
    os.symlink(secret, folder / "orchestrations")
    found = look(str(folder))
    (run,) = found.runs
    assert run.phase is None and said(run.problems) == [("state.json", None, "it is a symbolic link")]
    assert sorted(name for name, _, _ in said(found.problems)) == [f"{SHA}.json", "linked", "orchestrations"]
    os.symlink(folder, tmp_path / "all")
    with pytest.raises(BadFile, match="symbolic link"):
        read(str(tmp_path / "all"))


def test_pipes_and_strange_entries_do_not_hold_it_up(folder):
    os.mkfifo(folder / f"runs/{RUN}/state.json")
    os.mkfifo(folder / f"runs/{RUN}/timeline.jsonl")
    put(folder / "runs/ux-breadcrumbs.jsonl", "{}")
    put(folder / "runs/notes.txt", "x")
    found = look(str(folder))
    assert said(found.problems) == [("notes.txt", None, "it is not the folder of a run")]
    assert [name for name, _, _ in said(found.runs[0].problems)] == ["state.json", "timeline.jsonl"]


def test_everything_is_bounded_and_what_is_left_out_is_said(folder, monkeypatch):
    for number in range(5):
        put(folder / f"runs/{number}/timeline.jsonl", '{"type":"x"}\n' * 4)
    monkeypatch.setattr(runr, "MOST", 3)
    monkeypatch.setattr(runr, "MOST_EVENTS", 2)
    found = look(str(folder))
    assert [run.run_id for run in found.runs] == ["0", "1", "2"] and [len(run.timeline) for run in found.runs] == [
        2,
        2,
        2,
    ]
    assert "only 3 of its 6 entries" in found.problems[0].why
    assert found.runs[0].problems == (
        Problem(str(folder / "runs/0/timeline.jsonl"), "only the first 2 events were read", 3),
    )
    monkeypatch.setattr(runr, "MOST_PROBLEMS", 2)
    put(folder / "runs/0/timeline.jsonl", "bad\n" * 100)
    problems = read(str(folder))[0].problems
    assert len(problems) == 3 and "more problems" in problems[-1].why


def test_nothing_is_written(folder):
    put(folder / f"runs/{RUN}/state.json", {"run_id": RUN, "milestones": [{"goal": "x", "done_checks": ["y", 1]}]})
    put(folder / "active.json", {"run_id": RUN, "status": "RUNNING"})
    before = sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*"))
    found = look(str(folder))
    assert found.active == RUN and found.runs[0].plan == (RunrMilestone("x", (), ("y",)),)
    assert sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*")) == before


def test_a_run_is_called_by_the_first_line_of_its_task(folder):
    place = folder / "runs" / RUN
    put(place / "timeline.jsonl", "")
    assert read(str(folder))[0].title == RUN
    put(place / "artifacts/task.md", "\n#\n## The task \nmore")
    assert read(str(folder))[0].title == "The task"
    put(place / "artifacts/task.md", "x" * 1000)
    assert len(read(str(folder))[0].title) == 200


def test_a_problem_can_be_printed():
    assert str(Problem("/x/state.json", "it is torn")) == "/x/state.json: it is torn"
    assert str(Problem("/x/timeline.jsonl", "it is torn", 3)) == "/x/timeline.jsonl, line 3: it is torn"


def test_an_event_is_an_object_with_a_type():
    assert event_of(b'{"type": 5}', 1) == "it has no `type`"
    assert event_of(b'"x"', 1) == "it is JSON, but not an object"
