"""A change of a step's source is seen wherever it is, and only a change of its source."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import textwrap
from dataclasses import dataclass

import pytest

from holdfast.engine import forms

WRAPS = """
import functools
def logged(f):
    @functools.wraps(f)
    def inner(*a, **k):
        return f(*a, **k)
    return inner
"""


@pytest.fixture
def loaded(tmp_path):
    counted = iter(range(100))

    def load(source):
        path = tmp_path / f"code_{next(counted)}.py"
        path.write_text(textwrap.dedent(source))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.work

    return load


@pytest.mark.parametrize(
    "source",
    [
        'def work():\n    return """One\nOLD\n"""\n',
        'def work(x):\n    return f"""One {x}\nOLD\n"""\n',
        'def work():\n    return (1,\n        2,\n        "OLD")\n',
        "def work(x):\n    return x.replace(\n        'a',\n        'OLD',\n    )\n",
        WRAPS + "@logged\ndef work(x):\n    return 'OLD'\n",
        WRAPS + "@logged\n@logged\n@functools.lru_cache\ndef work(x):\n    return 'OLD'\n",
        WRAPS + "def plain(x):\n    return 'OLD'\nwork = functools.partial(functools.lru_cache(plain), 1)\n",
        "class Work:\n    def __call__(self, x):\n        return 'OLD'\nwork = Work()\n",
    ],
)
def test_a_change_is_seen(loaded, source):
    before, same, after = (forms.code_hash(loaded(text)) for text in (source, source, source.replace("OLD", "NEW")))
    assert before is not None
    assert before == same != after


def test_the_hash_of_a_plain_function_is_that_of_its_lines(loaded):
    text = "def work(x):\n    y = x + 1\n    return y\n"
    kept = hashlib.sha256(text.encode()).hexdigest()[:32]
    assert forms.code_hash(loaded("import os\n\n" + text + "\n\nOTHER = 1\n")) == kept


def test_what_has_no_source_has_no_hash():
    assert [forms.code_hash(work) for work in (print, dict, functools.partial(len, "x"))] == [None] * 3


def test_a_function_that_wraps_itself_is_hashed_once(loaded):
    work = loaded("def work(x):\n    return x\n")
    work.__wrapped__ = work
    assert forms.code_hash(work) == hashlib.sha256(b"def work(x):\n    return x\n").hexdigest()[:32]


def test_an_object_without_a_hash_can_be_called():
    @dataclass
    class Adder:
        by: int

        def __call__(self, x: int) -> int:
            return x + self.by

    assert forms.shape_of(Adder(1)).code_hash is not None
