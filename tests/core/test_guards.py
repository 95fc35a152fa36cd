"""The scope of a run: deny beats allow, both names of a rename count, and no pattern takes for ever."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import guards
from holdfast.core.errors import UsageError
from holdfast.core.guards import OUTSIDE, SAMPLE, Judgement, Scope, Touched, check, fresh, judge, matches


@pytest.fixture(autouse=True)
def nothing_remembered():
    """Every test understands its patterns anew."""
    guards._compiled.cache_clear()


def broken(scope, *paths, **more):
    return [path for path, _ in judge(scope, [Touched(path, **more) for path in paths]).violations]


# --- patterns


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("src/**", ["src/a", "src/a/b/c.py", "src"], ["srcs/a", "a/src/b", "Src/a"]),
        ("docs/", ["docs", "docs/a", "docs/a/b"], ["docs2", "a/docs"]),
        ("docs", ["docs", "docs/a", "docs/a/b"], ["docs2", "doc"]),
        ("./docs//api/", ["docs/api", "docs/api/x"], ["docs", "docs/apix"]),
        ("*.md", ["a.md", ".md"], ["docs/a.md", "a.md/x", "a.mdx", "a.MD"]),
        ("**/*.md", ["a.md", "docs/a.md", "a/b/c.md"], ["a.mdx", "a.md/x"]),
        ("src/*", ["src/a"], ["src", "src/a/b"]),
        ("src/*/", ["src/a", "src/a/b/c"], ["src"]),
        ("src/**/test_*.py", ["src/test_a.py", "src/a/b/test_.py"], ["test_a.py", "src/a/test_b.pyc"]),
        ("a/**/b/**/c", ["a/b/c", "a/x/b/y/z/c", "a/b/b/c/c", "a/b/c/d"], ["a/c", "a/b", "x/a/b/c"]),
        ("**", ["a", "a/b"], []),
        ("?.txt", ["a.txt", "ü.txt"], ["ab.txt", ".txt", "x/a.txt"]),
        ("a*b?d*e", ["abxde", "a12b3d45e", "abbbcde"], ["abde", "abxd", "abxdef"]),
        ("a**b", ["ab", "axxb"], ["a/b"]),
        ("app/[id]/page.tsx", ["app/[id]/page.tsx"], ["app/i/page.tsx"]),
        ("a b/\udcff*", ["a b/\udcffx"], ["a b/x"]),
        ("new\nline", ["new\nline"], ["new"]),
        ("src/a", ["src/a/"], ["src/a ", "src/aX"]),
        ("src/?", ["src/a/"], ["src//a"]),
        ("a/**/a/**/c", ["a/a/c", "a/x/a/y/c"], ["a/c"]),
        ("**/a/**/a/**/c*", ["a/a/c"], ["a/c"]),
        ("*a*a*", ["aa", "xaxax"], ["a", "xa"]),
        ("a*a*c", ["aac"], ["abc"]),
        ("*a*a", ["aa", "aba"], ["ba"]),
        ("*a*b*", ["aba", "ab"], ["ba"]),
        ("*a*c", ["abc"], ["bac!"]),
        ("x*?a*c", ["xbac"], ["xac"]),
        ("*?a*a", ["baa"], ["ba"]),
        ("?a*b", ["xab", "xayb"], ["axb"]),
        ("a{b", ["a{b"], []),
        ("a}b,c", ["a}b,c"], []),
    ],
)
def test_what_a_pattern_means(pattern, inside, outside):
    assert [path for path in inside if not matches(pattern, path)] == []
    assert [path for path in outside if matches(pattern, path)] == []


def as_regex(pattern):
    """The same meaning said another way, slow but plain."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if pattern.endswith("/") or not set("*?") & set(parts[-1]):
        parts.append("**")
    text = ""
    for part in parts:
        wild = "".join({"*": "[^/]*", "?": "[^/]"}.get(char, re.escape(char)) for char in part)
        text += "(?:/[^/]*)*" if part == "**" else f"/{wild}"
    return re.compile(text, re.DOTALL)


