"""What people do from outside: settle, answer, cancel. Recorded under a lease of the moment, or left for whoever holds it."""

from __future__ import annotations

import itertools
import json

import pytest

from holdfast.core import events as e
from holdfast.core.errors import BadInput, IllegalEvent, LeaseHeld, NotCanonical, NotFound, TooLarge
from holdfast.core.plan import plan_id, resume_plan
from holdfast.core.redact import Redactor
from holdfast.core.wire import decode
from holdfast.engine import people
from holdfast.engine.log import RunLog, read_head, read_state, verify_run
from holdfast.engine.waits import read_answer
from holdfast.ports import Message
from holdfast.stores.memory import MemoryStore
from tests.crash.workloads import AT, world

SECRET = "hunter2-" + "x" * 20
PLAINLY, KEEPS_SECRETS = Redactor(), Redactor([SECRET])
START = e.RunStarted(mission_id="m")
MAIL = e.EffectStarted(effect_key="mail-17", step_id="mail the customer")
PAY = e.EffectStarted(effect_key="pay-17", step_id="pay")
COLOUR = e.QuestionAsked(question_id="colour", text="Which colour?", choices=("red", "blue"))
SIZE = e.QuestionAsked(question_id="size", text="Which size?", deadline="2026-06-01T00:00:00.000000Z")
UNKNOWN = e.RunStopped(reason="effect_unknown")


_seeds = itertools.count(1)


def another_process():
    return world(next(_seeds))


@pytest.fixture
def store():
    return MemoryStore()


def written(store, *events, run_id="run-1"):
    with RunLog(store, run_id, another_process()) as log:
        log.record(START, *events)


@pytest.fixture
def held(store):
    """Lets another process hold the run for as long as the test goes on."""
    logs = []

    def hold(run_id="run-1"):
        logs.append(RunLog(store, run_id, another_process()))
        return logs[-1]

    yield hold
    for log in logs:
        log.close()


def events_of(store, run_id="run-1"):
    return [decode(record) for record in store.read(run_id)]


def picture(store, run_id="run-1"):
    head = store.head(run_id)
    return list(store.read(run_id)), head.projection, store.messages(run_id)


def settle(store, effect, settled_as="done", redact=PLAINLY, **more):
    return people.settle(store, "run-1", effect, settled_as, another_process(), redact, **more)


# --- looking


def test_a_look_is_the_plan_of_the_proven_log_and_its_id(store):
    written(store, MAIL, COLOUR, e.RunStopped(reason="awaiting_answer"))
    state, head, _ = read_head(store, "run-1")
    seen = people.look(store, "run-1")
    assert seen.plan == resume_plan(state)
    assert seen.plan_id == plan_id(state, head)
    assert seen.messages == ()


def test_a_look_has_the_drift_since_the_run_last_went_on(store):
    old = e.DriftFound(drift="code", subject="a", verdict="go")
    new = e.DriftFound(drift="inputs", subject="the run", verdict="refuse")
    written(store, old, e.RunStopped(reason="code_changed"), e.RunResumed(), new, e.RunStopped(reason="input_changed"))
    assert people.look(store, "run-1").plan.drift == (new,)


def test_a_look_has_the_messages_that_were_not_heard(store):
    written(store, e.CancelRequested(message_id=1))
    for number in range(3):
        store.post("run-1", "cancel", str(number))
    assert [message.id for message in people.look(store, "run-1").messages] == [2, 3]


def test_a_look_writes_nothing(store):
    written(store, MAIL, UNKNOWN)
    before = picture(store)
    people.look(store, "run-1")
    assert picture(store) == before
    with pytest.raises(NotFound):
        people.look(store, "run-2")


# --- settling


@pytest.mark.parametrize("settled_as", ["done", "not_done", "abandoned"])
@pytest.mark.parametrize("stop", [(), (UNKNOWN,)])
def test_a_person_settles_an_open_effect(store, settled_as, stop):
    written(store, MAIL, *stop)
    key, state = settle(store, "mail-17", settled_as, evidence="I looked", receipt={"id": 17})
    assert key == "mail-17"
    assert events_of(store)[-1] == e.EffectSettled(
        effect_key="mail-17", settled_as=settled_as, evidence="I looked", by="person", receipt={"id": 17}
    )
    assert state.effects["mail-17"].status == settled_as
    assert state.effects_open == {}
    assert state == read_state(store, "run-1")
    assert not store.head("run-1").held
    assert verify_run(store, "run-1").findings == ()


def test_an_effect_that_nobody_could_know_about_is_still_open_to_a_person(store):
    written(store, MAIL, e.EffectSettled(effect_key="mail-17", settled_as="unknown"), UNKNOWN)
    assert settle(store, "mail-17")[1].effects["mail-17"].status == "done"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("mail-17", "mail-17"),
        ("mail the customer", "mail-17"),
        ("mail", "mail-17"),
        ("p", "pay-17"),
        ("pay", "pay-17"),
        ("pay-1", "pay-17"),
    ],
)
def test_an_effect_is_named_by_its_key_its_step_or_a_beginning(store, text, key):
    written(store, MAIL, PAY)
    assert settle(store, text)[0] == key


