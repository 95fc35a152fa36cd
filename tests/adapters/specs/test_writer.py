"""Writing back: one place changes, everything else stays as its author left it."""

from __future__ import annotations

import os
import stat
import sys

import pytest
from msgspec.structs import replace

from holdfast.adapters.specs import SpecFolder
from holdfast.adapters.specs.memory import forget
from holdfast.adapters.specs.texts import store
from holdfast.adapters.specs.writer import Writer
from holdfast.core.errors import BadFile
from holdfast.core.review import Finding
from holdfast.core.spec import Checkpoint, Deferred, NextBatch, Reviewer, SpecError, TaskRef

TASKS = """\
# ours
spec: auth   # the name
tasks:
  - id: T1
    content: "First: one"
    status: 'done'     # yes
  - {id: T2, status: pending, x: [1, 2]}
  - id: T3  # no status yet
    content: >
      Folded
  - id: T4
    status: "pending"
    evidence: {commits: [abc1234], files: [a.py]}
meta:
  last_updated: 2026-01-01
  progress: 1/4
"""


SEVERAL = """\
spec: auth
tasks:
- id: T1
  status: pending
---
tasks: # more of them
- id: T2
  status: pending
---
- id: T3
  status: nearly
"""


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "tasks.yaml").write_text(TASKS)
    return SpecFolder(str(tmp_path), str(tmp_path))


def text(folder, name="tasks"):
    return (folder / f"{name}.yaml").read_bytes().decode()


def test_tasks_of_several_documents_are_marked_where_they_stand(tmp_path, spec):
    (tmp_path / "tasks.yaml").write_text(SEVERAL)
    assert [(problem.line, problem.fatal) for problem in spec.read().problems] == [(10, False)]
    spec.mark({"T1": "complete", "T2": "complete", "T3": "complete"})
    assert text(tmp_path) == SEVERAL.replace("pending", "completed").replace("nearly", "completed")


def test_tasks_in_maps_of_phases_are_marked_where_they_stand(tmp_path, spec):
    before = (
        "phases:\n  build:\n    - id: T1\n      status: pending\n  ship:\n    tasks:\n      T2:\n        status: nearly\n"
        "---\nphases:\n  - name: last\n    tasks: [{id: T3, status: pending}]\n"
    )
    (tmp_path / "tasks.yaml").write_text(before)
    found = spec.read()
    assert [(task.id, task.phase, task.depends_on) for task in found.tasks] == [
        ("T1", "build", ()),
        ("T2", "ship", ("T1",)),
        ("T3", "last", ("T2",)),
    ]
    assert [(problem.line, problem.fatal) for problem in found.problems] == [(8, False)]
    spec.mark({"T1": "complete", "T2": "complete", "T3": "complete"})
    assert [task.status for task in spec.read().tasks] == ["complete"] * 3
    assert text(tmp_path).startswith(
        before.partition("---")[0].replace("pending", "completed").replace("nearly", "completed")
    )


@pytest.mark.parametrize("between", ["", "---\n"])
def test_tasks_of_their_own_and_tasks_in_phases_are_all_read_and_marked(tmp_path, spec, between):
    before = (
        "phases:\n  - name: P\n    tasks:\n      - T1\n      - {id: T1, note: again}\n      - id: T2\n        status: pending\n"
        f"  - name: Q\n    tasks:\n      T3:\n        title: c\n{between}tasks:\n  - id: T1\n    status: pending\n"
    )
    (tmp_path / "tasks.yaml").write_text(before)
    found = spec.read()
    assert [(task.id, task.phase) for task in found.tasks] == [("T1", "P"), ("T2", "P"), ("T3", "Q")]
    assert found.problems == ()
    spec.mark({"T1": "complete", "T2": "complete", "T3": "complete"})
    assert [task.status for task in spec.read().tasks] == ["complete"] * 3
    third = "title: c\n        status: completed\n"
    assert text(tmp_path) == before.replace("pending", "completed").replace("title: c\n", third)


