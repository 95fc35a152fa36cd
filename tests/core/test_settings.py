"""Settings files: what each key means, what is refused and how that is said, and who wins where two files speak."""

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import setting_kinds as kinds
from holdfast.core.errors import BadFile
from holdfast.core.guards import Scope
from holdfast.core.settings import (
    ADVICE,
    FILE,
    SECTIONS,
    YOURS,
    BadSetting,
    Given,
    Settings,
    combine,
    line_of,
    parse,
    read,
)
from holdfast.core.stops import Limits
from holdfast.core.strictness import Strictness

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"

WHOLE = """
[run]
agent = "claude"
test = "codex"
implement = ["claude", "codex"]
fix = ["mine"]
reviewers = ["codex", "claude"]
phases = ["implement", "review"]
break_on_phase = true
max_fix_rounds = 5
parallel = 1
report_retries = 0
timeout = "1h"
stall_after = 600
link = [".venv", "web/node_modules"]
brief_tokens = 2000
on_interrupted = "ask"
strictness = "max"

[scope]
allow = ["src/**"]
deny = ["src/secret"]

[verify]
tier0 = ["ruff check 'src dir'", ["pytest", "-q", "a && b"]]
tier1 = ["env CI=1 make test"]
tier2 = []
timeout = "5m"
tier1_when = "risk"

[budget]
time = "2h"
tokens = 1000
money = 2.5

[auto_resume]
max = 2
delays = ["1s", 2]

[agents.mine]
start = ["mine", "{prompt}"]
"""


def refused(text: str) -> BadFile:
    with pytest.raises(BadFile) as caught:
        read(text.encode(), FILE)
    return caught.value


def given_by(text: str, source: str = FILE) -> Given:
    return read(text.encode(), source)


# --- one file


def test_every_key_is_read_as_what_it_means():
    found = parse(tomllib.loads(WHOLE), FILE)
    assert found.run[:6] == (
        "claude",
        ("codex",),
        ("claude", "codex"),
        ("mine",),
        ("codex", "claude"),
        ("implement", "review"),
    )
    assert found.run[6:12] == (True, 5, 1, 0, 3600.0, 600.0)
    assert found.run[12:] == ((".venv", "web/node_modules"), 2000, "ask", Strictness.MAX)
    assert isinstance(found.run.strictness, Strictness)
    assert found.scope == Scope(("src/**",), ("src/secret",))
    assert found.verify[0] == (("ruff", "check", "src dir"), ("pytest", "-q", "a && b"))
    assert found.verify[1:] == ((("env", "CI=1", "make", "test"),), (), 300.0, "risk")
    assert found.budget == (7200.0, 1000, 2.5)
    assert found.auto_resume == Limits(2, (1.0, 2.0))
    assert found.agents == {"mine": {"start": ["mine", "{prompt}"]}}


def test_the_example_has_every_key():
    assert {section: set(keys) for section, keys in SECTIONS.items()} == {
        section: set(keys) for section, keys in tomllib.loads(WHOLE).items() if section != "agents"
    }


def test_nothing_said_is_the_default():
    assert parse({}, FILE) == Settings()
    assert Settings().auto_resume == Limits(1, (30.0, 120.0, 300.0))
    assert Settings().budget.time == 8 * 3600 and Settings().run.strictness is Strictness.MEDIUM


