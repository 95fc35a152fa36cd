"""The stop registry: its table, its other names, its diagnoses, its auto-resume, and that nobody else compares reasons."""

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import stops
from holdfast.core.settings import SECTIONS
from holdfast.core.stop_table import ALIASES, CALLED_HERE

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "holdfast"
VERBS = {
    "status", "log", "show", "resume", "answer", "settle", "cancel", "fork", "verify", "export", "import", "stops", "doctor",
    "demo", "trust",
}  # fmt: skip
FLAGS = {"doctor": {"--fix", "--accept-loss"}, "settle": {"--done", "--not-done"}, "resume": {"--yes", "--plan"}}

# code, title, family, exit code, auto-resumable, diagnosis: word for word as the registry was asked for
ASKED_FOR = """
timeout|Time budget exceeded|resource_limit|124|no|Increase time budget with --time or simplify task into smaller milestones
max_ticks|Maximum supervisor ticks reached|resource_limit|125|no|Increase --max-ticks or simplify task to reduce phase transitions
stalled|Run stalled (no progress)|resource_limit|126|yes|Run made no progress for extended period. Check worker logs for hangs.
guard_violation|Scope guard violation|constraint|2|no|Agent attempted changes outside allowlist or inside denylist. Check scope configuration.
lockfile_violation|Disallowed lockfile changes|constraint|3|no|Agent modified lockfiles without permission. Use --allow-deps or update allowlist.
dirty_worktree|Dirty worktree before run|constraint|4|no|Uncommitted changes detected. Commit or use --allow-dirty.
file_collision|File ownership collision with active run|constraint|5|no|Another run has claimed ownership of files in scope. Wait or use --force-parallel.
verification_failed|Verification commands failed|failure|10|no|Implementation did not pass verification tier. Check failure logs and retry.
verification_timeout|Verification timeout|failure|11|no|Verification commands exceeded time limit. Increase max_verify_time_per_milestone.
review_loop_detected|Review loop detected (repeated same review)|review|20|no|Agent unable to address review comments after multiple attempts. Manual intervention needed.
review_rejected|Review explicitly rejected|review|21|no|Reviewer rejected implementation. Check review memo for details.
worker_blocked|Worker reported blocked status|worker|30|no|Worker unable to proceed. Check handoff memo for details.
worker_failed|Worker process failed|worker|31|no|Worker process crashed or returned error. Check worker logs.
worker_timeout|Worker call timeout|worker|32|yes|Worker did not respond within timeout. Check worker health and network.
user_stopped|User requested stop|user|130|no|Run stopped by user request (Ctrl+C).
"""  # noqa: E501

SHIPPED = {
    "time_budget_exceeded": "timeout",
    "max_ticks_reached": "max_ticks",
    "stalled_timeout": "stalled",
    "worker_call_timeout": "worker_timeout",
    "verification_failed_max_retries": "verification_failed",
    "implement_blocked": "worker_blocked",
    "parallel_file_collision": "file_collision",
    "plan_parse_failed": "worker_failed",
    "implement_parse_failed": "worker_failed",
    "review_parse_failed": "worker_failed",
}

SHIPPED_AS_THEY_ARE = {
    "complete": "complete",
    "guard_violation": "constraint",
    "ownership_violation": "constraint",
    "plan_scope_violation": "constraint",
    "insufficient_evidence": "failure",
    "review_loop_detected": "review",
    "milestone_missing": "internal",
}

NEEDED = """
complete input_changed drift_refused code_changed branch_differs effect_unknown awaiting_answer quota_wait sleeping
lease_lost lease_held conflict store_unreadable newer_schema log_damaged tail_lost store_busy store_full store_read_only
store_io store_foreign store_replaced store_unavailable bad_input not_found usage_error too_large untrusted interrupted
cancelled budget_exhausted step_failed checkpoint_unwritable internal_error
"""

WORDS = """
mission run plan task batch step phase session job event log state cursor checkpoint mirror source effect settle lease
epoch snapshot milestone sidecar position drift verdict stop finding artifact note probe receipt
agent brief gate handoff report spec stage trust
"""

each_stop = pytest.mark.parametrize("stop", stops.all_stops(), ids=lambda stop: stop.code)


# ---- the table


