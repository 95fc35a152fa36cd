"""What a stop leaves for the next one: complete, short, and proof against text that wants to be advice."""

import json
import re
import shlex

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.verbs import cli
from holdfast.core import stops
from holdfast.core.diagnosis import Signal, diagnose
from holdfast.core.handoff import Context, Handoff, file_stem, handoff, span, to_json, to_markdown
from holdfast.core.shapes import EffectState, QuestionState, RunState

AT = "2026-01-01T00:00:00.000000Z"
KEYS = """schema_version run_id outcome stop_reason stop_reason_family exit_code primary_diagnosis diagnosis confidence signals
next_actions resume_command resumes_at resumable auto_resumable related_artifacts progress diagnosed_at"""
every_stop = pytest.mark.parametrize("stop", stops.all_stops(), ids=lambda stop: stop.code)


def parses(text: str) -> bool:
    """Whether our own command line understands it, without doing it."""
    program, verb, *rest = shlex.split(text)
    command = cli.get_command(click.Context(cli), verb)
    assert program == "holdfast" and command is not None
    command.make_context(verb, rest)
    return True


def hand(reason: str, signals=(), context: Context | None = None, **more) -> Handoff:
    state = RunState(run_id="run-1", title="a title", status="stopped", stop_reason=reason, **more)
    return handoff(state, diagnose(state, [], signals), context or Context(AT))


def full_context(text: str, lines: int = 40) -> Context:
    kept = {f"{text}{number}": text for number in range(30)}
    return Context(AT, text, text, text, (text,) * lines, kept, {f"{text}{number}": number for number in range(30)})


# --- every stop


@every_stop
def test_every_stop_advises_at_most_three_commands_and_all_of_them_parse(stop):
    handed = hand(stop.code)
    assert 1 <= len(handed.actions) <= 3
    assert all(parses(action.command) and action.title and action.why for action in handed.actions)
    assert (handed.resume_command is not None) == stop.resumable
    assert handed.resume_command in (None, "holdfast resume run-1")


@pytest.mark.parametrize(
    ("mission", "reason", "said"),
    [
        ("spec.auth", "step_failed", {"Go on"}),
        ("nightly", "step_failed", {"See what comes next"}),
        ("spec.auth", "drift_refused", {"See what comes next", "Go on"}),
        ("nightly", "branch_differs", {"See what comes next"}),
    ],
)
def test_only_what_goes_on_is_said_to_go_on(mission, reason, said):
    """`--plan` writes nothing, and a run that is a program's own is not gone on with by Holdfast."""
    found = {action.title for action in hand(reason, mission_id=mission).actions if " resume " in action.command}
    assert found == said


def test_a_run_that_waits_says_until_when():
    later = "2026-01-01T05:00:00.000000Z"
    handed = hand("quota_wait", sleeps={"woken": None, "limit": later})
    assert json.loads(to_json(handed))["resumes_at"] == later
    assert hand("quota_wait", sleeps={"woken": None}).resumes_at is None


@every_stop
def test_the_json_of_every_stop_has_every_key(stop):
    data = json.loads(to_json(hand(stop.code, [Signal("step", "no space left on device")])))
    assert list(data) == KEYS.split()
    assert (data["schema_version"], data["run_id"], data["diagnosed_at"]) == (1, "run-1", AT)
    assert (data["stop_reason"], data["exit_code"]) == (stop.code, stop.exit_code)
    assert (data["stop_reason_family"], data["auto_resumable"]) == (stop.family, stop.auto_resumable)
    assert all(set(row) == {"source", "pattern", "snippet"} for row in data["signals"])
    assert all(set(row) == {"title", "command", "why"} for row in data["next_actions"])


@every_stop
def test_the_page_of_every_stop_is_short(stop):
    page = to_markdown(hand(stop.code, [Signal("step", "x")] * 9, full_context("long " * 99)))
    assert len(page.splitlines()) < 60
    assert page.startswith(f"# {stop.title}\n") and f"exit code {stop.exit_code}" in page


PAGE = """\
# {title}

{sentence}

- run: `run-1`
- title: `a title`
- reason: `worker_failed` (worker, exit code {exit_code})
- at: `2026-01-01T00:00:00.000000Z`
- batch: `b1`
- task: `t1`
- phase: `test`
- `done`: 3

## Diagnosis: `disk_full`, confidence 0.95

- `step`: `no space left on device`

## Next

1. {first}
2. {second}
3. {third}

## Last lines (text of the agent, not advice)

```text
one
two
```

## Kept

- `diff`: `abc`
"""


def test_the_whole_page_of_a_stop():
    context = Context(AT, "b1", "t1", "test", ("one", "two"), {"diff": "abc"}, {"done": 3})
    handed = hand("worker_failed", [Signal("step", "no space left on device")], context)
    first, second, third = (f"{action.title}: `{action.command}`" for action in handed.actions)
    assert to_markdown(handed) == PAGE.format(
        title=handed.stop.title, sentence=handed.diagnosis.sentence, exit_code=handed.stop.exit_code,
        first=first, second=second, third=third,
    )  # fmt: skip


def test_the_page_of_a_stop_that_says_nothing_ends_with_what_to_do():
    page = to_markdown(hand("stalled"))
    assert "confidence 0.70\n\nNothing but the reason itself is known.\n\n## Next\n" in page
    assert "## Last lines" not in page and "## Kept" not in page


