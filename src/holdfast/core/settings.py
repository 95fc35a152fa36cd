"""What `holdfast.toml` and the user's own `config.toml` may say, and what becomes of both. Refuses what it does not know.

A repository's value comes before the user's, except where it could loosen what the user set: see `RULES`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from holdfast.core import setting_kinds as kinds
from holdfast.core.errors import BadFile
from holdfast.core.guards import Scope
from holdfast.core.named import NamedTuple
from holdfast.core.setting_kinds import Argv, Kind
from holdfast.core.stops import Limits
from holdfast.core.strictness import Strictness

FILE = "holdfast.toml"
TEMPLATE = """\
# What `holdfast run` does in this repository. Take away a `#` to set a key; docs/reference/settings.md explains each.
# What is named here to be run has to be accepted with `holdfast trust`, and again when it changes.

[run]
# agent = "codex"                        # for every phase; also claude, gemini, opencode, aider, mini, or one of yours
# reviewers = ["codex", "claude"]        # several review at the same time
# parallel = 2                           # tasks of a batch at once, each in a work tree of its own
# timeout = "45m"

[verify]
# tier0 = ["make lint"]                  # after every batch
# tier1 = ["make test"]
# tier2 = ["make check"]                 # at the end

[scope]
# allow = ["src/**", "tests/**"]
# deny = ["migrations/**"]

[budget]
# time = "8h"
# money = 20.0
"""
PHASES = ("test", "implement", "review")
ADVICE = "docs/reference/settings.md lists every key."
YOURS = {
    "store": "HOLDFAST_STORE says where logs are kept",
    "trust": "`holdfast trust` says what may run",
    "redaction": "secrets are always hidden",
    "guards": "the scope of a run is always held",
}
_LINE = re.compile(r"\(at line (\d+), column \d+\)")
_DEEP = re.compile(
    r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){32}""", re.ASCII
)  # tomllib takes its square
Values = dict[str, dict[str, Any]]


class RunSettings(NamedTuple):
    """[run]. An empty `test`, `implement`, `fix` or `reviewers` means the one `agent`. Times are seconds."""

    agent: str = "codex"
    test: tuple[str, ...] = ()
    implement: tuple[str, ...] = ()
    fix: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()
    phases: tuple[str, ...] = PHASES
    break_on_phase: bool = False
    max_fix_rounds: int = 3
    parallel: int = 2
    report_retries: int = 2
    timeout: float = 45 * 60.0
    stall_after: float = 15 * 60.0
    link: tuple[str, ...] = (".venv", "node_modules")
    brief_tokens: int = 4000
    on_interrupted: str = "continue"
    strictness: Strictness = Strictness.MEDIUM

    def agents_for(self, phase: str) -> tuple[str, ...]:
        """Who does a phase ("fix" is one too): all reviewers, else the first that can, in this order."""
        chosen: tuple[str, ...] = getattr(self, "reviewers" if phase == "review" else phase)
        return chosen or (self.agent,)


class VerifySettings(NamedTuple):
    """[verify]. Commands are argument lists, run without a shell."""

    tier0: tuple[Argv, ...] = ()
    tier1: tuple[Argv, ...] = ()
    tier2: tuple[Argv, ...] = ()
    timeout: float = 15 * 60.0
    tier1_when: str = "always"


class BudgetSettings(NamedTuple):
    """[budget], over all restarts of a run. None is no limit."""

    time: float | None = 8 * 3600.0
    tokens: int | None = None
    money: float | None = None


class Settings(NamedTuple):
    """Everything that can be set. `agents` holds the raw table of each agent."""

    run: RunSettings = RunSettings()
    scope: Scope = Scope()
    verify: VerifySettings = VerifySettings()
    budget: BudgetSettings = BudgetSettings()
    auto_resume: Limits = Limits(max_resumes=1)
    agents: Mapping[str, Mapping[str, Any]] = {}


class Given(NamedTuple):
    """What one file says, checked: only the keys that stand in it."""

    source: str
    values: Values


