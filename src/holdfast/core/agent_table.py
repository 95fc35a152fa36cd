"""The agents that Holdfast knows: how to start each, as data. A table of `holdfast.toml` says the same things of others."""

from __future__ import annotations

from typing import Any

_CODEX = ("codex", "exec", "--json", "--skip-git-repo-check", "--sandbox", "workspace-write", "--add-dir", "{folder}")
_CLAUDE = (
    *("claude", "--print", "--output-format", "stream-json", "--verbose", "--permission-mode", "acceptEdits"),
    *("--allowedTools", "Bash,Edit,Write", "--add-dir", "{folder}", "--model", "{model}"),
)
_GEMINI = (
    *("gemini", "--yolo", "--skip-trust", "--output-format", "stream-json", "--include-directories", "{folder}"),
    *("--model", "{model}"),
)
_OPENCODE = ("opencode", "run", "--format", "json", "--auto", "--model", "{model}")
_AIDER = (
    *("aider", "--yes-always", "--no-check-update", "--no-show-release-notes", "--no-show-model-warnings"),
    *("--no-analytics", "--no-detect-urls", "--disable-playwright", "--no-pretty", "--no-fancy-input", "--stream"),
    *("--no-auto-commits", "--no-dirty-commits", "--no-gitignore", "--no-suggest-shell-commands", "--map-tokens", "0"),
    *("--input-history-file", "{folder}/aider-input", "--message-file", "{prompt}", "--model", "{model}"),
)

