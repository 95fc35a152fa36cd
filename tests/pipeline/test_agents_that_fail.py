"""Every way in which an agent does not deliver: what the run says then, what is kept, and how it goes on."""

from __future__ import annotations

import signal
import time

import pytest

from holdfast.core import stops
from holdfast.core.events import EffectFinished, EffectStarted, SleepEnded, SleepStarted
from tests.pipeline.kit import CHAIN, ONE, QUICK, build, carrying, end, is_stop, report, review, wait_for, write

DONE = [write("kit/words.py", "WORDS = 1\n"), report(implementation_files=["kit/words.py"])]
NO_CHECKS = 'tier1 = [["true"]]'


def one(tmp_path, first, *then, settings=(), **more):
    """A project of one task, whose agent does these things when it is started for the first time, the second ..."""
    return build(tmp_path, ONE, {"implement/T1": [first, *then]}, (*QUICK, *settings), **more)


# --- blocked, crashed, too slow


def test_a_blocked_agent_stops_the_run_and_a_resume_is_another_attempt(tmp_path):
    blocked = [report(status="blocked", blocked_reason="which words?\x1b[31m")]
    project = one(tmp_path, blocked, DONE)
    answer = project.run()
    handed = is_stop(project, answer, "worker_blocked")
    assert "which words?" in str(handed["signals"]) and "\x1b" not in answer.out + answer.err
    assert project.starts("implement/T1") == 1
    assert project.resume().code == 0
    assert (project.starts("implement/T1"), len(project.ended("batch-1/T1/implement (2)"))) == (2, 1)
    assert not (project.top / ".holdfast" / "runs" / project.run_id / "stop.json").exists()


@pytest.mark.parametrize("how", [{"code": 7}, {"signal": signal.SIGSEGV}])
def test_a_crashed_agent_is_not_started_again_by_itself(tmp_path, how):
    """Behaviour 70: partial edits are kept, and whoever goes on is told of them."""
    half = [
        write("kit/words.py", "HALF = 1\n"),
        {"do": "complain", "text": "error: out of luck"},
        {"do": "crash", **how},
    ]
    project = one(tmp_path, half, DONE)
    is_stop(project, project.run(), "worker_failed")
    assert project.starts("implement/T1") == 1
    assert project.read("kit/words.py") == "HALF = 1\n"
    assert project.resume().code == 0
    assert project.starts("implement/T1") == 2
    told = next(text for text in project.prompts() if "# Implement" in text)
    assert "kit/words.py was changed since this work began" in told and "+HALF = 1" in told
    assert project.read("kit/words.py") == "WORDS = 1\n"


def test_an_agent_that_takes_too_long_is_ended(tmp_path):
    project = one(tmp_path, [{"do": "spin", "seconds": 60}], DONE, settings=('timeout = "1s"',), more=NEVER_AGAIN)
    is_stop(project, project.run(), "worker_timeout")
    assert carrying(project.run_id) == []
    assert project.resume().code == 0


NEVER_AGAIN = "\n[auto_resume]\nmax = 0\n"


def test_an_agent_without_a_sign_of_life_is_ended(tmp_path):
    project = one(tmp_path, [{"do": "hang"}], DONE, settings=('stall_after = "1s"',), more=NEVER_AGAIN)
    is_stop(project, project.run(), "stalled")
    assert project.resume().code == 0


def test_a_stall_is_tried_again_by_itself_once_and_then_it_is_a_loop(tmp_path):
    more = "\n[auto_resume]\nmax = 3\ndelays = [0]\n"
    project = one(tmp_path, [{"do": "hang"}], settings=('stall_after = "1s"',), more=more)
    answer = project.run()
    handed = is_stop(project, answer, "stalled")
    assert project.starts("implement/T1") == 2, answer.err
    assert project.kinds().count("RunResumed") == 1
    why = "It does not go on by itself any more (loop_detected): stalled came 2 times at the same place."
    assert why in answer.err and [one["source"] for one in handed["signals"] if one["snippet"] == why] == [
        "auto-resume"
    ]
    (note,) = [text for text in project.notes() if text.startswith("It goes on by itself")]
    assert "automatic resume 1 of 3" in note, "the log tells it from a resume that a person asked for"


def test_a_run_that_went_on_by_itself_as_often_as_it_may_says_so(tmp_path):
    more, stalls = "\n[auto_resume]\nmax = 1\ndelays = [0]\n", [{"do": "hang"}]
    acts = {"implement/T1": [stalls, DONE], "implement/T3": [stalls]}
    project = build(tmp_path, CHAIN, acts, (*QUICK, 'stall_after = "1s"'), more=more)
    answer = project.run()
    handed = is_stop(project, answer, "stalled")
    assert "(exhausted): The automatic resume is used up." in answer.err and "(exhausted)" in str(handed["signals"])
    answer = project.run("--auto-resume", "0")
    is_stop(project, answer, "stalled")
    assert "any more" not in answer.out + answer.err, "nobody wanted it to"


