"""A report is taken only with the right id and of the right kind; everything else is unreadable, with a reason."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.reports import (
    MAX_BYTES,
    MAX_DEPTH,
    Evidence,
    FixReport,
    Gates,
    ImplementerReport,
    Issue,
    Ran,
    ReviewerReport,
    Unreadable,
    extract,
    instructions,
)
from holdfast.core.reports import TesterReport as OfTester  # pytest takes what begins with Test for a test

ID = "r-1"
GATES = dict.fromkeys(("correctness", "style", "performance", "security", "architecture"), "pass")
KINDS = ("test", "implement", "review", "fix")


def body(**more):
    return json.dumps({"report_id": ID, **more})


def of_file(kind="test", **more):
    return extract("", body(**more).encode(), kind, ID)


def marked(text):
    return f"BEGIN_JSON\n{text}\nEND_JSON"


def test_each_kind_is_read_with_all_its_fields():
    tester = {"status": "gap", "test_files": ["t.py"], "failure_output": "1 failed", "gap_reason": "no seam"}
    assert of_file(**tester) == OfTester(report_id=ID, **{**tester, "test_files": ("t.py",)})
    ran = [{"command": "make test", "exit_code": 0}]
    found = of_file(
        "implement",
        status="no_changes_needed",
        implementation_files=["a.py"],
        test_output="ok",
        clarifications=["c"],
        blocked_reason="b",
        evidence={"files_checked": ["a.py"], "output": "o", "commands_run": ran},
    )
    assert found == ImplementerReport(
        report_id=ID,
        status="no_changes_needed",
        implementation_files=("a.py",),
        test_output="ok",
        clarifications=("c",),
        blocked_reason="b",
        evidence=Evidence(files_checked=("a.py",), output="o", commands_run=(Ran("make test", 0),)),
    )
    issue = {
        "task": "T1",
        "severity": "High",
        "gate": "style",
        "location": "a:1",
        "description": "d",
        "suggestion": "s",
    }
    found = of_file(
        "review", reviewer="me", verdict="reject", gates=GATES | {"style": "fail"}, issues=[issue], strengths=["x"]
    )
    assert found == ReviewerReport(
        report_id=ID,
        reviewer="me",
        verdict="reject",
        gates=Gates(**GATES | {"style": "fail"}),
        issues=(Issue(**issue),),
        strengths=("x",),
    )
    fix = of_file("fix", status="blocked", resolved=["H001"], files=["a.py"], blocked_reason="why")
    assert fix == FixReport(report_id=ID, status="blocked", resolved=("H001",), files=("a.py",), blocked_reason="why")


def test_what_means_the_same_is_forgiven():
    found = of_file(status=" Success ", test_files="t.py", gap_reason=None, more={"deep": [1]})
    assert found == OfTester(report_id=ID, status="success", test_files=("t.py",))
    found = of_file("implement", status="BLOCKED", clarifications=" ", evidence="grep found nothing")
    assert found.clarifications == () and found.evidence == Evidence(output="grep found nothing")
    found = of_file("review", verdict="reject", findings=[{"severity": "low", "description": "d"}])
    assert [issue.description for issue in found.issues] == ["d"]


def test_the_file_comes_first_then_the_last_good_pair_then_the_whole_output():
    good, other = body(status="success"), body(status="gap")
    text = f"{marked(other)}\nwords\n{marked(good)}\n{marked('{half')}"
    assert extract(text, None, "test", ID).status == "success"
    assert extract(text, other.encode(), "test", ID).status == "gap"
    assert extract(text, b"{torn", "test", ID).status == "success", "a torn file does not hide what was said"
    assert extract(f"  {good}\n", None, "test", ID).status == "success"
    assert extract(f"```json\n{good}\n```", None, "test", ID).status == "success"


@pytest.mark.parametrize(
    "text",
    [
        marked(f"```json\n{body(status='success')}\n```"),
        f"**BEGIN_JSON**\n{body(status='success')}\n**END_JSON**",
        f"  BEGIN_JSON\r\n{body(status='success')}\r\n  END_JSON\r\n",
        f"END_JSON\nBEGIN_JSON\n{marked(body(status='success'))}\nBEGIN_JSON\n",
        marked("\ufeff" + body(status="success")),
    ],
)
def test_markers_may_be_decorated_and_unpaired_ones_do_not_matter(text):
    assert extract(text, None, "test", ID) == OfTester(report_id=ID, status="success")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (json.dumps({"status": "success"}), "report_id"),
        (json.dumps({"status": "success", "report_id": "r-0"}), "report_id"),
        (body(), "missing required field `status`"),
        (body(status="done"), "$.status"),
        (body(status="success", test_files=[1]), "$.test_files[0]"),
        (body(status="success", test_files={"a": 1}), "$.test_files"),
        ("[1]", "not one JSON object"),
        ("{", "not JSON"),
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        (body(status="success", more=json.loads("[" * 30 + "]" * 30)), "nested more than"),
        (body(status="success", failure_output="x" * MAX_BYTES), "limit"),
    ],
)
def test_what_cannot_be_read_is_said_by_its_path(data, why):
    found = extract("", data.encode(), "test", ID)
    assert isinstance(found, Unreadable) and why in found.why and found.why.startswith("The report file")


def test_a_review_may_leave_gates_out_and_a_wrong_kind_is_not_taken():
    found = of_file("review", verdict="approve", gates={"style": "fail"})
    assert (found.gates.style, found.gates.correctness) == ("fail", "pass")
    assert isinstance(of_file("review", status="success"), Unreadable)
    assert of_file("implement", status="yes").why.startswith(
        "The report file is no implement report: Invalid enum value"
    )


def test_without_anything_the_agent_is_told_what_is_missing():
    told = Unreadable("There was no report file and no JSON between BEGIN_JSON and END_JSON lines.", nothing=True)
    assert extract("all done, promise", None, "test", ID) == told
    assert extract("{ half", None, "test", ID) == extract("half }", None, "test", ID) == told


def test_the_first_three_things_that_are_wrong_are_told():
    text = f"{marked('[]')}\n{marked('{}')}\n{marked('[1]')}\n{marked('[2]')}"
    assert extract(text, None, "test", ID) == Unreadable(
        "The JSON between the markers is not one JSON object; The JSON between the markers is not one JSON object; "
        "The JSON between the markers does not carry the report_id that was asked for."
    )
    assert extract("{}", None, "test", ID).why == "The output does not carry the report_id that was asked for."
    assert extract("", b"{", "test", ID).why == "The report file is not JSON: Input data was truncated."
    assert "report_id" in extract(f"BEGIN_JSON\n{marked('{}')}", None, "test", ID).why
    deep = extract("", b"[" * 100_000, "test", ID).why
    assert deep.startswith("The report file is not JSON: ") and not deep.endswith("None.")


def test_a_report_may_be_as_long_and_as_deep_as_the_limit():
    data = body(status="success").encode().ljust(MAX_BYTES)
    assert extract("", data, "test", ID).status == "success"
    assert "limit" in extract("", data + b" ", "test", ID).why
    for depth, fits in ((MAX_DEPTH - 2, True), (MAX_DEPTH - 1, True), (MAX_DEPTH, False)):
        found = of_file(status="success", more=json.loads("[" * depth + "]" * depth))
        assert isinstance(found, OfTester) == fits


def test_only_a_whole_fence_is_taken_off():
    good = body(status="success")
    assert extract("", f"```json\n{good}\n```".encode(), "test", ID).status == "success"
    for broken in (f"```json\n{good}", f"note\n{good}\n```", f"note\n{good}"):
        assert isinstance(extract("", broken.encode(), "test", ID), Unreadable)


def test_a_marker_with_letters_around_it_is_none():
    assert extract(f"XBEGIN_JSON\n{body(status='success')}\nEND_JSONX", None, "test", ID).nothing


def test_the_instructions_stay_as_they_are():
    how = instructions("fix", ID, "/r")
    assert how.startswith(
        "## How to report\n\nWhen you are done, and only then, write one JSON object. Replace everything in angle brackets; "
        "leave out what you cannot say. Nothing counts as done without it.\n\n"
        '{\n  "report_id": <the id below, as text>,\n  "status": <"success" or "blocked">,\n  "resolved": '
    )


def test_bytes_that_are_no_text_are_no_report():
    assert isinstance(extract("", b'{"report_id": "\xff"}', "test", ID), Unreadable)
    assert isinstance(extract(marked('{"report_id": "r-1", "status": "\ud800"}'), None, "test", ID), Unreadable)


def test_only_so_many_pairs_are_tried():
    text = f"{marked(body(status='success'))}\n" + f"{marked('{}')}\n" * 100
    assert isinstance(extract(text, None, "test", ID), Unreadable)


@pytest.mark.parametrize("kind", KINDS)
def test_an_echo_of_the_instructions_is_never_a_report(kind):
    how = instructions(kind, ID, "/stage/report.json")
    assert ID in how and "/stage/report.json" in how
    for text in (how, marked(how), marked(how[how.index("{") : how.rindex("}") + 1]), how.replace("<", '"<')):
        assert isinstance(extract(text, text.encode(), kind, ID), Unreadable)


@pytest.mark.parametrize("kind", KINDS)
def test_the_instructions_name_every_field(kind):
    how = instructions(kind, ID, "/r")
    shape = {"test": OfTester, "implement": ImplementerReport, "review": ReviewerReport, "fix": FixReport}[kind]
    assert all(f'"{field}"' in how for field in shape.__struct_fields__)


@given(st.text(max_size=400), st.none() | st.binary(max_size=200), st.sampled_from(KINDS))
def test_no_output_is_too_strange(text, file, kind):
    assert isinstance(extract(text, file, kind, ID), Unreadable)
    assert isinstance(extract(marked(text), file, kind, ID), Unreadable)
