"""The same product with its log in PostgreSQL: a spec that is stopped in the middle and gone on with."""

from __future__ import annotations

import pytest

from holdfast.core import stops
from holdfast.testing.postgres import shared_server
from tests.pipeline import kit

pytestmark = pytest.mark.postgres


@pytest.fixture
def url():
    with shared_server().database() as address:
        yield address


def test_a_spec_is_run_with_its_log_on_a_server_and_gone_on_with(tmp_path, url):
    pause = [{"do": "sleep", "seconds": 30}, kit.write("kit/count.py", "never"), kit.report()]
    whole = [kit.write("kit/count.py", "NAME = 'T3'\n"), kit.report()]
    project = kit.build(tmp_path, kit.CHAIN, acts={"implement/T3": [pause, whole], "test/T3": [kit.report()]})
    first = project.start("run", kit.SPEC, "--yes", HOLDFAST_STORE=url)
    kit.wait_for(lambda: project.starts("implement/T3"))
    assert kit.end(first).code == stops.exit_code("user_stopped")
    answer = project.resume(HOLDFAST_STORE=url)
    assert answer.code == 0, answer
    assert project.read("kit/count.py") == "NAME = 'T3'\n"
    assert sum("batch" in line for line in project.subjects) == 2
    assert project.starts("implement/T1") == 1 and project.starts("implement/T3") == 2
    assert not (project.top / ".holdfast" / "holdfast.db").exists()