def test_a_stall_that_was_passed_by_itself_goes_on_to_the_end(tmp_path):
    more = "\n[auto_resume]\nmax = 1\ndelays = [0]\n"
    project = one(tmp_path, [{"do": "hang"}], DONE, settings=('stall_after = "1s"',), more=more)
    assert project.run().code == 0
    assert project.starts("implement/T1") == 2


def test_cancelled_while_it_waits_to_go_on_by_itself_it_ends_at_once(tmp_path):
    more = '\n[auto_resume]\nmax = 3\ndelays = ["10m"]\n'
    project = one(tmp_path, [{"do": "hang"}], DONE, settings=('stall_after = "1s"',), more=more)
    process = project.start("run", "text-kit", "--yes")
    wait_for(lambda: project.has_run and "RunStopped" in project.kinds())
    try:
        assert project.holdfast("cancel", project.run_id).code == 0
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == stops.exit_code("cancelled"), err
    assert b"cancelled" in out and project.starts("implement/T1") == 1


# --- reports that cannot be read


def test_a_report_that_cannot_be_read_is_asked_for_again_in_the_same_session(tmp_path):
    broken = [write("kit/words.py", "WORDS = 1\n"), {"do": "say", "text": "BEGIN_JSON\n{not json\nEND_JSON"}]
    project = one(tmp_path, broken, [{"do": "echo"}, report(implementation_files=["kit/words.py"])])
    assert project.run().code == 0
    assert (project.starts("implement/T1"), project.acts("implement/T1", "write")) == (2, 1)
    (again,) = [text for text in project.prompts() if "Your report could not be read." in text]
    assert "Do not repeat any work" in again
    receipt = project.ended("batch-1/T1/implement")[0].receipt
    assert [one["ended_by"] for one in receipt["tries"]] == ["exit"]
    assert b"{not json" in project.artifact(receipt["tries"][0]["output"])
    pids = [line["pid"] for line in project.ledger() if line["act"] == "start" and line["phase"] == "implement"]
    assert receipt["session"] == f"scripted-{pids[0]}"


BROKEN = {"do": "run", "argv": ["sh", "-c", 'printf \'{"status": "success", so far\' > "$HOLDFAST_REPORT"']}


def test_a_report_file_that_cannot_be_read_is_kept_and_the_stop_says_what_was_wrong_with_it(tmp_path):
    """The tries after it wrote none, so what they say is another thing."""
    project = one(tmp_path, [DONE[0], BROKEN], [])
    answer = project.run()
    handed = is_stop(project, answer, "worker_failed")
    assert project.starts("implement/T1") == 3
    assert project.artifact(handed["related_artifacts"]["report.json"]) == b'{"status": "success", so far'
    for told in (answer.out, str(handed["signals"])):
        assert "There was no report file" in told and "The report file is not JSON" in told
    assert handed["primary_diagnosis"] == "worker_parse_failure"
    verified = project.holdfast("verify", "--json")
    assert (verified.code, verified.data.get("findings", [])) == (0, [])


def test_a_folder_where_the_report_belongs_is_no_end(tmp_path):
    folder = {"do": "run", "argv": ["sh", "-c", 'mkdir -p "$HOLDFAST_REPORT" && touch "$HOLDFAST_REPORT/mine"']}
    project = one(tmp_path, [DONE[0], folder], DONE)
    assert project.run().code == 0
    assert project.starts("implement/T1") == 2
    (kept,) = (project.top / ".holdfast" / "runs").glob("*/stages/*/report.json.*/mine")
    assert kept.parent.is_dir()


def test_a_report_file_that_is_asked_for_again_is_in_the_receipt(tmp_path):
    project = one(tmp_path, [DONE[0], BROKEN], DONE)
    assert project.run().code == 0
    (tried,) = project.ended("batch-1/T1/implement")[0].receipt["tries"]
    (file,) = tried["files"]
    assert (file["name"], project.artifact(file["artifact"])[-6:]) == ("report.json", b"so far")