def test_a_list_and_a_map_in_two_documents_are_marked_where_they_stand(tmp_path, spec):
    before = "- id: T1\n  file: a\n---\ntasks:\n  T2:\n    title: b\n    status: todo\n"
    (tmp_path / "tasks.yaml").write_text(before)
    assert [task.id for task in spec.read().tasks] == ["T1", "T2"]
    spec.mark({"T1": "complete", "T2": "in_progress"})
    assert [task.status for task in spec.read().tasks] == ["complete", "in_progress"]
    after = before.replace("T1\n", "T1\n  status: completed\n").replace("todo", "in_progress")
    assert text(tmp_path) == after


def test_maps_of_tasks_in_several_documents_are_marked_where_they_stand(tmp_path, spec):
    before = "tasks:\n  T1: {content: one, status: pending}\n---\ntasks:\n  T2: {content: two, status: pending}\n"
    (tmp_path / "tasks.yaml").write_text(before)
    assert [task.id for task in spec.read().tasks] == ["T1", "T2"]
    spec.mark({"T1": "complete", "T2": "complete"})
    assert text(tmp_path) == before.replace("pending", "completed")


def test_of_several_checkpoints_in_a_file_the_last_is_read_and_written(tmp_path, spec):
    before = "checkpoint:\n  last_batch: 1\n---\ncheckpoint:\n  last_batch: 2\n"
    (tmp_path / "checkpoint.yaml").write_text(before)
    spec.write_checkpoint(replace(spec.read().checkpoint, last_batch="3"))
    assert text(tmp_path, "checkpoint").startswith(before.replace("2", "3"))
    assert spec.read().checkpoint.last_batch == "3"


def lines(before, after):
    return [(one, other) for one, other in zip(before.splitlines(), after.splitlines(), strict=True) if one != other]


def test_a_status_changes_in_the_words_quotes_and_place_it_has(spec, tmp_path):
    spec.mark({"T1": "pending", "T2": "complete", "T4": "in_progress"}, today="2026-02-03")
    assert lines(TASKS, text(tmp_path)) == [
        ("    status: 'done'     # yes", "    status: 'pending'     # yes"),
        ("  - {id: T2, status: pending, x: [1, 2]}", "  - {id: T2, status: done, x: [1, 2]}"),
        ('    status: "pending"', '    status: "in_progress"'),
        ("  last_updated: 2026-01-01", "  last_updated: 2026-02-03"),
    ]


def test_progress_is_counted_and_a_missing_status_is_put_after_the_id(spec, tmp_path):
    spec.mark({"T3": "complete"})
    assert text(tmp_path) == TASKS.replace("# no status yet\n", "# no status yet\n    status: done\n").replace(
        "1/4", "2/4"
    )


@pytest.mark.parametrize(
    ("before", "after"), [("1/4 (25%)", "2/4 (50%)"), ("1 / 4 25%", "2 / 4 50%"), ("1/4 (most)", "1/4 (most)")]
)
def test_a_share_beside_the_progress_is_counted_too(before, after, spec, tmp_path):
    (tmp_path / "tasks.yaml").write_text(TASKS.replace("1/4", before))
    spec.mark({"T4": "complete"})
    assert f"progress: {after}\n" in text(tmp_path)


def test_commits_are_added_to_lists_below_each_other(tmp_path):
    (tmp_path / "tasks.yaml").write_text("tasks:\n- id: T1\n  evidence:\n    commits:\n    - a  # b\n- id: T2\n")
    SpecFolder(str(tmp_path), str(tmp_path)).mark({}, {"T1": "abc"})
    assert text(tmp_path) == "tasks:\n- id: T1\n  evidence:\n    commits:\n    - a  # b\n    - abc\n- id: T2\n"


def test_commits_are_noted_as_evidence(spec, tmp_path):
    spec.mark({}, {"T4": "0123456", "T2": "def5678"})
    assert 'commits: [abc1234, "0123456"], files' in text(tmp_path)
    assert "status: pending, evidence: {commits: [def5678]}, x: [1, 2]" in text(tmp_path)
    before = text(tmp_path)
    spec.mark({}, {"T4": "0123456"})
    assert text(tmp_path) == before


