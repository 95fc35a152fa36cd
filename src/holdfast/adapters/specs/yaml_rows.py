"""Composes a text that is one we know but for a few places: only these are parsed again, with the rows next to them.

Whole rows of a list of dashes are left out of the text where it is as it was, and their nodes are put back into the result.
At the beginning of such a row the parser is in the same state before every row of the list: what is left reads as it would
with them, and they read as they did. Where that is not sure nothing is left out: anchors, rows that begin in another way,
a list that came out elsewhere or in another depth, anything that does not parse.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from holdfast.adapters.specs.yaml_nodes import MAX_NODES, BadYaml, Composed, Entry, Gap, Node, composed
from holdfast.core.named import NamedTuple

_FEWEST = 8  # rows that are worth it
_PLACES = 32  # changes in one text
_LINES = 8  # after a change, to find where the texts are the same again
_PROBE = 64  # characters by which that is found
_start = attrgetter("start")


class _Stretch(NamedTuple):
    """What is the same in both texts, by its place in the old one; in the new one it stands `shift` characters later."""

    start: int
    end: int
    shift: int


class _Rows(NamedTuple):
    """Rows that are left out: where the first line of them begins and where they end, and the row that comes after them."""

    column: int
    depth: int
    start: int
    end: int
    shift: int
    entries: Sequence[Entry]
    after: Entry

    @property
    def lines(self) -> int:
        return self.after.node.line - self.entries[0].node.line


def recomposed(text: str, known: Sequence[tuple[str, Composed]]) -> Composed | None:
    """The documents by what is known of the text that is most alike; None if that does not help."""
    nearest = _nearest(text, [one for one in known if not one[1].shares])
    if nearest is None:
        return None
    old, then = nearest
    rows = sorted(_unchanged(old, then.roots, [*_stretches(old, text)]), key=_start)
    if not rows:
        return None
    try:
        found = composed(*_without(text, rows))
    except BadYaml:
        return None  # the whole text is told with the right line
    amount = found.amount + sum(entry.node.size for one in rows for entry in one.entries)
    whole = not found.shares and amount <= MAX_NODES and all(_fill(found.roots, one) for one in rows)
    return Composed(found.roots, amount, False) if whole else None


# --- what is the same


def _nearest(text: str, known: Sequence[tuple[str, Composed]]) -> tuple[str, Composed] | None:
    """The first that differs in one half at most, else the one with the longest beginning and end in common."""
    alike = {}
    for one in known:
        alike[one[0]] = same = sum(_around(one[0], text))
        if 2 * same > len(text):
            return one
    return max(known, key=lambda one: alike[one[0]], default=None)


def _around(old: str, new: str) -> tuple[int, int]:
    """How many characters are the same at the beginning, and of the others at the end."""
    most = min(len(old), len(new))
    before, end, far = _same(old, new, 0, 0, most), len(old), len(new)
    return before, _most(most - before, lambda some, more: old[end - more : end - some] == new[far - more : far - some])


def _same(old: str, new: str, here: int, there: int, most: int) -> int:
    """How many characters are the same from these places on, at most so many."""
    return _most(most, lambda some, more: old[here + some : here + more] == new[there + some : there + more])


def _most(most: int, goes_on: Callable[[int, int], bool]) -> int:
    """The highest number up to which it goes on without a gap, found by halves."""
    least = 0
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if goes_on(least, middle) else (least, middle - 1)
    return least


def _stretches(old: str, new: str) -> Iterator[_Stretch]:
    """From the beginning to the end, in the same order in both texts. Not all there are: the longest need not be among them."""
    behind = _around(old, new)[1]
    end, shift = len(old) - behind, len(new) - len(old)
    here = there = 0
    for _ in range(_PLACES):
        length = _same(old, new, here, there, min(end - here, end + shift - there))
        yield _Stretch(here, here + length, there - here)
        again = _again(old, new, here + length, there + length, end, shift)
        if again is None:
            break
        here, there = again
    yield _Stretch(end, len(old), shift)


def _again(old: str, new: str, here: int, there: int, end: int, shift: int) -> tuple[int, int] | None:
    """Where both texts go on alike with a line of one of them, soon after these places."""
    line, other = here, there
    for _ in range(_LINES):
        line, other = old.find("\n", line, end - _PROBE), new.find("\n", other, end + shift - _PROBE)
        if line >= 0 and (found := new.find(old[line : line + _PROBE], there, end + shift)) >= 0:
            return line, found
        if other >= 0 and (found := old.find(new[other : other + _PROBE], here, end)) >= 0:
            return found, other
        if line < 0 or other < 0:
            return None
        line, other = line + 1, other + 1
    return None


# --- what is left out


def _unchanged(old: str, roots: Sequence[Node], alike: Sequence[_Stretch]) -> Iterator[_Rows]:
    """Rows that are the same in both texts. None of them is in another."""
    waiting = [(root, 1) for root in roots]
    while waiting:
        node, depth = waiting.pop()
        kept: list[Node] = []
        if isinstance(node.told, dict):
            kept = [entry.node for entry in node.value.values()]
        elif isinstance(node.told, list) and not node.flow:
            out = [rows for one in alike for rows in _out(old, node, depth, one)]
            yield from out
            gone = {id(entry) for one in out for entry in one.entries}
            kept = [entry.node for entry in node.value if id(entry) not in gone]
        waiting += [(one, depth + 1) for one in kept if not isinstance(one.told, str)]


def _out(old: str, node: Node, depth: int, alike: _Stretch) -> Iterator[_Rows]:
    """Those of a list in one stretch. The first and the last of a list are kept, and so are those next to a change."""
    entries = node.value
    start, end = (bisect_right(entries, place, key=_start) for place in (alike.start, alike.end))
    start, end = start + 1 if alike.start else max(start, 1), end - 1
    if end - start >= _FEWEST:
        here, there = (_line_of(old, entries[place], node.column) for place in (start, end))
        if here is not None and there is not None:
            yield _Rows(node.column, depth, here, there, alike.shift, entries[start:end], entries[end])


def _line_of(text: str, entry: Entry, column: int) -> int | None:
    """Where the line of a row begins, if nothing but its dash stands before its value there."""
    start = text.rfind("\n", 0, entry.start) + 1
    head = text[start : entry.start]
    return start if head.rstrip(" ") == f"{' ' * column}-" and len(head) > column + 1 else None


def _without(text: str, rows: Sequence[_Rows]) -> tuple[str, list[Gap]]:
    """The new text without these rows, and where they are missing."""
    parts, gaps, here, length = list[str](), list[Gap](), 0, 0
    for one in rows:
        parts.append(text[here : one.start + one.shift])
        length, here = length + len(parts[-1]), one.end + one.shift
        gaps.append(Gap(length + one.column, one.end - one.start, one.lines))
    return "".join([*parts, text[here:]]), gaps


# --- and put back


def _fill(roots: Sequence[Node], rows: _Rows) -> bool:
    """Put the rows back before the one that comes after them. False if it is not where it is expected."""
    way, place = _way(roots, rows.after.start + rows.shift)
    if len(way) != rows.depth or place < 1 or way[-1].flow or way[-1].column != rows.column:
        return False
    entries = way[-1].value
    lines = entries[place].node.line - rows.after.node.line
    is_moved = rows.shift or lines
    entries[place:place] = [entry.at(rows.shift, lines) for entry in rows.entries] if is_moved else rows.entries
    size = sum(entry.node.size for entry in rows.entries)
    for node in way:
        node.size += size
    return True


def _way(roots: Sequence[Node], start: int) -> tuple[list[Node], int]:
    """The nodes down to the list that has an item which begins here, and the place of that item; -1 if there is none."""
    nearest = bisect_right(roots, start, key=_start) - 1
    way = [roots[nearest]] if nearest >= 0 else []
    while way and not isinstance(way[-1].value, str):
        held = way[-1].value
        entries = [*held.values()] if isinstance(held, dict) else held
        nearest = bisect_right(entries, start, key=_start) - 1
        if nearest < 0 or (held is entries and entries[nearest].start == start):
            return way, nearest
        way.append(entries[nearest].node)
    return way, -1
