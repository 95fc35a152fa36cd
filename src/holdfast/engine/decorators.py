"""Functions that are steps or effects of whatever run is going on around them. Refuses to run outside of one."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, overload

from holdfast.core.canonical import digest_of
from holdfast.core.errors import UsageError
from holdfast.core.events import Policy
from holdfast.core.keys import business_key
from holdfast.core.retry import Retry
from holdfast.engine import forms
from holdfast.engine.run import CURRENT, LiveRun

P = ParamSpec("P")
R = TypeVar("R")


@overload
def step(work: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def step(
    *, name: str | None = None, retry: Retry | int | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def step(work: Any = None, /, *, name: str | None = None, retry: Retry | int | None = None) -> Any:
    """Each call is a step, named after the function and what it is given, or by a template such as `draft/{chapter}`."""

    def decorate(inner: Callable[..., Any]) -> Callable[..., Any]:
        forms.keep_source(getattr(inner, "__code__", None))

        @wraps(inner)
        def durable(*args: Any, **kwargs: Any) -> Any:
            return current_run().step(name_of(inner, name, args, kwargs), inner, *args, retry=retry, **kwargs)

        return durable

    return decorate if work is None else decorate(work)


def effect(
    *,
    policy: Policy | None = None,
    probe: Callable[..., Any] | None = None,
    key: str | None = None,
    name: str | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Each call is an effect, with this policy, probe and key template."""

    def decorate(inner: Callable[P, R]) -> Callable[P, R]:
        forms.keep_source(getattr(inner, "__code__", None))

        @wraps(inner)
        def once(*args: P.args, **kwargs: P.kwargs) -> R:
            called = name_of(inner, name, args, kwargs, policy == "transactional")
            return current_run().effect(called, inner, *args, policy=policy, probe=probe, key=key, **kwargs)  # type: ignore[no-any-return]

        return once

    return decorate


def current_run() -> Any:
    """The run that is going on here. New threads do not inherit it: hand them the run."""
    run: LiveRun | None = CURRENT.get()
    if run is None or not run.is_entered:
        raise UsageError("No run is going on here.", advice="Call this inside `with holdfast.run(...)`.")
    return run


def name_of(
    work: Callable[..., Any], template: str | None, args: tuple[Any, ...], kwargs: dict[str, Any], lent: bool = False
) -> str:
    called = getattr(work, "__qualname__", type(work).__name__).replace("<locals>.", "")
    what = f"step {called}"
    if template:
        return business_key(template, forms.given(what, work, args, kwargs, lent))
    return (
        f"{called}/{digest_of(forms.given(what, work, args, kwargs))[:16]}"  # as it is in the logs of earlier versions
    )