@pytest.mark.parametrize("ends", ["\r\n", "\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_marks_and_a_missing_last_line_end_stay(tmp_path, ends, mark):
    odd = (mark + "---\nscope: é\n---\ntasks:\n- id: T1\n  status: pending\n- id: T2").replace("\n", ends)
    (tmp_path / "tasks.yaml").write_bytes(odd.encode())
    spec = SpecFolder(str(tmp_path), str(tmp_path))
    spec.mark({"T1": "complete", "T2": "blocked"})
    assert text(tmp_path) == odd.replace("pending", "completed") + f"{ends}  status: blocked"


def test_the_same_again_touches_nothing_and_the_mode_is_kept(spec, tmp_path):
    target = tmp_path / "tasks.yaml"
    target.chmod(0o640)
    spec.mark({"T2": "complete"})
    seen = target.stat()
    assert stat.S_IMODE(seen.st_mode) == 0o640
    spec.mark({"T2": "complete"})
    assert (target.stat().st_mtime_ns, target.stat().st_ino) == (seen.st_mtime_ns, seen.st_ino)
    assert sorted(os.listdir(tmp_path)) == ["tasks.yaml"]


SHARED = "tasks:\n- id: T1\n  status: &s pending\n- id: T2\n  status: *s\n"


def test_an_alias_gets_a_word_of_its_own_and_what_is_shared_is_refused(tmp_path):
    (tmp_path / "tasks.yaml").write_text(SHARED)
    spec = SpecFolder(str(tmp_path), str(tmp_path))
    spec.mark({"T2": "complete"})
    assert text(tmp_path) == SHARED.replace("*s", "completed")
    with pytest.raises(SpecError, match=r"tasks\.0\.status is shared under the name &s"):
        spec.mark({"T1": "complete"})


def test_a_task_with_a_name_of_its_own_gets_its_status_in_line(tmp_path):
    content = "tasks:\n  - &one\n    id: T1\n    title: x\n"
    (tmp_path / "tasks.yaml").write_text(content)
    SpecFolder(str(tmp_path), str(tmp_path)).mark({"T1": "complete"})
    assert text(tmp_path) == content.replace("id: T1\n", "id: T1\n    status: completed\n")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("tasks:\n- id: T1\n- id: T1\n", "T1 is there twice"),
        ("tasks:\n- id: T9\n", "T1 is not a task of this file"),
        ("tasks:\n- id: `x`\n", r"not valid YAML.*\(line 2\)"),
        ("tasks:\n- id: T1\n  evidence: none\n", "has no list of commits"),
        ("x: &t\n  id: T1\ntasks: [*t]\n", "cannot be changed without changing something else"),
    ],
)
def test_what_cannot_be_changed_is_refused_by_name_and_stays(tmp_path, content, why):
    (tmp_path / "tasks.yaml").write_text(content)
    with pytest.raises(SpecError, match=why):
        SpecFolder(str(tmp_path), str(tmp_path)).mark({"T1": "complete"}, {"T1": "abc"})
    assert text(tmp_path) == content


def test_links_are_not_written_through_and_a_missing_file_is_not_made(tmp_path):
    (tmp_path / "real.yaml").write_text(TASKS)
    (tmp_path / "tasks.yaml").symlink_to("real.yaml")
    spec = SpecFolder(str(tmp_path), str(tmp_path))
    with pytest.raises(Exception, match="symbolic link"):
        spec.mark({"T2": "complete"})
    assert (tmp_path / "real.yaml").read_text() == TASKS
    os.remove(tmp_path / "tasks.yaml")
    with pytest.raises(SpecError, match=r"no tasks\.yaml"):
        spec.mark({"T2": "complete"})


def test_tasks_in_maps_and_phases_are_marked_too(tmp_path):
    for content in (
        "tasks:\n  T1: {title: x, status: todo}\n",
        "phases:\n- name: P\n  tasks:\n  - id: T1\n    status: todo\n",
    ):
        (tmp_path / "tasks.yaml").write_text(content)
        SpecFolder(str(tmp_path), str(tmp_path)).mark({"T1": "complete"})
        assert text(tmp_path) == content.replace("todo", "completed")


ODD = {
    "tasks:\n- id: T1\n  status:   # none\n": "tasks:\n- id: T1\n  status: completed   # none\n",
    "tasks:\n- id: T1\n  status: >\n    pending\n\n  x: 1\n": "tasks:\n- id: T1\n  status: completed\n\n  x: 1\n",
    "tasks:\n  T1:\n    title: |\n      long\n      text\n\n    x: 1\n": (
        "tasks:\n  T1:\n    title: |\n      long\n      text\n    status: completed\n\n    x: 1\n"
    ),
}


