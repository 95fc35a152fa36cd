"""The examples as a new user tries them: started, killed by hand at random moments, started again."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import holdfast

TRANSLATE = Path(__file__).parent.parent / "examples" / "translate.py"
CHAPTERS = 8


def start(book, pause):
    command = [sys.executable, str(TRANSLATE), str(book), str(pause)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=book.parent)


@pytest.mark.parametrize("seed", range(3))
def test_the_example_survives_kills(tmp_path, seed):
    chance = random.Random(seed)
    book = tmp_path / "book"
    said, kills = [], 0
    process = None
    while process is None or process.returncode != 0:
        process = start(book, 0.1 if kills < 4 else 0.0)
        time.sleep(0.25 + chance.random() * 0.5)
        if kills < 4:
            process.send_signal(signal.SIGKILL)
        out, _ = process.communicate(timeout=60)
        said += out.splitlines()
        kills += process.returncode == -signal.SIGKILL
        assert process.returncode in (0, -signal.SIGKILL), out
    assert kills > 0
    assert (book / "published.txt").read_text().count("---") == 1
    with holdfast.open_store(str(book / "holdfast.db"), read_only=True) as store:
        heads = list(store.heads())
        finished = [record for record in store.read(heads[0].run_id) if record.kind == "step_finished"]
        assert holdfast.verify_run(store, heads[0].run_id).findings == ()
    assert len(finished) == CHAPTERS + 1
    assert sum(line.startswith("translating") for line in said) <= CHAPTERS + kills


def test_the_example_is_short():
    assert len(TRANSLATE.read_text().splitlines()) <= 55
