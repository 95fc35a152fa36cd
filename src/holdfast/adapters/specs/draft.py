"""The text of a `checkpoint.yaml` while it is changed, and the way to the map that holds what a checkpoint has to say."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

from holdfast.adapters.specs.carried import Item, Known, Stay, as_item, is_more, items_of, row, sorted_in, staying
from holdfast.adapters.specs.edit import CannotEdit, Path, append, end_of, line_end, put, put_all, unfold
from holdfast.adapters.specs.yaml_text import Node, compose, plain

EARLIER = "earlier_"


class Draft:
    """A text that is being changed, and the way to the map that holds what a checkpoint has to say."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.path: Path = next(self._bodies(), ())
        if not self.path:
            raise CannotEdit(("checkpoint",), "is not a map")
        if self.body().is_nothing:
            self.text = put(self.text, self.path, {})
        if not isinstance(self.body().value, dict):
            raise CannotEdit(self.path, "is not a map")

    def _bodies(self) -> Iterator[Path]:
        """The last map under `checkpoint` if there is one, else the last document that is a map."""
        maps = [(place, root) for place, root in enumerate(compose(self.text)) if isinstance(root.value, dict)][::-1]
        yield from ((place, "checkpoint") for place, root in maps if "checkpoint" in root.value)
        yield from ((place,) for place, _ in maps[:1])

    def body(self) -> Node:
        node = compose(self.text)[int(self.path[0])]
        return node.value["checkpoint"].node if len(self.path) > 1 else node

    def set(self, names: Sequence[str], value: Any) -> None:
        """Under the first of these names that the file has, else under the first of them."""
        known = self.body().value
        name = next((name for name in names if name in known), names[0])
        self.text = put(self.text, (*self.path, name), value)

    def set_if(self, differs: bool, names: Sequence[str], value: Any) -> None:
        if differs:
            self.set(names, value)

    def set_all(self, values: Mapping[str, Any]) -> None:
        self.text = put_all(self.text, self.path, values)

    def set_in(self, name: str, values: Mapping[str, Any]) -> None:
        """The keys of a map that may have others. If it is no map, it is put there whole."""
        held = self.body().value.get(name)
        if held is None or not isinstance(held.node.value, dict) or not held.node.value:
            self.set((name,), dict(values))
            return
        self.text = put_all(self.text, (*self.path, name), values)

    # --- what the file says besides

    def lists(self, under: str) -> dict[str, Node]:
        """What a map in it holds, by its keys."""
        held = self.body().value.get(under)
        found = held.node.value if held is not None and isinstance(held.node.value, dict) else {}
        return {name: entry.node for name, entry in found.items()}

    def rows(self, *way: str) -> Iterator[tuple[Path, Node]]:
        """The maps in a list, each with the way to it."""
        entry = self.body().value.get(way[0])
        for name in way[1:]:
            entry = entry.node.value.get(name) if entry is not None and isinstance(entry.node.value, dict) else None
        if entry is not None and isinstance(entry.node.value, list):
            for place, item in enumerate(entry.node.value):
                if isinstance(item.node.told, dict):
                    yield (*self.path, *way, place), item.node

    def says_more(self, name: str, known: Known) -> bool:
        """Whether something stands under a key that we did not write."""
        entry = self.body().value[name]
        end = end_of(self.text, entry)
        end = end if entry.node.flow else line_end(self.text, end)
        is_map = isinstance(entry.node.value, dict)
        return not is_map or is_more(self.text, entry.node, entry.start, end, known)

    def put_aside(self, name: str) -> None:
        """Say the same once more in the list of what was so earlier."""
        entry = self.body().value[name]
        rest = f"{EARLIER}{name}"
        self.text = append(self.text, (*self.path, rest), as_item(self.text, (*self.path, name), entry))
        if plain(self.body().value[rest].node)[-1] != plain(entry.node):
            raise CannotEdit((*self.path, name), "cannot be moved without changing it")

    def make_room(self, name: str) -> None:
        """What is to be a map, and is something else, is put aside."""
        entry = self.body().value.get(name)
        if (
            entry is not None
            and entry.node.value
            and not entry.node.is_nothing
            and not isinstance(entry.node.value, dict)
        ):
            self.put_aside(name)
            self.set((name,), {})

    def sort(
        self,
        under: str,
        wanted: Mapping[str, Mapping[Any, Any]],
        about: Callable[[Any], Hashable],
        known: Known,
        write: Callable[[Any], Any],
        *,
        rest: str,
        in_line: bool = False,
    ) -> None:
        """Have each list of a map hold what it is to hold, in that order: items that are there with all that they carry, in
        whichever list they are; the others as `write` gives them. What is in no list then and carries more goes to `rest`.
        """
        lists = self.lists(under)
        changing = {name: new for name, new in wanted.items() if _subjects(lists.get(name), about) != [*new]}
        if not changing:
            return
        for way in [*((under, name) for name in changing if name in lists), (rest,)]:
            self.unfold(way)
        lists, aside = self.lists(under), self.body().value.get(rest)
        if aside is not None and not aside.node.is_nothing and not isinstance(aside.node.value, list):
            raise CannotEdit((*self.path, rest), "is not a list")
        before = list(items_of(self.text, rest, aside.node, about, known)) if aside is not None else []
        stay = {} if in_line or before else self._staying(under, changing, about)
        found = [
            one
            for name in changing
            if name in lists
            for one in items_of(self.text, name, lists[name], about, known, stay.get(name))
        ]
        moving = {name: stay[name].middle([*new]) if name in stay else [*new] for name, new in changing.items()}
        chosen, left = sorted_in([*found, *before], moving)
        kept = [one for one in left if one.name == rest or one.more]
        if [one.name for one in kept] != [rest] * len(before):
            self.set((rest,), [one.written for one in kept])
        rows = {
            name: row([changing[name][one] for one in new], chosen[name], write, in_line)
            for name, new in moving.items()
        }
        was = {name: plain(lists[name]) for name in stay}
        self.set_in(under, {name: stay[name].around(new) if name in stay else new for name, new in rows.items()})
        self._check_stayed(was, stay, under)
        self._check(chosen, stay, under, kept, rest)

    def _staying(
        self, under: str, changing: Mapping[str, Mapping[Any, Any]], about: Callable[[Any], Hashable]
    ) -> dict[str, Stay]:
        """What stays in each of these lists. Nothing, where something is in them twice: then it is not told apart."""
        nodes = {name: node for name, node in self.lists(under).items() if name in changing}
        was = {name: _subjects(node, about) for name, node in nodes.items()}
        for lists in (was, changing):
            every = [one for subjects in lists.values() for one in subjects]
            if None in every or len({*every}) < len(every):
                return {}
        found = {name: staying(self.text, nodes[name], was[name], [*changing[name]]) for name in nodes if was[name]}
        return {name: one for name, one in found.items() if one is not None}

    def unfold(self, way: tuple[str, ...]) -> None:
        """A list in brackets that has more than words gets a line for each item."""
        node = self.lists(way[0]).get(way[1]) if len(way) > 1 else getattr(self.body().value.get(way[0]), "node", None)
        if node is None or not node.flow or not isinstance(node.value, list):
            return
        if "#" in self.text[node.start : node.end] or not all(isinstance(one.node.value, str) for one in node.value):
            self.text = unfold(self.text, (*self.path, *way))

    def _check_stayed(self, was: Mapping[str, list[Any]], stay: Mapping[str, Stay], under: str) -> None:
        lists = self.lists(under)
        for name, one in stay.items():
            old, new = was[name], plain(lists[name])
            if old[: one.first] != new[: one.first] or old[len(old) - one.last :] != new[len(new) - one.last :]:
                raise CannotEdit((*self.path, under, name), "has an item that came out different")

    def _check(
        self,
        chosen: Mapping[str, Sequence[Item | None]],
        stay: Mapping[str, Stay],
        under: str,
        kept: Sequence[Item],
        rest: str,
    ) -> None:
        """Refuse if an item came out different where it is now."""
        lists, aside = self.lists(under), self.body().value.get(rest)
        for name, found in chosen.items():
            rows = plain(lists[name])
            for one, now in zip(found, stay[name].middle(rows) if name in stay else rows, strict=True):
                if one is not None and not isinstance(one.data, str) and one.data != now:
                    raise CannotEdit((*self.path, under, name), "has an item that cannot be moved without changing it")
        if kept and sorted(map(str, plain(aside.node))) != sorted(str(one.data) for one in kept):
            raise CannotEdit((*self.path, rest), "cannot take up what has no place any more")


def _subjects(node: Node | None, about: Callable[[Any], Hashable]) -> list[Hashable]:
    return (
        [about(plain(entry.node)) for entry in node.value] if node is not None and isinstance(node.value, list) else []
    )
