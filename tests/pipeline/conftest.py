"""One place for compiled modules, so that some hundred processes do not compile them again; and no process is left behind."""

import pytest

from tests.pipeline import kit


@pytest.fixture(scope="session", autouse=True)
def bytecode(tmp_path_factory):
    kit.keep_bytecode(tmp_path_factory.mktemp("bytecode"))


@pytest.fixture(autouse=True)
def all_ended():
    yield
    kit.end_all()