@pytest.mark.parametrize("content", ODD)
def test_an_empty_folded_or_missing_status_is_set(tmp_path, content):
    (tmp_path / "tasks.yaml").write_text(content)
    SpecFolder(str(tmp_path), str(tmp_path)).mark({"T1": "complete"})
    assert text(tmp_path) == ODD[content]


@pytest.mark.parametrize(
    "content",
    [
        "tasks:\n  T1: {x: 1}\n",
        "tasks:\n  T1:\n    title: |+\n      kept\n\n\n",
        "tasks:\n- id: T1\n  evidence: {commits: a}\n",
        "tasks:\n- [T1]\n- id: T2\n",
    ],
)
def test_what_has_no_place_is_refused_and_stays(tmp_path, content):
    (tmp_path / "tasks.yaml").write_text(content)
    with pytest.raises(SpecError, match="was not changed"):
        SpecFolder(str(tmp_path), str(tmp_path)).mark({"T1": "complete"}, {"T1": "abc"})
    assert text(tmp_path) == content


def test_a_file_that_was_changed_meanwhile_is_not_written_over(tmp_path):
    (tmp_path / "a.yaml").write_text("theirs")
    with pytest.raises(SpecError, match="changed meanwhile"):
        store(str(tmp_path), "a.yaml", "ours", "what we read")
    with pytest.raises(SpecError, match="changed meanwhile"):
        store(str(tmp_path), "a.yaml", "ours", None)
    assert (tmp_path / "a.yaml").read_text() == "theirs"


# --- the checkpoint

FULL = Checkpoint(
    spec_name="auth",
    spec_path="./specs/active/auth",
    branch="feat/auth",
    timestamp="2026-01-22T14:30:00Z",
    last_batch="2",
    last_commit="a1b2c3d4",
    completed=(TaskRef("T1", 'A "name": with\nodd\x85 \U0001f600 # signs'),),
    pending=(TaskRef("T2", "yes"),),
    next_batch=NextBatch("3", (TaskRef("T2", "yes", "src/a b.py"),), False),
    deferred=(Deferred("Naming", "medium", "M001", "2", "T1", "a.py:4", "one"), Deferred("true")),
    reviewers=(Reviewer("openai/gpt-5.2-codex"), Reviewer("claude", "opus")),
    tasks_digest="12e4",
)


def test_a_new_checkpoint_has_the_order_of_the_format_and_reads_back_the_same(spec, tmp_path):
    spec.write_checkpoint(FULL)
    assert spec.read().checkpoint == FULL
    keys = [line.strip().partition(":")[0] for line in text(tmp_path, "checkpoint").splitlines() if line[2:3].isalpha()]
    assert keys == ["checkpoint", "spec_name", "spec_path", "branch", "timestamp", "last_batch", "last_commit", "tasks",
                    "next_batch", "deferred_issues", "review_config", "tasks_digest"]  # fmt: skip
    assert "  last_commit: a1b2c3d4\n" in text(tmp_path, "checkpoint")


@pytest.mark.parametrize("commit", ["0123456", "612e243", "0b10110", "a1b2c3d", None, "1234567"])
def test_a_commit_stays_text_for_every_reader(spec, tmp_path, commit):
    yaml = pytest.importorskip("yaml")
    spec.write_checkpoint(replace(FULL, last_commit=commit))
    assert spec.read().checkpoint.last_commit == commit
    assert yaml.safe_load(text(tmp_path, "checkpoint"))["checkpoint"]["last_commit"] == commit


STEPS = [
    FULL,
    replace(
        FULL, last_batch="2c", completed=(*FULL.completed, *FULL.pending), pending=(), next_batch=None, finished=True
    ),
    replace(FULL, in_progress=(TaskRef("T9", "x"),), deferred=FULL.deferred[1:], reviewers=(), branch=""),
    replace(FULL, next_batch=NextBatch("4", (), True), deferred=(), tasks_digest=None, last_commit=None),
    FULL,
]


