"""YAML that is hostile, odd or broken: a sentence with a line, in bounded time, and never a crash."""

from __future__ import annotations

import time

import pytest

from holdfast.adapters.specs import edit
from holdfast.adapters.specs.edit import CannotEdit, put, put_all
from holdfast.adapters.specs.texts import parse
from holdfast.adapters.specs.yaml_text import BadYaml, compose, plain
from holdfast.core.errors import BadFile

LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
HOSTILE = {
    "deep lists in one line": ("[" * 100_000, "nested"),
    "deep maps in one line": ("{a: " * 100_000, "nested"),
    "deep lists of dashes": ("- " * 100_000, "nested"),
    "deep questions": ("? " * 100_000, "nested"),
    "a billion laughs": (LAUGHS, "aliases counted"),
    "very many values": ("- a\n" * 1_000_000, "aliases counted"),
    "an alias to itself": ("a: &a [*a]", "refers to itself"),
    "an alias to nothing": ("a: *b", "refers to nothing"),
    "a key given twice": ("a: 1\nb: 2\na: 3", "given twice"),
    "a key that is a list": ("? [a]\n: b", "not text"),
    "a NUL": ("a: b\0c", "does not allow"),
    "a control character": ("é: 1\nb: \x01", "does not allow"),
    "a lone surrogate": ('a: "\\ud800"', "not valid YAML"),
    "a tab": ("a:\n\t- b", "not valid YAML"),
    "a quote without an end": ('a: "' + "x" * 1_000_000, "not valid YAML"),
    "a key that is very long": ("a" * 1_000_000 + ": b", "not valid YAML"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_text_is_refused_with_a_line_and_soon(kind):
    text, why = HOSTILE[kind]
    began = time.process_time()
    with pytest.raises(BadYaml, match=why) as caught:
        compose(text)
    assert caught.value.line
    assert time.process_time() - began < 10


def test_the_line_is_the_one_where_it_is_wrong():
    for text, line in (("a: 1\nb: 2\na: 3", 3), ("é: 1\nb: \x01", 2), ("a: `b`\n", 1)):
        with pytest.raises(BadYaml) as caught:
            compose(text)
        assert caught.value.line == line


def test_tags_construct_nothing_and_numbers_stay_text():
    [root] = compose(
        "a: !!python/object/apply:os.system ['true']\nb: 0123456\nc: 612e243\nd: 2026-01-01\ne: yes\nf: !!int 3"
    )
    assert plain(root) == {"a": ["true"], "b": "0123456", "c": "612e243", "d": "2026-01-01", "e": "yes", "f": "3"}


def test_nothing_is_nothing_unless_it_is_in_quotes():
    [root] = compose("a:\nb: ~\nc: null\nd: 'null'\ne: \"\"\n")
    assert plain(root) == {"a": None, "b": None, "c": None, "d": "null", "e": ""}


def test_documents_anchors_and_merged_maps_are_read():
    first, second = compose("x: &x {status: done, id: A}\n---\n- a\n")
    assert (plain(first), plain(second)) == ({"x": {"status": "done", "id": "A"}}, ["a"])
    [root] = compose("x: &x {s: 1}\ny: {<<: *x, id: B}\nz: {<<: [*x, {q: 2}], s: 3}\nodd: {<<: text}\n")
    assert plain(root)["y"] == {"s": "1", "id": "B"}
    assert plain(root)["z"] == {"s": "3", "q": "2"}
    assert plain(root)["odd"] == {"<<": "text"}
    assert compose("") == []


@pytest.mark.parametrize(
    ("data", "line"), [(b"a: 1\nb: \xff\n", 2), (b"\xff\xfea\0:\0", 1), ("a: 1\n".encode("utf-16"), 1)]
)
def test_what_is_not_utf8_is_told_with_its_line(data, line):
    with pytest.raises(BadFile, match="not UTF-8") as caught:
        parse("x.yaml", data)
    assert caught.value.line == line


def test_a_byte_order_mark_and_other_line_ends_do_no_harm():
    found = parse("x.yaml", b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    assert found.data == {"a": "1", "b": "2"}
    assert found.whole.encode() == b"\xef\xbb\xbfa: 1\r\nb: 2\r\n"


FILE = """\
# on top
checkpoint:
  branch: "main"  # where it is
  last_batch: 1
  tasks:
    completed: [a, b]
    pending:
      # one below the other
      - c
      - d
  beside: {x: 1, y: 2}
  shared: &s old
  other: *s
"""
AT = (0, "checkpoint")
SEVERAL = {
    "all there": (AT, {"last_batch": "2", "branch": "trunk", "beside": "null"}),
    "one of them new": (AT, {"last_batch": "2", "commit": "abc", "branch": "trunk"}),
    "lists": ((*AT, "tasks"), {"pending": ["e"], "completed": "[a, b, c]"}),
    "in brackets": ((*AT, "beside"), {"x": "3", "y": "4"}),
    "a list that becomes nothing": ((*AT, "tasks"), {"completed": "[]", "pending": []}),
}


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("kind", SEVERAL)
def test_several_values_at_once_are_what_they_would_be_one_after_the_other(kind, ends):
    (path, values), text = SEVERAL[kind], FILE.replace("\n", ends)
    one_by_one = text
    for key, value in values.items():
        one_by_one = put(one_by_one, (*path, key), value)
    assert put_all(text, path, values) == one_by_one != text


def test_several_values_that_are_there_are_read_back_once(monkeypatch):
    read = []
    compose = edit.compose
    monkeypatch.setattr(edit, "compose", lambda text: (read.append(text), compose(text))[1])
    put_all(FILE, *SEVERAL["all there"])
    assert len(read) == 2


def test_of_several_values_the_one_is_named_that_cannot_be_changed():
    with pytest.raises(CannotEdit, match=r"checkpoint\.shared is shared under the name &s"):
        put_all(FILE, AT, {"branch": "trunk", "shared": "new"})
