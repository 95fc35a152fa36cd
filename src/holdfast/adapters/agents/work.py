"""Has one agent do one piece of work: starts it or goes on with its session, reads its report, and says what it complained of."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, tzinfo

import msgspec

from holdfast.adapters import processes, system
from holdfast.adapters.agents.installed import find_program
from holdfast.adapters.agents.notes import Note, Notes, counted_before, note_down, only_new
from holdfast.adapters.agents.runner import OUTPUT, PROMPT, Ears, Order, Outcome, dispatch
from holdfast.core.agent_output import Listener, Said
from holdfast.core.agents import Places, Profile, call, filled, hinted
from holdfast.core.limits import LAST_LINES, Trouble, classify
from holdfast.core.named import NamedTuple
from holdfast.core.redact import Redactor
from holdfast.core.reports import MAX_BYTES, Kind, Report, Unreadable, extract

REPORT = "report.json"
MAX_DOCUMENT, MAX_KEPT = 32 * 1024 * 1024, 16 * 1024 * 1024
_EACH, _WORDS = LAST_LINES // 2, 3
_GIT = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_PREFIX")


class Work(NamedTuple):
    """One piece of work. `folder` is that of the stage; `session` the one to go on with."""

    prompt: str
    key: str
    run_id: str
    kind: Kind
    cwd: str
    folder: str
    report_id: str
    task: str = ""
    model: str = ""
    session: str | None = None
    timeout: float = 2700.0
    stall_after: float = 900.0

    @property
    def report_path(self) -> str:
        return os.path.join(self.folder, REPORT)


class Done(NamedTuple):
    """How it went. Without a report, `why_not` says why; `trouble` is what the agent complained of."""

    outcome: Outcome
    report: Report | None
    why_not: str
    said: Said
    trouble: Trouble | None


def run(profile: Profile, work: Work, environ: Mapping[str, str], redactor: Redactor, ears: Ears | None = None) -> Done:
    """Start it, or go on with its session, and see it to its end. What it is given and what it says is redacted on disk."""
    ears = ears or Ears()
    work = work._replace(prompt=hinted(profile, redactor.text(work.prompt)))
    places = Places(
        prompt=work.prompt,
        prompt_file=os.path.join(work.folder, PROMPT),
        report=work.report_path,
        cwd=work.cwd,
        folder=work.folder,
        model=work.model,
        session=work.session,
    )
    planned = call(profile, places)
    counted = counted_before(work.folder, work.session)
    document = filled(profile.output_file, places)
    note = Note(profile.name, planned.session, counted)
    _prepare(work, note, document, planned.stdin)
    listener = Listener(profile)
    argv = (find_program(profile.start[0], work.cwd, environ), *planned.argv[1:])
    order = Order(
        key=work.key,
        run_id=work.run_id,
        argv=argv,
        cwd=work.cwd,
        env=environment(environ, profile, work),
        folder=work.folder,
        stdin=planned.stdin,
        timeout=work.timeout,
        stall_after=work.stall_after,
        agent=profile.name,
    )
    notes = Notes(listener, work.folder, profile, note)
    outcome = dispatch(order, redactor, ears._replace(hear=notes.hear, on_output=notes.telling(ears, redactor)))
    if document:
        listener.read(_clean_document(document, work.folder, redactor))
    said = listener.said()
    said = said._replace(session=said.session or planned.session, result=redactor.text(said.result))
    if profile.edits_last and (outcome.ended_by, outcome.exit_code) != ("exit", 0):
        said = said._replace(result="")
    return _done(outcome, only_new(said, profile, counted, notes), work, redactor)


def _prepare(work: Work, note: Note, document: str, fed: bytes | None) -> None:
    """A folder in which nothing of an earlier try can be taken for an answer. What lies elsewhere is not ours to remove."""
    os.makedirs(work.folder, 0o700, exist_ok=True)
    for path in (work.report_path, os.path.join(work.folder, OUTPUT), document):
        if os.path.dirname(path) == work.folder:
            _clear(path)
    prompt = work.prompt.encode("utf-8", "replace")
    if prompt != fed:  # what it is fed is put there anyway
        processes.put(work.folder, PROMPT, prompt, durable=False)
    note_down(work.folder, note)


def _clear(path: str) -> None:
    """An agent may have made a folder where its report belongs; what is in that stays, under a name that is free."""
    if os.path.isdir(path) and not os.path.islink(path):
        os.rename(path, f"{path}.{system.new_run_id()}")
    with suppress(FileNotFoundError):
        os.unlink(path)


def _done(outcome: Outcome, said: Said, work: Work, redactor: Redactor) -> Done:
    found = extract(said.result, report_file(work.folder, redactor), work.kind, work.report_id)
    if not isinstance(found, Unreadable) and outcome.ended_by == "exit":
        return Done(outcome, found, "", said, None)
    said = _clean(said, redactor)  # before parts of it are taken: half a secret has no shape to be known by
    ended = {"exit": outcome.exit_code, "signal": outcome.exit_code}.get(outcome.ended_by)
    ending = last_words(said) if isinstance(found, Unreadable) and found.nothing else ()
    trouble = classify(said.errors, last_lines(said), ended, system.now(), zone, ending)
    if not isinstance(found, Unreadable):
        return Done(outcome, found, "", said, trouble)
    return Done(outcome, None, _why_not(outcome, trouble, found), said, trouble)


def _clean(said: Said, redactor: Redactor) -> Said:
    errors = tuple(map(redactor.text, said.errors))
    return said._replace(errors=errors, complaints=redactor.text(said.complaints), tail=redactor.text(said.tail))


def _why_not(outcome: Outcome, trouble: Trouble | None, unreadable: Unreadable) -> str:
    if outcome.ended_by not in ("exit", "signal"):
        return f"it was ended: {outcome.evidence}"
    if trouble is not None:
        return f"{outcome.evidence}; it said: {trouble.evidence or 'nothing'}"
    return unreadable.why


def last_lines(said: Said) -> list[str]:
    return [*said.tail.splitlines()[-_EACH:], *said.complaints.splitlines()[-_EACH:]]


def last_words(said: Said) -> list[str]:
    """What it ended with, in each place where it speaks."""
    spoken = (
        [line for line in text.splitlines() if line.strip()] for text in (said.result, said.tail, said.complaints)
    )
    return [line for lines in spoken for line in lines[-_WORDS:]]


def report_file(folder: str, redactor: Redactor) -> bytes | None:
    """What the agent wrote as its report; a secret in it is taken out on disk too."""
    data = processes.get(folder, REPORT, MAX_BYTES)
    if data is None or len(data) > MAX_BYTES:
        return data
    clean = _redacted(data, redactor)
    if clean is not data:
        processes.put(folder, REPORT, clean)
    return clean


def left_files(profile: Profile | None, folder: str, redactor: Redactor) -> tuple[tuple[str, bytes], ...]:
    """What an agent wrote beside its output, redacted and bounded: its report file, and its own record if that is in our folder.

    The next try finds neither of them any more.
    """
    report = os.path.join(folder, REPORT)
    places = Places(prompt="", prompt_file="", report=report, cwd="", folder=folder)
    paths = dict.fromkeys((report, "" if profile is None else filled(profile.output_file, places)))
    names = [os.path.basename(path) for path in paths if os.path.dirname(path) == folder]
    found = [(name, processes.get(folder, name, MAX_DOCUMENT)) for name in names]
    return tuple((name, _bounded(_redacted(data, redactor))) for name, data in found if data)


def _bounded(data: bytes) -> bytes:
    return data if len(data) <= MAX_KEPT else data[:MAX_KEPT] + b"\n[... what follows is left out here ...]\n"


def _redacted(data: bytes, redactor: Redactor) -> bytes:
    return redactor.body(data) if _is_json(data) else redactor.data(data)


def _is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _clean_document(path: str, folder: str, redactor: Redactor) -> bytes:
    """What the agent wrote as its own record; where it lies in our folder, a secret in it is taken out on disk too."""
    data = read_whole(path)
    if data and os.path.dirname(path) == folder:
        clean = _redacted(data, redactor)
        if clean is not data and clean != data:
            processes.put(folder, os.path.basename(path), clean)
    return data


def read_whole(path: str) -> bytes:
    folder, name = os.path.split(path)
    data = processes.get(folder, name, MAX_DOCUMENT)
    return b"" if data is None or len(data) > MAX_DOCUMENT else data


def zone(name: str) -> tzinfo | None:
    """A time zone by its name, or that of this machine."""
    if not name:
        return datetime.now().astimezone().tzinfo
    from zoneinfo import ZoneInfo  # rarely needed

    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        return None


def environment(environ: Mapping[str, str], profile: Profile, work: Work) -> dict[str, str]:
    """The user's own, without what is meant for us or for git in another folder, and with what the agent is to know."""
    kept = {name: value for name, value in environ.items() if not name.startswith("HOLDFAST_") and name not in _GIT}
    told = {
        processes.RUN: work.run_id,
        processes.KEY: work.key,
        "HOLDFAST_REPORT": work.report_path,
        "HOLDFAST_REPORT_ID": work.report_id,
        "HOLDFAST_PHASE": work.kind,
        "HOLDFAST_TASK": work.task,
        "PWD": work.cwd,
    }
    return {**kept, **profile.env, **{name: _plain(value) for name, value in told.items()}}


def _plain(value: str) -> str:
    return os.fsdecode(os.fsencode(value.encode("utf-8", "surrogateescape").replace(b"\0", b"")))
