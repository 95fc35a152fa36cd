"""Where a milestone is now: weighs what was collected about a history, and answers with one record or none. Never looks itself.

Evidence, in the order in which it is believed:

    log, sidecar            a record names a commit, and the history contains it                      certain
    post_rewrite            git itself said which commit became which                                 certain
    git_log_run_specific    the commit's trailers or subject name the run                             strong
    patch_id                the commit changes exactly what the milestone changed                     strong
    range_diff              git pairs the two; strong only if author and time are the same too        strong or weak
    squash                  the commit changes at once what several up to the milestone changed       strong
    tree                    the commit has exactly the files the milestone had                        strong
    git_log_legacy          the subject names a milestone, but no run                                 weak

The highest milestone wins. A weak answer never goes before a better one, whatever its milestone; it is then only named
among the choices. What has no record in a log that has others is weak too: anybody can write a trailer or a sidecar. So is
a name on a commit that is in nothing like what the log recorded. And so is what only a message names, if there is no log
and commits follow that nothing explains: one of them may be a later milestone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from holdfast.core.line import Commit, Line
from holdfast.core.named import NamedTuple
from holdfast.core.subjects import Said

ORDER = (
    *("log", "sidecar", "post_rewrite", "git_log_run_specific", "patch_id", "range_diff", "squash", "tree"),
    *("git_log_legacy", "none"),
)
BY_CONTENT = ("patch_id", "range_diff", "squash", "tree")  # what another run may have done just so
CERTAIN, STRONG, WEAK = "certain", "strong", "weak"
SHOWN = 3
DEEPEN = "The history was cut off when it was cloned: `git fetch --unshallow` brings the rest."
UNLOGGED = "the log does not know it"
UNLINKED = "but the log names another, and the sidecar knows no files, or its commit is older than the run"
UNLIKE = "but neither its changes nor its files nor its author and time are those of the milestone"


class Known(NamedTuple):
    """What a record knows of one milestone. `base` is the commit on which the run's first milestone was built.

    The last three only a sidecar tells here; a log has them itself.
    """

    checkpoint_id: str
    run_id: str
    index: int  # type: ignore[assignment]  # a tuple has a method of this name; nobody calls it here
    title: str
    sha: str
    tree: str | None
    patch_id: str | None
    parent: str | None
    branch: str | None
    base: str | None
    source: str
    created_at: str | None = None
    tier: str | None = None
    verification_commands: tuple[str, ...] = ()


class Position(NamedTuple):
    """The answer. `was` is the commit in the record, if the milestone is at another one now.

    `beyond` are the milestones that mirrors place after it in this history, though no record of it is in the log.
    """

    source: str
    confidence: str
    sha: str | None
    index: int | None  # type: ignore[assignment]  # as above
    checkpoint_id: str | None
    was: str | None
    why: str
    choices: tuple[str, ...]
    beyond: tuple[tuple[int, str | None], ...] = ()


class Found(NamedTuple):
    """One milestone in the history, and by which evidence."""

    source: str
    confidence: str
    sha: str
    index: int  # type: ignore[assignment]  # as above
    checkpoint_id: str | None
    was: str | None
    why: str


def of_run(records: Iterable[Known], run_id: str) -> list[Known]:
    """The records of this run by milestone, the best source last. What contradicts the log is left out."""
    ours = {record for record in records if record.run_id == run_id}
    logged = {record.checkpoint_id: record.index for record in ours if record.source == "log"}
    sound = [record for record in ours if logged.get(record.checkpoint_id, record.index) == record.index]
    return sorted(sound, key=lambda record: (record.index, record.checkpoint_id, -_rank(record.source), record.sha))


def contradicted(records: Iterable[Known], trees: Mapping[str, str]) -> list[Known]:
    """Mirrors whose commit has other files than they say. `trees` are those that git has, by commit."""
    mirrors = (record for record in records if record.source != "log" and record.tree is not None)
    return [record for record in mirrors if trees.get(record.sha, record.tree) != record.tree]


def unlogged(records: Sequence[Known]) -> list[Known]:
    """Records of milestones that only mirrors know, although there is a log."""
    logged = {record.checkpoint_id for record in records if record.source == "log"}
    return [record for record in records if logged and record.checkpoint_id not in logged]


def linked(found: Iterable[Found], records: Sequence[Known], is_older: Callable[[str], bool]) -> Iterator[Found]:
    """A mirror that names another commit than the log was linked again, and then it knows its files; or it is false.

    `is_older` tells of a commit whether it was there before the run.
    """
    logged = {one.checkpoint_id: one.sha for one in records if one.source == "log"}
    whole = {(one.checkpoint_id, one.sha) for one in records if one.tree is not None}
    for one in found:
        is_other = one.source != "log" and logged.get(one.checkpoint_id or "", one.sha) != one.sha
        is_false = is_other and ((one.checkpoint_id, one.sha) not in whole or is_older(one.sha))
        yield doubted(one, UNLINKED) if is_false else one


def doubted(found: Found, why: str) -> Found:
    return found._replace(confidence=WEAK, why=f"{found.why}; {why}")


def _rank(source: str) -> int:
    return ORDER.index(source) if source in ORDER else len(ORDER)


def short(sha: str) -> str:
    return sha[:12]


# --- evidence


def by_record(records: Iterable[Known], line: Line) -> Iterator[Found]:
    for record in records:
        if record.sha in line:
            why = f"the {record.source} names this commit, and the history contains it"
            yield found_as(record, record.source, CERTAIN, record.sha, why)


def by_rewrite(records: Iterable[Known], rewrites: Sequence[tuple[str, str]], line: Line) -> Iterator[Found]:
    """Follow what git said about rewritten commits, as far as it leads to this history. A chain that bites its tail is none."""
    news: dict[str, list[str]] = {}
    for old, new in rewrites:
        if old != new:  # git says so of a commit that it wrote again as it was
            news.setdefault(old, []).append(new)
    for record in records:
        ends = [sha for sha in _followed(record.sha, news) if sha in line and sha != record.sha]
        if ends:
            yield found_as(record, "post_rewrite", CERTAIN, min(ends, key=line.distance), "git recorded the rewrite")


def _followed(sha: str, news: Mapping[str, Sequence[str]]) -> list[str]:
    """Every commit that a commit became, through any number of rewrites; nothing if the rewrites go in a circle."""
    reached: list[str] = []
    trail, waiting = {sha}, [(sha, iter(news.get(sha, ())))]
    done: set[str] = set()
    while waiting:
        name, left = waiting[-1]
        new = next(left, None)
        if new is None:
            waiting.pop()
            trail.discard(name)
            done.add(name)
        elif new in trail:
            return []
        elif new not in done:
            reached.append(new)
            trail.add(new)
            waiting.append((new, iter(news.get(new, ()))))
    return reached


def by_name(records: Sequence[Known], run_id: str, line: Line) -> Iterator[Found]:
    """Commits that name this run. One that contradicts a record is not believed; one that no log knows is weak."""
    named: dict[str, list[tuple[Commit, Said]]] = {}
    for commit in line.commits:
        if commit.said is not None and commit.said.run_id == run_id and commit.said.checkpoint_id is not None:
            named.setdefault(commit.said.checkpoint_id, []).append((commit, commit.said))
    logged = any(record.source == "log" for record in records)
    for checkpoint_id, carriers in named.items():
        record = _recorded(records, carriers[0][1])
        numbers = {said.index for _, said in carriers} - {None} if record is None else {record.index}
        agreed = [commit for commit, said in carriers if said.index is None or said.index in numbers]
        if len(numbers) == 1 and agreed:
            yield _named(checkpoint_id, numbers.pop() or 0, record, agreed, logged)


def _recorded(records: Sequence[Known], said: Said) -> Known | None:
    """The record a message speaks of. Runr's messages name no checkpoint, only a milestone."""
    same = [record for record in records if record.checkpoint_id == said.checkpoint_id]
    if not same and said.kind == "run_specific":
        same = [record for record in records if record.index == said.index]
    return same[-1] if same else None


