"""What ended an agent is told from its own errors, and a reset time in every shape agents print becomes one UTC time."""

from __future__ import annotations

import time
from datetime import UTC, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.limits import MAX_EVIDENCE, classify, is_session_gone, reset_time

NOW = "2026-11-16T12:00:00.000000Z"  # a Monday
HERE = timezone(timedelta(hours=-5))


def zone(name):
    return HERE if name == "" else ZoneInfo(name) if name in ("Europe/Berlin", "America/New_York") else None


RESETS = {
    "resets at 3pm (Europe/Berlin)": "2026-11-16T14:00:59Z",
    "resets 3:45pm (America/New_York)": "2026-11-16T20:45:59Z",
    "Your limit will reset at 8am": "2026-11-16T13:00:59Z",
    "resets at 6:30am": "2026-11-17T11:30:59Z",
    "resets at 12am (UTC)": "2026-11-17T00:00:59Z",
    "resets at 12pm (UTC)": "2026-11-16T12:00:59Z",
    "resets at 15:00 UTC": "2026-11-16T15:00:59Z",
    "resets Nov 20, 1pm (Europe/Berlin)": "2026-11-20T12:00:59Z",
    "resets Nov 1 at 1pm (UTC)": None,
    "try again at Nov 20th, 2026 3:04 PM.": "2026-11-20T20:04:59Z",
    "try again at Nov 20th, 2024 3:04 PM.": None,
    "try again at Dec 2 3:04 PM.": "2026-12-02T20:04:59Z",
    "resets Monday 9am (UTC)": "2026-11-23T09:00:59Z",
    "resets Monday 1pm (UTC)": "2026-11-16T13:00:59Z",
    "resets on Wednesday at 9am (UTC)": "2026-11-18T09:00:59Z",
    "resets Sunday 9am (UTC)": "2026-11-22T09:00:59Z",
    "resets Tuesday 1pm (GMT)": "2026-11-17T13:00:59Z",
    "resets at 3pm (Mars/Phobos)": None,
    "resets at 25:00 UTC": None,
    "resets at 3": None,
    "try again in 2h 13m": "2026-11-16T14:13:01Z",
    "Please try again in 1.898s": "2026-11-16T12:00:02Z",
    "try again in 6m0s.": "2026-11-16T12:06:01Z",
    "try again in 20ms": "2026-11-16T12:00:01Z",
    "try again in 1500 milliseconds": "2026-11-16T12:00:02Z",
    "try again in 40 days": None,
    "try again in 3455999 seconds": "2026-12-26T12:00:00Z",
    "try again in 9999999 weeks": None,
    "Try again in 2 days 3 hours 5 minutes.": "2026-11-18T15:05:01Z",
    "retry after 30 seconds": "2026-11-16T12:00:31Z",
    '"retryDelay": "41s"': "2026-11-16T12:00:42Z",
    "wait for 1 week": "2026-11-23T12:00:01Z",
    "try again in 9000 weeks": None,
    "Retry-After: 120": "2026-11-16T12:02:01Z",
    "retry-after-ms: 1500": "2026-11-16T12:00:02Z",
    "retry_after_seconds=90": "2026-11-16T12:01:31Z",
    "Retry-After: Mon, 16 Nov 2026 12:30:00 GMT": "2026-11-16T12:30:00Z",
    "Retry-After: Xyz, 99 Nov 2026 12:30:00 GMT": None,
    "Claude AI usage limit reached|1794834000": "2026-11-16T13:00:00Z",
    "Claude AI usage limit reached|1794834000000": "2026-11-16T13:00:00Z",
    '"resets_at": 1794834000': "2026-11-16T13:00:00Z",
    "limit reached|1694834000": None,
    "resets at 2026-11-16T18:00:00Z": "2026-11-16T18:00:00Z",
    "resets at 2026-11-16T18:00:00+02:00": "2026-11-16T16:00:00Z",
    "available until 2026-11-16 18:00 UTC": "2026-11-16T18:00:00Z",
    "available until 2026-11-16 18:00 GMT": "2026-11-16T18:00:00Z",
    "resets at 2026-11-16T12:00:00Z": "2026-11-16T12:00:00Z",
    "resets at 2026-12-26T12:00:00Z": "2026-12-26T12:00:00Z",
    "resets at 2026-12-26T12:00:01Z": None,
    "try again after 2026-11-16 12:00:00": "2026-11-16T17:00:00Z",
    "resets at 2026-99-16T18:00:00Z": None,
    "You will regain access on 2026-12-01 at 00:00 UTC.": "2026-12-01T00:00:00Z",
    "You've hit your limit · resets Nov 20, 1pm (Europe/Berlin)": "2026-11-20T12:00:59Z",
    "You've hit your limit · resets 8:50pm (Europe/Berlin)": "2026-11-16T19:50:59Z",
    "no time at all": None,
}


