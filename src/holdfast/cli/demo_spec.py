"""`holdfast demo`: the main job in a real repository, killed with everything it started, again and again, and counted.

A spec of eight tasks in four batches and an agent that follows a script; no key and no network is needed. Touches nothing but
its own folder, and leaves no process behind, whatever ends it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from holdfast import app, config
from holdfast.adapters.specs import SpecFolder
from holdfast.cli.bars import Reached, bars
from holdfast.cli.output import emit, escape, say
from holdfast.cli.render import paint, table
from holdfast.core import stops
from holdfast.core.errors import NotFound, UsageError
from holdfast.core.named import NamedTuple
from holdfast.engine.log import read_state, verify_run
from holdfast.ports import Head, Store
from holdfast.testing import demo_counts as counts
from holdfast.testing.demo_counts import Look, Tally
from holdfast.testing.demo_spec import PAUSE, Killer, check_end, kills_of, undisturbed
from holdfast.testing.workshop import BATCHES, FOLDER, TASKS, Workshop, build

COMMAND = (sys.executable, "-P", "-m", "holdfast")
NOBODY = {"NAME": "Demo", "EMAIL": "demo@localhost"}
OTHERS = ("HOLDFAST_", "GIT_", "XDG_")  # settings of the user, which are not to change the demo


class Demo(NamedTuple):
    """One demonstration: where it happens and how hard it is."""

    folder: str
    kills: int
    seed: int
    lying: bool

    @property
    def again(self) -> str:
        lying = " --lying-agent" if self.lying else ""
        return f"holdfast demo --kills {self.kills} --seed {self.seed}{lying}"


class Outcome(NamedTuple):
    """All that is shown in the end."""

    tally: Tally
    log: list[str]
    checkpoint: dict[str, Any]


@contextmanager
def place(folder: str | None, fresh: bool = True) -> Iterator[str]:
    """A folder for a demo: a new one that is left, or one that is removed in the end."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as made:
            yield os.path.realpath(made)
        return
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if fresh and os.listdir(folder):
        raise UsageError(f"The folder {folder} is not empty.", advice="Name a new folder, or an empty one.")
    yield os.path.realpath(folder)


def perform(demo: Demo, as_json: bool) -> int:
    """All of it: the exit code says whether every promise was kept."""
    outcome = demonstrate(demo, as_json)
    (show_json if as_json else show_text)(demo, outcome)
    return 0 if outcome.tally.sound else stops.exit_code("internal_error")


def demonstrate(demo: Demo, as_json: bool) -> Outcome:
    environ = surroundings(demo.folder, config.environment())
    shop = furnished(demo, "", environ)
    other = furnished(demo._replace(lying=False), "undisturbed", environ)
    own = counts.own_files(shop)
    with undisturbed(other, COMMAND, environ) as life, screen(demo, as_json) as watch:
        killer = Killer(shop, COMMAND, environ, lambda: look(shop), watch)
        killer.go(kills_of(demo.kills, demo.seed))
        check_end(life, "The undisturbed run")
    with app.reading(store_of(shop)) as store:
        run_id = heads(store)[0].run_id
        findings = len(verify_run(store, run_id).findings)
        left = counts.what_is_left(shop, environ, events_of(store, run_id), findings)
    wanted, figures = counts.tree_of(other, environ), {"kills_asked": demo.kills, **killer.figures}
    return Outcome(
        counts.tally(killer.looks, left, wanted, own, figures),
        counts.git(shop, environ, "log", "--format=%h %s").decode().splitlines(),
        checkpoint_of(shop),
    )


