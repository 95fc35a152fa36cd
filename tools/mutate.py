"""Breaks the core in every small way mutmut knows and asks whether its tests notice: mutate.py [MODULE ...] [--show].

Works on a copy in `.mutate/`, one module at a time with the fast tests of that module. Never touches the tree itself.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPY = ROOT / ".mutate"
COPIED = ("src", "tests/core", "tests/__init__.py", "tests/conftest.py", "docs", "pyproject.toml")
# Which tests know a module; the most important modules first.
TESTS: dict[str, tuple[str, ...]] = {
    "rules": ("test_state.py", "test_rules.py", "test_repo_rules.py"),
    "state": ("test_state.py", "test_rules.py"),
    "moves": ("test_moves.py",),
    "wire": ("test_wire.py",),
    "chain": ("test_wire.py", "test_sha.py"),
    "checkpoint": ("test_checkpoint.py",),
    "drift": ("test_drift.py",),
    "keys": ("test_keys.py",),
    "canonical": ("test_canonical.py",),
    "plain": ("test_canonical.py",),
    "retry": ("test_retry.py",),
    "ids": ("test_ids.py",),
    "inputs": ("test_inputs.py",),
    "plan": ("test_plan.py", "test_plan_words.py"),
    "stops": ("test_stops.py",),
    "values": ("test_values.py",),
    "errors": ("test_errors.py",),
    "redact": ("test_redact_parts.py",),
    "secret_search": ("test_secret_search.py",),
    "secret_names": ("test_secret_names.py",),
    "secret_forms": ("test_secret_forms.py",),
    "exchange": ("test_exchange.py", "test_exchange_reader.py"),
    "batches": ("test_batches.py",),
    "guards": ("test_guards.py",),
    "review": ("test_review.py",),
    "reports": ("test_reports.py",),
    "statuses": ("test_statuses.py",),
    "spec_graph": ("test_spec_graph.py",),
    "spec_shapes": ("test_spec_shapes.py",),
    "spec": ("test_spec.py",),
    "sidecar": ("test_sidecar.py",),
    "position": ("test_position.py",),
    "matching": ("test_position.py",),
    "line": ("test_position.py",),
    "repo_drift": ("test_repo_drift.py",),
    "repo_rules": ("test_repo_rules.py",),
    "limits": ("test_limits.py",),
    "auto_resume": ("test_auto_resume.py",),
    "briefs": ("test_briefs.py",),
    "diagnosis": ("test_diagnosis.py",),
    "handoff": ("test_handoff.py",),
    "fingerprint": ("test_fingerprint.py",),
    "subjects": ("test_subjects.py",),
    "durations": ("test_durations.py",),
    "agents": ("test_agents.py",),
    "agent_output": ("test_agents.py",),
    "settings": ("test_settings.py",),
    "setting_kinds": ("test_settings.py",),
    "sha": ("test_sha.py",),
    "acts": ("test_acts.py",),
    "gates": ("test_gates.py", "test_plan.py"),
    "strictness": ("test_checkpoint.py",),
    "named": ("test_named.py",),
    "mentions": ("test_mentions.py",),
    "secret_fields": ("test_secret_fields.py",),
}
# These read the source text, which is not itself while it is broken, start a process of their own, or read other pages.
# The last ones only measure time.
LEFT_OUT = (
    "not compares_stop_reasons and not names_a_reason and not nothing_slow and not glossary "
    "and not ten_thousand_tasks and not cost_grows and not judged_quickly and not blows_up and not take_little_time"
)
# What they are stands behind a condition, all of it.
UNSEEN = frozenset({"named"})
# A mutant that never ends may fill the memory meanwhile, so its time is short.
SETUP = """\
[mutmut]
source_paths=src
only_mutate=src/holdfast/core/{module}.py
also_copy=docs
timeout_multiplier=5
pytest_add_cli_args_test_selection=
{tests}
pytest_add_cli_args=
  -p
  no:cacheprovider
  -k
  {left_out}
"""
# Few random examples: a mutant that only a lucky one would find is better told apart by a test that names it.
PROFILE = """\
from hypothesis import settings

settings.register_profile("mutate", settings.get_profile("holdfast"), max_examples=15)
settings.load_profile("mutate")
"""
KILLED, TIMEOUT, SURVIVED = "killed", "timeout", "survived"
# What mutmut writes down for a mutant is the exit code of its tests.
MEANING = {
    0: SURVIVED,
    1: KILLED,
    3: KILLED,
    33: "not tested",
    34: "skipped",
    36: TIMEOUT,
    24: TIMEOUT,
    -24: TIMEOUT,
}


def in_the_open(text: str) -> str:
    """What a module has for everybody but the type checker, as if there were no condition: mutmut looks behind none."""
    before, _, rest = text.partition("\nif TYPE_CHECKING:\n")
    _, _, hidden = rest.partition("\nelse:\n")
    return before + "\n" + textwrap.dedent(hidden) if hidden else text


def fresh_copy(module: str) -> None:
    shutil.rmtree(COPY, ignore_errors=True)
    for name in COPIED:
        source, target = ROOT / name, COPY / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)
    if module in UNSEEN:
        file = COPY / "src" / "holdfast" / "core" / f"{module}.py"
        file.write_text(in_the_open(file.read_text(encoding="utf-8")), encoding="utf-8")
    tests = "\n".join(f"  tests/core/{name}" for name in TESTS[module] if (ROOT / "tests/core" / name).exists())
    (COPY / "tests" / "core" / "conftest.py").write_text(PROFILE, encoding="utf-8")
    (COPY / "setup.cfg").write_text(SETUP.format(module=module, tests=tests, left_out=LEFT_OUT), encoding="utf-8")


def run(module: str, jobs: int) -> dict[str, int]:
    """Every mutant of one module by name, with the exit code of its tests."""
    fresh_copy(module)
    with (COPY / "output").open("wb") as output:
        command = [sys.executable, "-m", "mutmut", "run", f"--max-children={jobs}"]
        status = subprocess.run(command, cwd=COPY, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
    meta = COPY / "mutants" / "src" / "holdfast" / "core" / f"{module}.py.meta"
    found = dict(json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"]) if meta.exists() else {}
    if meta.exists() and not found:
        return {}  # nothing in it that mutmut could break: it ends with an error then, too
    if status != 0 or all(code is None for code in found.values()):
        sys.exit(f"mutmut ended with {status} before it tried anything; see {COPY / 'output'}.")
    return found


def shown(name: str) -> str:
    command = [sys.executable, "-m", "mutmut", "show", name]
    return subprocess.run(command, cwd=COPY, capture_output=True, text=True, check=False).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="one of " + ", ".join(TESTS) + " (default: all)")
    parser.add_argument("--show", action="store_true", help="print each mutant that was not noticed")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    print(f"{'module':13} {'mutants':>8} {'killed':>8} {'timeout':>8} {'survived':>9} {'other':>6}", flush=True)
    for module in options.modules or TESTS:
        found = {name: MEANING.get(code, str(code)) for name, code in run(module, options.jobs).items()}
        meanings = list(found.values())
        killed, timeout, survived = (meanings.count(one) for one in (KILLED, TIMEOUT, SURVIVED))
        other = len(found) - killed - timeout - survived
        print(f"{module:13} {len(found):8} {killed:8} {timeout:8} {survived:9} {other:6}", flush=True)
        for name in found:
            if found[name] != KILLED:
                print(f"  {found[name]}: {name}", *([shown(name)] if options.show else []), sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