@pytest.mark.parametrize("text", RESETS)
def test_a_reset_time_is_read_in_the_shapes_that_agents_print(text):
    assert reset_time(text, NOW, zone) == RESETS[text]


def test_without_a_known_zone_a_wall_clock_is_unknown():
    assert reset_time("resets at 3pm", NOW, lambda name: None) is None
    assert reset_time("resets at 2026-11-16 18:00", NOW, lambda name: None) is None
    assert reset_time("resets at 3pm (utc)", NOW, lambda name: None) == "2026-11-16T15:00:59Z"
    assert reset_time("resets at 18:00", NOW, lambda name: UTC) == "2026-11-16T18:00:59Z"


def test_a_date_without_a_year_is_the_next_one_to_come():
    now = "2026-12-20T12:00:00Z"
    assert reset_time("resets Jan 3, 1pm (UTC)", now, zone) == "2027-01-03T13:00:59Z"


def test_a_time_that_has_just_come_is_not_taken_for_tomorrow():
    for now, expected in (("12:00:30", "12:00:59"), ("12:01:30", "12:02:30"), ("12:15:00", "12:16:00")):
        assert reset_time("resets at 12:00 UTC", f"2026-11-16T{now}Z", zone) == f"2026-11-16T{expected}Z"
    assert reset_time("resets at 12:00 UTC", "2026-11-16T12:30:00Z", zone) == "2026-11-17T12:00:59Z"
    assert reset_time("resets at 12:00 UTC", "2026-11-16T12:15:59Z", zone) == "2026-11-16T12:16:59Z"
    assert reset_time("resets at 12:00 UTC", "2026-11-16T12:15:59.000001Z", zone) == "2026-11-17T12:00:59Z"
    for said in ("resets at 12:00 UTC", "resets Monday 12:00 UTC", "resets Nov 16, 12:00 UTC"):
        assert reset_time(said, "2026-11-16T12:00:59Z", zone) == "2026-11-16T12:00:59Z", "it is that second"


def test_a_time_of_a_named_day_that_has_just_come_is_not_taken_for_next_week():
    assert reset_time("resets Monday 11:55am (UTC)", NOW, zone) == "2026-11-16T12:01:00Z"
    assert reset_time("resets Monday 11:30am (UTC)", NOW, zone) == "2026-11-23T11:30:59Z"


def test_the_days_of_the_week_are_counted_from_any_of_them():
    thursday = "2026-11-19T12:00:00Z"
    days = {"Thu": 26, "Fri": 20, "Sat": 21, "Sun": 22, "Mon": 23, "Tue": 24, "Wed": 25}
    for day, date in days.items():
        assert reset_time(f"resets {day} 9am (UTC)", thursday, zone) == f"2026-11-{date}T09:00:59Z"


def test_the_time_is_utc_wherever_the_machine_stands(monkeypatch):
    monkeypatch.setenv("TZ", "EST5")
    time.tzset()
    try:
        assert reset_time("resets at 15:00 UTC", NOW, zone) == "2026-11-16T15:00:59Z"
    finally:
        monkeypatch.undo()
        time.tzset()