def test_the_next_agent_takes_over_from_one_whose_reports_cannot_be_read(tmp_path):
    settings = ('implement = ["scripted", "second"]', "report_retries = 1")
    mute = [write("kit/words.py", "HALF = 1\n")]
    project = one(tmp_path, mute, settings=settings, others={"second": {"implement/T1": DONE}})
    assert project.run().code == 0
    assert (project.starts("implement/T1"), project.starts("implement/T1", "second")) == (2, 1)
    receipt = project.ended("batch-1/T1/implement")[0].receipt
    assert (receipt["agent"], len(receipt["tries"])) == ("second", 2)
    assert all(one["output"] for one in receipt["tries"])


def test_no_agent_delivers(tmp_path):
    settings = ('implement = ["scripted", "second"]', "report_retries = 0")
    first, second = ([{"do": "say", "text": text}] for text in ("words of the first", "words of the second"))
    project = one(tmp_path, first, settings=settings, others={"second": {"implement/T1": [second]}})
    handed = is_stop(project, project.run(), "worker_failed")
    assert (project.starts("implement/T1"), project.starts("implement/T1", "second")) == (1, 1)
    assert "artifact" in str(handed["signals"])
    assert "words of the second" in project.artifact(handed["related_artifacts"]["output"]).decode()
    page = (project.top / ".holdfast" / "runs" / project.run_id / "stop.md").read_text()
    assert "words of the second" in page.partition("## Last lines")[2]
    notes = [text for text in project.notes() if text.startswith("batch-1/T1/implement: ")]
    kept = [project.artifact(text.rpartition(" ")[2]).decode() for text in notes]
    assert ["words of the first" in kept[0], "words of the second" in kept[1], len(kept)] == [True, True, 2]


def test_a_stop_for_something_else_does_not_show_the_words_of_a_try_that_was_made_good(tmp_path):
    mute = [DONE[0], {"do": "say", "text": "words without a report"}]
    settings = ("report_retries = 1", "max_fix_rounds = 0")
    project = one(tmp_path, mute, DONE, settings=settings, checks='tier1 = [["false"]]')
    handed = is_stop(project, project.run(), "verification_failed")
    assert project.starts("implement/T1") == 2 and not handed["related_artifacts"]
    page = (project.top / ".holdfast" / "runs" / project.run_id / "stop.md").read_text()
    assert "## Last lines" not in page


def test_nothing_changed_needs_something_to_show_for_it(tmp_path):
    claim = [report(status="no_changes_needed")]
    shown = [report(status="no_changes_needed", evidence={"files_checked": ["kit/__init__.py"]})]
    project = one(tmp_path, claim, shown, checks=NO_CHECKS)
    is_stop(project, project.run(), "insufficient_evidence")
    assert project.resume().code == 0


# --- limits


def limit(text):
    return [{"do": "limit", "text": text}]


def test_a_usage_limit_is_waited_out_and_the_run_goes_on(tmp_path):
    project = one(tmp_path, limit("You've hit your usage limit. Try again in 1s."), DONE)
    answer = project.run()
    assert answer.code == 0, answer
    kinds = project.kinds()
    assert kinds.count("SleepStarted") == kinds.count("SleepEnded") == 1
    assert project.starts("implement/T1") == 2 and "waiting" in answer.err


def test_without_waiting_the_run_says_until_when(tmp_path):
    project = one(tmp_path, limit("You've hit your usage limit. Try again in 2h 13m."), DONE)
    answer = project.run("--no-wait")
    handed = is_stop(project, answer, "quota_wait")
    (slept,) = [event for event in project.events() if isinstance(event, SleepStarted)]
    assert slept.until[:16] in str(handed["signals"]) or slept.until[:16] in answer.out


def test_nobody_waits_for_the_limit_of_an_agent_that_is_not_asked_any_more(tmp_path):
    told = {"do": "limit", "text": "You've hit your usage limit. Try again in 2h 13m."}
    project = build(tmp_path, ONE, {"implement/T1": [told]}, QUICK, others={"second": {"implement/T1": DONE}})
    is_stop(project, project.run("--no-wait"), "quota_wait")
    project.write("holdfast.toml", project.read("holdfast.toml").replace("[run]", '[run]\nimplement = ["second"]', 1))
    answer = project.run("--no-wait")
    assert answer.code == 0, answer
    assert (project.starts("implement/T1"), project.starts("implement/T1", "second")) == (1, 1)


def test_a_provider_that_cannot_be_reached_is_no_usage_limit(tmp_path):
    refused = [{"do": "complain", "text": "Error: connect ECONNREFUSED 127.0.0.1:1"}, {"do": "crash", "code": 1}]
    project = one(tmp_path, refused, DONE)
    for _ in range(2):  # as it is met, and as it goes on
        answer = project.run("--no-wait")
        is_stop(project, answer, "sleeping")
        assert "usage limit" not in answer.out + answer.err
    assert project.starts("implement/T1") == 1


