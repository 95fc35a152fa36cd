"""`holdfast run SPEC`, composed: settings, trust, agents and the repository around one durable run. Prints nothing.

Everything that a repository's files could have run is refused here unless its user trusts them. Whatever happens, the run
leaves a handoff that says where it stands.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from holdfast import app, config, live, settings, spec_look
from holdfast.adapters import handoffs
from holdfast.adapters.agents.agents import Agents
from holdfast.adapters.agents.installed import is_there as is_installed
from holdfast.adapters.checks import Commands
from holdfast.adapters.git import ignoring
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.adapters.ground import GitGround, around, check_commits
from holdfast.adapters.specs import SpecFolder, named
from holdfast.adapters.trust import Trust, Untrusted
from holdfast.core.agents import Profile, profile_from, shipped, shipped_profile
from holdfast.core.auto_resume import Halt, No, next_try
from holdfast.core.checkpoint import Strictness
from holdfast.core.diagnosis import Signal, diagnose
from holdfast.core.drift import Policy
from holdfast.core.errors import HoldfastError, NotFound, UsageError
from holdfast.core.events import RunResumed, RunStopped
from holdfast.core.guards import Scope
from holdfast.core.handoff import Context, Handoff, handoff
from holdfast.core.handoff import as_data as handoff_data
from holdfast.core.retry import Budget
from holdfast.core.settings import FILE, Settings
from holdfast.core.shapes import RunState
from holdfast.core.spec import Spec, refuse
from holdfast.core.wire import decode
from holdfast.engine.pipeline.desk import Desk, Moment, Parts
from holdfast.engine.pipeline.pipeline import work
from holdfast.engine.stopping import Stopped
from holdfast.ports import Store

_POLICIES: dict[str, Policy] = {"code": "ignore", "vanished": "ignore", "arguments": "warn"}
LONGEST_STAY = 7 * 86_400.0
_LINES = 12


class DirtyWorktree(HoldfastError):
    reason = "dirty_worktree"
    advice = "Commit them, or `--allow-dirty` to have them become part of the first batch."

    def __init__(self, changed: Sequence[str]) -> None:
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        super().__init__(f"There are uncommitted changes: {', '.join(changed[:5])}{more}.")


class WorkTreeTaken(HoldfastError):
    reason = "file_collision"
    advice = "Wait for it, or `git worktree add` another work tree and run this spec there."

    def __init__(self, run_id: str, top: str) -> None:
        super().__init__(f"Run {run_id} is going on in {top}.")


class Wish(NamedTuple):
    """What a person asked for. None and () mean: as the settings say. `stay`: seconds to wait for a limit in this process."""

    spec: str
    agent: str | None = None
    reviewers: tuple[str, ...] = ()
    parallel: int | None = None
    allow_dirty: bool = False
    new: bool = False
    yes: bool = False
    stay: float = LONGEST_STAY
    run_id: str | None = None
    auto_resume: int | None = None


class Job(NamedTuple):
    """A spec, ready to be run: its files, the settings, and the agents that they name."""

    top: str
    folder: SpecFolder
    settings: Settings
    notes: tuple[str, ...]
    mission_id: str
    profiles: Mapping[str, Profile]


class Result(NamedTuple):
    run_id: str
    handed: Handoff
    paths: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        return self.handed.stop.exit_code


# --- before it starts


def prepare(wish: Wish) -> Job:
    """Read everything that decides the run, and refuse what cannot or may not be run. Writes nothing."""
    environ = config.environment()
    workspace = around(os.getcwd(), environ)
    check_commits(workspace)
    top = workspace.top
    loaded = settings.load(top, environ)
    _require_trust(top, loaded.files, wish.yes)
    folder = named(top, wish.spec)
    spec = folder.read()
    refuse(spec.problems)
    profiles = known_profiles(loaded.settings.agents)
    chosen = _with_reviewers(_chosen(loaded.settings, wish), spec, profiles)
    _check_agents(chosen, profiles)
    return Job(top, folder, chosen, loaded.notes, spec_look.mission_of(folder), profiles)


def _require_trust(top: str, files: Mapping[str, bytes], yes: bool) -> None:
    book = Trust(settings.user_folder(config.environment(), "XDG_STATE_HOME"))
    verdict = book.check(top, files)
    if verdict.state == "trusted" or yes:
        return
    raise Untrusted(top, verdict)


def _chosen(given: Settings, wish: Wish) -> Settings:
    run = given.run
    if wish.agent is not None:
        run = run._replace(agent=wish.agent, test=(), implement=(), fix=(), reviewers=())
    if wish.reviewers:
        run = run._replace(reviewers=wish.reviewers)
    if wish.parallel is not None:
        run = run._replace(parallel=wish.parallel)
    limits = given.auto_resume
    if wish.auto_resume is not None:
        limits = limits._replace(max_resumes=wish.auto_resume)
    return given._replace(run=run, auto_resume=limits)


def _with_reviewers(chosen: Settings, spec: Spec, profiles: Mapping[str, Profile]) -> Settings:
    """The reviewers that the spec names, where nobody names others and all of them are agents that we know."""
    names = tuple(dict.fromkeys(one.name for one in spec.reviewers))
    if chosen.run.reviewers or not names or not all(name in profiles for name in names):
        return chosen
    return chosen._replace(run=chosen.run._replace(reviewers=names))


def known_profiles(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Profile]:
    """Every agent that can be named: those that ship, and those of the settings."""
    return {name: shipped_profile(name) for name in shipped()} | {
        name: profile_from(table, name) for name, table in tables.items()
    }


def _check_agents(chosen: Settings, profiles: Mapping[str, Profile]) -> None:
    """Refuse an agent that nobody knows, or that is not installed, before anything is begun."""
    for name in sorted({name for phase in (*chosen.run.phases, "fix") for name in chosen.run.agents_for(phase)}):
        if name not in profiles:
            raise UsageError(
                f"There is no agent {name!r:.60}.",
                advice=f"Known are {', '.join(sorted(profiles))}; `[agents.NAME]` in holdfast.toml adds one.",
            )
        if is_installed(profiles[name], config.environment()) is None:
            raise UsageError(
                f"The agent {name} is not installed: there is no {profiles[name].start[0]!r:.80}.",
                advice="Install it, or name another with --agent.",
            )


# --- running it


def perform(wish: Wish, job: Job, tell: Callable[[Moment], None]) -> Result:
    """Run the spec until it is complete or rests, again by itself where that is allowed."""
    with closing(app.open_store()) as store:
        run_id = wish.run_id or live.which_run(store, job.mission_id, None, wish.new)
        _check_alone(store, run_id, job.top)
        for note in job.notes:
            tell(Moment("note", text=note))
        halts: list[Halt] = []
        while True:
            _once(store, run_id, wish, job, tell)
            result = hand_over(store, run_id, job.top)
            halt = _halt_of(store, run_id)
            if halt is None or wish.stay == 0:
                return result
            halts.append(halt)
            following = next_try(halts, job.settings.auto_resume, app.now())
            if isinstance(following, No):
                return result
            tell(Moment("wait", "", following.why, {"seconds": following.seconds}))
            time.sleep(following.seconds)


def _once(store: Store, run_id: str, wish: Wish, job: Job, tell: Callable[[Moment], None]) -> None:
    """One life of the run. Returns when it is at rest, and the log says why; raises what is not about the run."""
    environ = config.environment()
    workspace = GitWorkspace(job.top, environ)
    state = spec_look.state_of(store, run_id)
    if state is None:
        _check_clean(workspace, job, wish.allow_dirty)
        ignoring.add_rule(workspace.git, "exclude")
    begun = False
    try:
        with live.run(
            job.mission_id,
            run_id=run_id,
            store=store,
            inputs={"kind": spec_look.KIND, "path": job.folder.path},
            title=job.mission_id.removeprefix(spec_look.PREFIX),
            strictness=job.settings.run.strictness,
            policies=_policies(state, wish, job.settings.run.strictness),
            budget=_budget(job.settings),
            accept=wish.yes or None,
        ) as run:
            begun = True
            handoffs.gone(workspace.main, run_id)
            scope = _with_own_files(job.settings.scope, job.folder.path)
            repo = run.workspace(job.top, allow=scope.allow, deny=scope.deny)
            parts = _parts(job, workspace, run_id)
            work(Desk(run, repo, parts, job.settings, tell, app.now, wish.stay))
    except Stopped:
        pass
    except HoldfastError:
        if not begun:
            raise
    except BaseException:
        if begun:
            hand_over(store, run_id, job.top)
        raise


def _check_alone(store: Store, run_id: str, top: str) -> None:
    """Two runs in one work tree would commit each other's half-done work."""
    for head in store.heads(unfinished=True):
        if head.held and head.run_id != run_id and head.projection.mission_id.startswith(spec_look.PREFIX):
            state = spec_look.state_of(store, head.run_id)
            if state is not None and top in state.repositories:
                raise WorkTreeTaken(head.run_id, top)


