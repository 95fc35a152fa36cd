"""Why a run can be at rest, as one table: families, stops and the names other programs use. Rows only, no decisions.

A diagnosis is fixed text; an action is a `holdfast` command in which `{run}` is the only gap. Exit codes are for ever.
"""

from __future__ import annotations

from holdfast.core.named import NamedTuple


class Family(NamedTuple):
    """A kind of stop and the exit codes set aside for it."""

    name: str
    low: int
    high: int
    meaning: str


class Stop(NamedTuple):
    """One reason to be at rest, and all that follows from it."""

    code: str
    title: str
    family: str
    exit_code: int
    diagnosis: str
    resumable: bool
    auto_resumable: bool
    next_actions: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """The diagnosis, and what its words are called here where they are those of another program."""
        return " ".join((f"{self.diagnosis.rstrip('.')}.", *filter(None, (CALLED_HERE.get(self.code),))))


FAMILIES = (
    Family("complete", 0, 0, "Nothing is left to do."),
    Family("unknown", 1, 1, "A reason this version does not know."),
    Family("constraint", 2, 9, "A limit on what may be changed was met."),
    Family("failure", 10, 19, "The work was done and is not good enough, or could not be done."),
    Family("review", 20, 29, "A reviewer does not let the work pass."),
    Family("worker", 30, 39, "The agent or its process did not deliver."),
    Family("drift", 40, 49, "The world is not what the checkpoint knew."),
    Family("waiting", 50, 59, "The run waits for a person or for a time, and holds no process meanwhile."),
    Family("usage", 60, 69, "What was asked for, or handed over, cannot be used."),
    Family("store", 70, 79, "The place where logs are kept cannot be used."),
    Family("lease", 80, 84, "Somebody else has, or took, the right to write."),
    Family("effect", 85, 89, "Something done to the outside world is not settled."),
    Family("internal", 90, 99, "Holdfast itself, or what drives it, broke its own rules."),
    Family("log", 100, 109, "What was recorded is no longer what was written."),
    Family("resource_limit", 124, 129, "A limit on time, effort or money was met."),
    Family("user", 130, 139, "The run was stopped or killed from outside."),
)

CALLED_HERE = {
    "timeout": "There is no --time here: set budget.time in holdfast.toml, or holdfast.Budget(seconds=...) in Python.",
    "max_ticks": "There is no --max-ticks here: the reason comes from another program's record.",
    "lockfile_violation": "There is no --allow-deps here: the allowlist is scope.allow in holdfast.toml.",
    "file_collision": "There is no --force-parallel here: each run has a work tree to itself; `git worktree add` makes one more.",
    "verification_timeout": "The setting is verify.timeout in holdfast.toml.",
}

GO_ON = ("holdfast resume {run}", "holdfast show {run}", "holdfast status")
FOLLOW = ("holdfast log {run}", "holdfast resume {run}", "holdfast status")
ANSWER = ("holdfast answer {run}", "holdfast show {run}", "holdfast status")
SETTLE = ("holdfast settle {run} EFFECT --done", "holdfast settle {run} EFFECT --not-done", "holdfast status")
ENDED = ("holdfast show {run}", "holdfast fork {run}", "holdfast status")
DONE = ("holdfast show {run}", "holdfast export {run} FILE", "holdfast status")
HERE = ("holdfast status", "holdfast doctor")
STORE = ("holdfast doctor", "holdfast status")
STORE_THEN = ("holdfast doctor", "holdfast status", "holdfast resume {run}")
PROVE = ("holdfast verify {run}", "holdfast doctor", "holdfast status")
REPORT = ("holdfast log {run}", "holdfast export {run} FILE", "holdfast doctor")
ASK = ("holdfast show {run}", "holdfast log {run}", "holdfast stops")

UNKNOWN = Stop("", "Unknown stop reason", "unknown", 1, "Unknown stop reason", False, False, ASK)