def test_a_key_is_meant_before_a_step_and_a_step_before_a_beginning(store):
    twin = e.EffectStarted(effect_key="pay", step_id="mail-17")
    more = e.EffectStarted(effect_key="k", step_id="pay more")
    written(store, MAIL, twin, more)
    state = read_state(store, "run-1")
    assert people.find_effect(state, "mail-17") == "mail-17"
    assert people.find_effect(state, "pay") == "pay"
    assert people.find_effect(state, "pay m") == "k"


def test_a_name_of_two_open_effects_is_refused_with_both(store):
    written(store, PAY, e.EffectStarted(effect_key="pay-18", step_id="pay"))
    before = picture(store)
    for text in ("pay", "pay-1", "p"):
        with pytest.raises(people.Ambiguous, match=r"'pay-17', 'pay-18'"):
            settle(store, text)
    assert picture(store) == before
    settle(store, "pay-17")
    assert settle(store, "pay")[0] == "pay-18"


@pytest.mark.parametrize("text", ["", "nobody", "ail-17"])
def test_an_effect_that_is_not_there_is_not_found(store, text):
    written(store, MAIL)
    with pytest.raises(NotFound, match="open effect") as caught:
        settle(store, text)
    assert "holdfast resume run-1 --plan" in caught.value.advice


@pytest.mark.parametrize("text", ["mail-17", "mail the customer"])
def test_only_an_open_effect_can_be_settled(store, text):
    written(store, MAIL, e.EffectFinished(effect_key="mail-17"), PAY)
    before = picture(store)
    with pytest.raises(people.NotOpen, match="it is done"):
        settle(store, text, "not_done")
    assert picture(store) == before


def test_a_run_that_somebody_holds_cannot_be_settled(store, held):
    written(store, MAIL)
    held()
    before = picture(store)
    with pytest.raises(LeaseHeld):
        settle(store, "mail-17")
    assert picture(store) == before


def test_what_is_said_about_an_effect_is_redacted(store):
    written(store, MAIL)
    settle(store, "mail-17", redact=KEEPS_SECRETS, evidence=f"seen with {SECRET}", receipt={"a": SECRET})
    assert SECRET.encode() not in b"".join(record.body for record in store.read("run-1"))


@pytest.mark.parametrize(("receipt", "refusal"), [("x" * 100_000, TooLarge), (2**60, NotCanonical)])
def test_a_receipt_that_no_event_can_hold_is_refused(store, receipt, refusal):
    written(store, MAIL)
    before = picture(store)
    with pytest.raises(refusal):
        settle(store, "mail-17", receipt=receipt)
    assert picture(store) == before


# --- answering


def answer(store, question_id, text, redact=PLAINLY):
    return people.answer(store, "run-1", question_id, text, another_process(), redact)


@pytest.mark.parametrize("stop", [(), (e.RunStopped(reason="awaiting_answer"),)])
def test_an_answer_is_recorded_if_nobody_holds_the_run(store, stop):
    written(store, COLOUR, *stop)
    told = answer(store, "colour", "blue")
    assert told.message_id is None and told.state == read_state(store, "run-1")
    assert events_of(store)[-1] == e.QuestionAnswered(question_id="colour", answer="blue", by="person")
    assert store.messages("run-1") == []
    assert not store.head("run-1").held


def test_an_answer_is_left_for_whoever_holds_the_run(store, held):
    written(store, COLOUR)
    held()
    before = list(store.read("run-1"))
    told = answer(store, "colour", "blue")
    assert told == people.Told(None, 1)
    assert store.messages("run-1") == [Message(1, "answer", '["colour","blue","person"]')]
    assert read_answer(store.messages("run-1")[0]) == e.QuestionAnswered(
        question_id="colour", answer="blue", by="person", message_id=1
    )
    assert list(store.read("run-1")) == before


def test_an_answer_that_is_left_is_redacted(store, held):
    written(store, SIZE)
    held()
    answer(store, "size", f"as in {SECRET}", KEEPS_SECRETS)
    (message,) = store.messages("run-1")
    assert SECRET not in message.body
    assert json.loads(message.body)[0] == "size"


def test_an_answer_that_is_no_text_is_refused(store):
    written(store, SIZE)
    with pytest.raises(NotCanonical):
        answer(store, "size", "\ud800")


def test_an_answer_counts_once(store):
    written(store, COLOUR)
    answer(store, "colour", "blue")
    with pytest.raises(IllegalEvent, match="already answered"):
        answer(store, "colour", "red")
    assert read_state(store, "run-1").questions["colour"].answer == "blue"


def test_the_only_open_question_is_meant(store):
    written(store, COLOUR, SIZE, e.QuestionAnswered(question_id="size", answer="9"))
    assert people.find_question(read_state(store, "run-1"), None) == "colour"