@each_stop
def test_every_stop_has_a_title_a_family_an_exit_code_a_diagnosis_and_advice(stop):
    assert stop.code == stop.code.lower().strip() and stop.code.replace("_", "").isalpha()
    assert stop.title and stop.diagnosis and stop.next_actions
    assert "{" not in stop.diagnosis + stop.title and "|" not in stop.diagnosis + stop.title
    assert stop.resumable in (True, False)
    assert stop.resumable or not stop.auto_resumable, "what goes on by itself can go on"


@each_stop
def test_every_exit_code_lies_in_the_range_of_its_family(stop):
    family = {family.name: family for family in stops.families()}[stop.family]
    assert family.low <= stop.exit_code <= family.high <= 255
    assert stops.exit_code(stop.code) == stop.exit_code


def test_no_code_exit_code_title_or_family_range_is_used_twice():
    found = stops.all_stops()
    for column in ("code", "exit_code", "title", "diagnosis"):
        values = [getattr(stop, column) for stop in found]
        assert sorted(set(values)) == sorted(values), column
    ranges = [number for family in stops.families() for number in range(family.low, family.high + 1)]
    assert len(ranges) == len(set(ranges))
    assert 1 not in {stop.exit_code for stop in found}, "1 is left for the unknown"


def test_what_other_programs_call_by_a_name_of_their_own_has_the_name_that_it_has_here():
    """The setting or option that a diagnosis names is there, or the sentence goes on with the one that is."""
    for stop in stops.all_stops():
        foreign = re.search(r"--(?!allow-dirty|yes)[a-z-]+|max_[a-z_]+", stop.diagnosis)
        assert bool(foreign) is (stop.code in CALLED_HERE), stop.code
        if foreign and foreign[0].startswith("--"):
            assert f"There is no {foreign[0]} here: " in stop.sentence
        for section, key in re.findall(r"(\w+)\.(\w+) in holdfast.toml", stop.sentence):
            assert key in SECTIONS[section]


@pytest.mark.parametrize("row", ASKED_FOR.strip().splitlines(), ids=lambda row: row.split("|")[0])
def test_the_fifteen_that_were_asked_for_stand_word_for_word(row):
    code, title, family, exit_code, auto, diagnosis = row.split("|")
    stop = stops.lookup(code)
    assert (stop.title, stop.family, str(stop.exit_code), stop.diagnosis) == (title, family, exit_code, diagnosis)
    assert stop.auto_resumable is (auto == "yes")


def test_fifteen_were_asked_for():
    assert len(ASKED_FOR.strip().splitlines()) == 15


@pytest.mark.parametrize("code", NEEDED.split())
def test_what_holdfast_itself_needs_is_there(code):
    assert stops.lookup(code).code == code
    assert stops.lookup(code).family != "unknown"


def test_a_stop_that_ends_a_run_for_good_is_not_resumable_and_a_wait_is():
    assert not stops.is_resumable("complete") and not stops.is_resumable("cancelled")
    assert not stops.is_resumable("log_damaged") and not stops.is_resumable("newer_schema")
    assert stops.is_resumable("awaiting_answer") and not stops.is_auto_resumable("awaiting_answer")
    assert stops.is_resumable("effect_unknown") and not stops.is_auto_resumable("effect_unknown")


def test_one_list_says_what_goes_on_without_a_person():
    assert {stop.code for stop in stops.all_stops() if stops.is_auto_resumable(stop.code)} == {
        "interrupted",
        "quota_wait",
        "sleeping",
        "stalled",
        "store_busy",
        "store_unavailable",
        "worker_timeout",
    }


def test_all_stops_are_listed_by_exit_code():
    codes = [stop.exit_code for stop in stops.all_stops()]
    assert codes == sorted(codes) and codes[0] == 0


# ---- other names


@pytest.mark.parametrize(("alias", "code"), sorted((SHIPPED | ALIASES).items()))
def test_an_alias_leads_to_its_code_and_the_code_back_to_it(alias, code):
    assert stops.lookup(alias) == stops.lookup(code)
    assert stops.lookup(alias).code == code
    assert alias in stops.aliases_of(code)
    assert alias in stops.aliases_of(alias)
    assert stops.exit_code(alias) == stops.exit_code(code) != 1
    assert stops.is_resumable(alias) == stops.is_resumable(code)
    assert stops.is_auto_resumable(alias) == stops.is_auto_resumable(code)


