"""`holdfast resume`: what is unfinished, what would be done, and the spec or the command of yours that goes on.

Nothing that is read from a store is ever started: the command comes from the command line and from nowhere else. It takes
the place of this process, so signals reach it and its exit code is ours.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib import import_module
from typing import Any, NoReturn

import click

from holdfast import app, config
from holdfast.cli import overview
from holdfast.cli.behind import TakesCommand, not_started, words_behind
from holdfast.cli.output import emit, escape, json_option, run_argument, say
from holdfast.cli.render import pairs, short, table, watched
from holdfast.cli.watching import watching
from holdfast.core import stops
from holdfast.core.errors import HoldfastError, LeaseHeld, NotFound, UsageError
from holdfast.core.events import DriftFound
from holdfast.core.ids import SPEC, is_of_command
from holdfast.core.inputs import short_hash
from holdfast.core.position import DEEPEN
from holdfast.core.repo_drift import NO_BRANCH
from holdfast.engine.people import Ambiguous, Look, look
from holdfast.engine.stopping import NotResumable, PlanChanged
from holdfast.ports import Head, Store

UNFINISHED = ("run", "mission", "status", "why", "owner", "next")
ROWS = ("move", "kind", "name", "why")
_IGNORED_HERE = (signal.SIGPIPE, signal.SIGXFSZ)  # by Python, and a program that is started expects them as they were


class NothingUnfinished(HoldfastError):
    reason = "not_resumable"
    advice = "`holdfast status` lists what is here."


@click.command(cls=TakesCommand)
@run_argument(required=False)
@click.option("--plan", "only_plan", is_flag=True, help="Print what would be done. Writes and starts nothing.")
@click.option("--approve", metavar="ID", help="Go on only if this is still the plan.")
@click.option("--yes", is_flag=True, help="Accept what changed, instead of being asked.")
@click.option("--allow-dirty", is_flag=True, help="Go on over uncommitted work as it is.")
@click.option("--snapshot", is_flag=True, help="Keep uncommitted work aside, instead of refusing to go on over it.")
@click.option("--legacy", is_flag=True, help="Where no milestone is found, also look for subjects that name no run.")
@json_option
@click.pass_context
def command(
    context: click.Context,
    run: str | None,
    only_plan: bool,
    approve: str | None,
    yes: bool,
    allow_dirty: bool,
    snapshot: bool,
    legacy: bool,
    as_json: bool,
) -> None:
    """Go on with RUN: that of a spec at once, any other by starting COMMAND, your own program. Without one, its plan.

    Without RUN: what is unfinished here; with a COMMAND, the only unfinished run.

    \b
    holdfast resume
    holdfast resume 8cb0f3ef --plan
    holdfast resume 8cb0f3ef -- python pipeline.py
    """
    where, behind = config.load(), words_behind(context)
    if run is None and not (behind or only_plan or approve):
        show_unfinished(where, as_json)
        return
    told = {"HOLDFAST_SNAPSHOT": snapshot, "HOLDFAST_ALLOW_DIRTY": allow_dirty, "HOLDFAST_YES": yes}
    told["HOLDFAST_LEGACY"] = legacy
    more = {name: "1" for name, is_set in told.items() if is_set}
    run, spec = import_module("holdfast.cli.resume_spec").meant(where, run)
    mirrored = without_log(where, run) if run is not None and (spec is None or behind) else None
    if approve is not None and (mirrored or (spec is not None and not behind)):
        raise PlanChanged(spec or str(run), approve, "unknown: it has no log here")
    if mirrored:
        go_on_from_mirrors(where, mirrored, () if only_plan else behind, more, as_json)
    elif spec is not None and not behind:
        raise SystemExit(import_module("holdfast.cli.resume_spec").go_on_by_files(spec, only_plan, more, as_json))
    else:
        go_on_by_log(where, run, behind, more, only_plan=only_plan, approve=approve, as_json=as_json)


def go_on_by_log(
    where: config.Config,
    run: str | None,
    behind: Sequence[str],
    more: dict[str, str],
    *,
    only_plan: bool,
    approve: str | None,
    as_json: bool,
) -> None:
    """Show the plan, or do as it says: with the spec's pipeline, the run's own command, or the one that was given."""
    seen = plan_of(where, run)
    run_id, mission = seen.plan.run_id, seen.plan.mission_id
    repositories = look_around(where, seen, "HOLDFAST_LEGACY" in more)
    whole = whole_id(seen, repositories)
    if approve is not None and approve != whole:
        raise PlanChanged(run_id, approve, whole)
    if seen.plan.verdict == "refuse" and not only_plan:
        raise NotResumable(run_id, seen.plan.why)
    if not only_plan and not behind and mission.startswith(SPEC):
        raise SystemExit(import_module("holdfast.cli.resume_spec").go_on(where, run_id, more, approve, as_json))
    if approve is not None and not behind and not only_plan:
        raise UsageError(
            f"Run {run_id} goes on by a command of yours, and there is none to start.",
            advice=f"`holdfast resume {run_id} --approve {whole} -- COMMAND` starts it; `--plan` only shows the plan.",
        )
    if only_plan or not behind:
        show_plan(seen, as_json, repositories)
        return
    if is_of_command(mission):
        more |= {"HOLDFAST_PLAN": approve, "HOLDFAST_RUN": run_id} if approve else {}
        raise SystemExit(import_module("holdfast.cli.run_command").go_on(run_id, mission, behind, more, as_json))
    become(behind, run_id, surroundings(run_id, where, approve) | more, as_json)


# --- what is unfinished


def show_unfinished(where: config.Config, as_json: bool) -> None:
    heads, ended = unfinished(where)
    around = import_module("holdfast.cli.resume_repo")  # starts git
    mirrored = around.only_mirrored(where, known_runs(where))
    specs = import_module("holdfast.spec_look").waiting(where)
    if as_json:
        rows = [as_data(head) for head in heads]
        found = {"unfinished": rows, "ended": ended, "mirrored": mirrored, "specs": specs}
        emit({"store": where.shown, **found, "shallow": around.is_cut_off()})
        return
    if heads:
        table(UNFINISHED, [row(head) for head in heads])
    else:
        say("Nothing is unfinished here.")
    if ended:
        say(f"Ended for good without being finished: {ended}. `holdfast status` shows them.")
    around.show_mirrored(mirrored)
    import_module("holdfast.cli.resume_spec").show_waiting(specs)


def known_runs(where: config.Config) -> frozenset[str]:
    try:
        store = app.open_configured(where, read_only=True)
    except NotFound:
        return frozenset()
    with closing(store):
        return frozenset(head.run_id for head in watched(store.heads(), "Looking"))


# --- a run without a log


def without_log(where: config.Config, run: str) -> dict[str, Any] | None:
    """What mirrors know of a run that has no log here; None if it has one, or nobody knows it."""
    try:
        with closing(app.open_configured(where, read_only=True)) as store:
            app.find_run(store, run)
        return None
    except NotFound as missing:
        around = import_module("holdfast.cli.resume_repo")
        rows = around.only_mirrored(where, known_runs(where), run)
        found: dict[str, Any] | None = next((row for row in rows if row["run_id"] == run), None)
        if found is None:
            missing.advice = around.advice_without(missing.advice)
            raise
        return found


def go_on_from_mirrors(
    where: config.Config, known: dict[str, Any], behind: Sequence[str], more: dict[str, str], as_json: bool
) -> None:
    around = import_module("holdfast.cli.resume_repo")
    if behind:
        around.check_mirrored(known, "HOLDFAST_YES" in more)
        become(behind, known["run_id"], surroundings(known["run_id"], where, None) | more, as_json)
    if as_json:
        emit({"mirrored": [known], "shallow": around.is_cut_off()})
    else:
        around.show_mirrored([known])


def unfinished(where: config.Config) -> tuple[list[Head], int]:
    """The runs that live or can go on, and how many others were never finished."""
    try:
        store = app.open_configured(where, read_only=True)
    except NotFound:
        return [], 0
    with closing(store):
        heads = list(watched(store.heads(unfinished=True), "Looking"))
    left = list(filter(goes_on, heads))
    return left, len(heads) - len(left)


def goes_on(head: Head) -> bool:
    return head.held or stops.is_resumable(overview.reason_of(head) or "")


def row(head: Head) -> tuple[object, ...]:
    data = as_data(head)
    status, why = data["status"], data["reason"] or ""
    return short(head.run_id), data["mission_id"], status, why, overview.owner_of(head), data["next"]


def as_data(head: Head) -> dict[str, Any]:
    return overview.as_data(head) | {"reason": overview.reason_of(head), "next": next_of(head)}


def next_of(head: Head) -> str:
    """One command: to watch it, or to see its plan, which names every command that it needs."""
    return f"holdfast log {head.run_id} -f" if head.held else f"holdfast resume {head.run_id}"


# --- what would be done


def plan_of(where: config.Config, run: str | None) -> Look:
    with closing(app.open_configured(where, read_only=True)) as store:
        head = app.find_run(store, run) if run is not None else the_only(store)
        if head.held:
            raise LeaseHeld(head.run_id, head.owner or "another process")
        with watching(store, "Reading", head.seq) as seen:
            return look(seen, head.run_id)


def the_only(store: Store) -> Head:
    heads = list(filter(goes_on, store.heads(unfinished=True)))
    if not heads:
        raise NothingUnfinished("Nothing is unfinished here.")
    if len(heads) > 1:
        raise Ambiguous("run is unfinished", [head.run_id for head in heads], "Name one: `holdfast resume` lists them.")
    return heads[0]


def look_around(where: config.Config, seen: Look, legacy: bool) -> list[dict[str, Any]]:
    """The repositories that the run has been in, as they are now."""
    if not seen.has_workspaces:
        return []
    around = import_module("holdfast.cli.resume_repo")  # starts git
    found: list[dict[str, Any]] = around.look(where, seen.plan.run_id, legacy)
    return found


def whole_id(seen: Look, repositories: list[dict[str, Any]]) -> str:
    """The plan's id; for a run with a repository, with that of the look at it."""
    ids = [entry["id"] for entry in repositories if "id" in entry]
    return f"{seen.plan_id}.{ids[-1]}" if ids else seen.plan_id