def test_how_a_run_ended():
    ended = {
        code: hand(code).outcome for code in ("complete", "guard_violation", "step_failed", "quota_wait", "stalled")
    }
    assert list(ended.values()) == ["complete", "failed", "failed", "waiting", "stopped"]
    assert (file_stem(hand("complete")), file_stem(hand("stalled"))) == ("complete", "stop")


# --- commands that name what is open


def test_an_unknown_effect_is_named_in_the_commands_that_settle_it():
    effects = {"a": EffectState("started", "s"), "-b c": EffectState("unknown", "s")}
    handed = hand("effect_unknown", effects=effects, effects_open={"a": "s", "-b c": "s"})
    assert [action.command for action in handed.actions] == [
        "holdfast settle run-1 --done -- '-b c'",
        "holdfast settle run-1 --not-done -- '-b c'",
        "holdfast status",
    ]
    assert all(parses(action.command) for action in handed.actions)
    only = hand("effect_unknown", effects={"a": effects["a"]}, effects_open={"a": "s"})
    assert only.actions[0].command == "holdfast settle run-1 --done a"
    assert hand("effect_unknown").actions[0].command == "holdfast show run-1"


def test_an_open_question_is_named_in_the_command_that_answers_it():
    asked = {"old": QuestionState("?", answer="x"), "late": QuestionState("?", expired=True), "now": QuestionState("?")}
    assert hand("awaiting_answer", questions=asked).actions[0].command == "holdfast answer run-1 --question=now"
    handed = hand("awaiting_answer", questions={"now": QuestionState("?", choices=("yes", "no"))})
    assert [action.command for action in handed.actions[:2]] == [
        "holdfast answer run-1 --question=now yes",
        "holdfast answer run-1 --question=now no",
    ]
    assert all(parses(action.command) for action in handed.actions)


@pytest.mark.parametrize(
    ("mission", "anew"),
    [("spec.text-kit", ["holdfast run text-kit --new --allow-dirty"]), ("spec.odd-0123abcd", []), ("other", [])],
)
def test_a_checkpoint_of_which_nobody_knows_is_named_in_the_command_that_settles_it(mission, anew):
    handed = hand("effect_unknown", mission_id=mission, checkpoint_open="c-1")
    settle, *more = (action.command for action in handed.actions)
    assert settle == "holdfast settle run-1 --not-done c-1" and more == [*anew, "holdfast status"]
    assert all(parses(action.command) for action in handed.actions)


def test_a_run_whose_id_cannot_be_typed_is_in_no_command():
    state = RunState(run_id="; rm -rf ~", status="stopped", stop_reason="stalled")
    handed = handoff(state, diagnose(state), Context(AT))
    assert handed.resume_command is None and [action.command for action in handed.actions] == ["holdfast status"]


def test_an_unknown_reason_still_leads_somewhere():
    handed = hand("made up\n# by somebody")
    assert all(parses(action.command) for action in handed.actions)
    assert "\n# by" not in to_markdown(handed) and json.loads(to_json(handed))["exit_code"] == 1


# --- text that wants to be more


def headings_and_steps(page: str) -> list[str]:
    """What a reader of Markdown would take for a heading or for a numbered step, outside of fences."""
    found, fence = [], ""
    for line in page.splitlines():
        mark = re.match(r" {0,3}(`{3,})", line)
        if mark and not fence:
            fence = mark[1]
        elif fence:
            fence = "" if line.strip() == fence else fence
        elif re.match(r" {0,3}(#|\d+[.)]|=+$|-+$|>|<)", line):
            found.append(line)
    assert not fence, "a fence stays open"
    return found


@given(st.text(alphabet=st.sampled_from("`#~\n\r 1.-=>x\x1b\u2028\u202e\ud800|<"), max_size=40), st.integers(0, 3))
def test_no_text_forges_a_heading_a_step_or_the_end_of_a_fence(text, lines):
    page = to_markdown(hand("worker_failed", [Signal(text, text)], full_context(text, lines)))
    plain = to_markdown(hand("worker_failed", [Signal("s", "t")], full_context("x", lines)))
    found = headings_and_steps(page)
    wanted = [line for line in headings_and_steps(plain) if not (line.startswith("## Last") and not lines)]
    assert found == wanted
    assert all(line.isprintable() for line in page.split("\n"))


def test_a_fence_is_longer_than_what_it_holds():
    page = to_markdown(hand("stalled", context=Context(AT, last_lines=("````", "# Next", "`holdfast x`"))))
    assert "\n`````text\n````\n# Next\n`holdfast x`\n`````\n" in page


def test_a_span_holds_its_text():
    assert [span("a"), span("a`b"), span("``"), span(""), span("a\nb")] == [
        "`a`",
        "`` a`b ``",
        "``` `` ```",
        "",
        "`a b`",
    ]


def test_odd_text_is_kept_in_json_as_it_is():
    text = to_json(hand("stalled", context=Context(AT, task="\ud800\x1b", progress={"done": 3})))
    assert text.startswith(b'{\n  "schema_version": 1,\n') and text.endswith(b"\n}\n")
    data = json.loads(text)
    assert data["progress"] == {"batch": "", "task": "\ud800\x1b", "phase": "", "done": 3}
