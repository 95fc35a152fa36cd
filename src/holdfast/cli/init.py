"""`holdfast init`: set up a repository: ignore rules, and optional hooks. Doing it twice changes nothing the second time."""

from __future__ import annotations

import click

from holdfast.adapters.git import hooks, ignoring
from holdfast.cli import repo
from holdfast.cli.output import emit, escape, json_option, say

NEXT = "holdfast doctor"


@click.command()
@click.option(
    "--hooks", "with_hooks", is_flag=True, help="Also hooks: follow rewritten commits, refuse to amend a milestone."
)
@click.option("--remove-hooks", is_flag=True, help="Take the hooks out again; what was there before comes back.")
@click.option("--force", is_flag=True, help="Also replace or remove a hook of ours that somebody changed.")
@json_option
def command(with_hooks: bool, remove_hooks: bool, force: bool, as_json: bool) -> None:
    """Make the repository around you ready: `.holdfast/` is ignored by git, and nothing else is changed."""
    place = repo.here()
    done = ignoring.init(place.git)
    if with_hooks:
        done += hooks.install(place.git, force=force)
    if remove_hooks:
        done += hooks.uninstall(place.git, force=force)
    if as_json:
        emit({"repository": place.main, "done": done})
        return
    for sentence in done or ["Everything was set up already."]:
        say(escape(sentence))
    say(f"Next: `{NEXT}`.")