def _parts(job: Job, workspace: GitWorkspace, run_id: str) -> Parts:
    stages, redactor = os.path.join(handoffs.folder_of(workspace.main, run_id), "stages"), app.redactor()
    environ = config.environment()
    return Parts(
        job.folder,
        Agents(job.profiles, run_id, stages, environ, redactor),
        Commands(run_id, stages, environ, redactor),
        GitGround(workspace, run_id, job.settings.run.link, environ),
    )


def _check_clean(workspace: GitWorkspace, job: Job, allow_dirty: bool) -> None:
    """Uncommitted work would become part of a batch. The spec's own files may be as new as they like."""
    own = (f"{job.folder.path}/", FILE)
    changed = [line for line in workspace.changed() if not line.partition(": ")[2].startswith(own)]
    if changed and not allow_dirty:
        raise DirtyWorktree(changed)


def _policies(state: RunState | None, wish: Wish, strictness: Strictness) -> dict[str, Policy]:
    """In the middle of a batch the work tree is as its agents left it; between two it should be clean.

    What the base branch changed as well is work that may have to be done anew, so a person is asked.
    """
    loose: dict[str, Policy] = {"tree": "warn"} if wish.allow_dirty or _is_in_a_batch(state) else {}
    asked: dict[str, Policy] = {"base": "ask"} if strictness == Strictness.MEDIUM else {}
    return {**_POLICIES, **loose, **asked}