@pytest.mark.parametrize(("code", "family"), SHIPPED_AS_THEY_ARE.items())
def test_a_shipped_name_without_another_name_is_a_code_itself(code, family):
    assert stops.lookup(code).code == code
    assert stops.lookup(code).family == family


def test_no_alias_hides_a_code():
    assert not set(ALIASES) & {stop.code for stop in stops.all_stops()}


def test_a_code_without_other_names_and_an_unknown_one_have_no_aliases():
    assert stops.aliases_of("cancelled") == ()
    assert stops.aliases_of("no such reason") == ()


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        ({"scope_violations": [], "lockfile_violations": ["uv.lock"]}, "lockfile_violation"),
        ({"guard": {"scope_violations": [], "lockfile_violations": ["uv.lock"]}}, "lockfile_violation"),
        ({"scope_violations": ["x"], "lockfile_violations": ["uv.lock"]}, "guard_violation"),
        ({"scope_violations": ["x"], "lockfile_violations": []}, "guard_violation"),
        ({"guard": "not an object"}, "guard_violation"),
        ({}, "guard_violation"),
    ],
)
def test_a_shipped_guard_violation_over_lockfiles_alone_is_a_lockfile_violation(payload, code):
    assert stops.lookup_shipped("guard_violation", payload).code == code
    assert stops.lookup_shipped("guard_fail", payload).code == code
    assert stops.lookup_shipped("stalled_timeout", payload).code == "stalled"


# ---- the unknown


@given(st.text())
def test_an_unknown_reason_keeps_its_name_exits_with_1_and_breaks_nothing(code):
    if stops.is_known(code):
        return
    stop = stops.lookup(code)
    assert (stop.code, stop.exit_code, stop.family, stop.diagnosis) == (code, 1, "unknown", "Unknown stop reason")
    assert not stops.is_resumable(code) and not stops.is_auto_resumable(code)
    assert stops.diagnose(code).confidence == 0.5
    assert not stops.auto_resume(code, "", []).resume


@pytest.mark.parametrize("near_miss", ["", "Complete", "complete ", "LEASE_LOST", "lease-lost"])
def test_a_near_miss_is_unknown_and_never_success(near_miss):
    assert stops.exit_code(near_miss) == 1


# ---- advice and diagnosis


def commands() -> list[tuple[str, str]]:
    unknown = stops.lookup("no such reason")
    return [(stop.code, action) for stop in (*stops.all_stops(), unknown) for action in stop.next_actions]


@pytest.mark.parametrize(("code", "action"), commands())
def test_every_next_action_is_a_holdfast_command_of_this_release(code, action):
    program, verb, *rest = shlex.split(action.replace("{run}", "r1"))
    assert program == "holdfast" and action.startswith("holdfast ")
    assert verb in VERBS
    assert not set("{}$`;&|<>") & set(action.replace("{run}", ""))
    arguments = [word for word in rest if not word.startswith("-")]
    assert {word for word in rest if word.startswith("-")} <= FLAGS.get(verb, set())
    counts = {"status": {0}, "trust": {0}, "doctor": {0}, "export": {2}, "settle": {2}, "stops": {0, 1}}
    assert len(arguments) in counts.get(verb, {1})
    assert verb != "stops" or not arguments or stops.is_known(arguments[0])


@each_stop
def test_at_most_three_next_actions_one_of_which_needs_no_run(stop):
    assert len(stop.next_actions) <= 3
    assert stops.next_actions(stop.code)
    assert not any("{run}" in action for action in stops.next_actions(stop.code))


def test_next_actions_name_the_run():
    assert stops.next_actions("worker_failed", "run-7") == (
        "holdfast resume run-7",
        "holdfast show run-7",
        "holdfast status",
    )


@each_stop
def test_what_can_go_on_is_advised_to_and_what_cannot_is_not(stop):
    resumes = [action for action in stop.next_actions if action.startswith("holdfast resume")]
    assert stop.resumable or not resumes


def test_an_unknown_effect_names_the_commands_that_settle_it_and_a_question_the_one_that_answers():
    assert stops.next_actions("effect_unknown", "run-7")[:2] == (
        "holdfast settle run-7 EFFECT --done",
        "holdfast settle run-7 EFFECT --not-done",
    )
    assert stops.next_actions("awaiting_answer", "run-7")[0] == "holdfast answer run-7"