ERRORS = {
    "You've hit your usage limit. Upgrade or try again in 2h 13m.": "quota",
    "You exceeded your current quota, please check your plan and billing details.": "quota",
    "Claude AI usage limit reached|1794834000": "quota",
    "5-hour limit reached ∙ resets 3pm": "quota",
    '{"error":{"code":"insufficient_quota"}}': "quota",
    "Your credit balance is too low to access the API": "quota",
    "[429] RESOURCE_EXHAUSTED": "quota",
    "exceeded retry limit, last status: 429 Too Many Requests": "rate_limit",
    "Rate limit reached for gpt-5 in organization org-1 on tokens per min": "rate_limit",
    "litellm.RateLimitError: RateLimitError: OpenAIException - slow down": "rate_limit",
    'API Error: 529 {"type":"error","error":{"type":"overloaded_error"}}': "rate_limit",
    "unexpected status 401 Unauthorized: Missing bearer": "auth",
    "Invalid API key · Please run /login": "auth",
    "OAuth token has expired. Please obtain a new token": "auth",
    "Your API key is missing": "auth",
    "litellm.AuthenticationError: AuthenticationError: OpenAIException": "auth",
    "stream disconnected before completion: error sending request for url": "network",
    "connect ECONNREFUSED 127.0.0.1:1": "network",
    "getaddrinfo ENOTFOUND api.example.org": "network",
    "System.IO.FileNotFound: a.txt": "crash",
    "Temporary failure in name resolution": "network",
    "unexpected status 502 Bad Gateway": "network",
    "litellm.BadGatewayError: BadGatewayError: OpenAIException - upstream": "network",
    "litellm.ServiceUnavailableError: ServiceUnavailableError: OpenAIException - busy": "network",
    "litellm.RateLimitError: OpenAIException - You exceeded your current quota, see the plan.": "quota",
    'litellm.APIError: OpenrouterException - {"error":{"message":"Insufficient credits.","code":402}}': "quota",
    "litellm.NotFoundError: OpenAIException - there is no such model": "crash",
    '[API Error: {"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT"}}]': "auth",
    '{"reason":"API_KEY_INVALID"}': "auth",
    "[API Error: You have exhausted your daily quota on this model.]\nPlease wait.": "quota",
    "[API Error: The model is overloaded. Please try again later.]": "rate_limit",
    "something else went wrong": "crash",
    "Selected model is at capacity. Please try a different model.": "rate_limit",
    "We're currently experiencing high demand, which may cause temporary errors.": "rate_limit",
}


@pytest.mark.parametrize("text", ERRORS)
def test_a_structured_error_is_known_by_its_words(text):
    trouble = classify([text], [], 1, NOW, zone)
    assert (trouble.kind, trouble.evidence) == (ERRORS[text], text)


LINES = {
    "You've hit your usage limit. Try again in 2h 13m.": "quota",
    "You’ve hit your usage limit.": "quota",
    "ERROR: You've hit your usage limit.": "quota",
    "2026-11-16T12:00:00Z ERROR: 429 Too Many Requests": "rate_limit",
    "■ Rate limit reached for gpt-5": "rate_limit",
    "error: rate_limit_error: slow down": "rate_limit",
    "litellm.exceptions: RateLimitError: slow down": "rate_limit",
    "API Error: Connection error.": "network",
    "[agent] Error: Not logged in": "auth",
    "Claude usage limit reached|1794834000": "quota",
    "Please set an Auth method in your /home/me/.gemini/settings.json or a variable": "auth",
    "Invalid auth method selected.": "auth",
    "You've hit your limit · resets 3pm (Europe/Berlin)": "quota",
    "You’ve hit your limit for Claude messages. Limits will reset at 9:30 AM.": "quota",
    "You've hit your weekly limit · resets Nov 20 at 3pm (UTC)": "quota",
    "You're out of extra usage · resets 7pm (Europe/Berlin)": "quota",
    "You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC.": "quota",
    "Monthly usage limit reached. Resets in 12 days.": "quota",
    "Opus weekly limit reached ∙ resets Mon 9am": "quota",
    "You've hit your Sonnet limit · resets 3pm (Europe/Berlin)": "quota",
    "You have exhausted your capacity on this model. Your quota will reset after 2h13m5s.": "quota",
    "[API Error: You have exhausted your daily quota on this model.]": "quota",
    "GoUsageLimitError: 5-hour usage limit reached. Resets in 3 hours 12 minutes.": "quota",
    "Free usage exceeded, add credits": "quota",
    'API Error: 429 {"type":"error","error":{"type":"rate_limit_error"}}': "rate_limit",
    'API Error (529 {"type":"error","error":{"type":"overloaded_error"}})': "rate_limit",
    "API Error: 500 Internal server error": "network",
    "API Error: 401 Invalid authentication credentials": "auth",
    "I've hit your limit of ten lines per function.": "crash",
    "I have exhausted your capacity for review, I fear.": "crash",
    "The page shows it now: Opus weekly limit reached, with the time.": "crash",
    "It raises a GoUsageLimitError: the caller waits.": "crash",
    "E   assert 'rate limit exceeded' == 'ok'": "crash",
    "FAILED tests/test_limit.py::test_usage_limit_reached - rate limit exceeded": "crash",
    "AssertionError: assert rate limit exceeded": "crash",
    "I have added the rate limit; requests over it get 429 Too Many Requests.": "crash",
}


