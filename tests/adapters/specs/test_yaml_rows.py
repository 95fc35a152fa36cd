"""A text that is one we know but for some places reads as if it were the first, and costs what was changed."""

from __future__ import annotations

import random

import pytest

from holdfast.adapters.specs import yaml_nodes, yaml_rows
from holdfast.adapters.specs.edit import way_to
from holdfast.adapters.specs.memory import Memory, forget
from holdfast.adapters.specs.writer import Writer
from holdfast.adapters.specs.yaml_nodes import BadYaml, Entry, composed
from holdfast.adapters.specs.yaml_rows import recomposed
from holdfast.adapters.specs.yaml_text import compose, plain
from holdfast.core.spec import Checkpoint, TaskRef

TEXTS = (
    "a:\n- 1\n- 2\n- 3\n- 4\n- 5\nb: c\n",
    "- a\n- b\n- c\n- d\n- e",
    "x:\n  - - a\n    - b\n    - c\n    - d\n  - e\n  - f: |+\n      t\n\n  - g: >-\n     q\n\n  - h:\n  -\n  - ? k\n  - j\n",
    "---\n- a\n- b\n- c\n- d\n---\n- a: 'q\n   r'\n- b: x\n   - y\n- c\n- d\n...\n# t\n---\nq: 1\n",
    "a:\r\n  - id: 1\r\n    t: x\r\n  - id: 2\r\n  - id: 3\r\n  # c\r\n  - id: 4\r\nb: 2\r\n",
    "p:\n  - id: 1\n    tasks:\n"
    + "".join(f"      - id: T{number}  # {number}\n        s: pending\n" for number in range(30))
    + "  - id: 2\n    tasks: [a, b]\nmeta:\n  done: 1/30\n",
    "x:\n" + "  - ? k\n  - v\n  -\n    id: a\n  - ? l\n" * 5 + "y: 1\n",
    "c:\n  t:\n    done:\n"
    + "".join(f"      - {{id: T{number}, name: x}}\n" for number in range(12))
    + "    left:\n"
    + "".join(f"      - id: T{number}\n        name: 'y: z'\n" for number in range(12, 24))
    + "  n: null\n",
)
PIECES = (
    *(
        "'",
        '"',
        "#",
        "- ",
        "-",
        "\n",
        "  ",
        " ",
        ":",
        ": ",
        "|",
        "|+",
        ">",
        "[",
        "]",
        "{",
        "}",
        "x",
        "pending",
        "? ",
        "%",
    ),
    *(
        "\n- a\n",
        "\n  - id: Z\n    q: r\n",
        "---\n",
        "...\n",
        "&a ",
        "*a",
        "!t ",
        "\t",
        "\r",
        "\r\n",
        "\u2028",
        "\x85",
        "`",
    ),
)


def changed(chance, text):
    place = chance.randrange(len(text) + 1)
    lines = text.splitlines(keepends=True)
    line, other = chance.randrange(len(lines) or 1), chance.randrange(len(lines) or 1)
    return chance.choice(
        (
            text[:place] + chance.choice(PIECES) + text[place:],
            text[:place] + text[place + chance.randrange(1, 30) :],
            text[:place] + text[line : line + 40] + text[place:],
            "".join(lines[:line] + lines[line + chance.randrange(1, 6) :]),
            "".join(lines[:line] + lines[other : other + 4] + lines[line:]),
            "".join([*lines[:line], " " * chance.randrange(1, 4), *lines[line:]]),
        )
    )


def shape(node):
    """Everything that is known of a node, and of those in it."""
    if isinstance(node, Entry):
        return node.start, node.end, node.key and shape(node.key), shape(node.node)
    inner = node.value
    if isinstance(inner, dict):
        inner = [(key, shape(entry)) for key, entry in inner.items()]
    elif isinstance(inner, list):
        inner = [shape(entry) for entry in inner]
    places = (node.start, node.end, node.line, node.column)
    return inner, places, node.anchor, node.size, node.flow, node.style


def told(found):
    return [shape(root) for root in found.roots], found.amount, found.shares


def read(text):
    try:
        return composed(text)
    except BadYaml:
        return None


@pytest.mark.parametrize("seed", range(4))
def test_a_changed_text_reads_as_if_it_were_the_first(monkeypatch, seed):
    monkeypatch.setattr(yaml_rows, "_FEWEST", 1)
    monkeypatch.setattr(yaml_rows, "_PROBE", 8)
    chance, helped = random.Random(seed), 0
    for _ in range(900):
        text = chance.choice(TEXTS)
        known, ways = composed(text), [text]
        for _ in range(chance.randrange(1, 6)):
            ways.append(changed(chance, ways[-1]))
            found = recomposed(ways[-1], [(ways[-2], known)])
            if found is None:
                break
            known, helped = found, helped + 1  # nobody looks at it in between
            if chance.random() < 0.3:
                check(known, ways)
        check(known, ways if found else ways[:-1])
    assert helped > 300


def check(found, ways):
    whole = read(ways[-1])
    assert whole is not None and told(found) == told(whole), ways


def rows(count, status="pending"):
    return "".join(f"  - id: T{number}\n    title: Part {number}\n    status: {status}\n" for number in range(count))