def _named(checkpoint_id: str, index: int, record: Known | None, carriers: list[Commit], logged: bool) -> Found:
    sha, more = carriers[0].sha, len(carriers) - 1
    why = "its message names the run and the milestone"
    if more:
        why += f", and so does that of {more} older commit{'s' * (more > 1)} in this history"
    if record is None:
        named = Found("git_log_run_specific", STRONG, sha, index, checkpoint_id, None, why)
        return doubted(named, UNLOGGED) if logged else named
    return found_as(record, "git_log_run_specific", STRONG, sha, why)


def by_legacy(records: Sequence[Known], run_id: str, line: Line) -> tuple[Found | None, str]:
    """The last milestone that names no run, if it can only be this one's; else why not."""
    said = [(commit, commit.said) for commit in line.commits if commit.said is not None]
    old = [(commit.sha, one.index) for commit, one in said if one.kind == "legacy" and one.index is not None]
    if not old:
        return None, ""
    if records:
        return None, "the run has records of its own, and they name other commits"
    if any(one.run_id not in (None, run_id) for _, one in said):
        return None, "the history names another run too"
    if any(later <= earlier for (_, later), (_, earlier) in pairwise(old)):
        return None, "they count more than once from the beginning, so they are of more than one run"
    why = "its subject names the milestone, but no run; it may be another run's"
    return Found("git_log_legacy", WEAK, *old[0], None, None, why), ""


