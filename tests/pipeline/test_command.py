"""`holdfast run -- COMMAND`: one durable step, whose outcome is known or said to be unknown."""

from __future__ import annotations

import json
import signal
import sys

import pytest

from holdfast.core import stops
from tests.pipeline.kit import Project, carrying, end, wait_for

COUNT = "open('count', 'a').write('x')"
WAITS = [sys.executable, "-c", f"import time; {COUNT}; time.sleep(0 if len(open('count').read()) > 1 else 60)"]


@pytest.fixture
def project(tmp_path):
    """A folder of its own, in no repository."""
    made = Project(tmp_path)
    made.top.mkdir()
    made.home.mkdir()
    made.store_at = made.home / ".local" / "share" / "holdfast" / "holdfast.db"
    return made


def run(project, *command, options=()):
    return project.holdfast("run", *options, "--", *command)


def python(project, code, *options):
    return run(project, sys.executable, "-c", code, options=options)


def times(project):
    path = project.top / "count"
    return len(path.read_text()) if path.exists() else 0


def test_output_goes_through_and_is_kept(project):
    code = f"import sys; {COUNT}; print('to stdout'); print('to stderr', file=sys.stderr)"
    answer = python(project, code)
    assert (answer.code, answer.out) == (0, "to stdout\n") and "to stderr\n" in answer.err
    (ended,) = project.ended("command")
    assert ended.receipt["exit_code"] == 0
    assert sorted(project.artifact(ended.receipt["output"]).decode().split("\n")) == ["", "to stderr", "to stdout"]


def test_a_secret_in_a_long_command_is_not_cut_in_half_in_the_title_of_its_run(project):
    secret = "gh" + "p_" + "a1B2c3D4e5" * 3 + "F6g7H8"
    assert run(project, "sh", "-c", f": {'x' * 55} {secret}").code == 0
    begun = project.events()[0]
    assert begun.title.startswith("sh -c ': xxx") and secret[:6] not in begun.title


def test_a_word_that_is_no_text_is_refused_in_words_before_anything_is_done(project):
    answer = run(project, "touch", "a\udcff")
    assert (answer.code, answer.err.splitlines()[0]) == (
        64,
        r"holdfast: The argument 'a\udcff' is not UTF-8, and a log holds only text.",
    )
    assert not project.has_run and list(project.top.iterdir()) == []


def test_what_is_done_is_a_run_of_its_own_each_time(project):
    assert [python(project, COUNT).code for _ in range(2)] == [0, 0]
    assert times(project) == 2 == len(project.run_ids())


def test_beside_json_the_output_goes_to_stderr(project):
    answer = python(project, "print('hello')", "--json")
    assert (answer.code, answer.data["exit_code"], answer.err) == (0, 0, "hello\n")


def test_beside_json_why_it_stopped_is_a_json_line_too(project):
    answer = python(project, "raise SystemExit(3)", "--json")
    assert (answer.code, answer.data["stop_reason"]) == (stops.exit_code("step_failed"), "step_failed")
    (said,) = map(json.loads, answer.err.splitlines())
    assert said["moment"] == "note" and "exit code 3" in said["text"]


def test_arguments_are_arguments_and_no_shell_sees_them(project):
    answer = run(
        project, sys.executable, "-c", "import sys; print(sys.argv[1:])", "$(touch a)", "; touch b", "--json", "*"
    )
    assert answer.out == "['$(touch a)', '; touch b', '--json', '*']\n"
    assert list(project.top.iterdir()) == []


def test_a_command_that_fails_is_tried_again_when_it_is_started_again(project):
    code = f"import sys; {COUNT}; sys.exit(len(open('count').read()) < 3)"
    for attempt in (1, 2):
        answer = python(project, code)
        assert answer.code == stops.exit_code("step_failed"), answer
        assert times(project) == attempt
    assert python(project, code).code == 0
    assert times(project) == 3 and len(project.run_ids()) == 1


def test_a_command_that_is_not_there(project):
    answer = run(project, "no-such-program-here")
    assert answer.code != 0 and "no-such-program-here" in answer.err + answer.out
    assert "Traceback" not in answer.err


def killed(project, number=signal.SIGKILL, options=()):
    process = project.start("run", *options, "--", *WAITS)
    wait_for(lambda: times(project) == 1)
    wait_for(lambda: project.has_run and carrying(project.run_id))
    return end(process, number)


def test_killed_while_it_ran_its_outcome_is_unknown_until_somebody_says(project):
    killed(project)
    answer = run(project, *WAITS)
    assert answer.code == stops.exit_code("effect_unknown"), answer
    assert times(project) == 1 and carrying(project.run_id) == []
    again = run(project, *WAITS)
    assert again.code == stops.exit_code("effect_unknown") and times(project) == 1