@pytest.fixture
def parsed(monkeypatch):
    """How many characters were parsed of each text."""
    forget()
    lengths = []

    def counting(text, gaps=()):
        lengths.append(len(text))
        return composed(text, gaps)

    monkeypatch.setattr(yaml_rows, "composed", counting)
    monkeypatch.setattr("holdfast.adapters.specs.yaml_text.composed", counting)
    return lengths


def test_of_a_text_that_was_changed_at_several_places_little_is_parsed_again(parsed):
    text = f"meta: 1\ntasks:\n{rows(1000)}progress: 1/1000\n"
    other = text.replace("meta: 1", "meta: two").replace("1/1000", "2/1000")
    for number in (100, 500, 999):
        other = other.replace(f"Part {number}\n    status: pending", f"Part {number}\n    status: done")
    compose(text)
    assert plain(compose(other)[0])["tasks"][500]["status"] == "done"
    whole, again = parsed
    assert whole == len(text) and again < len(text) / 30


def test_a_batch_of_a_long_spec_parses_little_of_it(parsed, tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "tasks.yaml").write_text(f"tasks:\n{rows(1000)}meta:\n  progress: 0/1000\n  last_updated: 2026-01-01\n")
    writer = Writer(str(tmp_path), str(tmp_path))
    names = [TaskRef(f"T{number}", f"Part {number}") for number in range(1000)]
    for done in range(1, 4):
        parsed.clear()
        for status in ("in_progress", "complete"):
            writer.mark({f"T{done - 1}": status}, {}, f"2026-01-0{done}")
        lists = {"completed": tuple(names[:done]), "pending": tuple(names[done:])}
        writer.write_checkpoint(Checkpoint(last_batch=str(done), tasks_digest=f"d{done}", **lists))
        if done == 1:
            compose((tmp_path / "checkpoint.yaml").read_text())
    assert 2 < len(parsed) < 10
    assert sum(parsed) < (tmp_path / "tasks.yaml").stat().st_size / 5


@pytest.mark.parametrize("text", ["a: &x 1\nrows:\n", "a: &x 1\nb: *x\nrows:\n"])
def test_a_text_with_shared_names_is_parsed_whole(text):
    text += "".join(f"  - r{number}\n" for number in range(30))
    assert recomposed(text.replace("r20", "s"), [(text, composed(text))]) is None
    bare = text.replace("&x ", "").replace("*x", "1")
    assert recomposed(text, [(bare, composed(bare))]) is None
    inner = bare.replace("r10", "&y r10")
    assert recomposed(inner.replace("r20", "s"), [(inner, composed(inner))]) is None


def test_a_list_that_stands_in_another_depth_now_is_parsed_whole():
    text = "a:\n" + "".join(f"  - r{number}\n" for number in range(30))
    assert recomposed(text.replace("r20", "s"), [(text, composed(text))]) is not None
    deeper = text.replace("a:\n", "a:\n  b:\n")
    assert plain(composed(deeper).roots[0])["a"]["b"][29] == "r29"
    assert recomposed(deeper, [(text, composed(text))]) is None


def test_rows_that_are_left_out_count_for_the_bound(monkeypatch):
    text = "".join(f"- r{number}\n" for number in range(50))
    known, other = [(text, composed(text))], text.replace("r20", "s")
    assert recomposed(other, known) is not None
    monkeypatch.setattr(yaml_rows, "MAX_NODES", 50)
    assert recomposed(other, known) is None
    monkeypatch.setattr(yaml_nodes, "MAX_NODES", 50)
    with pytest.raises(BadYaml, match="more than 50 values"):
        compose(other)


def test_what_does_not_parse_any_more_is_told_with_its_line():
    text = "tasks:\n" + "".join(f"  - id: T{number}\n" for number in range(60))
    compose(text)
    with pytest.raises(BadYaml) as caught:
        compose(text.replace("id: T40", "id: 'T40"))
    with pytest.raises(BadYaml) as alone:
        composed(text.replace("id: T40", "id: 'T40"))
    assert (caught.value.line, caught.value.problem) == (alone.value.line, alone.value.problem)


def test_the_way_to_a_node_is_the_one_on_which_it_is_found():
    for text in (*TEXTS, "a: &x {b: [1, 2]}\nc: *x\nd:\n- *x\n"):
        documents = compose(text)
        waiting = [((number,), root) for number, root in enumerate(documents)]
        while waiting:
            path, node = waiting.pop()
            assert way_to(documents, node) == path
            if not isinstance(node.value, str):
                pairs = node.value.items() if isinstance(node.value, dict) else enumerate(node.value)
                waiting += [((*path, key), one.node) for key, one in pairs if one.start == one.node.start]
    assert way_to(compose("a: b\n"), compose("c: d\n")[0]) is None


def test_what_is_known_of_a_text_is_not_found_out_again():
    made = []
    memory = Memory(lambda text, known: (made.append(text), [one for one, _ in known])[1])
    assert (memory("a"), memory("b"), memory("a")) == ([], ["a"], [])
    assert memory("c") == ["a", "b"] and made == ["a", "b", "c"]
    forget()
    assert memory("a") == []
