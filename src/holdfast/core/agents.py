"""Agents are commands: how each is started and resumed, and where its output says what. Starts nothing itself.

A profile is data. Its placeholders are replaced once, as plain text, in one item of a command line each; nothing goes
through a shell, and no text from outside becomes an option.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import msgspec

from holdfast.core.agent_table import SHIPPED
from holdfast.core.errors import BadInput, TooLarge, shown
from holdfast.core.named import NamedTuple

MAX_ARGUMENT = 128 * 1024 - 1  # bytes that one item of a command line can have
MAX_SESSION = 4096
PLACES = ("prompt", "model", "report", "cwd", "folder", "session")
_PLACE = re.compile(r"\{(" + "|".join(PLACES) + r")\}")

Which: TypeAlias = Literal["first", "last", "sum", "join"]


class Find(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a value stands: in objects whose `where` holds, at `path` (keys, or numbers in lists, with dots between them).

    In output that is text, `after` is what stands before the value on its line; an error is a whole line that begins with it.
    `join` puts pieces together: those that follow one another directly are one text, others begin a new line.
    """

    path: str = ""
    where: dict[str, str] = {}
    which: Which = "last"
    after: str = ""


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One agent. `{prompt}` is the text of the prompt, or the path of its file where `prompt_by` is "file".

    `output_file` is where the agent writes its structured output, if not to its standard output; `session_is` names
    the session beforehand where the agent lets us; `progress` is what to show of it; `hint` ends all that it is told;
    `edits_last`: its answer comes before its edits, so that a report in it counts only if it came to its end by itself;
    `whole_session` names what it counts over all starts of a session; `cannot` says what it is not able to do.
    """

    name: str
    start: tuple[str, ...]
    prompt_by: Literal["argument", "stdin", "file"] = "argument"
    resume: tuple[str, ...] = ()
    output: Literal["text", "jsonl", "json"] = "text"
    output_file: str = ""
    session: tuple[Find, ...] = ()
    session_is: str = ""
    result: tuple[Find, ...] = ()
    money: tuple[Find, ...] = ()
    tokens: tuple[Find, ...] = ()
    errors: tuple[Find, ...] = ()
    progress: tuple[Find, ...] = ()
    hint: str = ""
    edits_last: bool = False
    whole_session: tuple[Literal["tokens", "money"], ...] = ()
    env: dict[str, str] = {}
    version: tuple[str, ...] = ()
    model: str = ""
    trust: str = ""
    cannot: tuple[str, ...] = ()


class BadProfile(BadInput):
    def __init__(self, name: str, problem: str) -> None:
        keys = ", ".join(("like", *(field for field in Profile.__struct_fields__ if field != "name")))
        super().__init__(f"The agent {shown(name, 60)} cannot be used: {problem}.", advice=f"Its keys are {keys}.")
        self.name = name
        self.problem = problem


class Call(NamedTuple):
    """What is to be started, and what it reads."""

    argv: tuple[str, ...]
    stdin: bytes | None
    session: str | None


class Places(NamedTuple):
    """What the placeholders stand for. No model means the agent's own choice."""

    prompt: str
    prompt_file: str
    report: str
    cwd: str
    folder: str
    model: str = ""
    session: str | None = None


def shipped() -> Sequence[str]:
    return tuple(SHIPPED)


@lru_cache(maxsize=64)
def shipped_profile(name: str) -> Profile:
    return _checked(_converted(SHIPPED[name], name))


def profile_from(table: Mapping[str, Any], name: str) -> Profile:
    """The profile in a `[agents.NAME]` table. `like` takes what is not said from a shipped one."""
    like = table.get("like", name if name in SHIPPED else None)
    if like is not None and (not isinstance(like, str) or like not in SHIPPED):
        raise BadProfile(name, f"`like` is {shown(like, 60)}, which is none of {', '.join(SHIPPED)}")
    base = {} if like is None else SHIPPED[like]
    own = {key: value for key, value in table.items() if key != "like"}
    return _checked(_converted({**base, **own}, name))


def _converted(table: Mapping[str, Any], name: str) -> Profile:
    if "name" in table:
        raise BadProfile(name, "`name` is given by the title of its table")
    try:
        return msgspec.convert({**table, "name": name}, Profile)
    except msgspec.ValidationError as error:
        raise BadProfile(name, str(error).replace("$.", f"agents.{name}.")) from None