@pytest.mark.parametrize(("said", "expected"), [("--not-done", 2), ("--done", 1)])
def test_both_ways_to_settle_it_lead_on(project, said, expected):
    """Not done: it is run. Done: it is not run again, and that is no failure."""
    killed(project)
    assert run(project, *WAITS).code == stops.exit_code("effect_unknown")
    (key,) = {event.effect_key for event in project.events() if type(event).__name__ == "EffectStarted"}
    settled = project.holdfast("settle", project.run_id, key, said)
    assert settled.code == 0, settled
    answer = run(project, *WAITS)
    assert (answer.code, times(project)) == (0, expected), answer


def test_one_that_may_be_repeated_is_run_again(project):
    killed(project, options=("--policy", "idempotent"))
    answer = run(project, *WAITS, options=("--policy", "idempotent"))
    assert (answer.code, times(project)) == (0, 2), answer


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_a_closed_terminal_and_a_shutdown_end_it_and_say_so(project, number):
    answer = killed(project, number)
    assert answer.code == 130, answer
    assert carrying(project.run_id) == [] and len(project.run_ids()) == 1
    after = run(project, *WAITS)
    assert after.code == stops.exit_code("effect_unknown"), after


def test_under_nohup_a_closed_terminal_does_not_end_it(project):
    kept = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = project.start(
            "run", "--", sys.executable, "-c", f"import time; {COUNT}; time.sleep(1); print('whole')"
        )
    finally:
        signal.signal(signal.SIGHUP, kept)
    wait_for(lambda: times(project) == 1)
    process.send_signal(signal.SIGHUP)
    assert process.communicate(timeout=60)[0] == b"whole\n"
    assert process.returncode == 0


def test_what_it_prints_goes_through_byte_for_byte(project):
    code = "import os; os.write(1, bytes(range(256)) + b'no end of a line')"
    done = project.start("run", "--", sys.executable, "-c", code)
    assert done.communicate(timeout=60)[0] == bytes(range(256)) + b"no end of a line"


def test_its_standard_input_is_empty(project):
    assert python(project, "import sys; print(repr(sys.stdin.read()))").out == "''\n"


def test_resumed_it_is_the_same_step_and_not_begun_behind_the_log(project):
    """What nobody knows the outcome of is not started again, whichever verb is asked."""
    killed(project)
    answer = project.holdfast("resume", project.run_id, "--", *WAITS)
    assert answer.code == stops.exit_code("effect_unknown"), answer
    assert times(project) == 1 and carrying(project.run_id) == []
    (effect,) = (event for event in project.events() if type(event).__name__ == "EffectSettled")
    assert effect.evidence.endswith(" was ended"), effect


def test_resumed_after_it_failed_it_is_tried_again_in_the_same_run(project):
    code = f"import sys; {COUNT}; sys.exit(len(open('count').read()) < 2)"
    assert python(project, code).code == stops.exit_code("step_failed")
    answer = project.holdfast("resume", project.run_id, "--", sys.executable, "-c", code)
    assert (answer.code, times(project), len(project.run_ids())) == (0, 2, 1), answer
    assert "RunFinished" in [type(event).__name__ for event in project.events()]


def test_another_command_does_not_go_on_with_it(project):
    assert python(project, f"import sys; {COUNT}; sys.exit(1)").code == stops.exit_code("step_failed")
    answer = project.holdfast("resume", project.run_id, "--", sys.executable, "-c", COUNT)
    assert answer.code == stops.exit_code("usage_error") and times(project) == 1, answer


def test_what_may_be_repeated_may_be_repeated_by_resume_too(project):
    killed(project, options=("--policy", "idempotent"))
    answer = project.holdfast("resume", project.run_id, "--", *WAITS)
    assert (answer.code, times(project)) == (0, 2), answer


def test_by_resume_it_is_begun_anew_as_it_was_begun_last(project):
    code = f"import sys; {COUNT}; sys.exit(1)"
    assert python(project, code, "--policy", "idempotent").code == stops.exit_code("step_failed")
    assert python(project, code).code == stops.exit_code("step_failed")
    project.holdfast("resume", project.run_id, "--", sys.executable, "-c", code)
    begun = [event.policy for event in project.events() if type(event).__name__ == "EffectStarted"]
    assert begun == ["idempotent", "probed", "probed"], "the trace of a command that is done once is asked"


def test_a_spec_and_a_command_are_not_both_given(project):
    assert project.holdfast("run", "spec", "--", "true").code == stops.exit_code("usage_error")
    assert project.holdfast("run").code == stops.exit_code("usage_error")