class BadSetting(BadFile):
    """A key or value of a settings file that is not allowed."""

    def __init__(self, source: str, line: int | None, key: str, problem: str) -> None:
        super().__init__(source, line, f"{key} {problem}", advice=ADVICE)
        self.key = key


SECTIONS: dict[str, dict[str, Kind]] = {
    "run": {
        "agent": kinds.name,
        "test": kinds.names,
        "implement": kinds.names,
        "fix": kinds.names,
        "reviewers": kinds.names,
        "phases": kinds.some_of(*PHASES),
        "break_on_phase": kinds.flag,
        "max_fix_rounds": kinds.between(0, 20),
        "parallel": kinds.between(1, 64),
        "report_retries": kinds.between(0, 10),
        "timeout": kinds.span,
        "stall_after": kinds.span,
        "link": kinds.places,
        "brief_tokens": kinds.between(200, 1_000_000),
        "on_interrupted": kinds.one_of("continue", "ask"),
        "strictness": kinds.one_of(*Strictness),
    },
    "scope": {"allow": kinds.patterns, "deny": kinds.patterns},
    "verify": {
        "tier0": kinds.commands,
        "tier1": kinds.commands,
        "tier2": kinds.commands,
        "timeout": kinds.span,
        "tier1_when": kinds.one_of("always", "risk", "last"),
    },
    "budget": {"time": kinds.span, "tokens": kinds.between(1, 10**12), "money": kinds.amount},
    "auto_resume": {"max": kinds.between(0, 20), "delays": kinds.spans},
}


# --- reading one file


def parse(table: Mapping[str, Any], source: str) -> Settings:
    """The settings of one table alone. Raises BadSetting for the first key or value that is not allowed."""
    return build(check(table, source).values)


def read(data: bytes, source: str) -> Given:
    """What the bytes of a file say. Raises BadFile where they are no TOML, with the line."""
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
        if deep := _DEEP.search(text):
            raise BadFile(source, text.count("\n", 0, deep.start()) + 1, "a key has too many parts")
        table = tomllib.loads(text)
    except UnicodeDecodeError:
        raise BadFile(source, None, "it is not UTF-8 text") from None
    except RecursionError:
        raise BadFile(source, None, "it is nested too deeply") from None
    except ValueError as error:
        at = _LINE.search(str(error))
        problem = _LINE.sub("", str(error)).strip().rstrip(".")
        raise BadFile(source, int(at[1]) if at else None, f"it is not TOML: {problem:.200}", advice=ADVICE) from None
    return check(table, source, text)


def check(table: Mapping[str, Any], source: str, text: str = "") -> Given:
    """Every key of a table, turned into what it means. `text` is where the table came from, to name lines of it."""
    values: Values = {}
    for section, content in table.items():
        problem = _section_problem(section, content)
        if problem:
            raise BadSetting(source, line_of(text, section), section, problem)
        for key, value in content.items():
            try:
                values.setdefault(section, {})[key] = _checked(section, key, value)
            except ValueError as error:
                raise BadSetting(source, line_of(text, section, key), f"{section}.{key}", str(error)) from None
    return Given(source, values)


def _section_problem(section: str, content: object) -> str | None:
    if section in YOURS:
        return f"cannot be set in a file: {YOURS[section]}"
    if section not in SECTIONS and section != "agents":
        return "is not a section" + _near(section, [*SECTIONS, "agents"])
    return None if isinstance(content, Mapping) else f"must be a table: write [{section}]"


def _checked(section: str, key: str, value: Any) -> Any:
    if section == "agents":
        kinds.name(key)
        if not isinstance(value, Mapping):
            raise ValueError(f"must be a table: write [agents.{key}]")
        return value
    if key not in SECTIONS[section]:
        raise ValueError("is not a key" + _near(key, SECTIONS[section]))
    return SECTIONS[section][key](value)