def _is_in_a_batch(state: RunState | None) -> bool:
    steps = state.steps if state is not None else {}
    return any(name.endswith("/begin") and f"{name.removesuffix('begin')}closed" not in steps for name in steps)


def _budget(chosen: Settings) -> Budget:
    return Budget(seconds=chosen.budget.time, tokens=chosen.budget.tokens, money=chosen.budget.money)


def _with_own_files(scope: Scope, path: str) -> Scope:
    """A scope that names files must let the run write the spec's own."""
    return scope._replace(allow=(*scope.allow, f"{path}/**")) if scope.allow else scope


# --- what is left of it


def _halt_of(store: Store, run_id: str) -> Halt | None:
    """How the run came to rest, and how far it had got; None if it is complete."""
    state = spec_look.state_of(store, run_id)
    if state is None or state.stop_reason is None:
        return None
    due = next((until for until in state.sleeps.values() if until is not None), None)
    return Halt(state.stop_reason, app.now(), f"{state.steps_done}.{len(state.effects)}", due)


def hand_over(store: Store, run_id: str, top: str) -> Result:
    """Write down for the next person or agent where the run stands. A mirror: its failure changes nothing."""
    state = spec_look.state_of(store, run_id)
    if state is None:
        raise NotFound("run", run_id)
    evidence, notes = _last_words(store, state)
    handed = handoff(state, diagnose(state, evidence, [Signal("note", line) for line in notes]), _context(state, notes))
    written = handoffs.write(GitWorkspace(top, config.environment()).main, handed)
    return Result(run_id, handed, written.paths)


def _last_words(store: Store, state: RunState) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The evidence of the last stop, and the notes since the run last went on."""
    evidence: tuple[str, ...] = ()
    notes: list[str] = []
    for record in store.read(state.run_id, after=max(0, state.seq - 200)):
        event = decode(record)
        if isinstance(event, RunStopped):
            evidence = event.evidence
        elif isinstance(event, RunResumed):
            evidence = ()
            notes.clear()
        elif (text := getattr(event, "text", None)) is not None:
            notes.append(str(text))
    return evidence, tuple(notes[-_LINES:])


def _context(state: RunState, lines: Sequence[str]) -> Context:
    opened = next(iter(reversed(list(state.effects.values()))), None)
    name = opened.step_id if opened is not None else ""
    batch, _, rest = name.partition("/")
    task, _, phase = rest.rpartition("/")
    finished = sum(name.endswith("/closed") for name in state.steps)
    return Context(
        at=app.now(),
        batch=batch,
        task=task,
        phase=phase,
        last_lines=tuple(lines),
        progress={"batches": finished, "steps": state.steps_done, "events": state.seq},
    )


def as_data(result: Result) -> dict[str, Any]:
    return {"run": handoff_data(result.handed), "files": list(result.paths)}
