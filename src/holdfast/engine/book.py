"""What all parts of a live run share: its log, one turn to write, the names used so far, and the wish to stop.

Nothing here knows what a step or an effect is. A `Book` is used by many threads; only one writes at a time.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from time import monotonic
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.core.drift import Policy
from holdfast.core.errors import HoldfastError, IllegalEvent, LeaseError, LeaseLost, UsageError
from holdfast.core.events import Event
from holdfast.core.named import NamedTuple
from holdfast.core.retry import Budget
from holdfast.core.shapes import FINISHED, STOPPED, RunState, StepState
from holdfast.core.stops import is_resumable, snippet
from holdfast.core.strictness import Strictness
from holdfast.engine.log import RunLog
from holdfast.engine.stopping import NameClash, NotResumable, Stopped, stopped

if TYPE_CHECKING:
    from holdfast.ports import Store, Workspace

# A part of a run: yields what has to be called or awaited, is sent its result, returns its own.
Part: TypeAlias = Generator[Callable[[], Any], Any, Any]
Place: TypeAlias = tuple[CodeType | None, int]  # code and the instruction in it: the line is looked up when it is shown
LONGEST_NAME = 200
_NAMES = f"A name is 1 to {LONGEST_NAME} printable characters."
NOTHING_NEW = "it is finished, and its code now asks for something that it did not do"
INSIDE: ContextVar[list[str] | None] = ContextVar("holdfast_inside", default=None)  # names claimed in this attempt
# a book, what it executes, and the same of what that is executed in
WITHIN: ContextVar[tuple[Any, str, Any] | None] = ContextVar("holdfast_within", default=None)
_OWN_FILES = __file__.rpartition("book.py")[0]
_CALLERS = tuple(os.path.join(os.path.dirname(os.__file__), part) for part in ("concurrent", "asyncio", "threading.py"))


class Options(NamedTuple):
    """What the caller of a run decides. `confirm` is asked about drift, `prompt` with a question; both may be absent.
    `prompt` also gets the seconds that are left for an answer, and what says whether somebody calls the run meanwhile.

    `open_workspace` opens the work tree around a path, of which snapshots hold ignored files by patterns and never the store;
    `keep_aside` keeps what is uncommitted there instead of refusing it.
    `recover`: the run was asked for by its id, so what mirrors know of it counts where there is no log. `legacy`: where nothing
    else is found, so do subjects that name no run.
    `observe` is told when an act begins and ends (`begin` or `end`, its key, its policy): for a test that counts.
    """

    strictness: Strictness = Strictness.MEDIUM
    policies: Mapping[str, Policy] = {}
    budget: Budget = Budget()
    confirm: Callable[[str, Sequence[str]], bool] | None = None
    prompt: Callable[[str, Sequence[str], float | None, Callable[[], bool]], str | None] | None = None
    accept: bool = False
    approved: str | None = None
    new_token: Callable[[], str] = lambda: ""
    observe: Callable[[str, str, str], None] | None = None
    tell: Callable[[str], None] = lambda text: None
    open_workspace: Callable[[str, Sequence[str], Store], Workspace] | None = None
    new_id: Callable[[], str] = lambda: ""
    keep_aside: bool = False
    recover: bool = False
    legacy: bool = False


class Book:
    """The log of a live run in the hands of its code. One that `replays` remembers what was done under a name.

    One that `awaits` belongs to an event loop.
    """

    replays = True
    awaits = False

    def __init__(self, log: RunLog, options: Options, guard: Callable[[], None], sleep: Callable[[float], Any]) -> None:
        self.log = log
        self.options = options
        self.guard = guard
        self.sleep = sleep
        self.lock = threading.RLock()
        self.names: dict[str, Place] = {}
        self.wish: Callable[[], Part] | None = None
        self.calls = 0  # how often there was one
        self.resumed = False
        self.approved: frozenset[tuple[str, ...]] = frozenset()  # the differences in the plan that somebody approved
        self.began_at = 0  # the last event before the code of this process
        self.anew = False  # whether this process has begun something that was not done before
        self.checkpoints = self.new_lock()
        self.arrived: set[str] = set()  # repositories that were compared with the log
        self.slept = 0.0  # seconds in which the run waited for a time
        self._asleep, self._fell_asleep = 0, 0.0
        self._tries: dict[int, tuple[int, list[str]]] = {}

    def new_lock(self) -> Any:
        """What one part of the run holds while others wait: to be called, or awaited."""
        return threading.Lock()

    @property
    def state(self) -> RunState:
        """The fold of the log, once nothing of it is on its way."""
        with self.lock:
            return self.log.state

    def record(self, *events: Event) -> Any:
        """Write events, all or none: the state after them, or what to await for it."""
        with self.lock:
            try:
                return self.log.record(*events)
            except IllegalEvent as error:
                raise self.why_not(error) from None

    def alone(self, work: Callable[[], Any]) -> Any:
        """Something that writes to the log by itself: what it gives, or what to await for it."""
        with self.lock:
            try:
                return work()
            except IllegalEvent as error:
                raise self.why_not(error) from None

    def why_not(self, error: IllegalEvent) -> BaseException:
        """What to raise for an event that was refused: the stop, if another thread has stopped the run meanwhile; that it is
        finished, if it is.

        Raises LeaseLost if it was refused because somebody else has gone on with the run.
        """
        self.guard()
        state = self.log.state
        if state.status == FINISHED:
            return NotResumable(state.run_id, NOTHING_NEW)
        return Stopped(state.run_id, state.stop_reason or "interrupted") if state.status == STOPPED else error

    def claim(self, name: Any, work: object = None, deep: int = 0) -> StepState | None:
        """One use of a name in this process, by code above what is at least so `deep`: what the log has of a step of that name.

        A step that is tried again keeps its name.
        """
        with self.lock:
            known = self.log.state.steps.get(name) if type(name) is str else None
        if known is None:  # else it was looked at when it came into the log
            if (
                not isinstance(name, str)
                or not 0 < len(name) <= LONGEST_NAME
                or not name.isprintable()
                or name != name.strip()
            ):
                raise UsageError(f"{name!r:.120} cannot name a step.", advice=_NAMES)
            if self.log.redact.glance(name.encode()):
                self.check_plain("The name", name)
        place = _caller(work, deep + 2)
        first = self.names.setdefault(name, place)
        if first is not place:
            raise NameClash(name, _shown(first), _shown(place))
        inside = INSIDE.get()
        if inside is not None:
            inside.append(name)
        elif self._tries:
            self._claimed_by_a_thread(name)
        return known

    def executed(self) -> str | None:
        """The step or effect whose code calls this."""
        found = WITHIN.get()
        return found[1] if found is not None and found[0] is self else None

    def executes(self, name: str) -> bool:
        """Whether what calls this is, however deep, in the code of that step or effect."""
        found = WITHIN.get()
        while found is not None and found[:2] != (self, name):
            found = found[2]
        return found is not None

    @contextmanager
    def trying(self) -> Iterator[None]:
        """An attempt that may fail and be made again: the names that its code claimed are free again then."""
        outer, inner = INSIDE.get(), list[str]()
        token = INSIDE.set(inner)
        self._tries[id(inner)] = (threading.get_ident(), inner)
        try:
            yield
        except Exception:
            for name in inner:
                self.names.pop(name, None)
            raise
        finally:
            del self._tries[id(inner)]
            INSIDE.reset(token)
            if outer is not None:
                outer.extend(inner)

    def _claimed_by_a_thread(self, name: str) -> None:
        """A new thread does not know in which attempt it was begun: its names belong to each that goes on in another."""
        here = threading.get_ident()
        for thread, inner in list(self._tries.values()):
            if thread != here:
                inner.append(name)

    @contextmanager
    def sleeping(self) -> Iterator[None]:
        """A wait that the log has: it does not count as time in which the run was running."""
        with self.lock:
            self._fell_asleep = monotonic() if self._asleep == 0 else self._fell_asleep
            self._asleep += 1
        try:
            yield
        finally:
            with self.lock:
                self._asleep -= 1
                self.slept += monotonic() - self._fell_asleep if self._asleep == 0 else 0.0

    @property
    def is_sleeping(self) -> bool:
        return self._asleep > 0

    def must_go_on(self) -> None:
        """A run that is finished is only read again, and one that another thread has stopped is left: nothing new begins."""
        self.guard()
        state = self.state
        if state.status == STOPPED:
            raise Stopped(state.run_id, state.stop_reason or "interrupted")
        if state.status == FINISHED:
            raise NotResumable(self.log.run_id, NOTHING_NEW)
        self.anew = True

    def call(self, wish: Callable[[], Part]) -> None:
        self.wish = wish
        self.calls += 1

    def listener(self) -> Callable[[], bool]:
        """What says later whether somebody has called meanwhile."""
        calls = self.calls
        return lambda: self.calls != calls

    def boundary(self) -> Part:
        """Between two pieces of work: here a run stops if somebody wishes it."""
        wish = self.wish  # another thread may hear it meanwhile
        if wish is not None:
            yield from wish()

    def stop(self, reason: str, *evidence: str, first: Sequence[Event] = ()) -> Part:
        """Record why the run rests, after what else there is to say; the caller raises what it gets."""
        said = tuple(map(self.short, evidence))
        yield partial(self.record, *first, stopped(reason, *said))
        return Stopped(self.log.run_id, reason, said)

    def is_lost(self, error: BaseException | None) -> bool:
        """Whether an error says that this run is no longer ours. One about another run, which its code drives, does not."""
        return isinstance(error, LeaseLost) and error.run_id in (self.log.run_id, "")

    def check_plain(self, what: str, text: str) -> None:
        """What is redacted in the log could not be found again: it would be done a second time."""
        if self.log.redact.glance(text.encode("utf-8", "backslashreplace")) and self.redacted(text) != text:
            raise UsageError(f"{what} holds a secret: {self.short(text)!r}.", advice="Use another one.")

    def said(self, error: BaseException) -> str:
        try:
            words = str(error)
        except Exception as other:  # noqa: BLE001 - an error that cannot say what it is must not hide that it was
            words = f"it cannot be shown ({type(other).__name__})"
        return self.short(f"{type(error).__name__}: {words}" if words else type(error).__name__)

    def short(self, text: str) -> str:
        """Redacted first, shortened then: half a secret has no shape to be known by."""
        return snippet(self.redacted(text))

    def redacted(self, text: str) -> str:
        from msgspec import json

        whole = text.encode("utf-8", "backslashreplace").decode()
        return str(json.decode(self.log.redact.body(json.encode([whole])))[0])


class Within:
    """While a step or effect is executed: what its code tells the log belongs to it."""

    __slots__ = ("_here", "_outer")

    def __init__(self, book: Book, name: str) -> None:
        self._outer = WITHIN.get()
        self._here = book, name, self._outer

    def __enter__(self) -> None:
        WITHIN.set(self._here)

    def __exit__(self, *problem: object) -> None:
        WITHIN.set(self._outer)


def _caller(work: object, deep: int) -> Place:
    """Where we were called from: the first frame outside of the engine. Where a thread or a loop calls us, what it was given."""
    try:
        frame: FrameType | None = sys._getframe(deep)
    except ValueError:
        frame = None  # a thread that began with the engine itself
    while frame is not None:
        code = frame.f_code
        whose = _whose(code.co_filename)
        if whose is None:
            return code, frame.f_lasti
        if whose == "caller":
            break
        frame = frame.f_back
    return getattr(work, "__code__", None), 0


@cache  # asked at each step, about few files
def _whose(path: str) -> str | None:
    """The engine's, a caller's (of a thread or a loop), or None: of the code of a run."""
    return "engine" if path.startswith(_OWN_FILES) else "caller" if path.startswith(_CALLERS) else None


def _shown(place: Place) -> str:
    code, at = place
    if code is None:
        return "?:0"
    return f"{code.co_filename}:{next((line for start, end, line in code.co_lines() if start <= at < end), 0)}"


def drive(part: Part) -> Any:
    """Run a part to its end, calling what it asks for."""
    ended: StopIteration | None = None
    try:
        todo = next(part)
        while True:
            try:
                value = todo()
            except BaseException as error:  # noqa: BLE001 - it belongs to the part, which may know what to do
                ended = error if isinstance(error, StopIteration) else None
                todo = part.throw(error)
            else:
                todo = part.send(value)
    except StopIteration as end:
        return end.value
    except RuntimeError as error:
        if ended is not None and error.__cause__ is ended:
            raise ended from None  # no generator lets it through, and it is the caller's own
        raise


def reason_of(error: BaseException) -> str:
    """The stop reason of an error that left the code of a run.

    Whoever can still say so has neither lost its store nor ended for good: a reason that means that is about something else.
    """
    if isinstance(error, KeyboardInterrupt):
        return "user_stopped"
    if isinstance(error, HoldfastError):
        is_ours = is_resumable(error.reason) and not isinstance(error, LeaseError)
        return error.reason if is_ours else "step_failed"
    return "step_failed" if isinstance(error, Exception) else "interrupted"