def test_a_checkpoint_is_changed_step_by_step_and_comments_stay(spec, tmp_path):
    spec.write_checkpoint(replace(FULL, completed=(), pending=(), deferred=()))
    written = text(tmp_path, "checkpoint") + "  # the end\n  carry_forward:\n    - mine  # stays\nmore: {x: 1}\n"
    (tmp_path / "checkpoint.yaml").write_text(written)
    for step in STEPS:
        spec.write_checkpoint(step)
        assert spec.read().checkpoint == step
        seen = (tmp_path / "checkpoint.yaml").stat().st_mtime_ns
        spec.write_checkpoint(step)
        assert (tmp_path / "checkpoint.yaml").stat().st_mtime_ns == seen
    assert "  carry_forward:\n    - mine  # stays\nmore: {x: 1}\n" in text(tmp_path, "checkpoint")
    assert text(tmp_path, "checkpoint").count("#") == written.count("#") + 1  # one is in a name


def test_who_reviewed_stands_beside_who_is_to_review(spec, tmp_path):
    spec.write_checkpoint(replace(FULL, reviewed_by=("one",)))
    assert "\n\n  # Who reviewed the last batch\n  reviewed_by:\n    - one\n" in text(tmp_path, "checkpoint")
    for reviewed_by in (("one", "two"), ()):
        spec.write_checkpoint(replace(FULL, reviewed_by=reviewed_by))
        assert spec.read().checkpoint == replace(FULL, reviewed_by=reviewed_by)


def test_an_old_hand_keeps_its_words_and_lists(spec, tmp_path):
    old = "checkpoint:\n  scope_name: a\n  tasks:\n    done:\n    - T1\n    pending: [T2, T3]\n  next_batch: {number: 1}\n"
    old = old.replace("\n", "\r\n")
    (tmp_path / "checkpoint.yaml").write_bytes(old.encode())
    spec.write_checkpoint(
        replace(FULL, spec_name="b", completed=(TaskRef("T1", "x"), TaskRef("T2", "y")), pending=(TaskRef("T3"),))
    )
    found = text(tmp_path, "checkpoint")
    assert (
        "scope_name: b\r\n  tasks:\r\n    done:\r\n      - T1\r\n      - T2\r\n    pending:\r\n      - T3\r\n" in found
    )
    assert found.count("\n") == found.count("\r\n")


def test_a_checkpoint_without_its_head_is_changed_where_it_stands(spec, tmp_path):
    (tmp_path / "checkpoint.yaml").write_text("branch: x\nkeep: me\n")
    spec.write_checkpoint(FULL)
    assert spec.read().checkpoint == FULL
    assert "keep: me\n" in text(tmp_path, "checkpoint")


@pytest.mark.parametrize(
    "content",
    [
        "checkpoint: &c {branch: x}\nb: *c\n",
        "checkpoint: 3\n",
        "- a\n",
        "a: `\n",
        "checkpoint: &c\n  branch: x\nb: *c\n",
    ],
)
def test_a_checkpoint_that_cannot_be_changed_is_refused_and_stays(spec, tmp_path, content):
    (tmp_path / "checkpoint.yaml").write_text(content)
    with pytest.raises(SpecError, match="was not changed"):
        spec.write_checkpoint(FULL)
    assert text(tmp_path, "checkpoint") == content


BRACKETS = [
    "checkpoint: {branch: x, mine: {a: 1, b: [2, 3]}} # beside\n",
    "{checkpoint: {branch: x, 'mine': {a: 1, b: [2, 3]}}} # beside\n",
    '{"checkpoint": {"branch": "x", "mine": {"a": 1, "b": [2, 3]}}}# beside\n',
    "--- {branch: x, mine: {a: 1, b: [2, 3]}}\n# beside\n",
    "checkpoint:\n  {\n    branch: x, # beside\n    mine: {a: 1,\n    b: [2, 3]},\n  }\n",
    "# beside\ncheckpoint: {branch: x, mine: {a: 1, b: [2, 3]}, next_batch: {number: 9, tasks: [{id: T7}], x: 1}}\n",
    "checkpoint:\n  mine: {a: 1, b: [2, 3]}\n  tasks: {completed: [{id: T0}], mine: 1} # beside\n",
    "checkpoint:\n  mine: {a: 1, b: [2, 3]}\n  deferred_issues: [{id: M9, issue: x, # beside\n    more: y}]\n",
    "checkpoint: {mine: {a: 1, b: [2, 3]}, review_config: {reviewers: [x], mode: strict}} # beside\n",
    "checkpoint: {branch: 'it''s\n  long', mine: {a: 1, b: [2, 3]}} # beside\n",
]


