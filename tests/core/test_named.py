"""Named tuples: as those of `typing` in everything that shows, without the code that those compile."""

import copy
import pickle
import typing

import msgspec
import pytest

from holdfast.core.named import NamedTuple
from holdfast.core.values import Owner


class Theirs(typing.NamedTuple):
    name: str
    size: int = 3
    parts: tuple[str, ...] = ()

    def doubled(self) -> int:
        return self.size * 2


class Ours(NamedTuple):
    name: str
    size: int = 3
    parts: tuple[str, ...] = ()

    def doubled(self) -> int:
        return self.size * 2


class Special(Ours):
    """One that adds a name for itself, and no place."""


GOOD = [(("a",), {}), (("a", 1), {}), (("a", 1, ("x",)), {}), ((), {"name": "a"}), (("a",), {"parts": ("y",)})]
BAD = [((), {}), (("a", 1, (), 4), {}), (("a",), {"name": "b"}), (("a",), {"colour": 1}), ((), {"size": 1})]


@pytest.mark.parametrize(("values", "named"), GOOD)
def test_it_holds_what_theirs_holds(values, named):
    theirs, ours = Theirs(*values, **named), Ours(*values, **named)
    assert ours == theirs and hash(ours) == hash(theirs) and tuple(ours) == tuple(theirs)
    assert (ours.name, ours.size, ours.parts) == (theirs.name, theirs.size, theirs.parts)
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert ours._asdict() == theirs._asdict() and ours.doubled() == theirs.doubled()
    assert ours._replace(size=9) == theirs._replace(size=9) and type(ours._replace(size=9)) is Ours
    assert msgspec.json.encode(ours) == msgspec.json.encode(theirs)


@pytest.mark.parametrize(("values", "named"), BAD)
def test_it_refuses_what_theirs_refuses(values, named):
    for kind in (Theirs, Ours):
        with pytest.raises(TypeError):
            kind(*values, **named)


@pytest.mark.parametrize(
    ("values", "named", "told"),
    [
        ((), {"size": 1, "parts": ()}, "Ours takes name, size, parts, not 0 values and size, parts"),
        (("a", 1, (), 4), {"size": 1}, "Ours takes name, size, parts, not 4 values and size"),
        (("a", 1), {"name": "b", "size": 2}, "Ours takes name, size, parts once, not name, size as well"),
        (("a", 1, ()), {"colour": 1}, "Ours takes name, size, parts once, not colour as well"),
    ],
)
def test_a_refusal_says_what_it_takes_and_what_it_was_given(values, named, told):
    with pytest.raises(TypeError) as refused:
        Ours(*values, **named)
    assert str(refused.value) == told


def test_a_place_that_it_does_not_have_cannot_be_replaced():
    with pytest.raises(ValueError, match=r"^Ours has no colour, weight$"):
        Ours("a")._replace(colour=1, weight=2)


def test_its_class_says_what_theirs_says():
    assert (Ours._fields, Ours._field_defaults, Ours.__match_args__) == (
        Theirs._fields,
        Theirs._field_defaults,
        Theirs.__match_args__,
    )
    assert type(Ours) is type(Theirs) is type
    assert typing.get_type_hints(Ours) == typing.get_type_hints(Theirs)
    assert Ours._make(["a", 1, ()]) == ("a", 1, ())


def test_nothing_can_be_changed_or_added():
    for name in ("size", "colour"):
        with pytest.raises(AttributeError):
            setattr(Ours("a"), name, 1)
    assert not hasattr(Ours("a"), "__dict__")


def test_copies_and_pickles_are_of_the_same_class():
    for made in (Ours("a", 1), Special("b")):
        for again in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
            assert again == made and type(again) is type(made)


def test_a_class_below_has_the_same_places():
    assert Special("a", parts=("x",))._asdict() == {"name": "a", "size": 3, "parts": ("x",)}


def test_a_method_of_its_own_goes_first():
    assert str(Owner("host", "boot", 7, "now")) == "process 7 on host"


def test_msgspec_reads_one():
    assert msgspec.json.decode(b'["a",1,["x"]]', type=Ours) == Ours("a", 1, ("x",))


def test_a_match_takes_it_apart():
    match Ours("a", 1):
        case Ours(name, size):
            assert (name, size) == ("a", 1)