PATTERNS = st.lists(st.sampled_from(["**", "*", "a", "b", "?", "a*", "*b*", "?a", "*a?b"]), min_size=1, max_size=5)
PATHS = st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=6).map("/".join)


@given(PATTERNS.map("/".join), st.sampled_from(["", "/"]), PATHS)
def test_matching_agrees_with_a_regular_expression(pattern, end, path):
    assert matches(pattern + end, path) == bool(as_regex(pattern + end).fullmatch(f"/{path}"))


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 5000 + "b", "a" * 20000),
        ("*?a" * 300 + "b", "a" * 2000),
        ("**/a/" * 300 + "b*", "/".join(["a"] * 2000)),
        ("**/*a*a*a*/" * 50 + "?", "/".join(["aaaa"] * 500)),
    ],
)
def test_no_pattern_blows_up(pattern, path):
    begun = time.process_time()
    assert matches(pattern, path) in (True, False)
    assert time.process_time() - begun < 2.0


@pytest.mark.parametrize("pattern", ["", "/", "/etc/**", "../x", "a/../b", ".", "!src", "*.{ts,tsx}", "a\0b"])
def test_a_pattern_that_could_be_misunderstood_is_refused(pattern):
    for scope in (Scope((pattern,)), Scope((), (pattern,))):
        with pytest.raises(UsageError, match="cannot be used"):
            judge(scope, [])
        with pytest.raises(UsageError):
            check(scope)


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("../x", "it is not a path below the top of the work tree"),
        ("!src", "`!` is not understood"),
        ("*.{ts,tsx}", "lists in braces are not understood"),
    ],
)
def test_a_refusal_says_what_is_wrong_and_what_to_write_instead(pattern, problem):
    with pytest.raises(UsageError) as caught:
        check(Scope((pattern,)))
    assert str(caught.value) == f"The pattern {pattern!r} cannot be used: {problem}."
    assert caught.value.advice == (
        "Write paths like `src/**`, `docs/` or `**/*.md`, one pattern for each; put exceptions in the denylist."
    )


# --- judging


def test_an_empty_scope_allows_everything():
    assert judge(Scope(), [Touched("a"), Touched("b/c", kind="deleted")]) == Judgement()


def test_deny_beats_allow():
    scope = Scope(("src/**",), ("src/secret/**",))
    assert broken(scope, "src/a", "src/secret/key", "b") == ["src/secret/key", "b"]
    assert judge(scope, [Touched("src/secret/key"), Touched("b")]).violations == (
        ("src/secret/key", "it is denied by `src/secret/**`"),
        ("b", OUTSIDE),
    )


def test_deny_alone_allows_the_rest():
    assert broken(Scope((), ("secret/",)), "a", "secret/x", "secret") == ["secret/x", "secret"]


def test_a_rename_counts_on_both_sides():
    scope = Scope(("src/**",))
    assert broken(scope, "src/a", was="old/a") == ["old/a"]
    assert broken(scope, "new/a", was="src/a") == ["new/a"]
    assert broken(scope, "new/a", was="old/a") == ["new/a", "old/a"]
    assert broken(scope, "src/b", was="src/a") == []
    assert judge(scope, [Touched("src/a", "old/a", "renamed")]).violations == (
        ("old/a", f"{OUTSIDE} (it became src/a)"),
    )


def test_a_file_that_came_from_outside_counts_though_it_is_ours_now():
    assert broken(Scope(("src/**",)), ".holdfast/a", was="old/a") == ["old/a"]


def test_a_blank_or_a_letter_at_the_end_of_a_name_is_part_of_it():
    names = ["src/a ", "src/aX", "/src/a"]
    assert broken(Scope(("src/a",)), *names, "src/a/") == names
    assert broken(Scope((), ("src/a",)), *names, "src/a/") == ["src/a/"]
    assert broken(Scope(("src/?",)), "src/a/") == [] and broken(Scope((), ("src/?",)), "src/a/") == ["src/a/"]


