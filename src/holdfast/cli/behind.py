"""Commands that take a command line of yours: everything behind the first `--` is left alone, word for word."""

from __future__ import annotations

import click

from holdfast.core.errors import UsageError

_KEY = "holdfast.behind"


class TakesCommand(click.Command):
    """A verb with `-- COMMAND...` at its end, whose words `words_behind` gives."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ours = args[: args.index("--")] if "--" in args else args
        ctx.meta[_KEY] = tuple(args[len(ours) + 1 :])
        return super().parse_args(ctx, list(ours))

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


def words_behind(context: click.Context) -> tuple[str, ...]:
    """What stood behind the `--`; nothing if there was none."""
    words: tuple[str, ...] = context.meta[_KEY]
    return words


def not_started(name: str, error: Exception) -> UsageError:
    problem = getattr(error, "strerror", None) or str(error)
    return UsageError(f"The command {name!r:.120} cannot be started ({problem}).", advice="Nothing was written.")