def test_a_wait_that_was_killed_is_waited_to_its_end(tmp_path):
    project = one(tmp_path, limit("You've hit your usage limit. Try again in 3s."), DONE)
    process = project.start("run", "text-kit", "--yes")
    wait_for(lambda: project.has_run and "SleepStarted" in project.kinds())
    (slept,) = [event for event in project.events() if isinstance(event, SleepStarted)]
    end(process, signal.SIGKILL)
    assert project.starts("implement/T1") == 1
    assert project.resume().code == 0
    assert time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) >= slept.until[:19]
    events = project.events()
    assert sum(isinstance(event, SleepStarted) for event in events) == 1
    assert sum(isinstance(event, SleepEnded) for event in events) == 1
    assert project.starts("implement/T1") == 2


@pytest.mark.parametrize("act", ["limit", "say"])
def test_a_usage_limit_told_by_an_agent_that_ends_well_is_a_limit_too(tmp_path, act):
    told = [{"do": act, "text": "You've hit your usage limit. Try again in 2h 13m.", "code": 0}]
    project = one(tmp_path, told, DONE)
    is_stop(project, project.run("--no-wait"), "quota_wait")
    assert project.starts("implement/T1") == 1


def test_talk_of_a_usage_limit_beside_a_broken_report_is_only_talk(tmp_path):
    told = [DONE[0], {"do": "say", "text": "BEGIN_JSON\n{no\nEND_JSON\nUsage limit reached: the page shows it now."}]
    project = one(tmp_path, told, DONE)
    assert project.run("--no-wait").code == 0
    assert project.starts("implement/T1") == 2 and "SleepStarted" not in project.kinds()


SIGNED_OUT = [{"do": "complain", "text": "Error: Not logged in. Please run /login"}, {"do": "crash", "code": 1}]


def test_an_agent_that_is_not_signed_in_is_passed_over(tmp_path):
    settings = ('implement = ["scripted", "second"]',)
    project = one(tmp_path, SIGNED_OUT, settings=settings, others={"second": {"implement/T1": DONE}})
    assert project.run().code == 0
    assert (project.starts("implement/T1"), project.starts("implement/T1", "second")) == (1, 1)


def test_nobody_is_signed_in(tmp_path):
    project = one(tmp_path, SIGNED_OUT, DONE)
    is_stop(project, project.run(), "auth_expired")
    assert project.resume().code == 0


def test_what_every_try_of_a_stage_cost_is_told(tmp_path):
    paid = {"do": "say", "text": "cost: 0.25"}
    settings = ('implement = ["scripted", "second"]', "report_retries = 0")
    project = one(tmp_path, [paid], settings=settings, others={"second": {"implement/T1": [paid, *DONE]}})
    answer = project.run()
    assert answer.code == 0 and "$0.50" in answer.err, answer.err
    assert project.ended("batch-1/T1/implement")[0].receipt["money"] == 0.5
    assert "$0.50" in project.holdfast("show", project.run_id).out


def test_the_budget_of_money_is_kept_over_restarts(tmp_path):
    paid = [{"do": "say", "text": "cost: 0.75"}, *DONE]
    acts = {"implement/T1": paid, "implement/T3": paid, "review/*": [{"do": "say", "text": "cost: 0.5"}, review()]}
    project = build(tmp_path, CHAIN, acts, QUICK, more="\n[budget]\nmoney = 1.0\n")
    is_stop(project, project.run(), "budget_exhausted")
    is_stop(project, project.run(), "budget_exhausted")
    assert (project.starts("implement/T1"), project.starts("implement/T3")) == (1, 0)


# --- intent


def test_the_intent_and_the_evidence_are_on_disk_before_the_agent_is(tmp_path):
    """Behaviours 67 and 68: the agent looks for itself what the log and git hold when it starts."""
    look = (
        "import subprocess, pathlib; "
        "pathlib.Path('seen.txt').write_text(subprocess.run(['git', 'for-each-ref', '--format=%(subject)', "
        "'refs/holdfast/checkpoints'], capture_output=True, text=True).stdout)"
    )
    project = one(tmp_path, [{"do": "run", "argv": ["python3", "-c", look]}, *DONE])
    assert project.run().code == 0
    assert project.read("seen.txt").count("\n") >= 1
    events = project.events()
    begun = next(
        place for place, one in enumerate(events) if isinstance(one, EffectStarted) and "implement" in one.step_id
    )
    ended = next(place for place, one in enumerate(events) if isinstance(one, EffectFinished))
    snapshot = next(place for place, one in enumerate(events) if type(one).__name__ == "CheckpointComplete")
    assert snapshot < begun < ended
    assert events[begun].policy == "probed"