def found_as(record: Known, source: str, confidence: str, sha: str, why: str) -> Found:
    was = record.sha if record.sha != sha else None
    return Found(source, confidence, sha, record.index, record.checkpoint_id, was, why)


# --- the answer


def best_of(found: Iterable[Found], line: Line) -> Found | None:
    """The highest milestone of the sure ones; of the weak ones only if there is no sure one."""
    every = list(found)
    sure = [one for one in every if one.confidence != WEAK]
    return max(sure or every, key=lambda one: _weight(one, line), default=None)


def _weight(one: Found, line: Line) -> tuple[int, int, int, str]:
    return one.index, -_rank(one.source), -line.distance(one.sha), one.checkpoint_id or ""


def above(records: Sequence[Known], found: Sequence[Found], line: Line) -> list[Known]:
    """The records that are higher than what is surely found, and so still to be looked for."""
    best = best_of((one for one in found if one.confidence != WEAK), line)
    return [record for record in records if best is None or record.index > best.index]


def unseen(best: Found, records: Iterable[Known], found: Iterable[Found], line: Line) -> list[Known]:
    """Recorded milestones below the answer that neither their commit nor a message shows to be in this history."""
    seen = {one.checkpoint_id for one in found if one.confidence != WEAK}
    below = {one.checkpoint_id: one for one in records if one.index < best.index and one.checkpoint_id not in seen}
    named = {pair for commit in line.commits for pair in commit.named} if below else set()
    return [one for one in below.values() if (one.run_id, one.checkpoint_id) not in named]


def answer(
    found: Sequence[Found],
    records: Sequence[Known],
    line: Line,
    notes: Sequence[str],
    is_last: bool = True,
    below: Sequence[Known] = (),
) -> Position | None:
    """The position with its reason, and what else there may be; None if nothing was found. `is_last`: of the last milestone.

    `below` are lower milestones that are not in this history.
    """
    best = best_of(found, line)
    if best is None:
        return None
    gap = _gap(best, records, line) if is_last else 0
    if gap and best.checkpoint_id not in {record.checkpoint_id for record in records}:
        best = best._replace(confidence=WEAK)
    moved = f" (it was {short(best.was)})" if best.was else ""
    parts = [
        f"Milestone {best.index} is commit {short(best.sha)}{moved}: {best.why}",
        *_missing(best, records, below),
        *([nameless(gap)] if gap else []),
        *_few(notes),
    ]
    return Position(
        best.source,
        best.confidence,
        best.sha,
        best.index,
        best.checkpoint_id,
        best.was,
        "; ".join(parts) + ".",
        tuple(_others(best, found, gap)),
        tuple(
            sorted(
                {(one.index, one.checkpoint_id) for one in found if one.index > best.index and UNLOGGED in one.why},
                key=lambda pair: (pair[0], pair[1] or ""),
            )
        ),
    )


