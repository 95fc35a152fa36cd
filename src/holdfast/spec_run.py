"""`holdfast run SPEC`, composed: settings, trust, agents and the repository around one durable run. Prints nothing.

Everything that a repository's files could have run is refused here unless its user trusts them. Whatever happens, the run
leaves a handoff that says where it stands.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

from holdfast import app, config, live, settings, spec_look
from holdfast.adapters import handoffs, system
from holdfast.adapters.agents.agents import Agents
from holdfast.adapters.checks import Commands
from holdfast.adapters.git import ignoring
from holdfast.adapters.git.repo import GitWorkspace
from holdfast.adapters.ground import GitGround, around, check_commits
from holdfast.adapters.specs import SpecFolder, named
from holdfast.adapters.specs.reader import CHECKPOINT, TASKS
from holdfast.adapters.trust import Trust, Untrusted
from holdfast.core.agents import Profile
from holdfast.core.auto_resume import Halt, No, Wait, next_try
from holdfast.core.errors import HoldfastError, LeaseLost, UsageError
from holdfast.core.guards import Scope
from holdfast.core.ids import SPEC
from holdfast.core.named import NamedTuple
from holdfast.core.retry import Budget
from holdfast.core.settings import FILE, Settings
from holdfast.core.spec import refuse
from holdfast.core.stops import Limits, is_resumable
from holdfast.engine.pipeline.desk import Desk, Moment, Parts
from holdfast.engine.pipeline.pipeline import work
from holdfast.engine.stopping import Stopped
from holdfast.ports import Store
from holdfast.spec_agents import check_agents, known_profiles, with_reviewers
from holdfast.spec_rest import Result, halt_of, hand_over, put_trees_away

LOCK = "holdfast-run"
WISH, IGNORED = "start/wish", "start/ignored"
LONGEST_STAY = 7 * 86_400.0
LOOK = 1.0  # seconds between two looks at a run that waits


class DirtyWorktree(HoldfastError):
    reason = "dirty_worktree"
    advice = "Commit them, or `--allow-dirty` to have them become part of the first batch."

    def __init__(self, changed: Sequence[str]) -> None:
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        super().__init__(f"There are uncommitted changes: {', '.join(changed[:5])}{more}.")


class BranchDiffers(HoldfastError):
    """No log is here, and checkpoint.yaml was written on another branch: a person chooses, and nothing is checked out."""

    reason = "branch_differs"

    def __init__(self, spec: str, was: str, now: str) -> None:
        super().__init__(f"checkpoint.yaml of {spec} was written on the branch {was}, and now {now} is checked out.")
        here = f"`holdfast run {shlex.quote(spec)} --yes` goes on here"
        self.advice = f"`git switch {shlex.quote(was)}` goes back to it, {here}."


class WorkTreeTaken(HoldfastError):
    reason = "file_collision"
    advice = "Wait for it, or `git worktree add` another work tree and run this spec there."

    def __init__(self, run_id: str, top: str) -> None:
        super().__init__(f"Run {run_id or 'of another process'} is going on in {top}.")


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


# --- before it starts


def remembered(wish: Wish) -> Wish:
    """With the agents that were chosen when the run began, if it goes on and nobody chooses others now."""
    if wish.new or wish.agent or wish.reviewers or wish.parallel:
        return wish
    where = config.load()
    run_id = wish.run_id or spec_look.unfinished_run(where, wish.spec)
    if run_id is None:
        return wish
    with closing(app.open_configured(where, read_only=True)) as store:
        state = spec_look.state_of(store, run_id)
    known = state.steps.get(WISH) if state is not None else None
    if known is None or not isinstance(known.output, dict):
        return wish
    said = known.output
    return wish._replace(agent=said["agent"], reviewers=tuple(said["reviewers"]), parallel=said["parallel"])


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
    folder.check_writable()
    profiles = known_profiles(loaded.settings.agents)
    chosen, missing = _chosen(loaded.settings, wish), ""
    if wish.agent is None:
        chosen, missing = with_reviewers(chosen, spec, {name: profiles[name] for name in chosen.agents}, top)
    check_agents(chosen, profiles, top)
    notes = (*loaded.notes, *map(str, spec.problems), *filter(None, (missing,)))
    return Job(top, folder, chosen, notes, spec_look.mission_of(folder), profiles)


def _require_trust(top: str, files: Mapping[str, bytes], yes: bool) -> None:
    book = Trust(system.user_folder(config.environment(), "XDG_STATE_HOME"))
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


# --- running it


def perform(wish: Wish, job: Job, tell: Callable[[Moment], None]) -> Result:
    """Run the spec until it is complete or rests, again by itself where that is allowed."""
    with closing(app.open_store()) as store:
        run_id = wish.run_id or _which_run(store, job, wish.new)
        for note in job.notes:
            tell(Moment("note", text=note))
        with _alone(GitWorkspace(job.top, config.environment()), run_id):
            return _until_it_rests(store, run_id, wish, job, tell)


def _until_it_rests(store: Store, run_id: str, wish: Wish, job: Job, tell: Callable[[Moment], None]) -> Result:
    halts: list[Halt] = []
    again = ""
    while True:
        if not halts or not _is_over(store, run_id):
            _once(store, run_id, wish, job, tell, again)
        halt = halt_of(store, run_id)
        following = None
        if halt is not None and wish.stay != 0:
            halts.append(halt)
            following = next_try(halts, job.settings.auto_resume, app.now())
        gave_up = _gave_up(following, job.settings.auto_resume)
        result = hand_over(store, run_id, job.top, gave_up)
        sentences = put_trees_away(store, run_id) if result.is_over else []
        for sentence in (*sentences, *gave_up):
            tell(Moment("note", text=sentence))
        if not isinstance(following, Wait):
            return result
        tell(Moment("wait", "", following.why, {"seconds": following.seconds}))
        _pause(store, run_id, following.seconds)
        again = f"It goes on by itself after the stop at {halts[-1].at}: {following.why}"


def _gave_up(following: Wait | No | None, limits: Limits) -> tuple[str, ...]:
    """Why a run that could go on by itself does not, if that is more than what its reason or its settings say anyway."""
    if not isinstance(following, No) or following.outcome == "skipped" or not limits.max_resumes:
        return ()
    return (f"It does not go on by itself any more ({following.outcome}): {following.why}",)


def _pause(store: Store, run_id: str, seconds: float) -> None:
    """Wait, but not for a run that somebody ends meanwhile."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and not _is_over(store, run_id):
        time.sleep(min(left, LOOK))