@pytest.mark.parametrize("content", BRACKETS)
def test_a_checkpoint_in_brackets_is_changed_and_keeps_what_it_has_besides(spec, tmp_path, content):
    yaml = pytest.importorskip("yaml")
    content = content.replace("}# beside", "} # beside")
    (tmp_path / "checkpoint.yaml").write_text(content)
    before = spec.read().checkpoint
    spec.check_writable()
    wanted = replace(FULL, deferred=(*before.deferred, *FULL.deferred))
    spec.write_checkpoint(wanted)
    found = text(tmp_path, "checkpoint")
    assert spec.read().checkpoint == wanted and "# beside" in found
    (was,), (now,) = (list(yaml.safe_load_all(said)) for said in (content, found))
    was, now = was.get("checkpoint", was), now.get("checkpoint", now)
    assert now["mine"] == {"a": 1, "b": [2, 3]}
    assert "tasks" not in was or now["tasks"]["mine"] == 1
    assert "next_batch" not in was or now["earlier_next_batch"] == [{"number": 9, "tasks": [{"id": "T7"}], "x": 1}]
    assert "deferred_issues" not in was or now["deferred_issues"][0] == was["deferred_issues"][0]
    assert "review_config" not in was or now["review_config"]["mode"] == "strict"
    spec.write_checkpoint(wanted)
    assert text(tmp_path, "checkpoint") == found


CARRYING = """\
checkpoint:
  tasks:
    completed: []
    in_progress:
      - id: T1
        name: Old   # was renamed
        status: in_progress
        owner: ada
      # behind T1
    pending:
      - {id: T2, title: Two, estimate: 3h}

      # a word about T3
      - name: Three
        id: T3
        steps: |
          one # no comment
            two
      - T4   # a sentence
      - id: T5
        note: gone
  next_batch:   # stays
    number: "2b"
    title: Only batch 2b
    tasks:
      - id: T1
        extra: x   # of T1
    # the end of it
    parallel: true
  review_config:
    effort: high
    reviewers:
      - {name: one, effort: low}
      - two   # keep me
      - three
"""
CARRIED = """\
checkpoint:
  tasks:
    completed:
      - id: T1
        name: "New"   # was renamed
        status: completed
        owner: ada
      - {id: T2, title: Two, estimate: 3h}
    in_progress: []
      # behind T1
    pending:

      # a word about T3
      - name: Three
        id: T3
        steps: |
          one # no comment
            two
      - id: T4   # a sentence
        name: "Four"
  next_batch:   # stays
    number: 3
    tasks:
      - id: T3
        name: "Three"
        file: c.py
    parallel: false
  review_config:
    effort: high
    reviewers:
      - {name: one, effort: low}
      - claude
  earlier_tasks:
    - id: T5
      note: gone
  earlier_next_batch:
    - number: "2b"
      title: Only batch 2b
      tasks:
        - id: T1
          extra: x   # of T1
      # the end of it
      parallel: true
  earlier_reviewers:
    - two   # keep me
"""
NOW = Checkpoint(
    completed=(TaskRef("T1", "New"), TaskRef("T2", "Two")),
    pending=(TaskRef("T3", "Three"), TaskRef("T4", "Four")),
    next_batch=NextBatch("3", (TaskRef("T3", "Three", "c.py"),)),
    reviewers=(Reviewer("one"), Reviewer("claude")),
)


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_what_a_checkpoint_says_of_tasks_batches_and_reviewers_besides_goes_where_they_go(spec, tmp_path, ends):
    target = tmp_path / "checkpoint.yaml"
    target.write_bytes(CARRYING.replace("\n", ends).encode())
    spec.check_writable()
    spec.write_checkpoint(NOW)
    assert text(tmp_path, "checkpoint") == CARRIED.replace("\n", ends)
    seen = target.stat().st_mtime_ns
    spec.write_checkpoint(NOW)
    assert target.stat().st_mtime_ns == seen


