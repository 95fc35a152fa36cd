"""`holdfast trust`: shows what the files of this repository would have run, and remembers that you accept exactly that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from holdfast import config, settings
from holdfast.adapters import system, terminal
from holdfast.adapters.trust import Trust, Untrusted, Verdict
from holdfast.cli.output import emit, escape, json_option, say, warn
from holdfast.cli.repo import here
from holdfast.core.acts import Act, acts
from holdfast.core.errors import UsageError


@click.command()
@click.option("--show", is_flag=True, help="Only show it; nothing is asked or remembered.")
@click.option("--forget", is_flag=True, help="Trust nothing of this repository any more.")
@click.option("--yes", is_flag=True, help="Accept what is shown without a question.")
@json_option
def command(show: bool, forget: bool, yes: bool, as_json: bool) -> None:
    """Let the files of this repository name commands, agents and links. Asked again when they change.

    \b
    holdfast trust --show
    holdfast trust
    holdfast trust --forget
    """
    if show + forget + yes > 1:
        raise UsageError("--show, --forget and --yes exclude each other.", advice="Give one of them, or none.")
    environ = config.environment()
    top = top_here()
    book = Trust(system.user_folder(environ, "XDG_STATE_HOME"))
    if forget:
        report_forgotten(top, book.forget(top), as_json)
        return
    files = files_of(top, environ)
    verdict = book.check(top, files)
    if not as_json:
        show_acts(top, files, verdict)
    if verdict.state != "trusted" and not show:
        accept(book, top, files, verdict, yes or asked(verdict, as_json))
    if as_json:
        emit(as_data(top, files, verdict, accepted=not show))
    elif verdict.state != "trusted" and not show:
        say("Trusted, as it is now. Any change of these files is asked about again.")


def top_here() -> str:
    """The work tree we are in. A linked one has files, and so trust, of its own."""
    if config.repository_top(config.here()) is None:
        raise UsageError("There is no repository here.", advice="Change to the repository that you mean.")
    return here().top


def files_of(top: str, environ: Mapping[str, str]) -> Mapping[str, bytes]:
    """The files of a repository that can name commands, read once: what is shown is what is trusted."""
    return settings.load(top, environ).files


def asked(verdict: Verdict, as_json: bool) -> bool:
    return not as_json and terminal.is_there() and terminal.confirm(f"Trust {', '.join(verdict.what)}?", ())


def accept(book: Trust, top: str, files: Mapping[str, bytes], verdict: Verdict, agreed: bool) -> None:
    if not agreed:
        raise Untrusted(top, verdict)
    book.trust(top, files)


# --- showing


def show_acts(top: str, files: Mapping[str, bytes], verdict: Verdict) -> None:
    found = acts(files)
    say(f"{escape(top)}: {summary(found, verdict)}")
    added, removed = changes(verdict)
    for act in found:
        say(f"  {'+' if act in added else ' '} {shown(act)}")
    for act in removed:
        say(f"  - {shown(act)}")
    if verdict.state == "changed" and not added and not removed:
        say("  The files have changed elsewhere; what they name is the same.")
    if verdict.problem:
        warn(f"holdfast: {escape(verdict.problem)}")


def summary(found: tuple[Act, ...], verdict: Verdict) -> str:
    if not found:
        return "its files name nothing to run, so there is nothing to trust."
    words = {"trusted": "trusted", "changed": "changed since it was trusted", "unknown": "not trusted yet"}
    return f"{words[verdict.state]}; this is what its files name:"


def changes(verdict: Verdict) -> tuple[list[Act], list[Act]]:
    """What is new, and what is gone, since the files were trusted."""
    if verdict.state != "changed":
        return [], []
    added = [act for act in verdict.acts if act not in verdict.before]
    return added, [act for act in verdict.before if act not in verdict.acts]


def shown(act: Act) -> str:
    return f"{escape(act.where or act.file)}: {escape(act.text)}"


def report_forgotten(top: str, was_there: bool, as_json: bool) -> None:
    if as_json:
        emit({"repository": top, "forgotten": was_there})
    else:
        say(f"{escape(top)}: " + ("trusted no more." if was_there else "it was not trusted."))


def as_data(top: str, files: Mapping[str, bytes], verdict: Verdict, accepted: bool) -> dict[str, Any]:
    added, removed = changes(verdict)
    return {
        "repository": top,
        "before": verdict.state,
        "trusted": accepted or verdict.state == "trusted",
        "acts": [act._asdict() for act in acts(files)],
        "added": [act._asdict() for act in added],
        "removed": [act._asdict() for act in removed],
        "problem": verdict.problem,
    }