SHIPPED: dict[str, dict[str, Any]] = {
    "codex": {
        "start": (*_CODEX, "--model", "{model}", "-"),
        "prompt_by": "stdin",
        "resume": (*_CODEX, "--model", "{model}", "resume", "{session}", "-"),
        "output": "jsonl",
        "session": ({"where": {"type": "thread.started"}, "path": "thread_id", "which": "first"},),
        "result": ({"where": {"type": "item.completed", "item.type": "agent_message"}, "path": "item.text"},),
        "tokens": (
            {"where": {"type": "turn.completed"}, "path": "usage.input_tokens", "which": "sum"},
            {"where": {"type": "turn.completed"}, "path": "usage.output_tokens", "which": "sum"},
        ),
        "errors": (
            {"where": {"type": "turn.failed"}, "path": "error.message"},
            {"where": {"type": "error"}, "path": "message"},
        ),
        "progress": (
            {"where": {"type": "item.started"}, "path": "item.command"},
            {"where": {"type": "item.completed", "item.type": "agent_message"}, "path": "item.text"},
        ),
        "whole_session": ("tokens",),
        "version": ("codex", "--version"),
        "trust": "It runs commands without asking, in its own sandbox: it may write below the work tree and in the folder "
        "of its stage, and has no network there.",
        "cannot": ("It does not say what it costs, only how many tokens it used.",),
    },
    "claude": {
        "start": _CLAUDE,
        "prompt_by": "stdin",
        "resume": (*_CLAUDE, "--resume", "{session}"),
        "output": "jsonl",
        "session": ({"path": "session_id", "which": "first"},),
        "result": ({"where": {"type": "result"}, "path": "result"},),
        "money": ({"where": {"type": "result"}, "path": "total_cost_usd"},),
        "tokens": (
            {"where": {"type": "result"}, "path": "usage.input_tokens"},
            {"where": {"type": "result"}, "path": "usage.output_tokens"},
            {"where": {"type": "result"}, "path": "usage.cache_creation_input_tokens"},
            {"where": {"type": "result"}, "path": "usage.cache_read_input_tokens"},
        ),
        "errors": (
            {"where": {"type": "result", "is_error": "true"}, "path": "result"},
            {"where": {"type": "error"}, "path": "error.message"},
        ),
        "progress": (
            {"where": {"type": "assistant"}, "path": "message.content.0.input.command"},
            {"where": {"type": "assistant"}, "path": "message.content.0.input.file_path"},
            {"where": {"type": "assistant"}, "path": "message.content.0.text"},
        ),
        "version": ("claude", "--version"),
        "trust": "It edits files and runs commands without asking, with all the rights of the user; it has no sandbox here.",
    },
    "gemini": {
        "start": _GEMINI,
        "prompt_by": "stdin",
        "resume": (*_GEMINI, "--resume", "{session}"),
        "output": "jsonl",
        "session": ({"where": {"type": "init"}, "path": "session_id", "which": "first"},),
        "result": ({"where": {"type": "message", "role": "assistant"}, "path": "content", "which": "join"},),
        "tokens": ({"where": {"type": "result"}, "path": "stats.total_tokens"},),
        "errors": (
            {"where": {"type": "result", "status": "error"}, "path": "error.message"},
            {"where": {"type": "error"}, "path": "message"},
        ),
        "progress": (
            {"where": {"type": "tool_use"}, "path": "parameters.command"},
            {"where": {"type": "tool_use"}, "path": "parameters.file_path"},
            {"where": {"type": "message", "role": "assistant"}, "path": "content"},
        ),
        "version": ("gemini", "--version"),
        "trust": "It edits files and runs commands without asking, with all the rights of the user; it has no sandbox here.",
        "cannot": (
            "After a kill it no longer knows of the tool call that was cut off.",
            "It takes an @ in a prompt for the name of a file: it adds that file where there is one, and sets blanks before it.",
            "It does not say what it costs, only how many tokens it used.",
        ),
    },
    "opencode": {
        "start": _OPENCODE,
        "prompt_by": "stdin",
        "resume": (*_OPENCODE, "--session", "{session}"),
        "output": "jsonl",
        "session": ({"path": "sessionID", "which": "first"},),
        "result": ({"where": {"type": "text"}, "path": "part.text", "which": "join"},),
        "money": ({"where": {"type": "step_finish"}, "path": "part.cost", "which": "sum"},),
        "tokens": (
            {"where": {"type": "step_finish"}, "path": "part.tokens.input", "which": "sum"},
            {"where": {"type": "step_finish"}, "path": "part.tokens.output", "which": "sum"},
            {"where": {"type": "step_finish"}, "path": "part.tokens.cache.read", "which": "sum"},
            {"where": {"type": "step_finish"}, "path": "part.tokens.cache.write", "which": "sum"},
        ),
        "errors": ({"where": {"type": "error"}, "path": "error.data.message"},),
        "progress": (
            {"where": {"type": "tool_use"}, "path": "part.state.title"},
            {"where": {"type": "tool_use"}, "path": "part.state.input.command"},
            {"where": {"type": "text"}, "path": "part.text"},
        ),
        "env": {"OPENCODE_DISABLE_AUTOUPDATE": "1"},
        "version": ("opencode", "--version"),
        "trust": "It edits files and runs commands without asking, with all the rights of the user; it has no sandbox here.",
    },
    "aider": {
        "start": (*_AIDER, "--chat-history-file", "{folder}/aider-chat.md"),
        "prompt_by": "file",
        "resume": (*_AIDER, "--chat-history-file", "{session}", "--restore-chat-history"),
        "session_is": "{folder}/aider-chat.md",
        "money": ({"after": "Cost: $", "which": "sum"},),
        "errors": ({"after": "litellm."},),
        "hint": "You cannot run commands, and you cannot write the file of the report: make no edit for it, or all your edits "
        "are refused. End your answer with the report, between the lines BEGIN_JSON and END_JSON.",
        "edits_last": True,
        "env": {"COLUMNS": "1000000", "BROWSER": "true"},  # it would break lines, and open pages that errors name
        "version": ("aider", "--version"),
        "trust": "It edits files without asking, with all the rights of the user; it is told to suggest no commands.",
        "cannot": (
            "It has no sessions: a resume only reads the chat of the earlier start again, and a reply that was cut off is lost.",
            "It runs no commands but its own check of syntax, so it cannot run the tests that it writes.",
            "It sees only files that the prompt or its answer names; its map of the repository leaves files in the work tree.",
            "It leaves with 0 whatever happens, and tries for more than a minute before it tells of a limit.",
            "It does not say how many tokens it used in a form that can be relied on.",
        ),
    },
    "mini": {
        "start": (
            *("mini", "--yolo", "--exit-immediately", "--output", "{folder}/trajectory.json", "--model", "{model}"),
            "--task={prompt}",
        ),
        "output": "json",
        "output_file": "{folder}/trajectory.json",
        "result": ({"path": "info.submission"},),
        "money": ({"path": "info.model_stats.instance_cost"},),
        "errors": tuple(
            {"where": {"info.exit_status": status}, "path": "info.exit_status"}
            for status in ("RateLimitError", "AuthenticationError", "APIConnectionError", "InternalServerError")
        ),
        "env": {"MSWEA_CONFIGURED": "true", "MSWEA_SILENT_STARTUP": "1"},
        "trust": "It runs any command without asking, with all the rights of the user; it has no sandbox.",
        "cannot": (
            "It has no sessions: a resume is a new start with the brief of what is known.",
            "It has no command that only tells its version.",
            "It does not say how many tokens it used.",
        ),
    },
}
