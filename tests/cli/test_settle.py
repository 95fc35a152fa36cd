"""`holdfast settle`: a person's word about an effect is recorded once, for an open effect of a run that nobody holds."""

from __future__ import annotations

import sys
from contextlib import closing

import pytest

from holdfast import app
from holdfast.core import stops
from holdfast.core.events import EffectFinished, EffectStarted, RunStopped
from holdfast.engine.log import read_state
from tests.cli.test_errors import understood
from tests.cli.test_reads_never_write import picture

MAIL = EffectStarted(effect_key="mail-17", step_id="mail")
PAY = EffectStarted(effect_key="pay-17", step_id="pay")
PIPELINE = """
import sys, holdfast
def mail(to):
    with open(sys.argv[1], "a") as file:
        file.write("mail\\n")
    if len(sys.argv) > 2:
        import os
        os._exit(9)
    return {"id": 1}
with holdfast.run("pipeline", run_id="run-1") as run:
    print(run.effect("mail", mail, "eve", key="mail-{to}"))
"""


@pytest.fixture
def write(holdfast):
    def write(*events, run_id="run-1"):
        with (
            closing(app.open_store(str(holdfast.place))) as store,
            app.start_run(store, "mission", run_id=run_id) as log,
        ):
            log.record(*events)

    return write


def effects(holdfast):
    with closing(app.open_store(str(holdfast.place), read_only=True)) as store:
        return read_state(store, "run-1").effects


@pytest.mark.parametrize(
    ("flag", "settled_as", "says"),
    [
        ("--done", "done", "does not do it again"),
        ("--not-done", "not_done", "with the same key and arguments"),
        ("--abandon", "abandoned", "given up"),
    ],
)
def test_each_word_is_recorded_and_says_what_follows(holdfast, write, flag, settled_as, says):
    write(MAIL, RunStopped(reason="effect_unknown"))
    answer = holdfast("settle", "run-1", "mail-17", flag, "--evidence", "I looked")
    assert (answer.code, answer.err) == (0, "")
    assert says in answer.out and "mail-17 of step mail" in answer.out
    assert answer.out.splitlines()[-1] == "  holdfast resume run-1 -- COMMAND"
    understood(answer.out.splitlines()[-1].strip())
    effect = effects(holdfast)["mail-17"]
    assert (effect.status, effect.evidence) == (settled_as, "I looked")
    assert '"by":"person"' in holdfast("show", "run-1", "4", "--raw").out


def test_the_receipt_is_json_and_text_and_json_report_the_same(holdfast, write):
    write(MAIL, PAY)
    document = holdfast("settle", "run-1", "mail", "--done", "--receipt", '{"id": [17, null]}', "--json").data
    assert document["effect"] == {"effect_key": "mail-17", "step_id": "mail", "settled_as": "done", "evidence": ""}
    assert (document["run_id"], document["open"]) == ("run-1", ["pay-17"])
    assert document["next_actions"] == ["holdfast resume run-1"]
    assert effects(holdfast)["mail-17"].receipt == {"id": [17, None]}
    write(MAIL, PAY, run_id="run-2")
    out = holdfast("settle", "run-2", "mail", "--done").out
    assert "Still open: pay-17." in out and "  holdfast resume run-2\n" in out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["mail-17"], 64),
        (["mail-17", "--done", "--not-done"], 64),
        (["--done"], 64),
        (["mail-17", "--not-done", "--receipt", "1"], 64),
        (["mail-17", "--done", "--receipt", "{"], 65),
        (["mail-17", "--done", "--receipt", "NaN"], 65),
        (["mail-17", "--done", "--receipt", "1" * 30], 65),
        (["mail-17", "--done", "--receipt", "[" * 10_000 + "]" * 10_000], 65),
        (["mail-17", "--done", "--receipt", '"' + "x" * 70_000 + '"'], 67),
        (["mail-17", "--done", "--evidence", "\udcff"], 65),
        (["nobody", "--done"], 66),
        (["", "--done"], 66),
        (["sent", "--not-done"], 65),
    ],
)
def test_what_cannot_be_recorded_is_refused_and_nothing_is_written(holdfast, write, arguments, code):
    write(MAIL, EffectStarted(effect_key="sent", step_id="s"), EffectFinished(effect_key="sent"))
    before = effects(holdfast)
    answer = holdfast("settle", "run-1", *arguments)
    assert answer.code == code, answer
    assert len(answer.err.splitlines()) == 2 and "Traceback" not in answer.err
    assert effects(holdfast) == before
    assert holdfast("status", "run-1", "--json").data["run"]["events"] == 4