def verdict_of(seen: Look, repositories: list[dict[str, Any]]) -> tuple[str, str]:
    """What the log decides, unless the repository has to be asked about first."""
    differing = [one for entry in repositories for one in entry.get("drift", ())]
    asked, refused = ([one["drift"] for one in differing if one["policy"] == policy] for policy in ("ask", "refuse"))
    asked += ["repository" for entry in repositories if "problem" in entry]
    if seen.plan.verdict == "refuse" or not (refused or (asked and seen.plan.verdict == "go")):
        return seen.plan.verdict, seen.plan.why
    return "refuse" if refused else "ask", f"the repository differs: {', '.join([*refused, *asked])}"


def show_plan(seen: Look, as_json: bool, repositories: list[dict[str, Any]]) -> None:
    plan, whole = seen.plan, whole_id(seen, repositories)
    verdict, why = verdict_of(seen, repositories)
    if as_json:
        data = plan_data(seen) | {"plan_id": whole, "verdict": verdict, "why": why}
        emit({"plan": data, "repositories": repositories, "next_actions": ways_on(seen, whole, verdict, repositories)})
        return
    pairs(
        [
            ("run", plan.run_id),
            ("mission", plan.mission_id),
            ("plan", whole),
            ("verdict", f"{verdict}: {why}"),
            ("rests at", plan.stop_reason),
            ("diagnosis", plan.diagnosis),
            ("events", plan.seq),
        ]
    )
    say()
    table(ROWS, [(row.move, row.kind, row.name, row.reason) for row in plan.rows])
    for line in notes(seen):
        say(escape(line))
    if repositories:
        import_module("holdfast.cli.resume_repo").show(repositories)
    for line in ways_on(seen, whole, verdict, repositories):
        say(f"  {line}")


