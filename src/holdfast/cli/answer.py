"""`holdfast answer`: answers what a run asked. A run that lives hears it; one that rests finds it when it is resumed."""

from __future__ import annotations

import click

from holdfast import app
from holdfast.adapters import terminal
from holdfast.cli.output import emit, escape, json_option, run_argument, say
from holdfast.cli.watching import opened, read_watched
from holdfast.core.errors import UsageError
from holdfast.core.plan import next_command, resume_plan
from holdfast.core.shapes import QuestionState
from holdfast.engine import people


@click.command()
@run_argument()
@click.argument("answer", required=False)
@click.option("--question", metavar="ID", help="Which question, if more than one is open; its beginning is enough.")
@json_option
def command(run: str, answer: str | None, question: str | None, as_json: bool) -> None:
    """Answer what RUN asked. Without ANSWER, a terminal is asked.

    \b
    holdfast answer 8cb0f3ef
    holdfast answer 8cb0f3ef yes
    holdfast answer 8cb0f3ef blue --question colour
    """
    with app.reading() as store:
        head = app.newest_run(store, run)
        state = read_watched(store, head)
    question_id = people.find_question(state, question)
    asked = state.questions[question_id]
    text = answer if answer is not None else prompted(asked)
    people.check_answer(question_id, asked, text, app.now())
    with opened(head) as store:
        told = people.answer(store, head.run_id, question_id, text, app.world(), app.redactor())
    report(head.run_id, question_id, told, as_json)


def prompted(asked: QuestionState) -> str:
    offered = f" ({' / '.join(asked.choices)})" if asked.choices else ""
    if not terminal.is_there():
        raise UsageError(f"The run asks: {asked.text}{offered}", advice="Add the answer to the command.")
    said = terminal.prompt(asked.text, asked.choices)
    if said is None:
        raise UsageError("No answer was given.", advice="Nothing was written.")
    return said


def report(run_id: str, question_id: str, told: people.Told, as_json: bool) -> None:
    live = told.state is None
    following = f"holdfast log {run_id} -f" if told.state is None else next_command(resume_plan(told.state))
    if as_json:
        delivery = {"recorded": not live, "message_id": told.message_id}
        emit({"run_id": run_id, "question_id": question_id, **delivery, "next_actions": [following]})
        return
    said = "left for the live run, which hears it at its next boundary" if live else "recorded"
    say(f"The answer to {escape(question_id)} is {said}.")
    say(f"  {following}")
