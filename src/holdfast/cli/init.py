"""`holdfast init`: set up a repository: ignore rules, and optional hooks. Doing it twice changes nothing the second time."""

from __future__ import annotations

import click

from holdfast.adapters.git import hooks, ignoring
from holdfast.adapters.git.plain_files import opened
from holdfast.cli import repo
from holdfast.cli.output import emit, escape, json_option, say
from holdfast.core.settings import FILE, TEMPLATE

NEXT = "holdfast doctor"


@click.command()
@click.option(
    "--hooks", "with_hooks", is_flag=True, help="Also hooks: follow rewritten commits, refuse to amend a milestone."
)
@click.option("--remove-hooks", is_flag=True, help="Take the hooks out again; what was there before comes back.")
@click.option("--config", "with_config", is_flag=True, help="Also a holdfast.toml to fill in, if there is none.")
@click.option("--exclude", is_flag=True, help="Put the rule into .git/info/exclude, not into .gitignore.")
@click.option("--force", is_flag=True, help="Also replace or remove a hook of ours that somebody changed.")
@json_option
def command(with_hooks: bool, remove_hooks: bool, with_config: bool, exclude: bool, force: bool, as_json: bool) -> None:
    """Make the repository around you ready: `.holdfast/` is ignored by git, and nothing else is changed."""
    place = repo.here()
    done = ignoring.init(place.git, "exclude" if exclude else "gitignore")
    if with_hooks:
        done += hooks.install(place.git, force=force)
    if remove_hooks:
        done += hooks.uninstall(place.git, force=force)
    if with_config:
        done += write_settings(place.top)
    if as_json:
        emit({"repository": place.main, "done": done})
        return
    for sentence in done or ["Everything was set up already."]:
        say(escape(sentence))
    say(f"Next: `{NEXT}`.")


def write_settings(top: str) -> list[str]:
    """A file to begin with; one that is there stays as it is."""
    with opened(top) as folder:
        if folder.look(FILE) is not None:
            return []
        folder.replace(FILE, TEMPLATE.encode(), None)
    return [f"{FILE} is there to be filled in; `holdfast run` reads it."]
