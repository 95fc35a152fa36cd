"""What files would have run, in words."""

import pytest

from holdfast.core.acts import Act, acts
from holdfast.core.errors import BadFile
from holdfast.core.settings import FILE


def of(text: str) -> list[tuple[str, str]]:
    return [act[1:] for act in acts({FILE: text.encode()})]


def test_commands_agents_and_links_are_acts():
    text = (
        "[run]\nagent='a'\nfix=['b','c']\nlink=['.venv']\n[verify]\ntier2=['x \"y z\"']\n[agents.m]\nstart=['m','a b']"
    )
    assert of(text) == [
        ("verify.tier2", "x 'y z'"),
        ("run.agent", "the agent a"),
        ("run.fix", "the agent b"),
        ("run.fix", "the agent c"),
        ("run.link", "a link to .venv"),
        ("agents.m.start", "m 'a b'"),
    ]


def test_an_agent_with_a_long_name_is_one_act():
    assert of("[run]\nagent='codex'") == [("run.agent", "the agent codex")]


def test_every_act_names_its_file():
    text = "[run]\nagent='a'\nlink=['b']\n[verify]\ntier0=['c']\n[agents.d]\nlike='e'\n[agents.f]"
    found = acts({FILE: text.encode(), "specs/a": b"g"})
    assert [act.file for act in found] == [FILE] * 5 + ["specs/a"]


def test_everything_in_a_table_of_an_agent_is_an_act():
    text = "[agents.m]\nlike='codex'\nn=[1,2]\n[agents.m.env]\nPATH='/evil'\n[agents.empty]\n"
    assert of(text) == [
        ("agents.m.like", "codex"), ("agents.m.n", "[1, 2]"), ("agents.m.env.PATH", "/evil"), ("agents.empty", ""),
    ]  # fmt: skip


def test_what_is_not_looked_at_is_an_act_too():
    assert of("[run]\nphases=['implement']") == [("run.phases", "no test and no review")]
    assert of("[run]\nphases=['test','implement','review']\n[verify]\ntier1_when='always'") == []
    assert of("[verify]\ntier1_when='last'") == [("verify.tier1_when", "tier1 not always: last")]


def test_limits_and_scopes_are_no_acts():
    assert (
        of("[run]\nparallel=1\nlink=[]\n[scope]\ndeny=['x']\n[budget]\ntime='1h'\n[verify]\ntier0=[]\ntimeout='1m'")
        == []
    )
    assert acts({}) == ()


def test_every_line_of_another_file_is_an_act():
    assert acts({"specs/a": b"make x\n\n  \n\xff"}) == (Act("specs/a", "", "make x"), Act("specs/a", "", "\\xff"))


def test_a_file_that_cannot_be_read_is_refused():
    with pytest.raises(BadFile, match=rf"^{FILE}"):
        acts({FILE: b"["})