def _gap(best: Found, records: Sequence[Known], line: Line) -> int:
    """Commits that may be later milestones without a name. A log knows all milestones, so there it leaves no gap."""
    return 0 if any(record.source == "log" for record in records) else line.unexplained(best.sha)


def nameless(gap: int) -> str:
    """What to say of commits after the last milestone that was found, where no log tells whether it was the last."""
    many = "1 later commit names" if gap == 1 else f"{gap} later commits name"
    return f"{many} no milestone, and no log tells whether one is missing there"


def _missing(best: Found, records: Sequence[Known], below: Sequence[Known]) -> Iterator[str]:
    higher = [record for record in records if record.index > best.index]
    for record in (*below[:SHOWN], *higher[-1:]):
        yield f"milestone {record.index} ({short(record.sha)}) was not found in this history"
    if len(below) > SHOWN:
        yield f"{len(below) - SHOWN} more of the lower ones were not found either"


def _few(notes: Iterable[str]) -> list[str]:
    """Each once, and not too many of them for a sentence."""
    different = list(dict.fromkeys(notes))
    more = len(different) - SHOWN
    return different[:SHOWN] + ([f"and {more} more remark{'s' * (more > 1)} of this kind"] if more > 0 else [])


def _others(best: Found, found: Sequence[Found], gap: int) -> Iterator[str]:
    """What a person may decide: to confirm a weak answer, or to take a weak one that is higher."""
    if best.confidence == WEAK:
        yield f"If commit {short(best.sha)} really is milestone {best.index} of this run, confirm it."
        yield "If it is not, start from the first milestone."
    weak = {(one.index, one.sha): one for one in found if one.confidence == WEAK and one.index > best.index}
    for one in sorted(weak.values(), key=lambda one: -one.index)[:SHOWN]:
        yield f"Commit {short(one.sha)} may be milestone {one.index}: {one.why}."
    if gap:
        yield f"Look at `git log {short(best.sha)}..` for a milestone that lost its name."


def nowhere(why: str, choices: Iterable[str]) -> Position:
    return Position("none", "none", None, None, None, None, why, tuple(choices))


def lost(run_id: str, records: Sequence[Known], notes: Sequence[str]) -> str:
    """Why nothing was found, in one sentence."""
    known = f"none of its {len(records)} recorded milestones" if records else "no milestone of it is recorded, and none"
    extra = "".join(f"; {note}" for note in _few(notes))
    return f"The position of run {run_id} is unknown: {known} is in this history{extra}."


def choices_for(
    records: Sequence[Known], there: Iterable[str], homes: Mapping[str, Sequence[str]], legacy: Sequence[str]
) -> Iterator[str]:
    """What a person may do when nothing was found. `homes` are the branches on which a commit still is."""
    kept = set(there)
    for record in reversed(records[-SHOWN:]):
        name = f"Milestone {record.index} was commit {short(record.sha)}"
        branches = ", ".join(homes.get(record.sha, ())[:SHOWN])
        if branches:
            yield f"{name}, which is on {branches}: switch to that branch, or merge it."
        elif record.sha in kept:
            yield f"{name}, which git still has, on no branch: make a branch there, or pick it."
        else:
            yield f"{name}, which git no longer has: restore checkpoint {record.checkpoint_id}, if its snapshot was kept."
    yield from legacy
    yield "If you know the commit of the last milestone, check it out and confirm it."
    yield "Start from the first milestone."