STOPS = (
    Stop("complete", "Complete", "complete", 0, "Everything that was asked for is done.", False, False, DONE),
    # ---- constraint
    Stop("guard_violation", "Scope guard violation", "constraint", 2,
         "Agent attempted changes outside allowlist or inside denylist. Check scope configuration.",
         True, False, GO_ON),
    Stop("lockfile_violation", "Disallowed lockfile changes", "constraint", 3,
         "Agent modified lockfiles without permission. Use --allow-deps or update allowlist.",
         True, False, GO_ON),
    Stop("dirty_worktree", "Dirty worktree before run", "constraint", 4,
         "Uncommitted changes detected. Commit or use --allow-dirty.",
         True, False, GO_ON),
    Stop("file_collision", "File ownership collision with active run", "constraint", 5,
         "Another run has claimed ownership of files in scope. Wait or use --force-parallel.",
         True, False, ("holdfast status", "holdfast resume {run}", "holdfast show {run}")),
    Stop("ownership_violation", "Change to a file the task does not own", "constraint", 6,
         "The task changed files that it had not claimed. Claim them in the plan, or take the changes back.",
         True, False, GO_ON),
    Stop("plan_scope_violation", "Plan reaches outside the scope", "constraint", 7,
         "The plan names files that the scope does not allow. Change the plan or the scope before anything is done.",
         True, False, GO_ON),
    Stop("merge_conflict", "Parallel tasks cannot be merged", "constraint", 8,
         "The same lines were changed twice, by two tasks of a batch or by a task and a person. All of it is kept; make it fit.",
         True, False, GO_ON),
    # ---- failure
    Stop("verification_failed", "Verification commands failed", "failure", 10,
         "Implementation did not pass verification tier. Check failure logs and retry.",
         True, False, GO_ON),
    Stop("verification_timeout", "Verification timeout", "failure", 11,
         "Verification commands exceeded time limit. Increase max_verify_time_per_milestone.",
         True, False, GO_ON),
    Stop("insufficient_evidence", "Claim without evidence", "failure", 12,
         "The work was reported as done, but nothing that can be checked shows it.",
         True, False, GO_ON),
    Stop("step_failed", "Step failed", "failure", 13,
         "A step ended with an error and has no attempts left. The steps before it are kept.",
         True, False, GO_ON),
    Stop("checkpoint_unwritable", "Checkpoint cannot be written", "failure", 14,
         "The checkpoint could not be recorded, so this place cannot be resumed from. The gate stays closed.",
         True, False, ("holdfast doctor", "holdfast resume {run}", "holdfast log {run}")),
    # ---- review
    Stop("review_loop_detected", "Review loop detected (repeated same review)", "review", 20,
         "Agent unable to address review comments after multiple attempts. Manual intervention needed.",
         True, False, GO_ON),
    Stop("review_rejected", "Review explicitly rejected", "review", 21,
         "Reviewer rejected implementation. Check review memo for details.",
         True, False, GO_ON),
    # ---- worker
    Stop("worker_blocked", "Worker reported blocked status", "worker", 30,
         "Worker unable to proceed. Check handoff memo for details.",
         True, False, GO_ON),
    Stop("worker_failed", "Worker process failed", "worker", 31,
         "Worker process crashed or returned error. Check worker logs.",
         True, False, GO_ON),
    Stop("worker_timeout", "Worker call timeout", "worker", 32,
         "Worker did not respond within timeout. Check worker health and network.",
         True, True, GO_ON),
    Stop("auth_expired", "Worker is not signed in", "worker", 33,
         "The agent's credentials were refused. Sign in with the agent's own command, then resume.",
         True, False, GO_ON),
    # ---- drift
    Stop("input_changed", "Inputs changed", "drift", 40,
         "The inputs are not those of the checkpoint. Look at what changed, and accept it or put it back.",
         True, False, GO_ON),
    Stop("drift_refused", "Drift refused", "drift", 41,
         "The world differs from the checkpoint and the policy for that difference is to refuse.",
         True, False, ("holdfast resume {run} --plan", "holdfast resume {run} --yes", "holdfast status")),
    Stop("code_changed", "Step code changed", "drift", 42,
         "A recorded step has other source code now, or is gone. Its recorded result may not be what it would give today.",
         True, False, GO_ON),
    Stop("branch_differs", "Another branch is checked out", "drift", 43,
         "The run was on another branch. Switch to that branch and resume, or accept this one with --yes.",
         True, False, ("holdfast resume {run}", "holdfast resume {run} --yes", "holdfast status")),
    Stop("plan_changed", "Approved plan is out of date", "drift", 44,
         "The plan that was approved is not what would be done now. Look at the new plan and approve that.",
         True, False, GO_ON),
    Stop("cursor_unknown", "Unknown cursor", "drift", 45,
         "The checkpoint stands at a cursor that this version does not know, and skipping it would lose work.",
         True, False, GO_ON),
    # ---- waiting
    Stop("awaiting_answer", "Waiting for an answer", "waiting", 50,
         "The run asked a question, or a gate is closed by conflicts. It goes on when a person has answered, or dealt with them.",
         True, False, ANSWER),
    Stop("quota_wait", "Waiting for a usage limit to reset", "waiting", 51,
         "The provider's usage limit was reached. The run goes on when the limit resets.",
         True, True, GO_ON),
    Stop("sleeping", "Sleeping until a set time", "waiting", 52,
         "The run asked to sleep and goes on at the time it named.",
         True, True, GO_ON),
    Stop("tasks_blocked", "Only blocked tasks are left", "waiting", 53,
         "What is left is blocked, or waits for that. Give what is blocked another status in tasks.yaml, and resume.",
         True, False, GO_ON),
    Stop("forked", "Forked", "waiting", 54,
         "The run was made of the events of another one, and nobody has gone on with it yet.",
         True, False, GO_ON),
    # ---- usage
    Stop("unstorable", "Value cannot be stored", "usage", 60,
         "A result is not plain data, so it could not be read back. Return values that JSON can hold.",
         True, False, GO_ON),
    Stop("name_clash", "Name used twice", "usage", 61,
         "Two steps of one run have the same name. Give each its own, so that each keeps its own result.",
         True, False, GO_ON),
    Stop("ambiguous_id", "More than one match", "usage", 62,
         "The id given fits more than one thing. Give more of it.",
         False, False, HERE),
    Stop("not_resumable", "Nothing to resume", "usage", 63,
         "The run has ended for good, or its reason does not allow it to go on.",
         False, False, ENDED),
    Stop("usage_error", "Command not understood", "usage", 64,
         "The command or call cannot be understood as given.",
         False, False, HERE),
    Stop("bad_input", "Input not accepted", "usage", 65,
         "Something handed over is not what it must be. Nothing was written.",
         False, False, HERE),
    Stop("not_found", "Not found", "usage", 66,
         "There is no such run, event, checkpoint or artifact in this store.",
         False, False, HERE),
    Stop("too_large", "Too large", "usage", 67,
         "A value is over its stated limit. Nothing was written.",
         True, False, GO_ON),
    Stop("untrusted", "Not trusted yet", "usage", 68,
         "The files of this repository name commands to run, and nobody has said that they may.",
         True, False, ("holdfast trust", *HERE)),
    Stop("token_refused", "Retry token refused", "usage", 69,
         "The retry token was used before, has expired, or belongs to another mission, run or step.",
         False, False, HERE),
    # ---- store
    Stop("store_unreadable", "Store cannot be read", "store", 70,
         "The store cannot be opened or read. It was left as it is.",
         False, False, STORE),
    Stop("newer_schema", "Written by a newer Holdfast", "store", 71,
         "This was written by a newer Holdfast; reading it as something older would lose part of it. Upgrade first.",
         False, False, ("holdfast doctor", "holdfast stops newer_schema")),
    Stop("store_unavailable", "Store server cannot be reached", "store", 72,
         "The database server did not answer. Nothing that was acknowledged is lost.",
         True, True, STORE_THEN),
    Stop("store_replaced", "Store was replaced while open", "store", 73,
         "The file under the open store is no longer the file that was opened.",
         False, False, STORE),
    Stop("store_busy", "Store is busy", "store", 74,
         "No turn to write came within the time allowed, because others were writing.",
         True, True, STORE_THEN),
    Stop("store_full", "No space left", "store", 75,
         "The disk or the quota is full. Free some space, then resume. Nothing that was acknowledged is lost.",
         True, False, STORE_THEN),
    Stop("store_read_only", "Store cannot be written", "store", 76,
         "The place of the store is read-only, or the right to write there is missing.",
         True, False, STORE_THEN),
    Stop("store_io", "Disk error", "store", 77,
         "The disk reported an error. The store was closed at once; check the disk before going on.",
         True, False, PROVE),
    Stop("store_foreign", "Not a Holdfast store", "store", 78,
         "The database is not ours, or was changed by another hand. It was left as it is.",
         False, False, STORE),
    # ---- lease
    Stop("lease_lost", "Lease lost", "lease", 80,
         "Another process took this run over. This one can no longer write and must not go on.",
         True, False, FOLLOW),
    Stop("lease_held", "Lease held by another process", "lease", 81,
         "Another process is working on this run. Wait until it ends or its lease runs out.",
         False, False, ("holdfast status", "holdfast log {run}")),
    Stop("conflict", "Another write came first", "lease", 82,
         "The log is not where the writer thought it was. Nothing was written; read it again.",
         True, False, FOLLOW),
    # ---- effect
    Stop("effect_unknown", "Effect with unknown outcome", "effect", 85,
         "An effect was started and its outcome was not recorded. Find out whether it happened before going on.",
         True, False, SETTLE),
    Stop("effect_key_reused", "Effect key used for other arguments", "effect", 86,
         "The same effect key came with other arguments. Doing it could repeat or replace an effect that was done.",
         True, False, GO_ON),
    Stop("effect_failed", "Effect failed", "effect", 87,
         "An effect is known to have failed. It can be done again with the same key and arguments.",
         True, False, GO_ON),
    # ---- internal
    Stop("internal_error", "Internal error", "internal", 90,
         "Something happened that Holdfast has no rule for. The log holds everything up to that point.",
         True, False, REPORT),
    Stop("milestone_missing", "Plan has no such task", "internal", 91,
         "The run stands at a task that its plan does not have.",
         False, False, REPORT),
    # ---- log
    Stop("log_damaged", "Log is damaged", "log", 100,
         "An event, or bytes an event refers to, is missing or no longer what was written. Nothing was changed.",
         False, False, PROVE),
    Stop("tail_lost", "End of the log is lost", "log", 101,
         "The head witness knows of acknowledged events that the log no longer has. "
         "Put the newer copy of the store back, or accept the loss.",
         False, False, ("holdfast verify {run}", "holdfast doctor", "holdfast doctor --fix --accept-loss")),
    # ---- resource_limit
    Stop("timeout", "Time budget exceeded", "resource_limit", 124,
         "Increase time budget with --time or simplify task into smaller milestones",
         True, False, GO_ON),
    Stop("max_ticks", "Maximum supervisor ticks reached", "resource_limit", 125,
         "Increase --max-ticks or simplify task to reduce phase transitions",
         True, False, GO_ON),
    Stop("stalled", "Run stalled (no progress)", "resource_limit", 126,
         "Run made no progress for extended period. Check worker logs for hangs.",
         True, True, GO_ON),
    Stop("budget_exhausted", "Budget used up", "resource_limit", 127,
         "The attempts, tokens or money allowed for this run are used up, counted from the log over all restarts.",
         True, False, GO_ON),
    Stop("deadline_passed", "Deadline passed", "resource_limit", 128,
         "The time by which this had to be done has passed.",
         True, False, GO_ON),
    Stop("churn_limit", "Restarted too often", "resource_limit", 129,
         "The run was restarted too many times within an hour. A person has to look before it goes on.",
         True, False, GO_ON),
    # ---- user
    Stop("user_stopped", "User requested stop", "user", 130,
         "Run stopped by user request (Ctrl+C).",
         True, False, GO_ON),
    Stop("interrupted", "Interrupted", "user", 131,
         "The process ended before the run did: it was killed, its own code left it, the machine went down, or the power failed.",
         True, True, GO_ON),
    Stop("cancelled", "Cancelled", "user", 132,
         "The run was cancelled on request, at a boundary between steps. It does not go on.",
         False, False, ENDED),
)  # fmt: skip

ALIASES = {
    "time_budget_exceeded": "timeout",
    "orchestrator_timeout": "timeout",
    "max_ticks_reached": "max_ticks",
    "orchestrator_max_ticks": "max_ticks",
    "stalled_timeout": "stalled",
    "worker_call_timeout": "worker_timeout",
    "verification_failed_max_retries": "verification_failed",
    "implement_blocked": "worker_blocked",
    "scope_violation": "guard_violation",
    "guard_fail": "guard_violation",
    "parallel_file_collision": "file_collision",
    "orchestrator_blocked_on_collision": "file_collision",
    "plan_parse_failed": "worker_failed",
    "implement_parse_failed": "worker_failed",
    "review_parse_failed": "worker_failed",
    "preflight_failed": "drift_refused",
    "orchestrator_track_stopped": "step_failed",
    "orchestrator_internal_error": "internal_error",
}