def notes(seen: Look) -> Iterator[str]:
    for found in seen.plan.drift:
        yield f"Since it last went on: {drift_line(found)}."
    for message in seen.messages:
        yield f"Heard first: message {message.id}, {message.kind}."


def drift_line(found: DriftFound) -> str:
    change = f" ({short_hash(found.was) or '?'} -> {short_hash(found.now) or '?'})" if found.was or found.now else ""
    return f"{found.drift} of {found.subject} changed{change}; decided: {found.verdict}, by {found.by}"


def ways_on(seen: Look, whole: str, verdict: str, repositories: list[dict[str, Any]]) -> list[str]:
    """How to go on; with the plan's id, nothing else is done than what was shown."""
    run_id = seen.plan.run_id
    if seen.plan.verdict == "refuse":
        return [f"holdfast fork {run_id}", f"holdfast show {run_id}"]
    program = "" if seen.plan.mission_id.startswith(SPEC) else " -- COMMAND"
    ways = [f"holdfast resume {run_id}{program}", f"holdfast resume {run_id} --approve {whole}{program}"]
    if any(found.verdict == "refuse" and found.by != "policy" for found in seen.plan.drift):  # nobody said yes
        ways.append(f"holdfast resume {run_id} --yes{program}")
    return [*ways_back(run_id, repositories, program), *ways[1:]] if verdict != seen.plan.verdict else ways