def test_who_does_a_phase():
    run = parse({"run": {"agent": "claude", "fix": ["a", "b"], "reviewers": ["x", "y"]}}, FILE).run
    assert [run.agents_for(phase) for phase in ("test", "implement", "fix", "review")] == [
        ("claude",), ("claude",), ("a", "b"), ("x", "y"),
    ]  # fmt: skip
    assert Settings().run.agents_for("review") == ("codex",)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("[rum]\n", 1, "rum is not a section; did you mean run?"),
        ("x = 1", 1, "x is not a section; known are agents, auto_resume, budget, run, scope, verify"),
        ("run = 1", 1, "run must be a table: write [run]"),
        ("[run]\n\nagnet = 'x'", 3, "run.agnet is not a key; did you mean agent?"),
        ("[scope]\nzzz = 'x'", 2, "scope.zzz is not a key; known are allow, deny"),
        ("[run]\nagent = 5", 2, "run.agent must be a name"),
        ("[run]\nagent = '../x'", 2, "run.agent must be a name"),
        ("[run]\nfix = []", 2, "run.fix must be a name or a list of different names"),
        ("[run]\nfix = ['a', 'a']", 2, "run.fix must be a name or a list of different names"),
        ("[run]\nfix = 5", 2, "run.fix must be a list of at most 200"),
        ("[run]\nphases = ['review', 'test']", 2, "each once and in this order"),
        ("[run]\nphases = ['test', 'test']", 2, "each once and in this order"),
        ("[run]\nphases = []", 2, "at least one of test, implement, review"),
        ("[run]\nphases = ['deploy']", 2, """must be "test" or "implement" or "review", not 'deploy'"""),
        ("[run]\nphases = 'test'", 2, "run.phases must be a list"),
        ("[run]\nbreak_on_phase = 1", 2, "must be true or false"),
        ("[run]\nparallel = 0", 2, "must be a whole number from 1 to 64"),
        ("[run]\nparallel = true", 2, "must be a whole number"),
        ("[run]\nparallel = 1.0", 2, "must be a whole number"),
        ("[run]\ntimeout = '5 parsecs'", 2, 'run.timeout must be a length of time such as "90s"'),
        ("[run]\ntimeout = 0", 2, "run.timeout must be longer than nothing"),
        ("[run]\nlink = ['../x']", 2, "not the path of something below the top"),
        ("[run]\nlink = ['/etc']", 2, "not the path of something below the top"),
        ("[run]\nlink = ['a/.GIT/x']", 2, "not the path of something below the top"),
        ("[run]\nlink = ['.holdfast']", 2, "not the path of something below the top"),
        ("[run]\nlink = [5]", 2, "must hold text, not 5"),
        ("[run]\non_interrupted = 'retry'", 2, """must be "continue" or "ask", not 'retry'"""),
        ("[run]\nstrictness = ['max']", 2, "run.strictness must be"),
        ("[scope]\nallow = ['/etc']", 2, "scope.allow is not understood. The pattern '/etc' cannot be used"),
        ("[verify]\ntier0 = ['a && b']", 2, "verify.tier0 holds '&&', but commands run without a shell"),
        ("[verify]\ntier0 = ['CI=1 make']", 2, "verify.tier0 holds 'CI=1', but commands run without a shell"),
        ('[verify]\ntier0 = ["it\'s"]', 2, "with a quote that is not closed"),
        ("[verify]\ntier0 = ['']", 2, "holds a command without a program"),
        ("[verify]\ntier0 = [['', 'x']]", 2, "holds a command without a program"),
        ("[verify]\ntier0 = [[5]]", 2, "must hold text, not 5"),
        ('[verify]\ntier0 = ["a\\u0000b"]', 2, "must hold text"),
        ("[verify]\ntier2_when = 'end'", 2, "is not a key"),
        ("[budget]\nmoney = 'much'", 2, "must be a number from 0"),
        ("[budget]\nmoney = nan", 2, "must be a number from 0"),
        ("[agents]\nmine = 'x'", 2, "agents.mine must be a table: write [agents.mine]"),
        ("[agents.'a b']\nx = 1", 1, "agents.a b must be a name"),
    ],
)
def test_what_is_not_allowed_is_named_with_file_line_and_rule(text, line, said):
    error = refused(text)
    assert isinstance(error, BadSetting)
    assert str(error).startswith(f"{FILE}, line {line}: " if "a b" not in text else FILE), error
    assert said in str(error) and error.reason == "bad_input" and error.advice
    assert str(error).partition(": ")[2].startswith(f"{error.key} ")


LONG = "x" * 99
CUT = f"'{'x' * 59}"


def rule(kind: kinds.Kind, value: object) -> str:
    with pytest.raises(ValueError) as caught:
        kind(value)
    return str(caught.value)


def test_a_number_is_taken_from_its_lowest_to_its_highest():
    whole = kinds.between(1, 6400)
    assert [whole(1), whole(6400)] == [1, 6400]
    for wrong in (0, 6401, True, 1.0, "1"):
        assert rule(whole, wrong) == "must be a whole number from 1 to 6,400"
    assert [kinds.amount(0), kinds.amount(0.5), kinds.amount(10**9)] == [0.0, 0.5, 1e9]
    for wrong in (-0.1, 1e9 + 1, True, "1", None):
        assert rule(kinds.amount, wrong) == "must be a number from 0 to 1,000,000,000"