def _is_over(store: Store, run_id: str) -> bool:
    head = store.head(run_id)
    reason = None if head is None else head.projection.stop_reason
    return reason is not None and not is_resumable(reason)


def _which_run(store: Store, job: Job, new: bool) -> str:
    going_on = None if new else spec_look.run_to_go_on_with(store, job.mission_id, job.top, job.folder.path)
    return going_on or system.new_run_id()


def _once(store: Store, run_id: str, wish: Wish, job: Job, tell: Callable[[Moment], None], again: str) -> None:
    """One life of the run. Returns when it is at rest, and the log says why; raises what is not about the run.

    `again`: how it comes that nobody asked for it, for the log.
    """
    environ = config.environment()
    workspace = GitWorkspace(job.top, environ)
    state = spec_look.state_of(store, run_id)
    if state is None:
        _check_clean(workspace, job, wish.allow_dirty)
        _check_branch(workspace, job, wish.yes)
    ignoring.add_rule(workspace.git, "exclude")
    begun = False
    try:
        with live.run(
            job.mission_id,
            run_id=run_id,
            store=store,
            inputs={"kind": spec_look.KIND, "path": job.folder.path},
            title=job.mission_id.removeprefix(SPEC),
            strictness=job.settings.run.strictness,
            policies=spec_look.policies(state, job.settings.run.strictness, wish.allow_dirty),
            budget=_budget(job.settings),
            accept=wish.yes or None,
            tell=lambda text: tell(Moment("note", text=text)),
        ) as run:
            begun = True
            if again:
                run.note(again)
            handoffs.gone(workspace.main, run_id)
            scope = _with_own_files(job.settings.scope, job.folder.path)
            repo = run.workspace(job.top, allow=scope.allow, deny=scope.deny)
            parts = _parts(job, workspace, run_id)
            chosen = {"agent": wish.agent, "reviewers": list(wish.reviewers), "parallel": wish.parallel}
            run.step(WISH, lambda: chosen)
            desk = Desk(run, repo, parts, job.settings, tell, app.now, wish.stay)
            _tell_ignored(desk, workspace)
            work(desk)
    except Stopped:
        return  # at rest, and the log says why
    except LeaseLost:
        raise  # somebody else goes on with it, and says how it stands
    except (HoldfastError, KeyboardInterrupt):
        if not begun or not _says_why(store, run_id):
            raise
    except BaseException:
        if begun:
            hand_over(store, run_id, job.top)
        raise