def test_what_was_put_aside_comes_back_with_its_task_and_its_reviewer(spec, tmp_path):
    (tmp_path / "checkpoint.yaml").write_text(CARRIED)
    back = TaskRef("T5", "Five")
    spec.write_checkpoint(replace(NOW, pending=(*NOW.pending, back), reviewers=(*NOW.reviewers, Reviewer("two"))))
    found = text(tmp_path, "checkpoint")
    assert (
        '      - id: T5\n        name: "Five"\n        note: gone\n' in found and "      - two   # keep me\n" in found
    )
    assert "  earlier_tasks: []\n" in found and "  earlier_reviewers: []\n" in found


def test_what_is_no_map_where_one_belongs_is_put_aside(spec, tmp_path):
    odd = (
        "checkpoint:\n  tasks:\n    - {id: T1, note: x}\n    - T2\n  next_batch: |\n    what Ada said\n"
        "  review_config: [one, {two: 2}] # beside\n"
    )
    (tmp_path / "checkpoint.yaml").write_text(odd)
    spec.check_writable()
    spec.write_checkpoint(NOW)
    assert spec.read().checkpoint == NOW
    assert text(tmp_path, "checkpoint").endswith(
        "  earlier_tasks:\n    - - {id: T1, note: x}\n      - T2\n  earlier_next_batch:\n    - |\n        what Ada said\n"
        "  earlier_review_config:\n    - [one, {two: 2}]\n"
    )


def test_tasks_told_by_id_keep_what_stands_beside_them(spec, tmp_path):
    old = "checkpoint:\n  tasks:\n    done: [T0]\n    pending: [T1, # first\n      T2, ask Ada, T9]\n"
    (tmp_path / "checkpoint.yaml").write_text(old)
    spec.write_checkpoint(NOW)
    assert "    done:\n      - T1  # first\n      - T2\n" in text(tmp_path, "checkpoint")
    assert "  earlier_tasks:\n    - ask Ada\n" in text(tmp_path, "checkpoint")


def test_what_cannot_be_moved_without_harm_is_refused_before_any_work(spec, tmp_path):
    pending = "    pending:\n      - id: T1\n        more: &m {a: 1}\n"
    content = f"checkpoint:\n  tasks:\n{pending}    completed:\n      - {{id: T2, x: *m}}\n"
    (tmp_path / "checkpoint.yaml").write_text(content)
    with pytest.raises(BadFile, match="checkpoint"):
        spec.check_writable()
    with pytest.raises(SpecError, match="was not changed"):
        spec.write_checkpoint(replace(NOW, completed=(TaskRef("T2"), TaskRef("T1"))))
    assert text(tmp_path, "checkpoint") == content


@pytest.mark.parametrize("content", ["checkpoint: {}\n", "checkpoint:\n", "{}\n", "checkpoint: {  } # x\n"])
def test_an_empty_checkpoint_is_filled(spec, tmp_path, content):
    (tmp_path / "checkpoint.yaml").write_text(content)
    spec.check_writable()
    spec.write_checkpoint(FULL)
    assert spec.read().checkpoint == FULL


def test_a_review_in_brackets_is_added_to(spec, tmp_path):
    (tmp_path / "review.yaml").write_text("issues: {high: [{id: H001, issue: old}], mine: 1}\ndeferred_issues: []\n")
    spec.check_writable()
    spec.write_review("1", FOUND)
    found = text(tmp_path, "review")
    assert "    - {id: H001, issue: old}\n" in found and "id: H002" in found and "  mine: 1\n" in found


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("checkpoint", "a: 1\ncheckpoint: &c\n  branch: x\nb: *c\n", 2),
        ("checkpoint", "\ncheckpoint: 3\n", 2),
        ("checkpoint", "checkpoint:\n  next_batch: &n\n    number: 1\n  x: *n\n", 3),
        ("review", "x: 1\nissues: none\n", 2),
        ("tasks", "x: &t\n  - id: T1\ntasks: *t\n", 2),
    ],
)
def test_what_could_not_be_changed_later_is_refused_before_any_work_with_its_line(spec, tmp_path, name, content, line):
    (tmp_path / f"{name}.yaml").write_text(content)
    with pytest.raises(BadFile) as caught:
        spec.check_writable()
    assert (os.path.basename(caught.value.path), caught.value.line) == (f"{name}.yaml", line)
    assert text(tmp_path, name) == content


