"""The agents of a spec that is to be run: who is known, who reviews, and whether each of them can be started."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast import config
from holdfast.adapters.agents.installed import is_there as is_installed
from holdfast.core.agents import Profile, profile_from, shipped, shipped_profile
from holdfast.core.errors import UsageError, shown
from holdfast.core.settings import Settings
from holdfast.core.spec import Spec

_SHOWN = 8


def with_reviewers(chosen: Settings, spec: Spec, defined: Mapping[str, Profile], top: str) -> tuple[Settings, str]:
    """The reviewers that the spec names, where nobody names others; and a sentence about those who cannot review.

    A spec is not trusted: it cannot have an agent started that the settings neither choose nor define (`defined`).
    """
    names = tuple(dict.fromkeys(one.name for one in spec.reviewers))
    if chosen.run.reviewers or not names or "review" not in chosen.run.phases:
        return chosen, ""
    known = {name for phase in ("test", "implement", "fix", "review") for name in chosen.run.agents_for(phase)}
    there = tuple(name for name in names if name in known or _is_there(defined.get(name), top))
    with_them = chosen._replace(run=chosen.run._replace(reviewers=there))
    return with_them, _missing([name for name in names if name not in there], with_them.run.agents_for("review"))


def _is_there(profile: Profile | None, top: str) -> bool:
    return profile is not None and is_installed(profile, config.environment(), top) is not None


def _missing(names: Sequence[str], instead: Sequence[str]) -> str:
    if not names:
        return ""
    listed = ", ".join(shown(name, 60) for name in names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    return (
        f"The spec wants {listed} to review, and the settings choose or define no such agent that is installed:"
        f" {' and '.join(instead)} will."
    )


def known_profiles(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Profile]:
    """Every agent that can be named: those that ship, and those of the settings."""
    return {name: shipped_profile(name) for name in shipped()} | {
        name: profile_from(table, name) for name, table in tables.items()
    }


def check_agents(chosen: Settings, profiles: Mapping[str, Profile], top: str) -> None:
    """Refuse an agent that nobody knows, or that is not installed, before anything is begun."""
    for name in sorted({name for phase in (*chosen.run.phases, "fix") for name in chosen.run.agents_for(phase)}):
        if name not in profiles:
            raise UsageError(
                f"There is no agent {name!r:.60}.",
                advice=f"Known are {', '.join(sorted(profiles))}; `[agents.NAME]` in holdfast.toml adds one.",
            )
        if is_installed(profiles[name], config.environment(), top) is None:
            raise _not_there(name, profiles[name].start[0], top)


def _not_there(name: str, program: str, top: str) -> UsageError:
    if "/" in program and os.path.isfile(path := os.path.join(top, program)):
        return UsageError(
            f"The agent {name} cannot be started: {shown(path, 200)} may not be executed.",
            advice="`chmod +x` it, or name another with --agent.",
        )
    return UsageError(
        f"The agent {name} is not installed: there is no {program!r:.80}.",
        advice="Install it, or name another with --agent.",
    )
