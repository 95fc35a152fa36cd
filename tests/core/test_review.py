"""Several reviewers, one judgement."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.reports import Gates, Issue, ReviewerReport
from holdfast.core.review import LATER, LONGEST, LONGEST_PLACE, Finding, fingerprint, highest, judge

PASS = dict.fromkeys(("correctness", "style", "performance", "security", "architecture"), "pass")


def report(*issues: Issue, verdict: str = "approve", **gates: str) -> ReviewerReport:
    marks: Any = {**PASS, **gates}
    return ReviewerReport(verdict=verdict, gates=Gates(**marks), issues=issues)  # type: ignore[arg-type]


def issue(severity: str, description: str = "it is wrong", location: str = "a.py:3", **more: str) -> Issue:
    return Issue(severity=severity, description=description, location=location, **more)


def test_an_approval_finds_nothing() -> None:
    judged = judge({"ann": report()})
    assert judged == ((), (), ())


def test_critical_and_high_are_fixed_now_and_medium_is_put_off() -> None:
    found = judge({"ann": report(*(issue(word, word) for word in ("low", "medium", "high", "critical")))})
    assert [one.severity for one in found.findings] == ["critical", "high", "medium", "low"]
    assert [one.id for one in found.to_fix] == ["C001", "H001"]
    assert [one.id for one in found.findings if one.severity in LATER] == ["M001"]


@pytest.mark.parametrize(
    ("said", "means"), [("important", "high"), ("BLOCKER", "high"), ("minor", "medium"), ("nit", "low")]
)
def test_other_words_for_severities(said: str, means: str) -> None:
    assert judge({"ann": report(issue(said))}).findings[0].severity == means


def test_the_same_finding_of_two_reviewers_is_one_with_the_higher_severity() -> None:
    found = judge(
        {"bob": report(issue("high", "It  is WRONG", task="T1")), "ann": report(issue("medium", "it is wrong"))}
    )
    (one,) = found.findings
    assert (one.severity, one.reviewers, one.task) == ("high", ("ann", "bob"), "T1")


def test_another_place_is_another_finding() -> None:
    assert len(judge({"ann": report(issue("high"), issue("high", location="b.py:3"))}).findings) == 2


def test_any_fail_fails_the_gate() -> None:
    judged = judge({"ann": report(), "bob": report(issue("high", gate="security"), security="fail")})
    assert judged.failed == ("security",)
    assert len(judged.findings) == 1


def test_a_gate_that_is_failed_without_a_finding_is_one() -> None:
    (one,) = judge({"ann": report(issue("low", gate="style"), style="fail", security="fail")}).to_fix
    assert (one.severity, one.gate) == ("high", "security")
    assert one.description == "ann fails security and names no finding for it"


def test_a_failed_gate_beside_a_serious_finding_says_nothing_new() -> None:
    assert len(judge({"ann": report(issue("critical"), security="fail")}).findings) == 1


def test_a_no_without_a_word_is_still_a_no() -> None:
    (one,) = judge({"ann": report(verdict="request_changes")}).to_fix
    assert one.description == "ann does not approve and names no finding"


def test_a_finding_keeps_what_the_reviewer_said_up_to_a_length() -> None:
    said = issue("high", " d " + "x" * LONGEST, " a.py:3 ", task="T1", gate="style", suggestion="s" * (LONGEST + 1))
    assert judge({"ann": report(said)}).findings == (
        Finding(
            id="H001",
            severity="high",
            description=("d " + "x" * LONGEST)[:LONGEST],
            location="a.py:3",
            task="T1",
            gate="style",
            suggestion="s" * LONGEST,
            reviewers=("ann",),
        ),
    )
    (far,) = judge({"ann": report(issue("high", location="p" * (LONGEST_PLACE + 1)))}).findings
    assert (far.location, far.task) == ("p" * LONGEST_PLACE, "")


def test_a_rejection_is_named() -> None:
    judged = judge({"bob": report(verdict="reject"), "ann": report(verdict="reject"), "eve": report()})
    assert judged.rejected == ("ann", "bob")


def test_ids_are_never_used_twice() -> None:
    found = judge({"ann": report(issue("medium"), issue("medium", "b"))}, taken=["M009", "M01x", "", "H002", "m010"])
    assert [one.id for one in found.findings] == ["M011", "M012"]


def test_what_is_found_again_keeps_its_id() -> None:
    (first,) = judge({"ann": report(issue("medium"))}).findings
    again = judge({"bob": report(issue("medium", "It is  wrong", "a.py:9"), issue("medium", "b"))}, ["M001"], [first])
    assert [one.id for one in again.findings] == ["M001", "M002"]
    worse = judge({"bob": report(issue("high"))}, ["M001"], [first])
    assert [one.id for one in worse.findings] == ["H001"]


def test_after_999_comes_1000() -> None:
    assert judge({"ann": report(issue("high"))}, taken=["H999"]).findings[0].id == "H1000"


def finding(description: str, location: str = "") -> Finding:
    return Finding(id="H001", severity="high", description=description, location=location)


def test_a_fingerprint_does_not_care_where_the_lines_have_moved() -> None:
    assert fingerprint([finding("x", "a.py:3")]) == fingerprint([finding("X ", "a.py:17-20")])
    assert fingerprint([finding("x", "a.py:3")]) == fingerprint([finding("x", "a.py")])
    assert fingerprint([finding("x", "a.py:3")]) != fingerprint([finding("x", "b.py:3")])
    assert len(fingerprint([])) == 16


def test_a_fingerprint_stays_the_same_for_ever() -> None:
    """Runs compare it with the one of an earlier round, which an older Holdfast may have recorded."""
    assert fingerprint([finding("It is wrong", "a.py:3"), finding("b")]) == "ad40c02caa8d734b"


@given(st.permutations([finding("a"), finding("b"), finding("c", "x.py")]))
def test_a_fingerprint_is_the_same_in_any_order(findings: list[Finding]) -> None:
    assert fingerprint(findings) == fingerprint([finding("a"), finding("b"), finding("c", "x.py")])


def test_of_ids_that_are_given_away_the_last_of_each_severity_is_kept() -> None:
    assert highest(["M2", "M010", "H001", "T999", "m3", "M" + "9" * 5000, "M٣", "", "C"]) == ["H001", "M010"]
