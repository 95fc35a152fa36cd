"""`holdfast completion`: prints the script that teaches a shell to complete. Installs nothing."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from holdfast.cli.output import say

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_HOLDFAST_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the completion script for SHELL: eval "$(holdfast completion bash)"."""
    maker = get_completion_class(shell)
    assert maker is not None
    say(maker(context.find_root().command, {}, "holdfast", VARIABLE).source())
