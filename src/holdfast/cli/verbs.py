"""Every verb and the file it lives in. A verb's module is imported only when the verb is used."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import cast

import click

from holdfast import __version__
from holdfast.cli.output import say
from holdfast.core.errors import UsageError

VERBS = {
    "init": ("init", "Set up a repository: ignore rules, optional hooks."),
    "run": ("run", "Run a spec with coding agents, batch by batch; or one command."),
    "status": ("status", "Runs here, live or interrupted."),
    "log": ("log", "The events of a run; -f follows."),
    "show": ("show", "A run, or one event, step, effect, checkpoint or artifact of it."),
    "resume": ("resume", "What is unfinished; go on with it."),
    "answer": ("answer", "Answer what a run asked."),
    "settle": ("settle", "Say what became of an effect whose outcome is unknown."),
    "cancel": ("cancel", "End a run for good, at its next boundary."),
    "fork": ("fork", "A new run from the first events of another."),
    "checkpoint": ("checkpoint", "Keep the work tree as it is now; --commit makes a milestone."),
    "restore": ("restore", "A checkpoint's files again, in a new work tree."),
    "verify": ("verify", "Prove that the log is what was written."),
    "export": ("export", "Write a run to one file."),
    "import": ("import_", "Read a run from an exported file."),
    "trust": ("trust", "Let the files of this repository name commands."),
    "diagnose": ("diagnose", "Why a run is at rest, on what evidence, and what to do next."),
    "stops": ("stops", "Why runs stop, and with which exit code."),
    "doctor": ("doctor", "Is this set-up sound? --fix repairs mirrors only."),
    "demo": ("demo", "Kill a run again and again, and resume it."),
    "killtest": ("killtest", "Kill your own program at every point, and resume it."),
    "completion": ("completion", "Print the completion script of a shell."),
}


class LazyGroup(click.Group):
    """Lists verbs from the table and loads one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        return cast("click.Command", import_module(f"holdfast.cli.{VERBS[cmd_name][0]}").command)

    def invoke(self, ctx: click.Context) -> object:
        """A reader that has had enough is no error; click would make one of it."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise click.exceptions.Exit(0) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            raise click.UsageError(unknown_verb(args[0]), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, help_text) in VERBS.items()])


def unknown_verb(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, VERBS, n=1)
    return f"There is no command {name!r:.60}." + (f" Did you mean {near[0]}?" if near else "")


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="holdfast")
@click.pass_context
def cli(context: click.Context) -> None:
    """Long agent runs that survive crashes. A run is a log of events; these commands read it, prove it and go on with it."""
    if context.invoked_subcommand is None:
        say(context.get_help())


def perform(arguments: Sequence[str]) -> int:
    """Understand one command line and do it. Raises a UsageError for one that cannot be understood."""
    try:
        code = cli.main(list(arguments), prog_name="holdfast", standalone_mode=False)
    except click.Abort:
        raise KeyboardInterrupt from None
    except click.ClickException as error:
        raise UsageError(sentence(error.format_message()), advice=help_for(error)) from None
    return code if isinstance(code, int) else 0


def sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else text + "."


def help_for(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return f"`{context.command_path if context else 'holdfast'} --help` shows how it is used."
