"""Which agents are installed, where, and in which version. Asks them nothing else, and never for long."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from holdfast.adapters.agents.runner import CannotStart
from holdfast.adapters.probes import programs
from holdfast.adapters.probes.common import EffectError
from holdfast.core.agents import Profile

PATIENCE = 10.0  # seconds for an agent to tell its version


def find_program(name: str, cwd: str, environ: Mapping[str, str]) -> str:
    """The program of an agent: on the path, but not by a folder that depends on where we are; or by a path of its own."""
    found = (
        shutil.which(os.path.join(cwd, name)) if "/" in name else shutil.which(name, path=programs.search_path(environ))
    )
    if found is None:
        raise CannotStart(name, "there is no such program on the path")
    return found


def is_there(profile: Profile, environ: Mapping[str, str], cwd: str = "/") -> str | None:
    """The version of an installed agent, `unknown` if it does not tell; None if it is not installed."""
    try:
        program = find_program(profile.start[0], cwd, environ)
    except CannotStart:
        return None
    if not profile.version:
        return "unknown"
    try:
        ended = programs.run((program, *profile.version[1:]), environ, programs.Limits(PATIENCE, 65536))
    except EffectError:
        return "unknown"
    lines = ended.out.decode("utf-8", "replace").strip().splitlines()
    shown = "".join(letter for letter in lines[-1] if letter.isprintable())[:120] if lines else ""
    return shown if shown and ended.code == 0 else "unknown"