@pytest.mark.parametrize("hostile", ["", "; rm -rf ~", "-x", "../x", "a b", "$(id)", "{run}", "run\n", "A" * 9])
def test_a_run_id_outside_the_grammar_never_reaches_a_command(hostile):
    assert stops.next_actions("worker_failed", hostile) == ("holdfast status",)


def test_a_diagnosis_names_its_evidence():
    found = stops.diagnose("stalled_timeout", ["no output for 900 s", "log event 12"], "run-7")
    assert found.code == "stalled"
    assert found.title == "Run stalled (no progress)"
    assert found.diagnosis == (
        "Run made no progress for extended period. Check worker logs for hangs. "
        "Evidence: no output for 900 s; log event 12"
    )
    assert found.evidence == ("no output for 900 s", "log event 12")
    assert found.next_actions[0] == "holdfast resume run-7"


def test_more_evidence_gives_more_confidence_and_none_is_never_certain():
    sure = [stops.diagnose("stalled", ["x"] * count).confidence for count in range(4)]
    assert sure == [0.7, 0.9, 0.95, 0.95]
    assert stops.diagnose("no such reason", ["x", "y", "z"]).confidence == 0.5


def test_a_diagnosis_without_evidence_is_the_sentence_of_the_table():
    assert stops.diagnose("stalled").diagnosis == stops.lookup("stalled").diagnosis


def test_a_sentence_without_a_full_stop_gets_one_before_its_evidence():
    assert "smaller milestones. There is no --time here: " in stops.diagnose("timeout", ["1 h"]).diagnosis
    assert stops.diagnose("timeout", ["1 h"]).diagnosis.endswith("Python. Evidence: 1 h")


@pytest.mark.parametrize("text", ["{run}", "{0.__class__}", "%s %(x)s", "${HOME}", "`id`", "\\1"])
def test_evidence_is_joined_on_and_never_interpreted(text):
    found = stops.diagnose("worker_failed", [text], "run-7")
    assert found.diagnosis.endswith("Evidence: " + text)
    assert found.evidence == (text,)


def test_evidence_in_the_sentence_is_one_short_line_without_control_characters():
    found = stops.diagnose("worker_failed", ["a\nb\x1b]52;c;evil\x07\u202e" + "x" * 1_000_000])
    said = found.diagnosis.partition("Evidence: ")[2]
    assert said.startswith("a b?]52;c;evil??xxx") and said.endswith("x...")
    assert len(said) <= 203 and said.isprintable()
    assert len(found.evidence[0]) > 1_000_000


@given(st.sampled_from(stops.all_stops()), st.lists(st.text(), max_size=4))
def test_any_evidence_gives_a_printable_sentence_that_begins_with_the_registry(stop, evidence):
    found = stops.diagnose(stop.code, evidence)
    assert found.diagnosis.startswith(stop.diagnosis.rstrip("."))
    assert found.diagnosis.isprintable()
    assert found.evidence == tuple(evidence)


# ---- resuming without a person


def test_auto_resume_waits_longer_each_time_and_stops_after_its_count():
    history: list[tuple[str, str]] = []
    decisions = []
    for place in ("a", "b", "c", "d"):
        decisions.append(stops.auto_resume("stalled", place, history))
        history.append(("stalled", place))
    assert [decision.outcome for decision in decisions] == ["scheduled"] * 3 + ["exhausted"]
    assert [decision.delay for decision in decisions[:3]] == [30.0, 120.0, 300.0]
    assert [decision.attempt for decision in decisions[:3]] == [1, 2, 3]
    assert not decisions[3].resume and "3" in decisions[3].why


def test_auto_resume_sees_a_loop_when_reason_and_place_repeat():
    found = stops.auto_resume("stalled", "a", [("stalled", "a")])
    assert found.outcome == "loop_detected" and not found.resume and "2 times" in found.why
    assert stops.auto_resume("stalled", "b", [("stalled", "a")]).resume
    assert stops.auto_resume("worker_timeout", "a", [("stalled", "a")]).resume


def test_auto_resume_sees_a_loop_with_something_else_in_between_and_under_another_name():
    history = [("stalled_timeout", "a"), ("worker_timeout", "b")]
    assert stops.auto_resume("stalled", "a", history).outcome == "loop_detected"
    assert stops.auto_resume("worker_call_timeout", "b", history).outcome == "loop_detected"