def test_three_ignored_files_are_all_named():
    found = judge(Scope(("src/**",)), [Touched(name, ignored=True) for name in "abc"])
    assert found.let_pass() == ("3 ignored files are outside of the allowed paths, which is no violation: a, b, c",)


def test_a_deletion_counts():
    assert broken(Scope(("src/**",)), "a", kind="deleted") == ["a"]


def test_ignored_files_outside_are_counted_and_shown_and_no_violations():
    scope = Scope(("src/**",))
    found = judge(scope, [Touched(f"node_modules/{number}", ignored=True) for number in range(3000)])
    assert found.violations == () and found.ignored_outside == 3000
    assert found.ignored_sample == tuple(f"node_modules/{number}" for number in range(SAMPLE)) and SAMPLE == 20
    (line,) = found.let_pass()
    assert line.startswith("3000 ignored files are ") and line.endswith("node_modules/1, node_modules/2, ...")
    assert judge(scope, [Touched("x", ignored=True)]).let_pass()[0].startswith("1 ignored file is ")
    assert Judgement().let_pass() == ()


def test_an_ignored_file_inside_counts_as_any_other():
    assert broken(Scope(("src/**",), ("src/x",)), "src/x", "src/y", ignored=True) == ["src/x"]
    assert broken(Scope((), ("x",)), "x", ignored=True) == ["x"]
    assert broken(Scope(("src/**",), ("**/*.pem",)), "k.pem", "other", ignored=True) == ["k.pem"]
    assert judge(Scope(("src/**",)), [Touched("src/y", ignored=True)]) == Judgement()


def test_a_denied_file_is_a_violation_though_it_is_ignored_and_outside():
    found = judge(Scope(("src/**",), ("x",)), [Touched("x", ignored=True), Touched("y", ignored=True)])
    assert found == Judgement((("x", "it is denied by `x`"),), 1, ("y",))


@pytest.mark.parametrize(
    "scope", [Scope(("src/**",)), Scope((), ("**",)), Scope((), (".holdfast/**",)), Scope((), (".*",))]
)
def test_our_own_files_never_trip_the_guards(scope):
    own = [".holdfast", ".holdfast/holdfast.db", ".holdfast/checkpoints/x.json"]
    touched = [Touched(path, kind="untracked", ignored=ignored) for path in own for ignored in (False, True)]
    assert judge(scope, touched) == Judgement()


def test_what_only_looks_like_ours_does():
    names = [".holdfast-x", "sub/.holdfast/x", ".Holdfast/x"]
    assert broken(Scope(("src/**",)), *names) == names


def test_the_same_thing_is_said_once():
    assert broken(Scope(("src/**",)), "a", "a") == ["a"]
    found = judge(Scope(("src/**",)), [Touched("a", ignored=True), Touched("a", ignored=True)])
    assert found.ignored_outside == 1


def test_a_nested_repository_is_judged_by_its_folder():
    assert broken(Scope(("src/**",)), "nested/", "src/nested/") == ["nested/"]


def test_what_was_so_before_is_not_fresh():
    before = [Touched("a", mark="1"), Touched("b", mark="1"), Touched("gone", kind="deleted")]
    now = [Touched("a", mark="1"), Touched("b", mark="2"), Touched("c", mark="1"), Touched("gone", kind="deleted")]
    assert [one.path for one in fresh(before, now)] == ["b", "c", "gone"]


def spent(count: int) -> float:
    scope = Scope(tuple(f"src/part{number}/**" for number in range(20)), ("**/*.key", "**/secret*/**"))
    touched = [Touched(f"src/part{number % 25}/folder/deep/file{number}.py") for number in range(count)]
    begun = time.process_time()
    assert len(judge(scope, touched).violations) == count // 5
    return time.process_time() - begun


def test_many_files_are_judged_quickly():
    assert any(spent(20_000) < 25 * spent(2_000) for _ in range(3))


def test_a_scope_of_sound_patterns_passes_the_check():
    check(Scope(("src/**",), ("*.md",)))
    check(Scope())
