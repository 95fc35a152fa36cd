"""Why an agent could not work: a usage limit, a rate limit, credentials, the network, or a crash; and until when.

It reads only what the agent says of itself: its structured errors anywhere, its last lines only where a line begins with
the complaint. So a task that is about rate limits is not taken for one. Of one that ended well and left no report, only a
usage limit in its last words counts. A time that is not plain is unknown, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from typing import Literal, TypeAlias

from holdfast.core.named import NamedTuple

Kind: TypeAlias = Literal["quota", "rate_limit", "auth", "network", "crash"]
Zone: TypeAlias = Callable[[str], "tzinfo | None"]

LAST_LINES = 24  # twelve of each channel
MAX_LINE = 2_000
MAX_EVIDENCE = 300
LONGEST_WAIT = timedelta(days=40)
JUST_PAST = timedelta(minutes=15)  # a time on a clock that was reached while the agent still spoke of it


class Trouble(NamedTuple):
    """What went wrong, the words that say so, and when a limit ends as UTC (None: not known, or not a limit)."""

    kind: Kind
    evidence: str
    resets_at: str | None = None


_CODE = r"(?:status(?: code)?:?|(?:api )?error:?|http) \(?"  # of an answer by HTTP; its number follows
_SPAN = r"(?:usage|plan|weekly|monthly|daily|5-hour|session|current|opus|sonnet)"  # what a limit is on
_WORDS: tuple[tuple[Kind, str], ...] = (
    (
        "auth",
        r"not logged in|please (?:run .{0,40}login|log ?in|sign ?in)|invalid (?:api|x-api|bearer)[- ]?key|incorrect api key"
        r"|please set an auth method|invalid auth method|api[ _]key[ _](?:not[ _]valid|invalid)"
        r"|(?:api key|token|credentials?|session) (?:has |have )?(?:expired|(?:is |are )?(?:invalid|missing|not set|revoked))"
        r"|authentication[_ ](?:error|failed|required)|authenticationerror|oauth token (?:has )?expired|no api key"
        rf"|{_CODE}40[13]\b|401 unauthorized|403 forbidden|permission_error",
    ),
    (
        "quota",
        r"(?:you['’]?ve |you have )?(?:(?:hit|reached|exceeded) your (?:limit\b|specified api usage limits?|"
        rf"{_SPAN} ?(?:limit|quota)?)|exhausted your (?:capacity|daily quota))"
        r"|(?:you['’]?re )?out of extra usage|free usage exceeded"
        rf"|(?:{_SPAN} )?{_SPAN} limit (?:has been )?(?:reached|exceeded)"
        r"|you exceeded your current quota|(?:quota|credits?)(?: has| have)?(?: been)? (?:exceeded|exhausted)"
        r"|insufficient[_ ](?:quota|credits)|credit balance is too low|resource_exhausted"
        r"|usage_limit_(?:reached|exceeded)|out of credits",
    ),
    (
        "rate_limit",
        r"rate[ _-]?limit(?:s|ed)?(?: (?:is|was|has been))?(?:[ _](?:reached|exceeded|error|hit))|ratelimiterror"
        rf"|{_CODE}(?:429|529)\b|overloaded(?:_error| error)|(?:is|are) (?:currently )?overloaded"
        r"|rate limited|(?:429 )?too many requests|(?:selected )?model is at capacity"
        r"|(?:we['’]?re )?currently experiencing high demand",
    ),
    (
        "network",
        r"(?:(?:failed to )?connect )?\be(?:connrefused|connreset|notfound|timedout|hostunreach|netunreach|ai_again)\b"
        r"|connection (?:refused|reset|error|timed out)|could not resolve host"
        r"|name or service not known|temporary failure in name resolution|network is unreachable"
        r"|fetch failed|error sending request|stream disconnected|apiconnectionerror|(?:tls|ssl) handshake"
        rf"|{_CODE}50[0234]\b|50[234] (?:bad gateway|service unavailable|gateway time-?out)"
        r"|(?:internal ?server|service ?unavailable|bad ?gateway) ?error|request timed out",
    ),
)
_PREFIX = (
    r"^(?!.*\bassert)\W{0,20}(?:\d[\dT:.Z+-]{5,40} )?(?:[^\s:\])]{1,60}[:\])]+\s{0,3}){0,4}"
    r"(?:(?:api |stream |request |fatal )?error\W{1,4})?(?:(?:the|your|claude|claude ai|model|openai|unexpected) )?"
)
_AT_START: tuple[tuple[Kind, str], ...] = tuple((kind, f"{_PREFIX}(?:{words})") for kind, words in _WORDS)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """At first use: most runs meet no trouble, and these are slow to make."""
    return re.compile(pattern, re.IGNORECASE)


def classify(
    errors: Sequence[str],
    lines: Sequence[str],
    exit_code: int | None,
    now: str,
    zone: Zone = lambda name: None,
    last_words: Sequence[str] = (),
) -> Trouble | None:
    """What ended the agent. `errors` are its structured errors, `lines` the end of what it said; `zone` knows time zones.

    A name that is empty asks `zone` for the one of this machine. An exit code of None means that we ended it.
    `last_words` are those of an agent that left nothing like a report.
    """
    spoken = _found(_AT_START, lines[-LAST_LINES:]) if exit_code != 0 else _limits_in(last_words)
    said = [*_found(_WORDS, errors), *spoken]
    for kind, _ in _WORDS:
        for found, text in said:
            if found == kind:
                around = "\n".join([text, *errors, *lines[-LAST_LINES:], *last_words])
                resets = reset_time(around, now, zone) if kind in ("quota", "rate_limit") else None
                return Trouble(kind, _snippet(text), resets)
    if errors or exit_code not in (0, None):
        return Trouble("crash", _snippet(next((text for text in (*errors, *reversed(lines)) if text.strip()), "")))
    return None


def _found(table: Sequence[tuple[Kind, str]], texts: Sequence[str]) -> Iterator[tuple[Kind, str]]:
    for text in texts:
        for kind, pattern in table:
            if _compiled(pattern).search(text[:MAX_LINE]):
                yield kind, text


def _limits_in(last_words: Sequence[str]) -> Iterator[tuple[Kind, str]]:
    return (found for found in _found(_AT_START, last_words) if found[0] == "quota")


def _snippet(text: str) -> str:
    return text.strip()[:MAX_EVIDENCE]


_GONE = (
    r"(?:no|unknown|invalid) (?:such )?(?:session|conversation|rollout|thread)\b|(?:session|conversation|rollout|thread)\b"
    r".{0,120}(?:not found|does not exist|no longer exists|could not be found)|could not find (?:the )?(?:session|conversation)"
    r"|no previous sessions found"
)


def is_session_gone(errors: Sequence[str], lines: Sequence[str]) -> bool:
    """Whether an agent says that it does not know the session it was to go on with."""
    return any(_compiled(_GONE).search(text[:MAX_LINE]) for text in (*errors, *lines[-LAST_LINES:]))


# --- until when

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_UNIT = r"(?:milliseconds?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d|weeks?|w)"
_AMOUNT = rf"\d{{1,7}}(?:\.\d{{1,6}})? ?{_UNIT}(?![a-z])"
_SOON = r"(?:try again|retry|resets?|available|wait|retry[-_ ]?after|retry[-_]?delay)\W{0,4}(?:in|after|for)?\W{0,4}"
_DURATION = rf"{_SOON}({_AMOUNT}(?:,? ?(?:and )?{_AMOUNT}){{0,5}})"
_PIECE = rf"(\d{{1,7}}(?:\.\d{{1,6}})?) ?({_UNIT})(?![a-z])"
_AFTER = r"retry[-_ ]?after(?:[-_ ]?(ms|seconds))?\W{0,4}(\d{1,9}(?:\.\d{1,6})?)(?! ?[a-z\d])"
_DATE = r"retry[-_ ]after\W{0,4}([A-Z][a-z]{2}, \d{1,2} [A-Z][a-z]{2} \d{4} [\d:]{8} GMT)"
_EPOCH = r"(?:limit reached\||reset(?:s|_?at|s_at)?\W{1,4})(1[6-9]\d{8}|[2-3]\d{9})(\d{3})?(?!\d)"
_ISO = (
    r"(?:reset|again|until|after|access)[a-z_]{0,6}\W{1,4}(?:at |on )?"
    r"(\d{4}-\d\d-\d\d(?:[T ]| at )\d\d:\d\d(?::\d\d)?(?:\.\d{1,9})?)(?: ?(Z|UTC|GMT|[+-]\d\d:?\d\d))?"
)
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_CLOCK = (
    r"(?:resets?|again|available|until)(?: (?:at|on|by))?:? "
    rf"(?:(?P<day>{'|'.join(_DAYS)})[a-z]{{0,6}},? (?:at )?)?"
    rf"(?:(?P<month>{'|'.join(_MONTHS)})[a-z]{{0,6}} (?P<date>\d{{1,2}})(?:st|nd|rd|th)?(?:,? (?P<year>\d{{4}}))?,? (?:at )?)?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d))? ?(?P<half>am|pm)?"
    r"(?: ?\(?(?P<zone>UTC|GMT|[A-Z][A-Za-z_]+(?:/[A-Za-z_+-]+)+)\)?)?"
)


def reset_time(text: str, now: str, zone: Zone) -> str | None:
    """The time a limit ends, as UTC, in any of the shapes in which agents say it; None if it does not say, or nonsense."""
    at = datetime.fromisoformat(now)
    for read in (_epoch, _iso, _http, _duration, _seconds, _clock):
        found = read(text[: 8 * MAX_LINE], at, zone)
        if found is not None and at <= found <= at + LONGEST_WAIT:
            return found.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return None


def _epoch(text: str, now: datetime, zone: Zone) -> datetime | None:
    found = _compiled(_EPOCH).search(text)
    return datetime.fromtimestamp(int(found[1]), UTC) if found else None


def _iso(text: str, now: datetime, zone: Zone) -> datetime | None:
    found = _compiled(_ISO).search(text)
    if not found:
        return None
    offset = (found[2] or "").upper()
    try:
        at = datetime.fromisoformat(
            found[1].replace(" at ", " ") + ("+00:00" if offset in ("Z", "UTC", "GMT") else offset)
        )
    except ValueError:
        return None
    return at if at.tzinfo else _in_zone(at, zone(""))


def _http(text: str, now: datetime, zone: Zone) -> datetime | None:
    from email.utils import parsedate_to_datetime

    found = _compiled(_DATE).search(text)
    try:
        return parsedate_to_datetime(found[1]) if found else None
    except ValueError:
        return None


def _duration(text: str, now: datetime, zone: Zone) -> datetime | None:
    found = _compiled(_DURATION).search(text)
    if not found:
        return None
    seconds = sum(float(amount) * _UNITS[_unit(unit)] for amount, unit in _compiled(_PIECE).findall(found[1]))
    return _later(now, seconds)


def _unit(text: str) -> str:
    text = text.lower()
    return "ms" if text.startswith(("ms", "milli")) else text[0]


def _seconds(text: str, now: datetime, zone: Zone) -> datetime | None:
    found = _compiled(_AFTER).search(text)
    return _later(now, float(found[2]) * (0.001 if (found[1] or "").lower() == "ms" else 1)) if found else None


def _later(now: datetime, seconds: float) -> datetime | None:
    """Rounded up to a whole second: a wait that ends too early is another refusal."""
    return now + timedelta(seconds=int(seconds) + 1) if seconds <= LONGEST_WAIT.total_seconds() else None


def _clock(text: str, now: datetime, zone: Zone) -> datetime | None:
    found = _compiled(_CLOCK).search(text)
    if not found or not (found["half"] or found["minute"]):
        return None
    where = UTC if (found["zone"] or "").upper() in ("UTC", "GMT") else zone(found["zone"] or "")
    if where is None:
        return None
    try:
        return _next(found, now.astimezone(where))
    except ValueError:
        return None


def _next(found: re.Match[str], here: datetime) -> datetime:
    """The end of the next minute in which a clock on the wall of `here` shows this; without a year, the nearest such date."""
    hour = int(found["hour"])
    if found["half"]:
        hour = hour % 12 + (12 if found["half"].lower() == "pm" else 0)
    at = here.replace(hour=hour, minute=int(found["minute"] or 0), second=59, microsecond=0)
    if found["month"]:
        month = _MONTHS.index(found["month"].lower()) + 1
        at = at.replace(year=int(found["year"] or here.year), month=month, day=int(found["date"]))
        return at if at >= here or found["year"] else at.replace(year=here.year + 1)
    if found["day"]:
        ahead = (_DAYS.index(found["day"].lower()) - at.weekday()) % 7
        at += timedelta(days=ahead)
    if at < here <= at + JUST_PAST:
        return here + timedelta(minutes=1)
    return at if at >= here else at + timedelta(days=7 if found["day"] else 1)


def _in_zone(at: datetime, zone: tzinfo | None) -> datetime | None:
    return at.replace(tzinfo=zone) if zone else None
