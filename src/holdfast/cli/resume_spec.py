"""`holdfast resume SPEC`: the run of a spec, or where no log is here, what its checkpoint.yaml tells. Starts no run unasked."""

from __future__ import annotations

import os
from contextlib import closing
from importlib import import_module
from typing import Any

from holdfast import app, config
from holdfast.cli.loading import load
from holdfast.cli.output import escape, say
from holdfast.core.errors import HoldfastError, InvalidId, NotFound, shown
from holdfast.core.ids import SPEC
from holdfast.core.named import NamedTuple
from holdfast.core.values import Head


class Meant(NamedTuple):
    """What somebody named: a run by its id, or a spec of which no run is here."""

    run: str | None
    spec: str | None = None


class SpecAway(HoldfastError):
    """A run is known of a spec of this name, and no such spec is here."""

    reason = "not_found"

    def __init__(self, text: str, run_id: str) -> None:
        super().__init__(
            f"No spec {shown(text, 120)} is in this work tree; the newest run of one that was called so is {run_id}.",
            advice=f"`holdfast resume {run_id}` goes on with it where its folder is: put that back, or go there.",
        )


def meant(where: config.Config, text: str | None) -> Meant:
    """The unfinished run of a spec, or the newest of a mission, that is named instead of a run; else what was given."""
    if text is None:
        return Meant(None)
    try:
        with closing(app.open_configured(where, read_only=True)) as store:
            app.find_run(store, text)
    except (NotFound, InvalidId):
        specs = import_module("holdfast.spec_look")
        found: str | None = specs.to_resume(where, text) or of_mission(where, text)
        spec = text if found is None and specs.is_begun(text) else None
        if found is None and spec is None and (head := _newest(where, text)) is not None:
            raise SpecAway(text, head.run_id) from None
        return Meant(found or text, spec)
    return Meant(text)


def of_mission(where: config.Config, text: str) -> str | None:
    """The newest run of a mission. That of a spec is not found so: it may belong to another work tree."""
    head = _newest(where, text)
    return None if head is None or head.projection.mission_id.startswith(SPEC) else head.run_id


def _newest(where: config.Config, text: str) -> Head | None:
    try:
        with closing(app.open_configured(where, read_only=True)) as store:
            return app.newest_run(store, text)
    except (NotFound, InvalidId):
        return None


def go_on(where: config.Config, run_id: str, more: dict[str, str], approve: str | None, as_json: bool) -> int:
    """The pipeline itself, from where it stood. What it runs comes from files that their user trusts, not from the log."""
    with closing(app.open_configured(where, read_only=True)) as store:
        path = import_module("holdfast.spec_look").spec_of(store, run_id)
    return _go(path, run_id, more | ({"HOLDFAST_PLAN": approve, "HOLDFAST_RUN": run_id} if approve else {}), as_json)


def go_on_by_files(spec: str, only_plan: bool, more: dict[str, str], as_json: bool) -> int:
    """The same with a new run, from the batch that the files tell: those before it are in git."""
    if only_plan:
        import_module("holdfast.cli.run").show_batches(import_module("holdfast.spec_look"), spec, as_json)
        return 0
    return _go(spec, None, more, as_json)


def _go(spec: str, run_id: str | None, more: dict[str, str], as_json: bool) -> int:
    specs, runs = load("holdfast.spec_run"), import_module("holdfast.cli.run")
    os.environ.update(more)
    yes, allow_dirty = "HOLDFAST_YES" in more, "HOLDFAST_ALLOW_DIRTY" in more
    wish = specs.Wish(spec, allow_dirty=allow_dirty, yes=yes, run_id=run_id)
    code: int = runs.go(specs, wish, as_json)
    return code


def show_waiting(rows: list[dict[str, Any]]) -> None:
    for one in rows:
        if "problem" in one:
            say(
                f"Spec {escape(one['path'])} has no run here, and its checkpoint cannot be read. {escape(one['problem'])}"
            )
            say(f"  {escape(one['advice'])} Then:")
            say(f"  {escape(one['next'])}")
            continue
        said = f"Spec {escape(one['path'])} has no run here, and its checkpoint.yaml says that batch"
        say(f"{said} {escape(one['last_batch'])} is done{_age(one)}:")
        say(f"  {escape(one['next'])}")


def _age(one: dict[str, Any]) -> str:
    """When the checkpoint was written, by its own word; said where there are several."""
    if "written" not in one:
        return ""
    told = f"written {escape(one['written'])}" if one["written"] else "it does not say when it was written"
    return f" ({told}{', the newest' * one['newest']})"
