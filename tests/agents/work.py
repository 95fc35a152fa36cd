"""One piece of work for a real agent, in a process of its own that can be killed: work.py FOLDER AGENT URL PROMPT [SESSION]."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from holdfast.adapters.agents.agents import Agents
from holdfast.core.agents import profile_from, shipped_profile
from holdfast.core.redact import Redactor
from holdfast.ports.spec import Ask
from tests.adapters.agents.kit import run_of

ROOT = Path(__file__).parents[2]
KEY = "spec/implement/T1"
PROGRAMS = {"codex": ROOT / ".agents/node/node_modules/.bin/codex", "mini": ROOT / ".venv-agents/bin/mini"}
CODEX = """
model = "scripted"
model_provider = "lo"
approval_policy = "never"

[model_providers.lo]
name = "lo"
base_url = "{url}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0

[analytics]
enabled = false
"""


def agents(folder: Path, url: str) -> Agents:
    """The shipped profiles, pointed at the scripted model. Their homes are in the folder."""
    home = folder / "home"
    (home / ".codex").mkdir(parents=True, exist_ok=True)
    (home / ".codex" / "config.toml").write_text(CODEX.format(url=url))
    (folder / "work").mkdir(exist_ok=True)
    profiles = {"codex": profile_from(codex_table(), "codex"), "mini": profile_from(mini_table(home, url), "mini")}
    path = os.pathsep.join([*(str(program.parent) for program in PROGRAMS.values()), os.environ["PATH"]])
    environ = {**os.environ, "PATH": path, "HOME": str(home), "OPENAI_API_KEY": "none"}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # to compile a whole agent anew at every start takes most of its time
    return Agents(profiles, run_of(folder), str(folder / "stages"), environ, Redactor())


def codex_table() -> dict[str, object]:
    """Without its sandbox, which not every machine can give it."""
    shipped = shipped_profile("codex")
    return {
        name: ["danger-full-access" if item == "workspace-write" else item for item in argv]
        for name, argv in (("start", shipped.start), ("resume", shipped.resume))
    }


def mini_table(home: Path, url: str) -> dict[str, object]:
    shipped = shipped_profile("mini")
    settings = ("mini.yaml", f"model.model_kwargs.api_base={url}/v1", "agent.cost_limit=0")
    config = [item for one in settings for item in ("--config", one)]
    quiet = {"MSWEA_COST_TRACKING": "ignore_errors", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    env = {**shipped.env, **quiet, "MSWEA_GLOBAL_CONFIG_DIR": str(home / "mini")}
    return {"start": [*shipped.start[:-1], *config, shipped.start[-1]], "model": "openai/scripted", "env": env}


def ask(folder: Path, agent: str, url: str, prompt: str, session: str | None = None):
    wanted = Ask(KEY, "implement", agent, prompt, str(folder / "work"), "T1", session, timeout=90.0)
    return agents(folder, url).ask(wanted, lambda line: None, lambda: False)


if __name__ == "__main__":
    place, name, address, text = sys.argv[1:]
    print(ask(Path(place), name, address, text))