def test_auto_resume_is_only_for_what_the_registry_allows():
    for stop in stops.all_stops():
        assert stops.auto_resume(stop.code, "a", []).resume is stop.auto_resumable, stop.code
    found = stops.auto_resume("guard_violation", "a", [])
    assert found.outcome == "skipped" and "guard_violation" in found.why


def test_auto_resume_after_a_wait_happens_when_it_is_due_and_costs_no_attempt():
    history = [("quota_wait", str(day)) for day in range(20)]
    found = stops.auto_resume("quota_wait", "20", history, wait=3600.0)
    assert (found.outcome, found.delay, found.attempt) == ("scheduled", 3600.0, 0)
    assert stops.auto_resume("sleeping", "x", history, wait=-5.0).delay == 0.0
    assert stops.auto_resume("stalled", "x", history).attempt == 1


def test_auto_resume_never_comes_before_the_due_time():
    assert stops.auto_resume("store_busy", "a", [], wait=45.0).delay == 45.0
    assert stops.auto_resume("store_busy", "a", [], wait=5.0).delay == 30.0


def test_auto_resume_says_everything_it_decided():
    limits = stops.Limits(max_resumes=2, delays=(7.0,), loop_after=2)
    stalled = stops.lookup("stalled").title

    def decided(code, history, wait=0.0):
        return tuple(stops.auto_resume(code, "here", history, limits, wait))

    assert decided("guard_violation", []) == ("skipped", 0.0, 0, "A stop with reason guard_violation needs a person.")
    assert decided("stalled", [("stalled", "here")]) == (
        "loop_detected",
        0.0,
        0,
        "stalled came 2 times at the same place.",
    )
    assert decided("sleeping", [], 5.0) == ("scheduled", 5.0, 0, stops.lookup("sleeping").title + ".")
    assert decided("stalled", []) == ("scheduled", 7.0, 1, f"{stalled}: automatic resume 1 of 2.")
    assert decided("stalled", [("stalled", "a")]) == ("scheduled", 7.0, 2, f"{stalled}: automatic resume 2 of 2.")
    assert decided("stalled", [("stalled", "a"), ("stalled", "b")]) == (
        "exhausted",
        0.0,
        2,
        "All 2 automatic resumes are used up.",
    )


def test_a_snippet_is_cut_where_its_text_is_longer_and_nowhere_else():
    assert stops.snippet("x" * 200) == "x" * 200
    assert stops.snippet("x" * 201) == "x" * 200 + "..."
    blanks = " " * 600
    assert stops.snippet("a" + blanks + "b" * 199) == "a " + "b" * 198 + "..."
    assert stops.snippet("a" + blanks[:-1] + "b" * 198 + "  ") == "a " + "b" * 198
    assert stops.snippet("a" + " " * 799) == "a"
    assert stops.snippet("a" + " " * 800) == "a..."
    assert stops.snippet("a" + " " * 799 + "b" * 100) == "a..."


def test_auto_resume_obeys_the_limits_it_is_given():
    limits = stops.Limits(max_resumes=9, delays=(1.0, 2.0), loop_after=3)
    history = [("stalled", "a"), ("stalled", "b"), ("stalled", "c")]
    assert stops.auto_resume("stalled", "a", history, limits).delay == 2.0
    assert stops.auto_resume("stalled", "a", [*history, ("stalled", "a")], limits).outcome == "loop_detected"
    assert stops.auto_resume("stalled", "d", [], stops.Limits(max_resumes=0)).outcome == "exhausted"
    assert stops.auto_resume("stalled", "d", [], stops.Limits(delays=())).delay == 0.0


@given(st.lists(st.tuples(st.sampled_from(["stalled", "worker_timeout", "interrupted"]), st.text(max_size=1))))
def test_auto_resume_alone_can_never_go_on_for_ever(arrivals):
    history: list[tuple[str, str]] = []
    for code, place in arrivals:
        if stops.auto_resume(code, place, history).resume:
            history.append((code, place))
    assert len(history) <= stops.LIMITS.max_resumes
    assert len(history) == len(set(history))


# ---- documents


def test_the_reference_page_is_what_the_registry_says():
    page = ROOT / "docs" / "reference" / "stops.md"
    assert page.read_text(encoding="utf-8") == stops.markdown(), f"{page} is out of date: its head says how to make it"