def ways_back(run_id: str, repositories: list[dict[str, Any]], program: str) -> Iterator[str]:
    """What takes a difference of a repository away, or the harm out of it, where a command can."""
    differing = [one for entry in repositories for one in entry.get("drift", ()) if one["policy"] in ("ask", "refuse")]
    for branch in (one["was"] for one in differing if one["drift"] == "branch" and one["was"] != NO_BRANCH):
        yield f"git switch {shlex.quote(branch)}"
    said = [line for one in differing for line in one["lines"]] + [entry.get("problem", "") for entry in repositories]
    if any(DEEPEN in line for line in said):
        yield "git fetch --unshallow"
    if any(one["drift"] == "tree" for one in differing):
        yield f"holdfast resume {run_id} --snapshot{program}"


def plan_data(seen: Look) -> dict[str, Any]:
    plan = seen.plan
    return {
        "run_id": plan.run_id,
        "mission_id": plan.mission_id,
        "plan_id": seen.plan_id,
        "verdict": plan.verdict,
        "why": plan.why,
        "stop_reason": plan.stop_reason,
        "diagnosis": plan.diagnosis,
        "events": plan.seq,
        "rows": [row._asdict() for row in plan.rows],
        "drift": [drift_data(found) for found in plan.drift],
        "messages": [{"id": message.id, "kind": message.kind} for message in seen.messages],
    }


def drift_data(found: DriftFound) -> dict[str, str]:
    said = {name: getattr(found, name) for name in ("drift", "subject", "verdict", "by")}
    return said | {"was": short_hash(found.was), "now": short_hash(found.now)}


# --- going on


def surroundings(run_id: str, where: config.Config, approve: str | None) -> dict[str, str]:
    """Our environment, and which run is meant. An approval that was given for another run is not handed on."""
    kept = {name: value for name, value in config.environment().items() if name != "HOLDFAST_PLAN"}
    kept |= {"HOLDFAST_RUN": run_id, "HOLDFAST_STORE": where.place}
    return kept | ({"HOLDFAST_PLAN": approve} if approve else {})


def become(behind: Sequence[str], run_id: str, environ: dict[str, str], as_json: bool) -> NoReturn:
    """The command takes our place; beside a JSON document, which says how the run is at its end, it is a child of ours."""
    if as_json:
        code: int = import_module("holdfast.cli.resume_child").perform(behind, environ)
        try:
            overview.show_status(run_id, as_json=True)
        except HoldfastError as error:  # that nobody can say how the run is does not change how the command ended
            emit({"run_id": run_id, "error": {"reason": error.reason, "message": str(error), "advice": error.advice}})
        raise SystemExit(code)
    start(behind, environ)


def start(behind: Sequence[str], environ: dict[str, str]) -> NoReturn:
    """Become the command. It is looked up and started as it stands, without a shell."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [(number, signal.signal(number, signal.SIG_DFL)) for number in _IGNORED_HERE]
    try:
        os.execvpe(behind[0], list(behind), environ)  # noqa: S606 - what the person typed behind `--`
    except (OSError, ValueError) as error:
        for number, handler in kept:
            signal.signal(number, handler)
        raise not_started(behind[0], error) from None
