"""What a stop is called once its signals are known: categories, phrases and outcomes by reason. Rows only, no decisions.

A row refines only the stops it names, so a task that talks about passwords does not look like a refused sign-in. Phrases
are lower-case text that is searched for as it stands.
"""

from __future__ import annotations

from holdfast.core.named import NamedTuple


class Sign(NamedTuple):
    """Phrases that, after one of these stops, tell what really happened."""

    category: str
    after: frozenset[str]
    phrases: tuple[str, ...]
    confidence: float
    sentence: str


# What a stop is called before its signals are looked at, where that is not its own code.
CATEGORIES = {
    "guard_violation": "scope_violation",
    "plan_scope_violation": "scope_violation",
    "lockfile_violation": "lockfile_restricted",
    "dirty_worktree": "guard_violation_dirty",
    "verification_failed": "verification_failure",
    "stalled": "stall_timeout",
    "max_ticks": "max_ticks_reached",
    "timeout": "time_budget_exceeded",
}

# How a run that stopped for a family of reasons is said to have ended, where that is not "stopped".
OUTCOMES = {"complete": "complete", "constraint": "failed", "failure": "failed", "waiting": "waiting"}

_WORKER = frozenset({"worker_failed", "worker_blocked", "worker_timeout", "auth_expired", "step_failed"})
_CHECKS = frozenset({"verification_failed", "verification_timeout"})
_SCOPE = frozenset({"guard_violation", "ownership_violation", "plan_scope_violation"})

SIGNS = (
    Sign("auth_expired", _WORKER,
         ("401 unauthorized", "invalid api key", "invalid_api_key", "not logged in", "please log in", "/login",
          "authentication failed", "authentication_error", "token has expired", "token expired", "login required"),
         0.95, "The agent is not signed in any more; sign in with its own command."),
    Sign("usage_limit", _WORKER | {"quota_wait"},
         ("usage limit", "rate limit", "rate_limit", "quota exceeded", "insufficient_quota", "too many requests"),
         0.9, "The provider's usage limit was met; it resets by itself."),
    Sign("network_down", _WORKER | {"stalled"},
         ("connection refused", "could not resolve host", "name resolution", "network is unreachable", "econnrefused",
          " enotfound", "'enotfound", '"enotfound', "connection reset", "connection timed out"),
         0.85, "The network, or the provider, could not be reached."),
    Sign("context_overflow", _WORKER,
         ("context length", "context window", "prompt is too long", "maximum context", "too many tokens"),
         0.85, "The agent was given more than its model can hold; make the task or the brief smaller."),
    Sign("worker_parse_failure", _WORKER | {"insufficient_evidence"},
         ("no report file", "the report file is not ", "the report file does not ", "the json between the markers ", "begin_json",
          "report cannot be read", "report does not parse", "unreadable report"),
         0.9, "The agent answered, but not with a report that can be read; its raw output is kept."),
    Sign("agent_missing", _WORKER,
         ("command not found", "executable not found", "no such program", "is not installed"),
         0.85, "The agent's program is not installed, or not on the PATH."),
    Sign("disk_full", _WORKER | _CHECKS | {"checkpoint_unwritable", "store_io"},
         ("no space left on device", "disk quota exceeded", "enospc"),
         0.95, "The disk is full; free some space first."),
    Sign("out_of_memory", _WORKER | _CHECKS,
         ("out of memory", "cannot allocate memory", "oom-kill", "memoryerror"),
         0.85, "A process ran out of memory."),
    Sign("lockfile_restricted", _SCOPE,
         ("package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "uv.lock", "poetry.lock", "pdm.lock",
          "pipfile.lock", "cargo.lock", "go.sum", "gemfile.lock", "composer.lock"),
         0.85, "A lockfile was changed, and nobody allowed dependencies to change."),
    Sign("scope_violation", _SCOPE,
         ("outside of the allowed", "is denied by", "outside allowlist", "denylist"),
         0.95, "Files outside of the scope were changed; widen the scope or take the changes back."),
    Sign("merge_left_open", frozenset({"merge_conflict", "dirty_worktree"}),
         ("<<<<<<<", "unmerged", "both modified", "conflict (content)", "merge_head"),
         0.9, "A merge is not finished; finish it or give it up first."),
    Sign("verification_cwd_mismatch", _CHECKS,
         ("no such file or directory", "file or directory not found", "no tests ran", "cannot find module",
          "could not read package.json", "enoent", "no rule to make target", "no module named"),
         0.85, "The checks did not find what they check: they ran in another folder, or something is not installed there."),
    Sign("verification_tool_missing", _CHECKS,
         ("command not found", "no such program", "is not installed"),
         0.9, "The program of a check is not installed, or not on the PATH."),
    Sign("verification_failure", _CHECKS,
         ("assertionerror", " failed", "failures:", "test failed", "npm err!", "traceback (most recent call last)"),
         0.9, "The checks ran and do not pass."),
)  # fmt: skip