def test_words_are_taken_once_and_in_their_order():
    some = kinds.some_of("b", "a", "c")
    assert [some(["b", "c"]), some(["b", "a", "c"])] == [("b", "c"), ("b", "a", "c")]
    for wrong in ([], ["a", "b"], ["b", "b"]):
        assert rule(some, wrong) == "must hold at least one of b, a, c, each once and in this order"
    assert rule(some, [LONG]) == f'must be "b" or "a" or "c", not {CUT}'
    assert len(kinds.places(["x"] * 200)) == 200 and rule(kinds.places, ["x"] * 201) == "must be a list of at most 200"


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (kinds.flag, 1, "must be true or false"),
        (kinds.places, ["a//b"], "holds 'a//b', which is not the path of something below the top of the repository"),
        (kinds.places, ["./b"], "holds './b', which is not the path of something below the top of the repository"),
        (kinds.places, [f"{LONG}/.."],
         f"holds {CUT}, which is not the path of something below the top of the repository"),
        (kinds.patterns, ["/etc"], "is not understood. The pattern '/etc' cannot be used: "
         "it is not a path below the top of the work tree"),
        (kinds.command, "", "holds a command without a program"),
        (kinds.command, f"{LONG}=1 make",
         f"holds {CUT}, but commands run without a shell: write one command for each, "
         'or ["sh", "-c", "..."]; put `env` before NAME=value'),
        (kinds.command, f"{LONG} '", f'holds the command "{LONG[:59]} with a quote that is not closed'),
        (kinds.command, f"{LONG}\0", f"must hold text, not {CUT}"),
    ],
)  # fmt: skip
def test_the_rule_that_a_value_breaks_is_said_with_the_value_cut_short(kind, value, said):
    assert rule(kind, value) == said


@pytest.mark.parametrize("section", YOURS)
def test_what_is_the_users_alone_is_in_no_file(section):
    assert "cannot be set in a file" in str(refused(f"{section} = 'x'"))
    assert "cannot be set in a file" in str(refused(f"[{section}]\nx = 1"))


@pytest.mark.parametrize(
    ("data", "line", "said"),
    [
        (b"[run\n", 1, "it is not TOML: Expected ']' at the end of a table declaration."),
        (b"[run]\na = 1\na = 2\n[scope]", 3, "it is not TOML: Cannot overwrite a value"),
        (b"\xff\xfe", None, "it is not UTF-8 text."),
        (b"x = " + b"[" * 20000, None, "it is nested too deeply."),
        (b"\nx = " + b"9" * 5000, None, "it is not TOML: Exceeds the limit"),
        (b"\n\n" + b"a." * 30000 + b"a = 1", 3, "a key has too many parts."),
        (b"x = {" + b"'a' . " * 30000 + b"a = 1}\n", 1, "a key has too many parts."),
    ],
)
def test_what_is_no_settings_file_is_said_at_once(data, line, said):
    with pytest.raises(BadFile) as caught:
        read(data, FILE)
    assert caught.value.line == line
    assert str(caught.value).startswith(f"{FILE}, line {line}: {said}" if line else f"{FILE}: {said}")
    assert not str(caught.value).endswith("..") and ("TOML" in said) == (caught.value.advice == ADVICE)


def test_a_table_that_is_not_allowed_is_refused_in_the_name_of_its_file():
    with pytest.raises(BadSetting, match=r"^mine\.toml: run\.x is not a key"):
        parse({"run": {"x": 1}}, "mine.toml")


def test_a_file_from_another_system_is_read():
    assert read("\ufeff[run]\r\nagent = 'x'\r\n".encode(), FILE).values == {"run": {"agent": "x"}}


def test_lines_are_found_where_they_stand():
    text = '# [run]\n[ run ] # x\nagent="x"\n[[odd]]\nrun.agent = 1\n[agents."mine"]\nstart.a = 1'
    assert line_of(text, "run") == 2 and line_of(text, "run", "agent") == 3
    assert line_of(text, "agents", "mine") == 6 and line_of(text, "odd") == 4
    assert line_of(text, "nothing") is None and line_of("", "run") is None
    assert line_of("run.agent = 1", "run", "agent") == line_of('run . "agent" = 1', "run", "agent") == 1
    assert line_of("\n[store.deep]", "store") == 2 and line_of("\n[stores]", "store") is None


@given(st.binary(max_size=200))
def test_any_bytes_are_settings_or_a_sentence(data):
    try:
        read(data, FILE)
    except BadFile as error:
        assert str(error).endswith(".")


# --- two files


def test_the_repository_wins_over_the_users_defaults():
    mine = given_by("[run]\nagent='mine'\nparallel=4\n[verify]\ntier0=['a']", "config.toml")
    found, notes = combine(mine, given_by("[run]\nagent='theirs'\n[verify]\ntier1=['b']"))
    assert (found.run.agent, found.run.parallel, notes) == ("theirs", 4, ())
    assert (found.verify.tier0, found.verify.tier1) == ((("a",),), (("b",),))
    assert combine(Given("config.toml", {}), given_by("[budget]\ntokens=5"))[0].budget.tokens == 5