def test_of_several_open_questions_one_must_be_named(store):
    written(store, COLOUR, SIZE, e.QuestionAsked(question_id="si", text="?"))
    state = read_state(store, "run-1")
    with pytest.raises(people.Ambiguous, match="More than one question is open: 'colour', 'size', 'si'"):
        people.find_question(state, None)
    with pytest.raises(people.Ambiguous, match="fits 's'"):
        people.find_question(state, "s")
    assert people.find_question(state, "co") == "colour"
    assert people.find_question(state, "si") == "si"


def test_without_an_open_question_there_is_nothing_to_answer(store):
    written(store, COLOUR, e.QuestionAnswered(question_id="colour", answer="red"))
    state = read_state(store, "run-1")
    with pytest.raises(NotFound, match="open question of run 'run-1'"):
        people.find_question(state, None)
    with pytest.raises(NotFound, match="open question 'nobody'"):
        people.find_question(state, "nobody")
    with pytest.raises(BadInput, match="already answered"):
        people.find_question(state, "colour")


def test_an_answer_must_be_a_choice_and_in_time(store):
    written(store, COLOUR, SIZE)
    asked = read_state(store, "run-1").questions
    people.check_answer("colour", asked["colour"], "red", AT)
    with pytest.raises(BadInput, match="red, blue"):
        people.check_answer("colour", asked["colour"], "Red", AT)
    with pytest.raises(BadInput, match="at least one character"):
        people.check_answer("size", asked["size"], "", AT)
    people.check_answer("size", asked["size"], "9", "2026-05-31T23:59:59.000000Z")
    with pytest.raises(people.TooLate, match="2026-06-01"):
        people.check_answer("size", asked["size"], "9", SIZE.deadline)


# --- cancelling


def cancel(store, because="", redact=PLAINLY):
    return people.cancel(store, "run-1", because, another_process(), redact)


def test_an_interrupted_run_is_cancelled_at_once(store):
    written(store, MAIL)
    told = cancel(store, "the order was withdrawn")
    requested, stopped = events_of(store)[-2:]
    assert requested == e.CancelRequested(by="the order was withdrawn")
    assert (stopped.reason, stopped.evidence) == ("cancelled", ("the order was withdrawn",))
    assert told.state.stop_reason == "cancelled" and told.state.cancelling
    assert list(told.state.effects_open) == ["mail-17"]
    assert not store.head("run-1").held


def test_a_stopped_run_is_resumed_and_cancelled_in_one_append(store):
    written(store, UNKNOWN)
    cancel(store)
    resumed, requested, stopped = events_of(store)[-3:]
    assert isinstance(resumed, e.RunResumed) and resumed.was == "effect_unknown" and resumed.epoch > 0
    assert requested.by == people.NO_REASON and stopped.reason == "cancelled"
    assert len({record.op for record in list(store.read("run-1"))[-3:]}) == 1
    assert verify_run(store, "run-1").findings == ()


def test_whoever_holds_the_run_is_asked_to_stop(store, held):
    written(store)
    held()
    before = list(store.read("run-1"))
    assert cancel(store, "enough") == people.Told(None, 1)
    assert store.messages("run-1") == [Message(1, "cancel", "enough")]
    assert list(store.read("run-1")) == before


@pytest.mark.parametrize(
    "end", [e.RunFinished(), e.RunStopped(reason="cancelled"), e.RunStopped(reason="not_resumable")]
)
@pytest.mark.parametrize("live", [True, False])
def test_a_run_that_has_ended_cannot_be_cancelled(store, held, end, live):
    written(store, end)
    if live:
        held()
    before = picture(store)
    with pytest.raises(people.Ended, match="has ended already") as caught:
        cancel(store)
    assert caught.value.reason == "not_resumable"
    assert picture(store) == before


def test_a_run_that_is_not_there_is_not_found_and_not_made(store):
    with pytest.raises(NotFound):
        cancel(store)
    assert store.head("run-1") is None


@pytest.mark.parametrize("live", [True, False])
def test_the_reason_is_redacted_before_it_is_shortened(store, held, live):
    written(store)
    if live:
        held()
    cancel(store, "y" * 190 + " " + SECRET, KEEPS_SECRETS)
    kept = repr(picture(store))
    assert "yyy" in kept and SECRET[:9] not in kept


def test_a_cancelled_run_cannot_be_resumed_and_its_effects_can_still_be_settled(store):
    written(store, MAIL)
    cancel(store)
    assert people.look(store, "run-1").plan.verdict == "refuse"
    assert settle(store, "mail-17")[1].effects_open == {}


def ends_before_the_lease(store):
    """The run finishes between the look at its head and the lease."""
    take = store.take

    def late(*arguments):
        store.take = take
        with RunLog(store, "run-1", another_process()) as log:
            log.record(e.RunFinished())
        return take(*arguments)

    store.take = late


def test_a_run_that_ends_while_it_is_being_cancelled_has_ended(store):
    written(store)
    ends_before_the_lease(store)
    with pytest.raises(people.Ended, match="it is finished"):
        cancel(store)
    assert isinstance(events_of(store)[-1], e.RunFinished)
    assert not store.head("run-1").held
