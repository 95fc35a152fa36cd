"""What the files of a repository would have run or left out, as a person can read it. Runs nothing.

Two files with the same bytes name the same acts; a file that names none needs nobody's trust.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.core.named import NamedTuple
from holdfast.core.settings import FILE, PHASES, VerifySettings, read

_COMMANDS = ("tier0", "tier1", "tier2")
_AGENTS = ("agent", "test", "implement", "fix", "reviewers")


class Act(NamedTuple):
    """Something that is started, reached or not looked at because a file says so, and where it says so."""

    file: str
    where: str
    text: str


def acts(files: Mapping[str, bytes]) -> tuple[Act, ...]:
    """The acts of files, by name. Of a file that is not `holdfast.toml` every line is one. Raises BadFile as `read` does."""
    return tuple(act for name, data in files.items() for act in _of_file(name, data))


def _of_file(name: str, data: bytes) -> Iterator[Act]:
    if name != FILE:
        lines = data.decode("utf-8", "backslashreplace").splitlines()
        yield from (Act(name, "", line) for line in lines if line.strip())
        return
    values = read(data, name).values
    yield from _of_verify(values.get("verify", {}))
    yield from _of_run(values.get("run", {}))
    for agent, table in values.get("agents", {}).items():
        yield from _of_table(f"agents.{agent}", table)


def _of_verify(section: Mapping[str, Any]) -> Iterator[Act]:
    for key in _COMMANDS:
        yield from (Act(FILE, f"verify.{key}", shlex.join(argv)) for argv in section.get(key, ()))
    usual = VerifySettings().tier1_when
    if section.get("tier1_when", usual) != usual:
        yield Act(FILE, "verify.tier1_when", f"tier1 not {usual}: {section['tier1_when']}")


def _of_run(section: Mapping[str, Any]) -> Iterator[Act]:
    for key in _AGENTS:
        named = section.get(key, ())
        yield from (
            Act(FILE, f"run.{key}", f"the agent {name}") for name in ([named] if key == "agent" else named) if name
        )
    yield from (Act(FILE, "run.link", f"a link to {path}") for path in section.get("link", ()))
    left_out = [phase for phase in PHASES if phase not in section.get("phases", PHASES)]
    if left_out:
        yield Act(FILE, "run.phases", f"no {' and no '.join(left_out)}")


def _of_table(where: str, table: Mapping[str, Any]) -> Iterator[Act]:
    if not table:
        yield Act(FILE, where, "")
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _of_table(f"{where}.{key}", value)
        else:
            yield Act(FILE, f"{where}.{key}", _shown(value))


def _shown(value: object) -> str:
    words = isinstance(value, list) and all(isinstance(word, str) for word in value)
    return shlex.join(value) if words else str(value)  # type: ignore[arg-type]