def surroundings(folder: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Our environment, without what the user has set up for work of their own."""
    kept = {name: value for name, value in environ.items() if not name.startswith(OTHERS)}
    kept |= {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in NOBODY.items()}
    kept |= {f"XDG_{kind}_HOME": os.path.join(folder, "home", kind.lower()) for kind in ("CONFIG", "DATA", "STATE")}
    return kept | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def furnished(demo: Demo, name: str, environ: Mapping[str, str]) -> Workshop:
    """A repository with the spec, the agent, and files of its user."""
    acts = counts.lies(PAUSE, demo.kills + 1) if demo.lying else counts.halves(0.0 if name else PAUSE)
    shop = build(os.path.join(demo.folder, name), environ, pause=0.0 if name else PAUSE, acts=acts)
    counts.furnish(shop, environ)
    return shop


# --- looking


def store_of(shop: Workshop) -> str:
    return os.path.join(shop.top, ".holdfast", "holdfast.db")


def heads(store: Store) -> list[Head]:
    return list(store.heads())


def events_of(store: Store, run_id: str) -> dict[int, str]:
    return {record.seq: record.hash.hex() for record in store.read(run_id)}


def look(shop: Workshop) -> Look:
    """What is there while nobody works on it."""
    seen = Look(cut=counts.cut_off(shop), own=counts.own_files(shop))
    try:
        with app.reading(store_of(shop)) as store:
            return seen if not heads(store) else seen._replace(**log_of(store, heads(store)[0].run_id))
    except NotFound:
        return seen


def log_of(store: Store, run_id: str) -> dict[str, Any]:
    state = read_state(store, run_id)
    ended = {effect.step_id for effect in state.effects.values() if effect.status == "done"}
    return {
        "events": events_of(store, run_id),
        "effects_open": len(state.effects_open),
        "tasks_done": sum(name.endswith("/implement") for name in ended),
    }


def checkpoint_of(shop: Workshop) -> dict[str, Any]:
    said = SpecFolder(FOLDER, shop.top).read().checkpoint
    if said is None:
        return {}
    return {
        "last_batch": said.last_batch,
        "last_commit": (said.last_commit or "")[:10],
        "completed": [task.id for task in said.completed],
        "pending": [task.id for task in (*said.in_progress, *said.pending)],
        "next_batch": said.next_batch.number if said.next_batch else None,
        "deferred_issues": [f"{one.id} ({one.severity}, {one.task}): {one.description}" for one in said.deferred],
    }


# --- what people and programs see


def screen(demo: Demo, as_json: bool) -> AbstractContextManager[Callable[[Killer], None]]:
    return bars({"kills": demo.kills, "tasks": len(TASKS)}, reached, line_of, as_json)


def reached(killer: Killer) -> Reached:
    return {"kills": killer.kills, "tasks": killer.looks[-1].tasks_done}, killer.where


def line_of(killer: Killer) -> str:
    seen = killer.looks[-1]
    where = f"{seen.tasks_done} of {len(TASKS)} tasks implemented"
    if len(killer.looks) > killer.kills:
        return f"ended:    {where}"
    cut = f", half a file: {', '.join(seen.cut)}" if seen.cut else ""
    return f"kill {killer.kills:>3}: {where}, {killer.where}{cut}"


def show_json(demo: Demo, outcome: Outcome) -> None:
    counted = {**outcome.tally._asdict(), "sound": outcome.tally.sound}
    emit({"demo": {"seed": demo.seed, **counted, "log": outcome.log, "checkpoint": outcome.checkpoint}})


def show_text(demo: Demo, outcome: Outcome) -> None:
    say("The history:")
    for line in outcome.log:
        say(f"  {escape(line)}")
    say("The checkpoint:")
    for name, value in outcome.checkpoint.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        say(f"  {name}: {escape('null' if shown is None else shown or 'none')}")
    say()
    table(("what", "count", ""), rows(outcome.tally), frozenset({"count"}))
    sound = outcome.tally.sound
    say(f"{paint('ok')}: nothing lost, nothing doubled." if sound else f"{paint('fail')}: a promise was broken.")
    say(f"The same kills again: {demo.again}")


def rows(tally: Tally) -> list[tuple[Any, ...]]:
    same = "yes" if tally.differences == 0 else "no"
    return [
        ("kills survived", tally.kills, f"of {tally.kills_asked}, each of all processes at once"),
        ("- with an agent at work", tally.kills_at_work, ""),
        ("- with an effect open", tally.kills_in_effect, "started, its outcome not recorded"),
        ("tasks implemented", tally.implemented, f"of {len(TASKS)}"),
        ("tasks implemented twice", tally.implemented_twice, "by the agent's own ledger"),
        ("finished work begun again", tally.begun_again, "an agent was started for it"),
        ("commits", tally.commits, f"of {len(BATCHES)}, one for each batch"),
        ("commits twice", tally.commits_twice, ""),
        ("edits kept over a kill", tally.edits_kept, f"of {tally.edits_cut} files that were half written"),
        ("files lost", tally.files_lost, ""),
        ("files of the user touched", tally.own_touched, "bytes, rights and time of change"),
        ("events lost", tally.events_lost, "seen after a kill, and gone"),
        ("processes left behind", tally.processes_left, ""),
        ("work trees left behind", tally.work_trees_left, ""),
        ("verify: findings", tally.findings, ""),
        ("the same tree as undisturbed", same, "every committed file; nothing uncommitted"),
    ]
