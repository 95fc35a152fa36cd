"""A message names a checkpoint only where git itself would see it, and what it quotes is never one."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import HoldfastError
from holdfast.core.ids import is_id
from holdfast.core.subjects import (
    Said,
    as_imported,
    explain,
    imported_id,
    is_imported,
    names_in,
    read_message,
    with_trailers,
)

RUN, ID = "run-1", "019f0a00-0000-7000-8000-000000000001"
BLOCK = f"Holdfast-Run: {RUN}\nHoldfast-Checkpoint: {ID}\nHoldfast-Milestone: 2\n"
SAID = Said(RUN, ID, 2, "Add the parser", "trailer")


def test_trailers_in_the_last_paragraph_name_a_checkpoint():
    assert read_message(f"Add the parser\n\n{BLOCK}") == SAID
    assert read_message(f"Add the parser\n\nWhy it was needed.\n\n{BLOCK}\n\n") == SAID
    assert read_message(f"\n \nAdd the parser\n\n{BLOCK}") == SAID
    assert read_message("Title\n\nHoldfast-Checkpoint: a") == Said(None, "a", None, "Title", "trailer")


@pytest.mark.parametrize(
    "block",
    [
        f"Signed-off-by: A <a@b>\n{BLOCK}Co-authored-by: B <b@c>",
        f"{BLOCK}(cherry picked from commit {'a' * 40})",
        f"Reviewed-by: somebody with\n  a long name\n{BLOCK}",
        f"Reviewed-by: somebody with\n\ta long name\n{BLOCK}",
        BLOCK.replace(": ", ":"),
        BLOCK.replace(": ", " :   "),
        BLOCK.replace("Holdfast", "HOLDFAST"),
        BLOCK.replace("\n", "\r\n"),
        BLOCK + BLOCK,
        f"Holdfast-Effect: {ID}\n{BLOCK}",
    ],
)
def test_other_trailers_beside_ours_do_not_matter(block):
    assert read_message(f"Add the parser\n\n{block}") == SAID


@pytest.mark.parametrize(
    "message",
    [
        BLOCK,
        f"Add the parser\n{BLOCK}",
        f"Add the parser\n\n{BLOCK}\nA last word.",
        f"Add the parser\n\n{BLOCK}A last word.",
        f"Add the parser\n\nThis is what it says:\n{BLOCK}",
        f"Revert\n\n{''.join('    ' + line for line in BLOCK.splitlines(True))}",
        f"Revert\n\n{''.join('> ' + line for line in BLOCK.splitlines(True))}",
        f"Squashed\n\n* one\n\n{BLOCK}\n---------\n\nCo-authored-by: B <b@c>",
        'Revert "chore(runr): checkpoint 20261115221819 milestone 1"\n\nThis reverts commit abc.',
        "On topic: chore(runr): checkpoint 20261115221819 milestone 1",
        "chore(runr): checkpoint 20261115221819 milestone 1 (#12)",
        "chore(runr): checkpoint 20261115221819 milestone 1\nand more in the same paragraph",
        "Squash of all\n\nchore(runr): checkpoint 20261115221819 milestone 1",
        "Squash of all\n\n* chore(agent): checkpoint milestone 1\n* chore(agent): checkpoint milestone 2",
        "fixup! chore(agent): checkpoint milestone 1",
        "chore(agent): checkpoint milestone 1x",
        "chore(agent): checkpoint milestone -1",
        "chore(agent): checkpoint milestone 99999999999",
        "chore(agent): checkpoint milestone ١",
        "chore(runr): checkpoint ../../etc milestone 1",
        "",
        "\n\n \n",
    ],
)
def test_what_a_message_quotes_or_mentions_elsewhere_is_not_a_checkpoint(message):
    assert read_message(message) is None
    assert explain(message)


def test_two_checkpoints_in_one_block_are_none():
    other = BLOCK.replace(ID, ID[:-1] + "2")
    assert read_message(f"All of it\n\n{BLOCK}{other}") is None
    assert "squash" in explain(f"All of it\n\n{BLOCK}{other}")
    assert read_message(f"All of it\n\n{BLOCK}Holdfast-Run: run-2") is None
    assert read_message(f"All of it\n\n{BLOCK}Holdfast-Milestone: 3") is None


def test_of_messages_that_were_joined_oldest_first_the_last_counts_and_newest_first_none():
    first = f"Add the lexer\n\n{BLOCK.replace(ID, ID[:-1] + '0').replace(': 2', ': 1')}"
    last = f"Add the parser\n\n{BLOCK}"
    assert read_message(f"{first}\n{last}") == SAID._replace(title="Add the lexer")
    assert read_message(f"{last}\n{first}") is None
    assert "later milestone" in explain(f"{last}\n{first}")


@pytest.mark.parametrize(
    "earlier",
    [
        f"Holdfast-Run: {RUN}\nHoldfast-Checkpoint: a",
        f"Holdfast-Run: {RUN}\nHoldfast-Checkpoint: a\nHoldfast-Milestone: x",
        f"Holdfast-Run: {RUN}\nHoldfast-Milestone: 9",
        "Holdfast-Run: run-2\nHoldfast-Checkpoint: a\nHoldfast-Milestone: 9",
    ],
)
def test_a_block_that_names_no_later_milestone_of_the_run_undoes_nothing(earlier):
    assert read_message(f"Add the parser\n\n{earlier}\n\n{BLOCK}") == SAID


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("", "it is empty"),
        ("Fix", "neither its subject nor its trailers name one"),
        (f"Fix\n\n{BLOCK}", "its trailers name it"),
        (f"Fix\n\n{BLOCK}Holdfast-Run: b", "its trailers name two different checkpoints, as after a squash"),
        ("Fix\n\nHoldfast-Run: /", "its trailers are damaged"),
        ("Fix\n\nHoldfast-Milestone: 1", "its trailers name neither a run nor a checkpoint"),
        (f"Fix\n\n{BLOCK.replace(': 2', ': 3')}\n{BLOCK}",
         "it holds the trailers of a later milestone too, as after a squash"),
        ("chore(agent): checkpoint milestone 1", "its subject names it"),
        ("chore(runr): checkpoint / milestone 1", "its subject is damaged"),
    ],
)  # fmt: skip
def test_it_is_told_why_a_message_names_what_it_names(message, why):
    assert explain(message) == why


@pytest.mark.parametrize(
    "line",
    [
        "Holdfast-Checkpoint: ../../x",
        "Holdfast-Checkpoint: a b",
        "Holdfast-Checkpoint:",
        "Holdfast-Checkpoint: a\x1b[2J",
        "Holdfast-Checkpoint: a\n  b",
        "Holdfast-Checkpoint: " + "a" * 65,
        "Holdfast-Run: RUN\nHoldfast-Checkpoint: a",
        "Holdfast-Checkpoint: a\nHoldfast-Milestone: -1",
        "Holdfast-Checkpoint: a\nHoldfast-Milestone: 01",
        "Holdfast-Checkpoint: a\nHoldfast-Milestone: 1.0",
        "Holdfast-Checkpoint: a\nHoldfast-Milestone: 99999999999999999999",
        "Holdfast-Checkpoint: a\nHoldfast-Milestone: ²",
        "Holdfast-Checkpoint: a\nHoldfast-Milestone: 1\n  2",
        "Holdfast-Milestone: 1",
    ],
)
def test_a_damaged_trailer_names_nothing(line):
    assert read_message(f"Title\n\n{line}") is None


def test_a_damaged_trailer_does_not_fall_back_on_the_subject():
    assert read_message("chore(agent): checkpoint milestone 1\n\nHoldfast-Checkpoint: /") is None


def test_ten_thousand_trailers_are_read_in_no_time():
    began = time.process_time()
    same = read_message("Title\n\n" + BLOCK * 10_000)
    lines = "".join(f"Holdfast-Checkpoint: c-{number}\n" for number in range(10_000))
    assert same == SAID._replace(title="Title")
    assert read_message(f"Title\n\n{BLOCK}{lines}") is None
    assert read_message("Title\n\n" + "a " * 500_000 + ":") is None
    assert read_message("Title\n\nA: b\n" + " more\n" * 100_000 + BLOCK) == same
    assert read_message("Title\n\n" + (BLOCK + "\n") * 5_000) == same
    assert time.process_time() - began < 5


def test_the_subjects_of_runr_and_its_forerunner_are_known():
    runr = "chore(runr): checkpoint 20261115221819 milestone 1"
    assert read_message(runr) == Said("20261115221819", "runr-20261115221819-1", 1, runr, "run_specific")
    agent = "chore(agent): checkpoint milestone 12"
    assert read_message(agent + "\n\nwith a body\n") == Said(None, None, 12, agent, "legacy")


def test_our_trailers_go_before_a_subject_of_another_form():
    assert read_message(f"chore(agent): checkpoint milestone 7\n\n{BLOCK}").index == 2


# --- writing them


def test_trailers_are_added_as_a_paragraph_or_to_the_one_that_is_there():
    assert with_trailers("Add the parser\n", RUN, ID, 2) == f"Add the parser\n\n{BLOCK}"
    signed = "Add the parser\n\nSigned-off-by: A <a@b>"
    assert with_trailers(signed, RUN, ID, 2) == f"{signed}\n{BLOCK}"


def test_trailers_that_a_message_quotes_at_its_end_stay_out_of_the_block():
    quoted = f"Add the parser\n\n{BLOCK.replace(ID, 'forged').replace('2', '0')}"
    assert read_message(with_trailers(quoted, RUN, ID, 2)) == SAID


@pytest.mark.parametrize(
    ("message", "run_id", "checkpoint_id", "index", "said"),
    [
        ("", RUN, ID, 0, "A milestone cannot be committed without a message."),
        (" \n", RUN, ID, 0, "A milestone cannot be committed without a message."),
        ("x", "a b", ID, 0, "The run id "),
        ("x", RUN, "a\nb", 0, "The checkpoint id "),
        ("x", RUN, ID, -1, "-1 cannot be the number of a milestone."),
        ("x", RUN, ID, 2**31, "2147483648 cannot be the number of a milestone."),
    ],
)
def test_what_could_not_be_read_back_is_refused(message, run_id, checkpoint_id, index, said):
    with pytest.raises(HoldfastError) as caught:
        with_trailers(message, run_id, checkpoint_id, index)
    assert str(caught.value).startswith(said)


def test_a_refusal_says_what_to_give_instead():
    for message, index, advice in (("", 0, "Give it a title."), ("x", -1, "Count milestones from 0.")):
        with pytest.raises(HoldfastError) as caught:
            with_trailers(message, RUN, ID, index)
        assert caught.value.advice == advice


def test_the_highest_number_of_a_milestone_is_read_back():
    assert read_message(with_trailers("x", RUN, ID, 2**31 - 1)).index == 2**31 - 1
    assert read_message(f"chore(agent): checkpoint milestone {2**31 - 1}").index == 2**31 - 1
    assert read_message(f"chore(agent): checkpoint milestone {2**31}") is None


WORDS = st.sampled_from(
    ["Add", " ", "\n", "\n\n", "Holdfast-Run: run-1", "Holdfast-Checkpoint: x", "Holdfast-Milestone: 1", "A: b", "\t", "\r", ":",
     "    ", "chore(runr): checkpoint r milestone 1", "(cherry picked from commit abcdef)", "\x00", "\x1b[2J", "é", "#", "---"]
)  # fmt: skip
MESSAGES = st.lists(WORDS, max_size=25).map("".join) | st.text(max_size=200)
IDS = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,30}", fullmatch=True)


@given(MESSAGES)
def test_any_message_is_read_or_explained(message):
    said = read_message(message)
    assert explain(message)
    if said is not None:
        assert said.run_id is None or is_id(said.run_id)
        assert said.checkpoint_id is None or is_id(said.checkpoint_id)
        assert said.index is None or said.index >= 0
        assert "\n" not in said.title


@given(MESSAGES.filter(str.strip), IDS, IDS, st.integers(10, 2**31 - 1))
def test_what_is_added_to_any_message_is_read_back(message, run_id, checkpoint_id, index):
    said = read_message(with_trailers(message, run_id, checkpoint_id, index))
    assert said is not None
    assert said[:3] == (run_id, checkpoint_id, index)


@given(MESSAGES, MESSAGES)
def test_words_after_the_trailers_undo_them(before, after):
    message = f"Title\n\n{before}\n\n{BLOCK}\nplain words {after.replace(chr(10), ' ')}"
    said = read_message(message)
    assert said is None or said.checkpoint_id != ID


# --- what people's repositories really hold


class Corpus(NamedTuple):
    path: str | None
    why: str = "HOLDFAST_CORPUS does not name the folder of real files"

    def __bool__(self):
        return self.path is not None and os.path.isdir(self.path)


@pytest.fixture
def corpus(skip_or_fail):
    found = Corpus(os.environ.get("HOLDFAST_CORPUS"))
    skip_or_fail(found)
    return Path(found.path)


def rows_of(file):
    lines = file.read_text(encoding="utf-8").splitlines()
    names = lines[0].split("\t")
    return [dict(zip(names, line.split("\t"), strict=True)) for line in lines[1:]]


def test_every_checkpoint_commit_of_runr_is_recognised(corpus):
    rows = rows_of(corpus / "runr-repo" / "checkpoint-commits.tsv")
    said = [read_message(row["subject"]) for row in rows]
    assert all(said) and len(said) == 40
    assert sum(one.kind == "legacy" for one in said) == 38
    for row, one in zip(rows, said, strict=True):
        assert row["subject"].endswith(f" milestone {one.index}")
        assert one.run_id is None or f" {one.run_id} " in row["subject"]


def test_every_commit_of_the_recorded_runs_is_recognised_or_explained(corpus):
    lines = [line for file in sorted(corpus.glob("runr-runs/*/git-log.txt")) for line in file.read_text().splitlines()]
    assert len(lines) == 18
    for line in lines:
        subject = line.partition(" ")[2]
        said = read_message(subject)
        assert (said is not None) == subject.startswith("chore(runr): checkpoint "), subject
        assert said or explain(subject) == "neither its subject nor its trailers name one"


def test_every_checkpoint_of_entire_is_explained_as_somebody_elses(corpus):
    rows = rows_of(corpus / "entire-checkpoints" / "commit-trailers.tsv")
    assert len(rows) == 735
    for row in rows:
        message = f"{row['subject']}\n\nEntire-Checkpoint: {row['entire_checkpoint_ids']}\n"
        assert read_message(message) is None
        assert "Entire" in explain(message)
        assert read_message(row["subject"]) is None


# --- runs that were taken in


def test_a_run_of_runr_has_an_id_of_its_own_here_and_is_recognised_by_it():
    assert imported_id("20260104-ABC") == "runr-20260104-abc"
    assert is_imported("runr-1", "runr-1")
    assert not is_imported("runr-1", "mission") and not is_imported("run-1", "run-1")


def test_only_a_subject_of_just_that_run_is_taken_for_it():
    said = read_message("chore(runr): checkpoint 20260104-abc milestone 2")
    assert as_imported(said, "runr-20260104-abc") == said._replace(run_id="runr-20260104-abc")
    assert as_imported(said, "runr-20260104") is said
    legacy = read_message("chore(agent): checkpoint milestone 2")
    assert as_imported(legacy, "runr-20260104-abc") is legacy
    ours = read_message(with_trailers("x", "20260104-abc", "c", 1))
    assert as_imported(ours, "runr-20260104-abc") is ours


# --- every name in a message


def test_a_message_names_its_own_run_and_those_that_were_squashed_in_it():
    other = with_trailers("x", "run-2", "c2", 0)
    indented = "".join(f"    {line}\n" for line in other.splitlines())
    both = frozenset({(RUN, ID), ("run-2", "c2")})
    assert names_in(f"Add the parser\n\n{BLOCK}") == {(RUN, ID)}
    assert names_in(f"All\n\n* one\n\n{BLOCK}\n* two\n\n{other}") == both
    assert names_in(f"All\n\n{indented}\n{BLOCK}") == both
    assert names_in(f"All\n\n{BLOCK}Holdfast-Run: run-2\nHoldfast-Checkpoint: c2") == both
    assert names_in(f"All\n\nReviewed-by: a\n    long name\n{BLOCK}") == {(RUN, ID)}
    assert names_in("All\n\nHoldfast-Run: run-2\n\nthe end") == {("run-2", None)}


def test_subjects_of_runr_name_runs_wherever_they_stand():
    subject = "chore(runr): checkpoint 20260104035601 milestone 4"
    for message in (subject, f"All\n\n* {subject}\n", f"Squashed\n\n    {subject}\n"):
        assert names_in(message) == {("20260104035601", "runr-20260104035601-4")}


def test_what_names_no_run_names_nothing():
    for message in (
        "",
        "Fix",
        "chore(agent): checkpoint milestone 2",
        "x\n\nHoldfast-Checkpoint: c",
        "x\n\nHoldfast-Run: \x1b",
        "x\n\n  Holdfast-Run: run-2\nA: b",
        "x\n\nXHoldfast-Run: run-2",
    ):
        assert names_in(message) == frozenset()


@given(st.text(alphabet="a: \n-", max_size=40))
def test_any_message_can_be_searched_for_names(text):
    assert names_in(text + BLOCK.join(["\n\n", "\n\n"]) + text) <= {(RUN, ID)}


def test_trailers_of_others_name_no_milestone():
    assert (
        explain("Fix\n\nEntire-Checkpoint: abc")
        == "it names a checkpoint of Entire, which has neither a run nor a milestone"
    )