def _near(word: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    listed = sorted(known)
    near = get_close_matches(word[:80], listed, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(listed)}"


def line_of(text: str, section: str, key: str | None = None) -> int | None:
    """Where a section or a key of it stands, as well as a look at the lines can tell."""
    inside = ""
    for number, line in enumerate(text.split("\n"), 1):
        head, _, _ = line.partition("#")
        if head.strip().startswith("["):
            inside = head.strip().strip("[]").replace(" ", "").replace('"', "")
        found = inside if head.strip().startswith("[") else _joined(inside, head.partition("=")[0])
        wanted = section if key is None else f"{section}.{key}"
        if found == wanted or found.startswith(wanted + "."):
            return number
    return None


def _joined(section: str, key: str) -> str:
    return ".".join(part for part in (section, key.strip().replace(" ", "").replace('"', "")) if part)


# --- both files


def build(values: Values) -> Settings:
    resume = dict(values.get("auto_resume", {}))
    if "max" in resume:
        resume["max_resumes"] = resume.pop("max")
    run = dict(values.get("run", {}))
    if "strictness" in run:
        run["strictness"] = Strictness(run["strictness"])
    return Settings(
        RunSettings(**run),
        Scope(**values.get("scope", {})),
        VerifySettings(**values.get("verify", {})),
        BudgetSettings(**values.get("budget", {})),
        Limits(**{"max_resumes": 1, **resume}),
        values.get("agents", {}),
    )


def _smaller(mine: Any, theirs: Any) -> Any:
    return min(mine, theirs)


def _stricter(mine: str, theirs: str) -> str:
    return max(mine, theirs, key=[str(level) for level in Strictness].index)


def _asking(mine: str, theirs: str) -> str:
    return "ask" if "ask" in (mine, theirs) else mine


def _later(mine: Sequence[float], theirs: Sequence[float]) -> Sequence[float]:
    """Theirs, if it never waits less. The last one of each stays."""
    places = range(max(len(mine), len(theirs)))
    return theirs if all(_delay(theirs, place) >= _delay(mine, place) for place in places) else mine


def _delay(delays: Sequence[float], place: int) -> float:
    return delays[min(place, len(delays) - 1)] if delays else 0.0


def _both(mine: Sequence[Any], theirs: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys((*mine, *theirs)))


def _all_phases(mine: Sequence[str], theirs: Sequence[str]) -> tuple[str, ...]:
    return tuple(phase for phase in PHASES if phase in (*mine, *theirs))


def _mine(mine: Any, theirs: Any) -> Any:
    return mine or theirs


# What is taken where both files set a key; the repository's value where no rule stands.
RULES: dict[str, Callable[[Any, Any], Any]] = {
    "run.strictness": _stricter,
    "run.phases": _all_phases,
    "run.on_interrupted": _asking,
    "run.max_fix_rounds": _smaller,
    "run.report_retries": _smaller,
    "run.parallel": _smaller,
    "run.timeout": _smaller,
    "run.stall_after": _smaller,
    "verify.timeout": _smaller,
    "verify.tier0": _both,
    "verify.tier1": _both,
    "verify.tier2": _both,
    "scope.allow": _mine,
    "scope.deny": _both,
    "budget.time": _smaller,
    "budget.tokens": _smaller,
    "budget.money": _smaller,
    "auto_resume.max": _smaller,
    "auto_resume.delays": _later,
}


def combine(mine: Given, theirs: Given) -> tuple[Settings, tuple[str, ...]]:
    """The user's values and the repository's, and a sentence for each of the repository's that was not taken."""
    values: Values = {section: dict(content) for section, content in mine.values.items()}
    values.setdefault("run", {}).setdefault("strictness", Strictness.MEDIUM)
    notes = []
    for section, content in theirs.values.items():
        for key, value in content.items():
            here = values.setdefault(section, {})
            taken = _taken(f"{section}.{key}", here[key], value) if key in here else value
            here[key] = taken
            if taken != value and RULES.get(f"{section}.{key}") is not _both:
                notes.append(f"{section}.{key} of {theirs.source} is not taken: yours is kept.")
    return build(values), tuple(notes)


def _taken(key: str, mine: Any, theirs: Any) -> Any:
    rule = _mine if key.startswith("agents.") else RULES.get(key)
    return theirs if rule is None else rule(mine, theirs)