def _says_why(store: Store, run_id: str) -> bool:
    """Whether the log has the reason. It has none where the store itself failed: that is told as it is."""
    head = store.head(run_id)
    return head is not None and head.projection.stop_reason is not None


def _tell_ignored(desk: Desk, workspace: GitWorkspace) -> None:
    """Say once what git will not commit of the files that a run writes for people."""
    path = desk.parts.specs.path
    if IGNORED in desk.run.state.steps or os.path.isabs(path):
        return
    ignored = ignoring.left_out(workspace.git, [f"{path}/{name}" for name in (TASKS, CHECKPOINT)])
    if ignored:
        desk.run.step(IGNORED, lambda: ignored)
        desk.note(f"git ignores {' and '.join(ignored)}: written after each batch all the same, and in no commit")


@contextmanager
def _alone(workspace: GitWorkspace, run_id: str) -> Iterator[None]:
    """Two runs in one work tree would commit each other's half-done work: the second is refused while the first lives."""
    path = os.path.join(workspace.place.git_dir, LOCK)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(fd, run_id.encode().ljust(64), 0)
        except BlockingIOError:
            holder = os.pread(fd, 64, 0).decode("ascii", "replace").strip()
            if holder != run_id:  # if it is this very run, its lease says who has it
                raise WorkTreeTaken(holder, workspace.top) from None
        yield
    finally:
        os.close(fd)


def _parts(job: Job, workspace: GitWorkspace, run_id: str) -> Parts:
    stages, redactor = _stages(workspace.main, run_id), app.redactor()
    environ = config.environment()
    return Parts(
        job.folder,
        Agents(job.profiles, run_id, stages, environ, redactor),
        Commands(run_id, stages, environ, redactor),
        GitGround(workspace, run_id, job.settings.run.link, environ),
    )


def _stages(main: str, run_id: str) -> str:
    """Where the stages of a run keep their files: below the main work tree, and by no link anywhere else."""
    stages = os.path.join(handoffs.folder_of(os.path.realpath(main), run_id), "stages")
    if os.path.realpath(stages) != stages:
        raise UsageError(f"{stages} leads somewhere else by a link.", advice="Put a real folder there.")
    return stages


def _check_clean(workspace: GitWorkspace, job: Job, allow_dirty: bool) -> None:
    """Uncommitted work would become part of a batch. The spec's own files may be as new as they like."""
    own = (f"{job.folder.path}/", FILE)
    changed = [line for line in workspace.changed() if not line.partition(": ")[2].startswith(own)]
    if changed and not allow_dirty:
        raise DirtyWorktree(changed)


def _check_branch(workspace: GitWorkspace, job: Job, yes: bool) -> None:
    """What was begun on one branch is not gone on with on another unasked. One that is no more is nobody's choice."""
    said, now = job.folder.read().checkpoint, (workspace.where()[1] or "").removeprefix("refs/heads/")
    if said is None or said.finished or yes or said.branch in ("", now):
        return
    if said.branch.isprintable() and workspace.has_branch(said.branch):
        raise BranchDiffers(job.folder.path, said.branch, now)


def _budget(chosen: Settings) -> Budget:
    return Budget(seconds=chosen.budget.time, tokens=chosen.budget.tokens, money=chosen.budget.money)


def _with_own_files(scope: Scope, path: str) -> Scope:
    """A scope that names files must let the run write the spec's own."""
    return scope._replace(allow=(*scope.allow, f"{path}/**")) if scope.allow else scope