def test_keys_are_added_after_text_that_ends_a_map(spec, tmp_path):
    old = "checkpoint:\n  branch: x\n  note: >\n    folded\n    text\n\n# a word\nother: 1\n"
    (tmp_path / "checkpoint.yaml").write_text(old)
    spec.write_checkpoint(FULL)
    assert spec.read().checkpoint == FULL
    assert "    text\n  spec_name: auth\n" in text(tmp_path, "checkpoint")
    assert text(tmp_path, "checkpoint").endswith("\n\n# a word\nother: 1\n")


def test_an_empty_file_gets_a_whole_checkpoint(spec, tmp_path):
    (tmp_path / "checkpoint.yaml").write_text("# nothing yet\n")
    spec.write_checkpoint(FULL)
    assert text(tmp_path, "checkpoint").startswith("# nothing yet\ncheckpoint:\n")


# --- reviews

FOUND = [
    Finding(
        id="", severity="high", description="Broken: really", location="a.py:3", task="T1", reviewers=("one", "two")
    ),
    Finding(id="M001", severity="medium", description="Odd", gate="style", suggestion="Do\nbetter"),
]


def test_findings_get_ids_and_are_noted_once(spec, tmp_path):
    spec.write_review("1", FOUND)
    first = text(tmp_path, "review")
    spec.write_review("1", FOUND)
    assert text(tmp_path, "review") == first
    spec.write_review("2", FOUND)
    found = text(tmp_path, "review")
    assert found.count("id: H001") == found.count("id: H002") == 1
    assert found.count("id: M001") == found.count("id: M002") == 2
    assert [(one.id, one.batch) for one in spec.read().deferred] == [("M001", "1"), ("M002", "2")]


def test_a_review_of_another_hand_is_only_added_to(spec, tmp_path):
    old = "scope: x  # y\nissues:\n  high: []\n  medium:\n    - id: M007\n      issue: old\n  # last\nfinal: {a: M1}\n"
    (tmp_path / "review.yaml").write_text(old)
    spec.write_review("3", [replace(FOUND[1], id="M007"), FOUND[0]])
    found = text(tmp_path, "review")
    assert "id: M008" in found and "id: H001" in found
    assert all(line in found.splitlines() for line in old.splitlines() if "[]" not in line)


@pytest.mark.parametrize("content", ["scope: x\n", "issues: []\n", "issues:\n- id: a\n"])
def test_a_review_without_its_lists_gets_them(spec, tmp_path, content):
    (tmp_path / "review.yaml").write_text(content)
    spec.write_review("1", FOUND)
    assert 'description: "Odd"' in text(tmp_path, "review")


@pytest.mark.parametrize("content", ["- a\n", "issues: {high: &a [{id: a}], x: *a}\n", "x: `\n", "issues: none\n"])
def test_a_review_that_cannot_be_added_to_is_refused(spec, tmp_path, content):
    (tmp_path / "review.yaml").write_text(content)
    with pytest.raises(SpecError, match="was not changed"):
        spec.write_review("1", FOUND)
    assert text(tmp_path, "review") == content


def calls_to_check(folder, count):
    """How much is called to see whether the statuses of so many tasks can be changed."""
    rows = "".join(f"  - id: T{number}\n    status: pending\n" for number in range(count))
    (folder / "tasks.yaml").write_text(f"tasks:\n{rows}")
    forget()
    calls = 0

    def count_one(*_):
        nonlocal calls
        calls += 1

    before = sys.getprofile()
    sys.setprofile(count_one)
    try:
        Writer(str(folder), str(folder)).check()
    finally:
        sys.setprofile(before)
    return calls


def test_four_times_as_many_tasks_are_about_four_times_the_work(tmp_path):
    assert calls_to_check(tmp_path, 800) < 6 * calls_to_check(tmp_path, 200)