@pytest.mark.parametrize("line", LINES)
def test_a_last_line_counts_only_where_it_begins_with_the_complaint(line):
    trouble = classify([], ["", line], 1, NOW, zone)
    assert (trouble.kind, trouble.evidence) == (LINES[line], line)


def test_an_agent_that_ended_well_has_no_trouble_whatever_it_talks_about():
    assert classify([], ["Rate limit exceeded", "usage limit reached"], 0, NOW, zone) is None
    assert classify([], ["slow"], None, NOW, zone) is None, "we ended it ourselves"
    assert classify(["usage limit reached"], [], 0, NOW, zone).kind == "quota", "its own structured error counts"


def test_one_that_ended_well_without_a_report_may_have_met_a_usage_limit_and_nothing_else():
    words = ["I looked around.", "You've hit your usage limit. Try again in 2h 13m."]
    assert classify([], [], 0, NOW, zone, words) == ("quota", words[1], "2026-11-16T14:13:01Z")
    for other in (
        "Rate limit exceeded",
        "connection refused",
        "Not logged in",
        "I have shown: usage limit reached",
        "GoUsageLimitError is raised now",
    ):
        assert classify([], [], 0, NOW, zone, [other]) is None, other


def test_only_the_last_lines_are_looked_at():
    lines = ["usage limit reached", *["work"] * 30]
    assert classify([], lines, 1, NOW, zone).kind == "crash"


def test_the_reset_may_stand_on_another_line_and_only_limits_have_one():
    trouble = classify([], ["ERROR: usage limit reached", "Retry-After: 120"], 1, NOW, zone)
    assert trouble.resets_at == "2026-11-16T12:02:01Z"
    errors = ["429 Too Many Requests", "Retry-After: 120", "bye"]
    assert classify(errors, [], 1, NOW, zone).resets_at == "2026-11-16T12:02:01Z"
    assert classify(["Invalid API key", "Retry-After: 120"], [], 1, NOW, zone).resets_at is None


def test_a_crash_shows_the_last_thing_that_was_said():
    assert classify([], ["one", "two", " "], -11, NOW, zone).evidence == "two"
    assert classify([], [], 1, NOW, zone) == ("crash", "", None)
    assert len(classify(["x" * 9000], [], 1, NOW, zone).evidence) == MAX_EVIDENCE


@given(st.text(max_size=300), st.lists(st.text(max_size=200), max_size=5))
def test_no_text_is_too_strange(error, lines):
    classify([error], lines, 1, NOW, zone)


@pytest.mark.parametrize(
    "piece", [":", "a:", "] ", "9", "9m ", "reset ", "retry after ", " ", "\u00a0", "nov ", "api error "]
)
def test_long_lines_take_little_time(piece):
    text = piece * 200_000
    began = time.process_time()
    classify([text], [text] * 5, 1, NOW, zone)
    reset_time(text, NOW, zone)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "text",
    [
        "Error: thread/resume failed: no rollout found for thread id 019",
        "No conversation found with session ID: 1234",
        "Session not found",
        "Error: session ses_1 does not exist",
        "Could not find session x",
        "Error resuming session: No previous sessions found for this project.",
        'Error resuming session: Invalid session identifier "1234".',
    ],
)
def test_a_session_that_the_agent_does_not_know_is_noticed(text):
    assert is_session_gone([text], []) and is_session_gone([], ["a", text])
    assert not is_session_gone(["usage limit reached"], ["the session goes on"])