def _checked(profile: Profile) -> Profile:
    for problem in _problems(profile):
        raise BadProfile(profile.name, problem)
    return profile


def _problems(profile: Profile) -> list[str]:
    wants = profile.prompt_by != "stdin"
    rules = (
        (not profile.start or not profile.start[0], "`start` names no program"),
        (_uses(profile.start[:1] + profile.resume[:1]), "the program itself cannot be a placeholder"),
        ("session" in _uses(profile.start), "`start` asks for {session}, and there is none yet"),
        (profile.resume and "session" not in _uses(profile.resume), "`resume` does not say {session}"),
        (profile.resume and not profile.session and not profile.session_is, "`resume` needs `session` to find its id"),
        (("prompt" in _uses(profile.start)) != wants, f"{_prompt_rule(wants)} in `start`"),
        (profile.resume and ("prompt" in _uses(profile.resume)) != wants, f"{_prompt_rule(wants)} in `resume`"),
        (any("\0" in item for item in profile.start + profile.resume), "a command line cannot hold a zero byte"),
        (any("=" in key or not key for key in profile.env), "`env` holds a name that no variable can have"),
    )
    return [problem for broken, problem in rules if broken]


def _prompt_rule(wants: bool) -> str:
    return "{prompt} must stand" if wants else "{prompt} goes to the standard input, so it must not stand"


def _uses(items: Sequence[str]) -> set[str]:
    return {name for item in items for name in _PLACE.findall(item)}


def call(profile: Profile, places: Places) -> Call:
    """The command line that starts the agent, or resumes the session that is given. Replaced text is never replaced again."""
    pattern = profile.resume if places.session is not None else profile.start
    if not pattern:
        raise BadProfile(profile.name, "it cannot resume a session")
    _check_session(profile, places)
    values = _values(profile, places)
    argv = tuple(_item(item, before, values) for before, item in _kept(pattern, bool(values["model"])))
    _check_size(profile, argv)
    stdin = places.prompt.encode("utf-8", "replace") if profile.prompt_by == "stdin" else None
    named = filled(profile.session_is, places) if profile.session_is else None
    return Call(argv, stdin, places.session or named)


def hinted(profile: Profile, prompt: str) -> str:
    return f"{prompt.rstrip()}\n\n{profile.hint}\n" if profile.hint else prompt


def filled(text: str, places: Places) -> str:
    """A path of the profile with its placeholders replaced."""
    values = {"cwd": places.cwd, "folder": places.folder, "report": places.report}
    return _PLACE.sub(lambda found: values.get(found[1], found[0]), text)


def _values(profile: Profile, places: Places) -> dict[str, str]:
    prompt = places.prompt_file if profile.prompt_by == "file" else places.prompt
    model = places.model or profile.model
    values = {"prompt": prompt, "model": model, "session": places.session or ""}
    return values | {"report": places.report, "cwd": places.cwd, "folder": places.folder}


def _check_session(profile: Profile, places: Places) -> None:
    session = places.session
    if session is None:
        return
    if not session or session.startswith("-") or not session.isprintable() or len(session) > MAX_SESSION:
        raise BadProfile(profile.name, f"{shown(session, 60)} cannot be the id of a session")


def _kept(pattern: Sequence[str], has_model: bool) -> list[tuple[str, str]]:
    """The items with the one before each. Without a model, what names one is left out with its option."""
    kept: list[tuple[str, str]] = []
    for before, item in zip(("", *pattern), pattern, strict=False):
        if "{model}" not in item or has_model:
            kept.append((before, item))
        elif item == "{model}" and before.startswith("-"):
            kept.pop()
    return kept


def _item(item: str, before: str, values: Mapping[str, str]) -> str:
    done = _PLACE.sub(lambda found: values[found[1]], item)
    is_text = item.startswith("{") and done.startswith("-") and before != "--"
    return f" {done}" if is_text else done


def _check_size(profile: Profile, argv: Sequence[str]) -> None:
    for item in argv:
        size = len(item.encode("utf-8", "replace"))
        if size > MAX_ARGUMENT:
            advice = f'Give {profile.name} its prompt by `prompt_by = "stdin"` or "file", or make the task shorter.'
            raise TooLarge(f"The prompt for {profile.name}", size, MAX_ARGUMENT, advice=advice)
        if "\0" in item:
            raise BadInput(f"The prompt for {profile.name} holds a zero byte, which no command line can.")
