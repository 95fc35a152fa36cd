"""Of all evidence the highest sure milestone is the answer, with one record's commit and number, and a reason."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.line import Commit, Line
from holdfast.core.matching import Clues, Pair, by_content, by_pair, reserved_by_name
from holdfast.core.position import (
    ORDER,
    Found,
    Known,
    above,
    answer,
    best_of,
    by_legacy,
    by_name,
    by_record,
    by_rewrite,
    choices_for,
    contradicted,
    doubted,
    linked,
    lost,
    nowhere,
    of_run,
    unlogged,
    unseen,
)
from holdfast.core.subjects import Said


def known(index, sha, checkpoint_id=None, source="log", run_id="r", **more):
    least = {"tree": None, "patch_id": None, "parent": None, "branch": None, "base": None, "title": "t"}
    name = checkpoint_id or f"c{index}"
    return Known(checkpoint_id=name, run_id=run_id, index=index, sha=sha, source=source, **{**least, **more})


def line(*shas, said=None, trees=None):
    """A straight history, newest first."""
    said, trees = said or {}, trees or {}
    pairs = zip(shas, [*shas[1:], None], strict=True)
    return Line(
        [Commit(sha, trees.get(sha, f"t-{sha}"), (under,) if under else (), "", said.get(sha)) for sha, under in pairs]
    )


def trailer(index, checkpoint_id=None, run_id="r"):
    return Said(run_id, checkpoint_id or f"c{index}", index, "t", "trailer")


def legacy(index):
    return Said(None, None, index, "t", "legacy")


def found(source="log", confidence="certain", sha="a", index=0, checkpoint_id="c"):
    return Found(source, confidence, sha, index, checkpoint_id, None, "so it is")


# --- records


def test_only_this_run_counts_and_the_log_goes_before_a_sidecar_that_contradicts_it():
    records = [
        known(1, "a", "x"),
        known(9, "a", "x", "sidecar"),
        known(1, "b", "x", "sidecar"),
        known(3, "c", run_id="q"),
    ]
    assert of_run(records, "r") == [records[2], records[0]]
    assert of_run(records[:2], "r") == records[:1]
    assert of_run(records[1:2], "r") == records[1:2], "there is no log of it"


def test_a_mirror_that_says_of_a_commit_what_git_does_not_is_contradicted():
    records = [known(0, "a", tree="t"), known(1, "b", source="sidecar", tree="t"), known(2, "c", source="sidecar")]
    assert contradicted(records, {"a": "other", "b": "other", "c": "other"}) == records[1:2]
    assert contradicted(records, {"b": "t"}) == contradicted(records, {}) == []


def test_what_only_mirrors_know_is_told_where_there_is_a_log():
    mirrored = [known(1, "b", source="sidecar"), known(0, "x", source="sidecar")]
    assert unlogged([known(0, "a"), *mirrored]) == mirrored[:1]
    assert unlogged(mirrored) == []
    assert doubted(found(), "who knows")[1:] == ("weak", *found()[2:6], "so it is; who knows")


def test_a_record_counts_if_the_history_contains_its_commit():
    records = of_run([known(0, "a"), known(1, "gone"), known(2, "far"), known(0, "b", source="sidecar")], "r")
    history = line("b", "a")
    history.beyond = frozenset({"far"})
    assert {(one.source, one.sha, one.index) for one in by_record(records, history)} == {
        ("log", "a", 0),
        ("sidecar", "b", 0),
        ("log", "far", 2),
    }


def test_a_commit_that_a_record_names_is_certain_and_the_reason_says_which_record():
    (one,) = by_record([known(3, "a", source="sidecar")], line("a"))
    why = "the sidecar names this commit, and the history contains it"
    assert one == Found("sidecar", "certain", "a", 3, "c3", None, why)


def test_a_mirror_that_names_another_commit_than_the_log_is_believed_only_if_it_was_linked_again():
    records = [known(0, "a"), known(0, "b", source="sidecar"), known(0, "w", source="sidecar", tree="t")]
    mirror = found("sidecar", sha="b", checkpoint_id="c0")
    whole = found("sidecar", sha="w", checkpoint_id="c0")
    logged, alone = found(sha="b", checkpoint_id="c0"), found("sidecar", sha="b", checkpoint_id="c7")
    nameless = found("git_log_legacy", checkpoint_id=None)
    same = found("sidecar", sha="a", checkpoint_id="c0")
    kept = [whole, logged, alone, nameless, same]
    assert list(linked([mirror, *kept], records, lambda sha: False)) == [
        doubted(
            mirror, "but the log names another, and the sidecar knows no files, or its commit is older than the run"
        ),
        *kept,
    ]
    assert [one.confidence for one in linked([whole, same], records, lambda sha: sha in "aw")] == ["weak", "certain"]


# --- rewrites


def rewritten(rewrites, history, sha="a"):
    return [(one.sha, one.was) for one in by_rewrite([known(0, sha)], rewrites, history)]


def test_rewrites_are_followed_to_the_commit_that_is_nearest_to_the_tip():
    assert rewritten([("a", "b"), ("b", "c")], line("c")) == [("c", "a")]
    assert rewritten([("a", "b"), ("b", "c")], line("b")) == [("b", "a")]
    assert rewritten([("a", "b"), ("a", "c")], line("c", "x", "b")) == [("c", "a")]
    assert rewritten([("a", "b"), ("b", "d"), ("a", "c"), ("c", "d")], line("d")) == [("d", "a")]
    assert rewritten([("b", "c")], line("c")) == rewritten([("a", "b")], line("c")) == []


def test_a_rewrite_that_git_recorded_is_certain():
    (one,) = by_rewrite([known(4, "a")], [("a", "b")], line("b"))
    assert one == Found("post_rewrite", "certain", "b", 4, "c4", "a", "git recorded the rewrite")


def test_a_commit_that_became_itself_did_not_change():
    assert (
        rewritten([("a", "a"), ("a", "b")], line("b")) == rewritten([("a", "b"), ("b", "b")], line("b")) == [("b", "a")]
    )


def test_rewrites_in_a_circle_lead_nowhere():
    for circle in ([("a", "a")], [("a", "b"), ("b", "a")], [("a", "b"), ("b", "c"), ("c", "b")]):
        assert rewritten(circle, line("c", "b")) == []


def test_a_very_long_chain_of_rewrites_is_followed():
    chain = [(f"s{number}", f"s{number + 1}") for number in range(50_000)]
    assert rewritten(chain, line("s50000"), "s0") == [("s50000", "s0")]


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("abcdef")), max_size=15))
def test_any_rewrites_lead_into_the_history_or_nowhere(rewrites):
    assert all(new in "de" and was == "a" for new, was in rewritten(rewrites, line("e", "d")))


# --- names


def named(records, history):
    return {(one.sha, one.index, one.confidence, one.was) for one in by_name(of_run(records, "r"), "r", history)}


def test_the_commit_nearest_to_the_tip_is_taken_of_those_that_name_a_checkpoint():
    history = line("n", "x", "o", said={"n": trailer(1), "o": trailer(1)})
    assert named([], history) == {("n", 1, "strong", None)}
    assert named([known(1, "o")], history) == {("n", 1, "strong", "o")}
    assert "1 older commit in" in next(by_name([], "r", history)).why


def test_a_name_is_told_with_its_reason():
    why = "its message names the run and the milestone"
    source = "git_log_run_specific"
    history = line("n", "o", "p", "q", said=dict.fromkeys("nop", trailer(1)))
    older = f"{why}, and so does that of 2 older commits in this history"
    assert list(by_name([known(1, "o")], "r", history)) == [Found(source, "strong", "n", 1, "c1", "o", older)]
    once = line("n", said={"n": trailer(0)})
    assert list(by_name([], "r", once)) == [Found(source, "strong", "n", 0, "c0", None, why)]
    unknown = Found(source, "weak", "n", 0, "c0", None, f"{why}; the log does not know it")
    assert list(by_name([known(1, "o")], "r", once)) == [unknown]


def test_a_subject_of_runr_speaks_of_the_record_with_its_number_and_a_trailer_does_not():
    runr = Said("r", "runr-r-1", 1, "t", "run_specific")
    records = of_run([known(0, "z"), known(1, "o"), known(1, "s", source="sidecar")], "r")
    (one,) = by_name(records, "r", line("n", said={"n": runr}))
    assert (one.checkpoint_id, one.was, one.confidence) == ("c1", "o", "strong")
    (other,) = by_name(records, "r", line("n", said={"n": runr._replace(kind="trailer")}))
    assert (other.checkpoint_id, other.was, other.confidence) == ("runr-r-1", None, "weak")


def test_a_name_that_the_log_does_not_know_is_weak_and_one_that_no_sidecar_knows_is_not():
    history = line("n", said={"n": trailer(5)})
    assert named([known(1, "o")], history) == {("n", 5, "weak", None)}
    assert named([known(1, "o", source="sidecar")], history) == {("n", 5, "strong", None)}


def test_a_message_that_contradicts_its_record_or_another_message_is_not_believed():
    history = line("f", "n", said={"f": trailer(50, "c1"), "n": trailer(1)})
    assert named([known(1, "o")], history) == {("n", 1, "strong", "o")}
    assert named([], history) == set()
    assert named([known(1, "o")], line("f", said={"f": trailer(50, "c1")})) == set()


def test_a_message_without_a_number_gets_it_from_the_record():
    history = line("n", said={"n": Said("r", "c1", None, "t", "trailer")})
    assert named([known(1, "o")], history) == {("n", 1, "strong", "o")}
    assert named([], history) == set()


def test_other_runs_and_snapshots_name_nothing_here():
    history = line("n", "m", said={"n": trailer(1, run_id="q"), "m": Said(None, "c1", 1, "t", "trailer")})
    assert named([known(1, "o")], history) == set()


# --- equal content


def matched(records, values, commits, clues=None):
    return {
        (one.checkpoint_id, one.sha)
        for one in by_content("tree", records, values, commits, clues)
        if one.confidence != "weak"
    }


def test_equal_commits_go_to_equal_milestones_in_turn():
    records = [known(0, "a"), known(1, "b"), known(2, "c")]
    values = {"a": "same", "b": "other", "c": "same"}
    assert matched(records, values, {"same": ["n1"]}) == set(), "it may be either"
    stamps = Clues(stamps={"a": "then", "c": "later", "n1": "later"})
    assert matched(records, values, {"same": ["n1"]}, stamps) == {("c2", "n1")}
    apart = Clues(stamps={"a": "then", "c": "later", "n1": "later", "n2": "other"})
    assert matched(records, values, {"same": ["n1", "n2"]}, apart) == {("c2", "n1"), ("c0", "n2")}
    assert matched(records, values, {"same": ["n1", "n2"]}) == {("c0", "n1"), ("c2", "n2")}
    assert matched(records, values, {"same": ["n1", "n2", "n3"]}) == {("c0", "n1"), ("c2", "n3")}


def test_an_equal_commit_is_told_with_its_reason_and_one_that_may_be_another_with_that_doubt():
    why = "it has exactly the files that the milestone had"
    values, equal = {"a": "same", "b": "same"}, {"same": ["n"]}
    assert list(by_content("tree", [known(0, "a")], values, equal)) == [Found("tree", "strong", "n", 0, "c0", "a", why)]
    doubt = f"{why}; but another milestone is equal to it, so it may be that one"
    assert list(by_content("tree", [known(0, "a"), known(1, "b")], values, equal)) == [
        Found("tree", "weak", "n", 0, "c0", "a", doubt),
        Found("tree", "weak", "n", 1, "c1", "b", doubt),
    ]


def test_of_commits_that_are_reserved_for_a_milestone_the_newest_is_surely_its():
    records, values = [known(0, "a"), known(1, "b")], {"a": "same", "b": "same"}
    held = Clues(reserved=dict.fromkeys(("n1", "n2", "n3"), frozenset("a")))
    assert matched(records, values, {"same": ["n1", "n2", "n3"]}, held) == {("c0", "n3")}


def test_a_commit_with_the_name_of_another_run_is_reserved_for_what_stood_on_that_name():
    def commit(sha, *named, said=None):
        return Commit(sha, "t", (), "", said, frozenset(named))

    records = [known(0, "a"), known(1, "b"), known(1, "b2")]
    there = {"a": commit("a", ("q", "x")), "b": commit("b", ("q", "y"))}
    mine = commit("n2", ("r", "c1"), said=trailer(1))
    strange = [commit("n3", ("r", "new"), said=trailer(5)), commit("n4", said=trailer(1, run_id="q")), commit("n5")]
    commits = [commit("n1", ("q", "x")), mine, *strange]
    assert reserved_by_name(commits, "r", records, there, own=False) == {"n1": frozenset({"a"})}
    both = {"n1": frozenset({"a"}), "n2": frozenset({"b", "b2"})}
    assert reserved_by_name(commits, "r", records, there, own=True) == both


def test_an_equal_milestone_of_another_run_takes_its_own_commit_or_makes_the_match_weak():
    ours, theirs = [known(0, "a")], known(0, "x", "other", run_id="s")
    values = {"a": "same", "x": "same"}
    assert matched(ours, values, {"same": ["n1", "n2"]}, Clues(rivals=[theirs])) == set()
    told = Clues(stamps={"a": "then", "n1": "then", "x": "later", "n2": "later"}, rivals=[theirs])
    assert matched(ours, values, {"same": ["n1", "n2"]}, told) == {("c0", "n1")}
    assert matched(ours, values, {"same": ["n2"]}, told) == set()
    held = Clues(reserved={"n2": frozenset("x")}, rivals=[theirs])
    assert matched(ours, values, {"same": ["n2"]}, held) == set()
    assert matched(ours, values, {"same": ["n1", "n2"]}, held) == {("c0", "n1")}


def test_milestones_on_one_commit_and_records_of_one_checkpoint_have_the_same_turn():
    assert matched([known(0, "a"), known(1, "a")], {"a": "v"}, {"v": ["n"]}) == {("c0", "n"), ("c1", "n")}
    twice = [known(0, "a", "c"), known(0, "b", "c", "sidecar")]
    assert matched(twice, {"a": "v", "b": "v"}, {"v": ["n"]}) == {("c", "n")}


def test_what_has_no_value_is_equal_to_nothing():
    assert matched([known(0, "a"), known(1, "b")], {}, {"": ["n"]}) == set()


def test_a_pair_is_strong_only_if_author_and_time_agree():
    pairs = [Pair("a", "x", True), Pair("b", "y", False), Pair("q", "z", True)]
    why = "git pairs it with the milestone's commit by what it changes,"
    differs = "but author or time differ, or do not tell it from another milestone"
    assert list(by_pair([known(0, "a"), known(1, "b"), known(2, "c")], pairs)) == [
        Found("range_diff", "strong", "x", 0, "c0", "a", f"{why} and both have the same author and time"),
        Found("range_diff", "weak", "y", 1, "c1", "b", f"{why} {differs}"),
    ]


# --- legacy


def test_subjects_without_a_run_count_only_if_they_can_be_of_one_run():
    rising = line("b", "a", said={"b": legacy(3), "a": legacy(1)})
    one, why = by_legacy([], "r", rising)
    assert (one.sha, one.index, one.confidence, why) == ("b", 3, "weak", "")
    why = "its subject names the milestone, but no run; it may be another run's"
    assert one == Found("git_log_legacy", "weak", "b", 3, None, None, why)
    ours = line("b", "a", said={"b": legacy(1), "a": trailer(0)})
    assert by_legacy([], "r", ours)[0].sha == "b"
    assert by_legacy([], "r", line("b", "a", said={"b": trailer(5), "a": legacy(1)}))[0].sha == "a"
    assert by_legacy([known(0, "x")], "r", rising) == (
        None,
        "the run has records of its own, and they name other commits",
    )
    assert by_legacy([], "r", line("b", "a", said={"b": legacy(1), "a": legacy(1)})) == (
        None,
        "they count more than once from the beginning, so they are of more than one run",
    )
    assert by_legacy([], "r", line("b", "a", said={"b": legacy(1), "a": trailer(0, run_id="q")})) == (
        None,
        "the history names another run too",
    )
    assert by_legacy([], "r", line("b", "a")) == (None, "")


# --- the history


def test_what_is_older_than_the_base_is_left_out_through_merges_too():
    merged = Line(
        [
            Commit("m", "1", ("b", "s"), "", None),
            Commit("b", "2", ("base",), "", None),
            Commit("s", "3", ("old",), "", None),
            Commit("base", "4", ("old",), "", None),
            Commit("old", "5", (), "", None),
        ]
    )
    assert [one.sha for one in merged.since("base")] == ["m", "b", "s"]
    assert merged.since("m") == []
    assert len(merged.since(None)) == len(merged.since("unknown")) == 5
    cut_off = Line([Commit("b", "2", ("a",), "", None), Commit("a", "1", ("unlisted",), "", None)])
    assert [one.sha for one in cut_off.since("a")] == ["b"]


def test_a_commit_that_changes_nothing_is_not_changing():
    history = line("c", "b", "a", trees={"b": "t", "a": "t"})
    assert [one.sha for one in history.changing(history.commits)] == ["c", "a"]


# --- what was lost on the way


def test_a_lower_milestone_that_nothing_shows_is_unseen():
    best, at = found(index=3, checkpoint_id="c3"), line("a")
    records = [known(0, "x"), known(1, "y"), known(2, "z", source="sidecar"), known(3, "a"), known(4, "q")]
    assert unseen(best, records, [best, found(checkpoint_id="c0")], at) == records[1:3]
    named = Line([Commit("a", "t", (), "", None, frozenset({("r", "c1"), ("other", "c0")}))])
    assert unseen(best, records, [best], named) == [records[0], records[2]]
    assert unseen(best, [*records[3:], known(3, "s", "twin")], [best], at) == []


def test_lower_milestones_that_were_lost_are_named_but_not_too_many():
    lost_ones = [known(index, f"s{index}") for index in range(5)]
    why = answer([found(index=9)], [known(10, "t")], line("a"), [], below=lost_ones).why
    assert why.count("was not found in this history") == 4 and "milestone 10 (t)" in why and "milestone 2 (s2)" in why
    assert "2 more of the lower ones were not found either" in why
    assert "either" not in answer([found(index=9)], [], line("a"), [], below=lost_ones[:3]).why


# --- the answer


def test_the_highest_wins_then_the_better_source_then_the_nearest_commit():
    history = line("b", "a")
    assert best_of([found(index=1), found("tree", "strong", "b", 2)], history).index == 2
    assert best_of([found("tree", "strong", index=1), found("sidecar", index=1)], history).source == "sidecar"
    assert best_of([found(sha="a"), found(sha="b")], history).sha == "b"
    history.beyond = frozenset({"far"})
    assert best_of([found(sha="far"), found(sha="a")], history).sha == "a"
    both = [found(checkpoint_id="x"), found(checkpoint_id="y")]
    assert best_of(both, history) == best_of(both[::-1], history) == both[1]
    assert best_of([], history) is None


def test_a_weak_answer_never_goes_before_a_sure_one_and_is_named_as_a_choice():
    weak = found("git_log_run_specific", "weak", "b", 9)
    position = answer([weak, found(index=1)], [], line("b", "a"), [], False)
    assert (position.index, position.confidence) == (1, "certain")
    assert position.choices == ("Commit b may be milestone 9: so it is.",)
    alone = answer([weak], [], line("b", "a"), [])
    assert (alone.index, alone.confidence) == (9, "weak")
    assert alone.choices == (
        "If commit b really is milestone 9 of this run, confirm it.",
        "If it is not, start from the first milestone.",
    )


def test_the_highest_of_the_weak_are_named_and_not_those_below_the_answer():
    weak = [found("range_diff", "weak", f"w{index}", index) for index in (0, 1, 3, 2, 5, 4)]
    position = answer([*weak, found(sha="a" * 40, index=1)], [], line("a" * 40), [])
    assert position.choices == tuple(f"Commit w{index} may be milestone {index}: so it is." for index in (5, 4, 3))
    assert position[:6] == ("log", "certain", "a" * 40, 1, "c", None)


def test_what_mirrors_place_beyond_the_answer_is_told_apart():
    strange = [doubted(found("sidecar", sha="b", index=index, checkpoint_id=name), "the log does not know it")
               for index, name in ((4, "x"), (3, "0z"), (3, None), (3, "0z"), (1, "y"), (0, "w"))]  # fmt: skip
    other = found("tree", "weak", "b", 9)
    position = answer([found(index=1), *strange, other], [known(1, "a")], line("b", "a"), [])
    assert position.beyond == ((3, None), (3, "0z"), (4, "x"))


def test_only_what_is_higher_than_the_sure_is_still_looked_for():
    records = [known(0, "a"), known(1, "b"), known(2, "c")]
    assert above(records, [found(index=1)], line("a")) == [records[2]]
    assert above(records, [found("range_diff", "weak", index=2)], line("a")) == records
    assert above(records, [found(index=2)], line("a")) == []


def test_the_reason_names_old_and_new_and_what_is_missing():
    moved = Found("patch_id", "strong", "b" * 40, 1, "c1", "a" * 40, "it changes the same")
    records = [known(1, "a" * 40), known(2, "e" * 40), known(3, "d" * 40)]
    position = answer([moved], records, line("b" * 40), ["the history is cut off"])
    assert position.was == "a" * 40 and "not found" not in answer([moved], records[:1], line("b" * 40), []).why
    assert position.why == (
        "Milestone 1 is commit bbbbbbbbbbbb (it was aaaaaaaaaaaa): it changes the same; "
        "milestone 3 (dddddddddddd) was not found in this history; the history is cut off."
    )


def test_remarks_are_made_once_and_not_too_many():
    why = answer([found()], [], line("a"), ["x", "x", *"abcdef"]).why
    assert why == "Milestone 0 is commit a: so it is; x; a; b; and 4 more remarks of this kind."
    assert answer([found()], [], line("a"), list("abc")).why == "Milestone 0 is commit a: so it is; a; b; c."
    assert answer([found()], [], line("a"), list("abcd")).why.endswith("c; and 1 more remark of this kind.")
    assert answer([found()], [], line("a"), list("abcde")).why.endswith("c; and 2 more remarks of this kind.")


def test_nothing_found_has_a_reason_and_choices():
    records = [known(0, "a" * 40), known(1, "b" * 40), known(2, "c" * 40)]
    choices = list(choices_for(records, {"b" * 40, "c" * 40}, {"c" * 40: ["work"]}, ["Something else."]))
    assert choices == [
        "Milestone 2 was commit cccccccccccc, which is on work: switch to that branch, or merge it.",
        "Milestone 1 was commit bbbbbbbbbbbb, which git still has, on no branch: make a branch there, or pick it.",
        "Milestone 0 was commit aaaaaaaaaaaa, which git no longer has: restore checkpoint c0, if its snapshot was kept.",
        "Something else.",
        "If you know the commit of the last milestone, check it out and confirm it.",
        "Start from the first milestone.",
    ]
    many = list(choices_for([known(9, "z"), *records], (), {"c" * 40: list("abcd")}, []))
    assert many[0].startswith("Milestone 2 was commit cccccccccccc, which is on a, b, c:") and len(many) == 5
    position = nowhere(lost("r", records, []), choices)
    assert position[:6] == ("none", "none", None, None, None, None)
    assert position.why == "The position of run r is unknown: none of its 3 recorded milestones is in this history."
    assert position.choices == tuple(choices)
    assert lost("r", [], ["x", "y"]) == (
        "The position of run r is unknown: no milestone of it is recorded, and none is in this history; x; y."
    )


# --- what follows the last milestone


def test_where_no_log_is_a_commit_that_nothing_explains_may_be_a_milestone_that_lost_its_name():
    named = Found("git_log_run_specific", "strong", "b", 1, "c1", None, "it says so")
    position = answer([named], [], line("d", "c", "b", "a"), [])
    assert (position.index, position.confidence) == (1, "weak")
    assert "2 later commits name no milestone, and no log tells" in position.why
    assert position.choices[-1] == "Look at `git log b..` for a milestone that lost its name."
    assert answer([named], [], line("b", "a"), []).confidence == "strong", "nothing follows it"
    assert answer([named], [], line("c", "b", said={"c": trailer(5, run_id="other")}), []).confidence == "strong"


def test_what_a_sidecar_recorded_stays_sure_but_what_follows_is_said():
    position = answer(
        [found("sidecar", sha="b", checkpoint_id="c0")], [known(0, "b", source="sidecar")], line("c", "b"), []
    )
    assert position.confidence == "certain" and "1 later commit names no milestone" in position.why


def test_a_log_knows_every_milestone_so_what_follows_is_no_gap():
    position = answer([found(sha="b", checkpoint_id="c0")], [known(0, "b")], line("c", "b"), [])
    assert (position.confidence, position.choices) == ("certain", ()) and "later" not in position.why


def test_commits_beside_it_merges_and_commits_without_a_change_are_explained():
    def commit(sha, parents, tree=None):
        return Commit(sha, tree or f"t-{sha}", parents, "", None)

    history = Line([
        commit("merge", ("empty", "side")), commit("empty", ("m",), "t-m"), commit("side", ("base",)),
        commit("m", ("base",)), commit("base", ()),
    ])  # fmt: skip
    assert [one.sha for one in history.after("m")] == ["empty", "merge"]
    assert (history.unexplained("m"), history.unexplained("base"), history.unexplained("gone")) == (0, 2, 0)


def test_an_imported_run_is_named_by_its_own_subjects_and_by_nobody_elses():
    theirs = {"b": Said("20260101A", "runr-20260101A-3", 3, "t", "run_specific"), "a": trailer(0, run_id="20260101A")}
    listed = line("c", "b", "a", said=theirs)
    listed.beyond = frozenset({"far"})
    history = listed.imported_as("runr-20260101a")
    assert "far" in history
    assert [one.said and one.said.run_id for one in history.commits] == [None, "runr-20260101a", "20260101A"]
    (named,) = by_name([], "runr-20260101a", history)
    assert (named.index, named.sha, named.confidence) == (3, "b", "strong")
    assert list(by_name([], "runr-other", line("b", said=theirs).imported_as("runr-other"))) == []


def test_a_commit_that_names_another_run_is_told_from_one_that_names_none_or_several():
    def commit(*named):
        return Commit("a", "t", (), "", None, frozenset(named))

    assert commit(("q", "c")).names_another("r") and commit(("q", None), ("p", "c")).names_another("r")
    assert not commit().names_another("r") and not commit(("q", "c"), ("r", "d")).names_another("r")
    imported = commit(("20260101A", "c"), ("q", "d")).imported_as("runr-20260101a")
    assert imported.named == {("runr-20260101a", "c"), ("q", "d")} and imported.said is None


EVIDENCE = st.builds(
    found, st.sampled_from(ORDER[:-1]), st.sampled_from(["certain", "strong", "weak"]), st.sampled_from("abc"), st.integers(0, 5)
)  # fmt: skip


@given(st.lists(EVIDENCE, max_size=8))
def test_the_answer_is_always_one_of_the_evidence_and_the_highest_that_is_sure(evidence):
    position = answer(evidence, [], line("c", "b", "a"), [], False)
    if not evidence:
        assert position is None
        return
    assert (position.source, position.confidence, position.sha, position.index) in {one[:4] for one in evidence}
    sure = [one.index for one in evidence if one.confidence != "weak"]
    assert position.index == max(sure or [one.index for one in evidence])
