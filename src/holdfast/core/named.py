"""Tuples with named places, as `typing.NamedTuple` makes them, at a twentieth of its price: it compiles code for every class.

A fresh process defines forty of them before its first event. Takes each default as it is, and never evaluates an annotation.
And the base of promises that only the type checker reads: as `typing.Protocol` makes them, each would take twice as long again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

__all__ = ["NamedTuple", "Protocol"]

if TYPE_CHECKING:
    from typing import NamedTuple, Protocol
else:
    from _collections import _tuplegetter

    Protocol = object
    _new = tuple.__new__

    class _Named(tuple):
        """The base of them all."""

        __slots__ = ()

        def __new__(cls, *values: Any, **named: Any) -> Self:
            if named or len(values) != len(cls._fields):
                values = _completed(cls, values, named)
            return _new(cls, values)

        @classmethod
        def _make(cls, values: Any) -> Self:
            return cls(*values)

        def _replace(self, /, **named: Any) -> Self:
            values = tuple(map(named.pop, self._fields, self))
            if named:
                raise ValueError(f"{type(self).__name__} has no {', '.join(named)}")
            return _new(type(self), values)

        __replace__ = _replace

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self, strict=True))

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)

        def __repr__(self) -> str:
            shown = (f"{field}={value!r}" for field, value in zip(self._fields, self, strict=True))
            return f"{type(self).__name__}({', '.join(shown)})"

    def _completed(cls: Any, values: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """Every place filled, by what is given or by its default. Refuses what has no place, or more than one value."""
        fields, defaults = cls._fields, cls._field_defaults
        missing = [field for field in fields[len(values) :] if field not in named and field not in defaults]
        if missing or len(values) > len(fields):
            raise TypeError(
                f"{cls.__name__} takes {', '.join(fields)}, not {len(values)} values and {', '.join(named)}"
            )
        whole = *values, *[named.pop(field) if field in named else defaults[field] for field in fields[len(values) :]]
        if named:
            raise TypeError(f"{cls.__name__} takes {', '.join(fields)} once, not {', '.join(named)} as well")
        return whole

    class _Naming(type):
        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            fields = body["_fields"] = body["__match_args__"] = tuple(body["__annotations__"])
            body["_field_defaults"] = {field: body[field] for field in fields if field in body}
            body["__slots__"] = ()
            body.update((field, _tuplegetter(place, None)) for place, field in enumerate(fields))
            return type(name, (_Named,), body)

    NamedTuple = type.__new__(_Naming, "NamedTuple", (), {})