@each_stop
def test_the_reference_page_has_a_row_for_every_stop(stop):
    row = f"| {stop.exit_code} | `{stop.code}` | {stop.title} |"
    assert [line for line in stops.markdown().splitlines() if line.startswith(row) and stop.diagnosis in line]


def test_the_glossary_has_every_word():
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    headings = {line.removeprefix("**").split("**")[0] for line in glossary.splitlines() if line.startswith("**")}
    assert headings == set(WORDS.split())


# ---- nobody else compares reasons


def names_of(node: ast.AST) -> list[str]:
    """Every text in a literal, also inside a tuple, list, set or `frozenset(...)` of them."""
    if isinstance(node, ast.Call):
        return [name for argument in node.args for name in names_of(argument)]
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return [name for element in node.elts for name in names_of(element)]
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def constants_of(tree: ast.AST) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id: names_of(node.value) for target in targets if isinstance(target, ast.Name)}
    return found


def compared_reasons(source: str) -> Iterator[tuple[int, str]]:
    """(line, reason) wherever a stop reason stands in ==, !=, in, not in or a case."""
    tree = ast.parse(source)
    constants = constants_of(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            sides = [node.value]
        else:
            continue
        for side in sides:
            for name in constants.get(side.id, []) if isinstance(side, ast.Name) else names_of(side):
                if stops.is_known(name):
                    yield node.lineno, name


@pytest.mark.parametrize(
    "source",
    [
        "if reason == 'lease_lost': ...",
        "if 'lease_lost' != reason: ...",
        "if reason in ('x', 'lease_lost'): ...",
        "if reason not in {'lease_lost'}: ...",
        "if reason in frozenset(['lease_lost']): ...",
        "ours = 'lease_lost'\nif reason == ours: ...",
        "OURS: set[str] = {'lease_lost'}\nif reason in OURS: ...",
        "match reason:\n  case 'x' | 'lease_lost': ...",
        "match stop:\n  case Stop(code='stalled_timeout'): ...",
    ],
)
def test_the_check_for_comparisons_finds(source):
    assert list(compared_reasons(source))


def test_the_check_for_comparisons_leaves_the_rest_alone():
    assert not list(compared_reasons("reason = 'lease_lost'\nstop('lease_lost')\nif x == 'other': ..."))


def is_registry(path: Path) -> bool:
    return path.parent == SOURCE / "core" and path.name in ("stops.py", "stop_table.py")


def modules() -> list[Path]:
    return [path for path in SOURCE.rglob("*.py") if not is_registry(path)]


def test_no_other_module_compares_stop_reasons():
    """`complete` is also what a task of a spec can be; where specs are read and written it means that."""
    of_tasks = {"core/spec.py", "adapters/specs/writer.py"}
    found = [
        f"{place}:{line}: {reason}"
        for place, path in ((str(path.relative_to(SOURCE)), path) for path in modules())
        for line, reason in compared_reasons(path.read_text(encoding="utf-8"))
        if not (reason == "complete" and place in of_tasks)
    ]
    assert modules()
    assert not found, f"ask holdfast.core.stops instead of comparing: {found}"


def reasons_given(source: str) -> Iterator[str]:
    """The text of every `reason = "..."` in a class body."""
    for node in ast.walk(ast.parse(source)):
        for line in node.body if isinstance(node, ast.ClassDef) else []:
            yield from constants_of(ast.Module([line], [])).get("reason", [])


def test_every_error_names_a_reason_of_the_registry_by_its_own_code():
    given_reasons = [(path, name) for path in modules() for name in reasons_given(path.read_text(encoding="utf-8"))]
    assert given_reasons
    for path, name in given_reasons:
        assert stops.lookup(name).family != "unknown" and name not in ALIASES, f"{path}: {name}"


def test_nothing_slow_is_imported():
    script = """if True:
        import sys, typing, holdfast
        before = set(sys.modules)
        import holdfast.core.stops
        print(*sys.modules.keys() - before)"""
    environment = os.environ | {"PYTHONPATH": str(SOURCE.parent)}
    result = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    loaded = set(result.stdout.split())
    assert "holdfast.core.stop_table" in loaded
    assert {name for name in loaded if not name.startswith("holdfast.")} <= {"__future__"}