@pytest.mark.parametrize(
    ("mine", "theirs", "taken"),
    [("max", "medium", "max"), ("off", "medium", "medium"), ("medium", "off", "medium"), ("medium", "max", "max")],
)
def test_a_repository_can_only_be_stricter(mine, theirs, taken):
    found, notes = combine(given_by(f"[run]\nstrictness='{mine}'"), given_by(f"[run]\nstrictness='{theirs}'"))
    assert found.run.strictness == taken
    assert notes == (() if taken == theirs else ("run.strictness of holdfast.toml is not taken: yours is kept.",))


def test_a_repository_cannot_loosen_what_nobody_set():
    found, notes = combine(Given("config.toml", {}), given_by("[run]\nstrictness='off'"))
    assert found.run.strictness is Strictness.MEDIUM and len(notes) == 1


def test_a_repository_cannot_widen_the_users_scope_or_take_a_guard_away():
    mine = given_by("[scope]\nallow=['src']\ndeny=['secret']")
    found, notes = combine(mine, given_by("[scope]\nallow=['**']\ndeny=['other']"))
    assert found.scope == Scope(("src",), ("secret", "other"))
    assert notes == ("scope.allow of holdfast.toml is not taken: yours is kept.",)
    assert combine(mine, given_by("[scope]\ndeny=[]"))[0].scope.deny == ("secret",)
    assert combine(given_by("[scope]\nallow=[]"), given_by("[scope]\nallow=['x']"))[0].scope.allow == ("x",)


def test_the_users_budget_is_the_most_a_repository_gets():
    mine = given_by("[budget]\ntime='1h'\nmoney=5\n[auto_resume]\nmax=0")
    found, notes = combine(mine, given_by("[budget]\ntime='9h'\nmoney=2\ntokens=7\n[auto_resume]\nmax=9"))
    assert found.budget == (3600.0, 7, 2.0) and found.auto_resume.max_resumes == 0
    assert [note.split()[0] for note in notes] == ["budget.time", "auto_resume.max"]


@pytest.mark.parametrize(
    ("section", "key", "strict", "lax"),
    [
        ("run", "on_interrupted", "'ask'", "'continue'"),
        ("run", "max_fix_rounds", "1", "9"),
        ("run", "report_retries", "0", "5"),
        ("run", "parallel", "1", "8"),
        ("run", "timeout", "'10m'", "'5h'"),
        ("run", "stall_after", "'10m'", "'5h'"),
        ("verify", "timeout", "'10m'", "'5h'"),
        ("auto_resume", "delays", "['2m', '5m', '9m']", "['2m', '3m']"),
        ("auto_resume", "delays", "['1m']", "[]"),
    ],
)
def test_a_repository_makes_no_limit_laxer_that_the_user_wrote(section, key, strict, lax):
    one, other = (given_by(f"[{section}]\n{key}={value}", "holdfast.toml") for value in (strict, lax))
    wanted = one.values[section][key]
    for mine, theirs, notes in (
        (one, other, (f"{section}.{key} of holdfast.toml is not taken: yours is kept.",)),
        (other, one, ()),
    ):
        found, said = combine(mine, theirs)
        assert (getattr(getattr(found, section), key), said) == (wanted, notes)
    found, said = combine(Given("config.toml", {}), other)
    assert (getattr(getattr(found, section), key), said) == (other.values[section][key], ())


def test_the_users_agent_means_what_the_user_said():
    mine, theirs = (
        given_by("[agents.x]\nstart=['mine']"),
        given_by("[agents.x]\nstart=['evil']\n[agents.y]\nstart=['y']"),
    )
    found, notes = combine(mine, theirs)
    assert found.agents == {"x": {"start": ["mine"]}, "y": {"start": ["y"]}} and len(notes) == 1
    assert mine.values == {"agents": {"x": {"start": ["mine"]}}}, "what was given is not changed"


# --- the page


def test_the_page_has_every_key():
    page = PAGE.read_text(encoding="utf-8")
    for section, keys in SECTIONS.items():
        part = page.split(f"\n## [{section}]\n")[1].split("\n## ")[0]
        assert set(re.findall(r"^\| `(\w+)` \|", part, re.M)) == set(keys), section
    assert "\n## [agents.NAME]\n" in page


def test_the_example_on_the_page_is_accepted():
    example = re.search(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert example and parse(tomllib.loads(example[1]), FILE) != Settings()


def test_a_repository_cannot_leave_out_what_the_user_wants_done():
    mine = read(b'[run]\nphases = ["implement", "review"]\n[verify]\ntier0 = ["make lint"]\n', "config.toml")
    theirs = read(b'[run]\nphases = ["implement"]\n[verify]\ntier0 = []\ntier1 = ["make test"]\n', "holdfast.toml")
    chosen, _ = combine(mine, theirs)
    assert chosen.run.phases == ("implement", "review")
    assert chosen.verify.tier0 == (("make", "lint"),) and chosen.verify.tier1 == (("make", "test"),)