def test_a_wrong_receipt_is_replaced_by_saying_it_again(holdfast, write):
    write(MAIL, RunStopped(reason="effect_unknown"))
    for receipt in ('"wrong"', '{"id": 17}'):
        answer = holdfast("settle", "run-1", "mail-17", "--done", "--receipt", receipt)
        assert answer.code == 0 and "takes its receipt" in answer.out, answer
    assert effects(holdfast)["mail-17"].receipt == {"id": 17}
    for refused in (["--done"], ["--not-done"], ["--abandon"]):
        answer = holdfast("settle", "run-1", "mail-17", *refused)
        assert answer.code == 65 and "`--done --receipt JSON` replaces the receipt, if" in answer.err, answer


def test_two_that_fit_are_named(holdfast, write):
    write(PAY, EffectStarted(effect_key="pay-18", step_id="pay"))
    answer = holdfast("settle", "run-1", "pay", "--done")
    assert answer.code == stops.exit_code("ambiguous_id")
    assert "'pay-17', 'pay-18'" in answer.err


def test_a_live_run_is_left_alone(holdfast, writer):
    process = writer("run-1")
    answer = holdfast("settle", "run-1", "mail-17", "--done")
    assert answer.code == stops.exit_code("lease_held")
    assert f"process {process.pid}" in answer.err


def test_no_store_is_made(holdfast):
    assert holdfast("settle", "run-1", "mail-17", "--done").code == 66
    assert not holdfast.place.parent.exists()


def test_a_key_that_looks_like_an_option_can_be_settled(holdfast, write):
    write(EffectStarted(effect_key="--done", step_id="-x"))
    assert holdfast("settle", "run-1", "--not-done", "--", "--done").code == 0
    assert effects(holdfast)["--done"].status == "not_done"


@pytest.mark.parametrize(("flag", "mails", "gives"), [("--done", 1, "17"), ("--not-done", 2, "{'id': 1}")])
def test_a_killed_effect_is_settled_and_the_run_goes_on(holdfast, tmp_path, flag, mails, gives):
    """The whole way: killed inside of an effect, blocked, settled by a person, resumed."""
    script, sent = tmp_path / "pipeline.py", tmp_path / "sent"
    script.write_text(PIPELINE)
    with closing(app.open_store(str(holdfast.place))) as store:
        app.start_run(store, "pipeline", run_id="run-1").close()
    go_on = ["resume", "run-1", "--", sys.executable, str(script), str(sent)]
    assert holdfast(*go_on, "die").code == 9
    blocked = holdfast(*go_on)
    assert blocked.code == stops.exit_code("effect_unknown") and sent.read_text() == "mail\n"
    plan = holdfast("resume", "run-1", "--json").data["plan"]
    assert [row["move"] for row in plan["rows"]] == ["blocked"] and plan["stop_reason"] == "effect_unknown"
    receipt = ["--receipt", "17"] if flag == "--done" else []
    assert holdfast("settle", "run-1", "mail", flag, *receipt).code == 0
    answer = holdfast(*go_on)
    assert (answer.code, answer.out) == (0, f"{gives}\n"), answer
    assert sent.read_text() == "mail\n" * mails


def test_a_wrong_word_for_it_writes_not_even_a_lease(holdfast, write):
    write(MAIL)
    before = picture(holdfast.place.parent)
    assert holdfast("settle", "run-1", "mail-17").code == 64
    assert picture(holdfast.place.parent) == before
