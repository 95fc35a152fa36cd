"""What a run of a spec tells, keeps and carries on: deferred issues, lines for programs, output of those who were killed."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from contextlib import suppress

import pytest

from holdfast.core import stops
from holdfast.core.events import EffectSettled, StepFinished
from tests.pipeline.kit import (
    CHAIN,
    NOTHING,
    ONE,
    QUICK,
    SPEC,
    STARTED,
    TWO,
    Answer,
    Project,
    build,
    carrying,
    is_stop,
    report,
    review,
    wait_for,
    write,
)

CHECKPOINT = f"specs/active/{SPEC}/checkpoint.yaml"
DONE = [write("kit/words.py", "WORDS = 1\n"), report(implementation_files=["kit/words.py"])]
MEDIUM = {"severity": "medium", "location": "kit/words.py:1", "description": "hm", "gate": "style", "task": "T1"}


# --- on a terminal


def on_terminal(project, *arguments):
    """The exit code, and all that a terminal of 100 columns was sent."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    command, environ = [sys.executable, "-m", "holdfast", *arguments], project.environ(TERM="xterm")
    process = subprocess.Popen(
        command, cwd=project.top, env=environ, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    sent = b""
    with suppress(OSError):  # so a terminal ends
        while data := os.read(ours, 65536):
            sent += data
    os.close(ours)
    return process.wait(), sent.decode()


def test_a_terminal_shows_what_is_going_on_and_nobody_who_is_gone(tmp_path):
    slow = [
        {"do": "say", "text": "cost: 0.25"},
        {"do": "say", "text": "\x1b[2Jhalf way"},
        {"do": "sleep", "seconds": 1},
    ]
    acts = {"implement/T1": DONE, "implement/T3": [*slow, write("kit/count.py", "N = 1\n"), report()]}
    dead = {"review/batch-1/1": [{"do": "crash"}]}
    project = build(tmp_path, CHAIN, acts, (*QUICK, 'reviewers = ["scripted", "second"]'), others={"second": dead})
    code, sent = on_terminal(project, "run", SPEC, "--yes")
    assert code == 0, sent
    before, after = sent.split("batch 2 of 2: T3\r\n", 1)
    frames = after.partition("batch 2 of 2: T3; ")[2]  # the one before was painted before the batch began
    assert "batch-1/review-1/second" in before and "batch-1/review-1/second  " not in frames
    assert "batch-2/T3/implement  scripted  " in after and "\\x1b[2Jhalf way" in after
    assert "batch 2 of 2: T3; " in after and "s, $0.25; Ctrl-C" in after


# --- deferred issues


def test_a_deferred_issue_that_a_person_took_out_does_not_come_back(tmp_path):
    blocked = [[report(status="blocked", blocked_reason="wait")], [write("kit/count.py", "N = 1\n"), report()]]
    other = {**MEDIUM, "description": "another", "task": "T3"}
    acts = {
        "implement/T1": DONE,
        "implement/T3": blocked,
        "review/batch-1/1": [review(MEDIUM)],
        "review/batch-2/1": [review(MEDIUM, other)],
        "review/*": [review(MEDIUM)],
    }
    project = build(tmp_path, CHAIN, acts, QUICK)
    is_stop(project, project.run(), "worker_blocked")
    text = project.read(CHECKPOINT)
    start, end = text.index("  deferred_issues:"), text.index("\n  # Who reviews")
    assert 'description: "hm"' in text[start:end]
    project.write(CHECKPOINT, f"{text[:start]}  deferred_issues: []\n{text[end:]}")
    assert project.resume().code == 0
    kept = project.read(CHECKPOINT)
    assert 'description: "hm"' not in kept and kept.count('description: "another"') == 1


@pytest.mark.parametrize(
    "taken",
    [
        {"do": "run", "argv": ["rm", CHECKPOINT]},
        write(CHECKPOINT, "checkpoint:\n  last_batch: 99\n  deferred_issues: []\n"),
    ],
)
def test_a_deferred_issue_that_an_agent_took_out_is_put_back(tmp_path, taken):
    acts = {
        "implement/T1": DONE,
        "implement/T3": [taken, write("kit/count.py", "N = 1\n"), report()],
        "review/batch-1/1": [review(MEDIUM)],
        "review/*": [review()],
    }
    project = build(tmp_path, CHAIN, acts, QUICK)
    project.killed_on("after step_finished batch-1/closed")
    assert project.run("--new").code == 0  # which has not found it itself
    kept = project.git("show", f"HEAD:{CHECKPOINT}")
    assert kept.count("id: M001") == 1 and "last_batch: 2\n" in kept
    assert any("M001 went out of it while agents were at work" in text for text in project.notes()), project.notes()


# --- lines for programs


def lines_of(answer: Answer) -> list[dict[str, str]]:
    return [json.loads(line) for line in answer.err.splitlines()]


def test_with_json_every_line_on_standard_error_is_an_object(tmp_path):
    acts = {"implement/T1": DONE, "implement/T3": [[report(status="blocked", blocked_reason="wait")], []]}
    project = build(tmp_path, CHAIN, acts, (*QUICK, "report_retries = 0"))
    untrusted = project.holdfast("run", SPEC, "--json")
    assert [line["moment"] for line in lines_of(untrusted)] == ["error"] and untrusted.data["error"]["reason"]
    assert lines_of(untrusted)[0]["name"] == "untrusted"
    told = lines_of(project.run("--json"))
    assert {line["moment"] for line in told} == {"batch", "start", "end", "commit", "note"}
    assert any("stopped: worker_blocked" in line["text"] for line in told)
    project.write("kit/mine.py", "MINE = 1\n")
    told = lines_of(project.resume("--json"))
    assert any("stopped: worker_failed" in line["text"] for line in told)
    assert [line["moment"] for line in lines_of(project.holdfast("resume", "nobody", "--json"))] == ["error"]


def test_the_command_that_shows_what_comes_next_only_shows_it(tmp_path):
    project = build(tmp_path, ONE, {"implement/T1": [[report(status="blocked", blocked_reason="wait")], DONE]}, QUICK)
    (said,) = [line["text"] for line in lines_of(project.run("--json")) if "shows what comes next" in line["text"]]
    command = re.search("`holdfast ([^`]+)` shows what comes next", said)
    assert command is not None
    before = project.kinds()
    answer = project.holdfast(*command[1].split())
    assert answer.code == 0 and "verdict" in answer.out
    assert project.kinds() == before and project.starts("implement/T1") == 1


# --- what an agent had said when it was killed


def heard(project: Project) -> bool:
    return any(b"so far" in path.read_bytes() for path in project.top.glob(".holdfast/runs/*/stages/*/output.log"))


def killed_in(project: Project, stage: str) -> None:
    """Kill the run and its agents in the middle of a stage, when what the agent says has been heard."""
    process = project.start("run", SPEC, "--yes")
    STARTED.append((project, process))
    wait_for(lambda: project.starts(stage) and heard(project))
    process.kill()
    process.communicate()
    for pid in carrying(project.run_id):
        os.kill(pid, signal.SIGKILL)


def half_a_report(text):
    """A report that is being written when the agent says its word."""
    return {"do": "run", "argv": ["sh", "-c", f"printf %s '{text}' > \"$HOLDFAST_REPORT\""]}


SAY = [{"do": "say", "text": "as it was so far"}, {"do": "sleep", "seconds": 60}]


def test_the_output_of_an_agent_that_was_killed_is_kept_and_named_once(tmp_path):
    project = build(tmp_path, ONE, {"implement/T1": [[half_a_report("half of it"), *SAY], DONE]}, QUICK)
    killed_in(project, "implement/T1")
    assert project.resume().code == 0
    (settled,) = [one for one in project.events() if isinstance(one, EffectSettled)]
    digest = settled.evidence.partition("its output is artifact ")[2]
    (note,) = [text for text in project.notes() if digest in text]
    assert project.artifact(note.partition("report.json file: artifact ")[2][:64]) == b"half of it"
    assert b"as it was so far" in project.artifact(digest)
    assert "as it was so far" in project.holdfast("show", project.run_id, digest, "--raw").out


def test_it_is_named_whole_however_many_files_it_had_changed(tmp_path):
    files = [write(f"kit/{'long_' * 8}{number}.py", "HALF = 1\n") for number in range(4)]
    project = build(tmp_path, ONE, {"implement/T1": [[*files, *SAY], DONE]}, QUICK)
    killed_in(project, "implement/T1")
    assert project.resume().code == 0
    (note,) = [text for text in project.notes() if text.startswith("batch-1/T1/implement: left by an earlier start")]
    assert b"as it was so far" in project.artifact(note.partition("output: artifact ")[2])


def test_so_is_that_of_a_reviewer(tmp_path):
    project = build(
        tmp_path,
        ONE,
        {"implement/T1": DONE, "review/batch-1/1": [[half_a_report("half of it"), *SAY], [review()]]},
        QUICK,
    )
    killed_in(project, "review/batch-1/1")
    assert project.resume().code == 0
    (file,) = [one for one in project.events() if isinstance(one, StepFinished) and "cut off, report" in one.step_id]
    assert project.artifact(file.output["artifact"]) == b"half of it"
    (kept,) = [one for one in project.events() if isinstance(one, StepFinished) and "cut off, output" in one.step_id]
    assert b"as it was so far" in project.artifact(kept.output["output"])


def test_what_was_said_before_a_report_that_was_delivered_is_all_kept(tmp_path):
    last = {"do": "report", "with": {"status": "success", "implementation_files": ["kit/words.py"]}}
    long = [
        {"do": "say", "text": "the beginning " + "x" * 9000 + " so far"},
        DONE[0],
        last,
        {"do": "sleep", "seconds": 60},
    ]
    project = build(tmp_path, ONE, {"implement/T1": [long]}, QUICK)
    process = project.start("run", SPEC, "--yes")
    STARTED.append((project, process))
    wait_for(lambda: heard(project) and list(project.top.glob(".holdfast/runs/*/stages/*/report.json")))
    process.kill()
    process.communicate()
    assert project.resume().code == 0
    (settled,) = [one for one in project.events() if isinstance(one, EffectSettled)]
    assert b"the beginning" in project.artifact(settled.receipt["output"])


# --- a success without a change


def test_a_success_that_changed_no_file_is_no_success_unless_it_shows_why(tmp_path):
    claim = [report(implementation_files=["kit/words.py"])]
    project = build(tmp_path, ONE, {"implement/T1": [claim, DONE]}, QUICK)
    handed = is_stop(project, project.run(), "insufficient_evidence")
    assert "changed no file" in str(handed["signals"])
    assert project.resume().code == 0
    assert project.starts("implement/T1") == 2
    assert any("an earlier attempt does not count" in text for text in project.prompts())


def test_with_something_to_show_it_passes(tmp_path):
    shown = [report(evidence={"commands_run": [{"command": "true", "exit_code": 0}]})]
    project = build(tmp_path, ONE, {"implement/T1": shown}, QUICK)
    assert project.run().code == 0


@pytest.mark.parametrize("parallel", [1, 2])
def test_the_tests_of_a_task_are_not_its_implementation(tmp_path, parallel):
    acts = {
        "test/T1": [write("tests/test_words.py", NOTHING), report(test_files=["./tests/test_words.py"])],
        "implement/T1": [report()],
    }
    project = build(tmp_path, TWO, acts, (f"parallel = {parallel}",))
    is_stop(project, project.run(), "insufficient_evidence")


def test_what_a_person_did_by_hand_after_that_counts(tmp_path):
    project = build(tmp_path, ONE, {"implement/T1": [report()]}, QUICK)
    is_stop(project, project.run(), "insufficient_evidence")
    project.write("kit/words.py", "WORDS = 1\n")
    assert project.resume().code == 0
    assert "kit/words.py" in project.tree()


# --- files that git does not take, or that have no name of letters


def test_a_spec_that_git_ignores_is_told_of_once(tmp_path):
    blocked = [[report(status="blocked", blocked_reason="wait")], [write("kit/count.py", "N = 1\n"), report()]]
    project = build(tmp_path, CHAIN, {"implement/T1": DONE, "implement/T3": blocked}, QUICK)
    project.git("rm", "-rq", "--cached", "specs")
    project.write(".gitignore", "__pycache__/\nspecs/\n")
    project.commit()
    answer = project.run()
    assert "checkpoint.yaml: written after each batch all the same, and in no commit" in answer.err
    assert project.resume().code == 0
    assert sum("git ignores specs/active/text-kit/tasks.yaml" in text for text in project.notes()) == 1


def test_one_that_is_tracked_is_not(tmp_path):
    project = build(tmp_path, ONE, {"implement/T1": DONE}, QUICK)
    project.write(".gitignore", "__pycache__/\nspecs/\n")
    project.write(CHECKPOINT, "checkpoint: {}\n")
    project.git("add", "-f", CHECKPOINT)
    project.commit()
    assert project.run().code == 0
    assert not any("git ignores" in text for text in project.notes())


NAMED = {"do": "run", "argv": ["sh", "-c", "touch \"kit/$(printf 'a\\351b')\""]}


@pytest.mark.parametrize("spec", [ONE, TWO], ids=["alone", "parallel"])
def test_a_file_whose_name_is_no_text_is_committed_like_any_other(tmp_path, spec):
    acts = {"implement/T1": [[NAMED, *SAY], [*DONE]]}
    project = build(tmp_path, spec, acts, QUICK)
    killed_in(project, "implement/T1")
    assert project.resume().code == 0
    assert r"kit/a\351b" in project.git("ls-tree", "-r", "--name-only", "HEAD")
    assert any(r"kit/a\udce9b" in one.evidence for one in project.events() if isinstance(one, EffectSettled))


# --- a spec that is over


def test_a_spec_that_is_complete_is_said_to_be_and_what_can_be_done(tmp_path):
    project = build(tmp_path, ONE, {"implement/T1": DONE}, QUICK)
    assert project.run().code == 0
    answer = project.resume()
    assert answer.code == stops.exit_code("not_resumable")
    assert f"The last run of text-kit is complete: {project.run_id}." in answer.err
    assert "`holdfast run text-kit`" in answer.err
    assert project.holdfast("show", project.run_id).code == 0
    project.write("kit/words.py", "WORDS = 2\n")
    project.commit()
    assert project.run("--plan").code == 0


def test_so_is_one_that_was_cancelled(tmp_path):
    project = build(tmp_path, ONE, {"implement/T1": [report(status="blocked")]}, QUICK)
    is_stop(project, project.run(), "worker_blocked")
    assert project.holdfast("cancel", project.run_id).code == 0
    assert "The last run of text-kit ended for good (cancelled)" in project.resume().err
