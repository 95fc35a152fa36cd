"""What is loaded without the collector leaves it as it was."""

from __future__ import annotations

import gc

import pytest

from holdfast.cli.loading import load


@pytest.fixture(autouse=True)
def collector():
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.parametrize("is_on", [True, False])
def test_the_collector_is_as_it_was(is_on):
    (gc.enable if is_on else gc.disable)()
    assert load("holdfast.core.ids").__name__ == "holdfast.core.ids"
    assert gc.isenabled() == is_on


def test_what_cannot_be_loaded_leaves_the_collector_on():
    with pytest.raises(ModuleNotFoundError):
        load("holdfast.nowhere")
    assert gc.isenabled()


def test_while_it_loads_nothing_is_collected(tmp_path, monkeypatch):
    (tmp_path / "slow_to_load.py").write_text("import gc\nWAS_ON = gc.isenabled()\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert load("slow_to_load").WAS_ON is False and gc.isenabled()
