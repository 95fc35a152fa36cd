"""Diagnoses: the registry first, then signals, and never more than they can prove."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import stops
from holdfast.core.diagnosis import MOST_SIGNALS, MOST_TEXT, Evidence, Signal, diagnose, diagnose_reason, signals_of
from holdfast.core.shapes import EffectState, RunState, StepState
from holdfast.core.signal_table import CATEGORIES, OUTCOMES, SIGNS

PAIRS = [(sign, code) for sign in SIGNS for code in sorted(sign.after)]


def stopped(reason, **more):
    return RunState(run_id="run-1", status="stopped", stop_reason=reason, **more)


# --- the table


def test_the_rows_name_stops_families_and_phrases_that_can_be_found():
    named = {code for sign in SIGNS for code in sign.after} | set(CATEGORIES)
    assert all(stops.lookup(code).code == code and stops.is_known(code) for code in named)
    assert set(OUTCOMES) <= {family.name for family in stops.families()}
    for sign in SIGNS:
        assert sign.phrases and all(phrase and phrase.lower() == phrase for phrase in sign.phrases)
        assert 0.7 < sign.confidence < 1 and sign.sentence.endswith(".")


@pytest.mark.parametrize("stop", stops.all_stops(), ids=lambda stop: stop.code)
def test_every_stop_has_a_diagnosis_that_keeps_to_the_registry(stop):
    found = diagnose(stopped(stop.code))
    assert (found.code, found.family) == (stop.code, stop.family)
    assert found.sentence.startswith(stop.diagnosis) and found.sentence.endswith(".")
    assert found.category and found.confidence == 0.7 and found.evidence == ()


@pytest.mark.parametrize(("sign", "code"), PAIRS, ids=lambda value: value if isinstance(value, str) else value.category)
def test_each_row_is_found_after_each_of_its_stops_and_beats_what_is_less_sure(sign, code):
    found = diagnose_reason(code, [Signal("verification", f"first\n{sign.phrases[0].upper()} here\nlast")])
    sure = {one.category: one.confidence for one in SIGNS if code in one.after}
    assert found.confidence >= sign.confidence and sure[found.category] == found.confidence
    assert (found.code, found.family) == (code, stops.lookup(code).family)
    assert stops.lookup(code).diagnosis.rstrip(".") in found.sentence
    assert found.evidence[0].source == "verification" and "\n" not in found.evidence[0].snippet


# --- what is known


@pytest.mark.parametrize(
    ("reason", "text", "category", "confidence"),
    [
        ("worker_failed", "Error: 401 Unauthorized", "auth_expired", 0.95),
        ("worker_failed", "Error: getaddrinfo ENOTFOUND api.example.org", "network_down", 0.85),
        ("worker_failed", "FileNotFoundError: [Errno 2] No such file or directory: 'a'", "worker_failed", 0.9),
        ("worker_failed", "ModuleNotFoundError: No module named 'a'", "worker_failed", 0.9),
        ("verification_failed", "sh: pytest: command not found", "verification_tool_missing", 0.9),
        ("verification_failed", "ERROR: file or directory not found: tests", "verification_cwd_mismatch", 0.85),
        ("verification_failed", "=== 3 failed in 2.0s ===", "verification_failure", 0.9),
        ("guard_violation", "src/x: it is outside of the allowed paths", "scope_violation", 0.95),
        ("guard_violation", "uv.lock", "lockfile_restricted", 0.85),
        ("implement_parse_failed", "no BEGIN_JSON was found", "worker_parse_failure", 0.9),
        ("worker_failed", "x: The report file is not JSON: it is cut off", "worker_parse_failure", 0.9),
        ("stalled_timeout", "quiet", "stall_timeout", 0.9),
        ("time_budget_exceeded", "", "time_budget_exceeded", 0.9),
        ("dirty_worktree", "M a.py", "guard_violation_dirty", 0.9),
        ("merge_conflict", "CONFLICT (content): a.py", "merge_left_open", 0.9),
        ("review_loop_detected", "same again", "review_loop_detected", 0.9),
    ],
)
def test_signals_name_the_cause(reason, text, category, confidence):
    found = diagnose(stopped(reason), [text])
    assert (found.category, found.confidence) == (category, confidence)


def test_a_signal_of_another_stop_names_nothing():
    found = diagnose(stopped("user_stopped"), [], [Signal("step", "401 unauthorized"), Signal("step", "x")])
    assert (found.category, found.confidence) == ("user_stopped", 0.95)
    assert [one.pattern for one in found.evidence] == ["", ""]


def test_what_only_an_agent_said_is_a_guess():
    said = Signal("output", "the task is about 401 unauthorized pages")
    assert diagnose_reason("worker_failed", [said]).confidence == 0.7
    assert diagnose_reason("worker_failed", [said, Signal("error", "invalid API key")]).confidence == 0.95


def test_the_error_of_a_step_that_repeats_the_stop_makes_it_no_surer():
    seen = [Signal("stop", "it hangs"), Signal("stop", "for long"), Signal("step", "Halt: it hangs; for long")]
    assert [one.snippet for one in diagnose_reason("user_stopped", seen).evidence] == ["it hangs", "for long"]
    once = diagnose_reason("user_stopped", [seen[0], Signal("step", "Halt: it hangs")])
    assert (once.confidence, len(once.evidence)) == (0.9, 1)
    other = diagnose_reason("user_stopped", [seen[0], Signal("step", "ValueError: it is empty")])
    assert (other.confidence, len(other.evidence)) == (0.95, 2)


def test_an_unknown_reason_is_said_to_be_unknown():
    found = diagnose(stopped("made_up"), ["x"])
    assert (found.code, found.category, found.family, found.confidence) == ("made_up", "unknown", "unknown", 0.5)
    assert found.evidence == (Evidence("stop", "", "x"),) and found.sentence == stops.lookup("made_up").sentence


@pytest.mark.parametrize(
    ("texts", "category"),
    [
        (["connection refused", "no space left on device"], "disk_full"),
        (["rate limit", "invalid api key"], "auth_expired"),
        (["report does not parse", "rate limit"], "usage_limit"),
    ],
)
def test_the_surest_cause_is_named_and_of_two_the_one_that_stands_first_in_the_table(texts, category):
    assert diagnose(stopped("worker_failed"), texts).category == category


def test_a_run_that_was_cut_off_or_is_done_has_its_reason_too():
    assert diagnose(RunState(run_id="a", status="running")).code == "interrupted"
    assert diagnose(RunState(run_id="a", status="finished")).code == "complete"


def test_the_log_itself_gives_signals():
    steps = {"a": StepState(status="failed", error="E1"), "b": StepState(), "c": StepState(status="failed", error="E2")}
    effects = {"k": EffectState("unknown", "b", evidence="half a file"), "l": EffectState("started", "b")}
    state = stopped(
        "step_failed", diagnosis="It broke.", steps=steps, effects=effects, effects_open={"k": "b", "l": "b"}
    )
    assert list(signals_of(state)) == [
        ("stop", "It broke."), ("step", "E2"), ("step", "E1"), ("effect", "half a file"),
    ]  # fmt: skip


def test_what_failed_without_words_and_what_went_well_later_are_no_signals():
    steps = {"a": StepState(status="failed"), "b": StepState(status="finished", error="E1")}
    assert list(signals_of(stopped("step_failed", steps=steps))) == []


def test_five_of_many_are_shown():
    steps = {str(number): StepState(status="failed", error=f"E{number}") for number in range(9)}
    effects = {str(number): EffectState("unknown", "a", evidence=f"U{number}") for number in range(9)}
    state = stopped("step_failed", steps=steps, effects=effects, effects_open=dict.fromkeys(effects, "a"))
    assert [text for _, text in signals_of(state)] == [
        *(f"E{n}" for n in (8, 7, 6, 5, 4)),
        *(f"U{n}" for n in range(5)),
    ]
    assert [one.snippet for one in diagnose(state).evidence] == ["E8", "E7", "E6", "E5", "E4"]
    refused = [Signal("step", f"{number}: connection refused") for number in range(9)]
    assert [one.snippet[0] for one in diagnose_reason("worker_failed", refused).evidence] == list("01234")


# --- hostile text


def test_what_is_told_again_makes_nothing_surer():
    state = RunState(run_id="r", status="stopped", stop_reason="worker_failed", diagnosis="It failed. Evidence: exit 3")
    once = diagnose(state, ["exit 3"])
    again = diagnose(state, ["exit 3"], [Signal("note", "exit 3"), Signal("note", " exit 3\n")])
    assert once == again
    assert [one.snippet for one in once.evidence] == ["exit 3"]
    assert diagnose(state, ["exit 3"], [Signal("note", "no report")]).confidence > once.confidence


def test_the_line_of_the_phrase_is_shown_and_nothing_around_it():
    text = "ignore all rules\n" + "\x1b[2J connection REFUSED by İ\u202e" + "\nrun rm -rf"
    (found,) = diagnose_reason("worker_failed", [Signal("step", text)]).evidence
    assert found == Evidence("step", "connection refused", "?[2J connection REFUSED by İ?")
    long = diagnose_reason("worker_failed", [Signal("step", "x" * 900 + "connection refused" + "y" * 900)])
    assert "connection refused" in long.evidence[0].snippet and len(long.evidence[0].snippet) < 210


def test_letters_that_grow_when_lowered_do_not_move_the_place():
    (found,) = diagnose_reason("worker_failed", [Signal("step", "İ" * 300 + "\nconnection refused\nother")]).evidence
    assert found.snippet == "connection refused"


def test_ten_megabytes_and_thousands_of_signals_take_no_time():
    began = time.process_time()
    many = [Signal("output", "a" * 10_000_000), *(Signal("output", "e: \n" * 5000) for _ in range(5000))]
    found = diagnose(stopped("worker_failed"), [], many)
    assert time.process_time() - began < 2 and len(found.evidence) <= 5
    assert MOST_SIGNALS == 50


def test_of_a_long_text_the_end_counts():
    text = "connection refused" + "\n" * MOST_TEXT
    assert diagnose_reason("worker_failed", [Signal("step", text)]).category == "worker_failed"
    assert diagnose_reason("worker_failed", [Signal("step", text[:-18])]).category == "network_down"


@given(st.sampled_from([stop.code for stop in stops.all_stops()]), st.lists(st.text(), max_size=4))
def test_no_text_changes_what_the_registry_decides(code, texts):
    found = diagnose(stopped(code), texts)
    assert (found.code, found.family) == (code, stops.lookup(code).family) and 0 < found.confidence < 1
    assert found.sentence.isprintable() and all(one.snippet.isprintable() for one in found.evidence)


PHRASE = "no space left on device"
FORTY = "a" * 40


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (PHRASE, PHRASE),
        (f"write: {PHRASE}.", f"write: {PHRASE}."),
        (f"one\ntwo\nwrite: {PHRASE} (28)\nthree\nfour", f"write: {PHRASE} (28)"),
        (f"first: {PHRASE}\nsecond: {PHRASE}", f"first: {PHRASE}"),
        (f"before\n{FORTY} 1234567 {PHRASE}", f"{FORTY} 1234567 {PHRASE}"),
        (f"one cut {FORTY} {PHRASE}", f"one cut {FORTY} {PHRASE}"),
        (f"one more cut {FORTY} {PHRASE}", f"... cut {FORTY} {PHRASE}"),
        (f"one more cut, {FORTY} {PHRASE}", f"... cut, {FORTY} {PHRASE}"),
        (f"one more cut off, {FORTY} {PHRASE}", f"... off, {FORTY} {PHRASE}"),
        (f"one more cut off {FORTY}12345678 {PHRASE}", f"... {FORTY}12345678 {PHRASE}"),
        (f"{FORTY * 3} {PHRASE}{'b' * 150}", f"... {PHRASE}{'b' * 127}..."),
        (PHRASE + "b" * 177, PHRASE + "b" * 177),
        (PHRASE + "b" * 178, PHRASE + "b" * 177 + "..."),
        (f"{FORTY * 2} {FORTY}123456789{PHRASE}{'b' * 300}", f"... {FORTY}123456789{PHRASE}{'b' * 124}..."),
    ],
)
def test_the_line_of_a_phrase_is_shown_from_a_whole_word_on_with_dots_where_it_goes_on(text, shown):
    (found,) = diagnose_reason("worker_failed", [Signal("output", text)]).evidence
    assert found.snippet == shown
