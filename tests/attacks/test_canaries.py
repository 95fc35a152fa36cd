"""Planted secrets of every kind, through every door into a run: not one byte of one of them may come to rest on disk.

Every secret is put together from parts, so no literal here looks like one. What is *not* promised is tested as well.
"""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pytest

from holdfast import app
from holdfast.core import events as e
from holdfast.core.redact import Redactor, secret_values
from holdfast.core.values import Answer
from holdfast.engine import transfer
from holdfast.engine.log import RunLog, read_state, verify_run
from holdfast.engine.runner import MAX_INLINE, Effect, Runner
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import postgres
from holdfast.testing.crashlab import Available
from tests.attacks.fuzz import a_world, performed, surroundings
from tests.core.test_redact import TOKENS, WITHOUT_A_FIXED_BEGINNING, WORD, made

SECRET = made(WORD, 24, "a canary of its own") + "7"
ENVIRON = {
    "DB_PASSWORD": "Tr0ub4dor" + '/&3 "q" é ' + made(WORD, 8),
    "SERVICE_TOKEN": made(WORD, 40, "service"),
    "DEPLOY_KEY": made(WORD, 90, "deploy"),
    "GH_PAT": made(WORD, 33, "pat"),
    "HOME": "/home/somebody",
}
VALUES = secret_values(ENVIRON)
# what names a secret, and the secret beside it
PHRASES = {
    "url": (f"postgres://bob:{SECRET}@db.example/app", SECRET),
    "remote": (f"https://bob:{SECRET}@git.example/x.git", SECRET),
    "header": (f"Authorization: Bearer {SECRET}", SECRET),
    "argument": (f"deploy --token {SECRET} --now", SECRET),
    "line": (f"API_KEY={SECRET}", SECRET),
    "exception": (f"ValueError: bad login (password='{SECRET}')", SECRET),
}
CANARIES = {**{name: (token, token) for name, token in TOKENS.items()}, **PHRASES, **{v: (v, v) for v in VALUES}}


class Door(NamedTuple):
    """How a text gets into a run."""

    name: str
    events: tuple[e.Event, ...]


def doors(number: int, text: str) -> list[Door]:
    """Every field that takes text from outside, at the top and nested."""
    step, key = f"step-{number}", f"effect-{number}"
    nested = {"deep": [{"er": [text, {"x": f"before {text} after"}]}], "argv": ["tool", "--verbose", text]}
    return [
        Door("note", (e.NoteRecorded(text=f"I saw {text}\nand more", author=text),)),
        Door(
            "step error", (e.StepStarted(step_id=step, phase=text), e.StepFailed(step_id=step, error=f"failed: {text}"))
        ),
        Door(
            "step output",
            (e.StepStarted(step_id=step, attempt=2), e.StepFinished(step_id=step, attempt=2, output=nested)),
        ),
        Door(
            "effect error", (e.EffectStarted(effect_key=key, step_id=step), e.EffectFailed(effect_key=key, error=text))
        ),
        Door(
            "receipt", (e.EffectStarted(effect_key=key, step_id=step), e.EffectFinished(effect_key=key, receipt=nested))
        ),
        Door("checkpoint", (e.CheckpointComplete(checkpoint_id="c", cursor=text),)),
        Door("extension", (e.Extension(kind="x_tool_called", data={"input": nested, "json": json.dumps(nested)}),)),
        Door("stop", (e.RunStopped(reason="awaiting_answer", diagnosis=text, evidence=(text, f"x {text}")),)),
        Door("settled", (e.RunResumed(was=text),)),
    ]


def through_every_door(log: RunLog) -> int:
    """Record each canary at each door; the number of doors passed."""
    title = " and ".join(text for text, _ in list(CANARIES.values())[:40])
    log.record(e.RunStarted(mission_id=f"for {TOKENS['github_token']}", title=title))
    passed = 1
    for number, (text, _) in enumerate(CANARIES.values()):
        for door in doors(number, text):
            log.record(*door.events)
            passed += 1
    return passed


def traces(secret: str) -> list[bytes]:
    """The forms in which a secret could lie on disk: as it is, as JSON spells it, and percent-encoded."""
    forms = {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], quote(secret, safe="")}
    parts = [form for form in forms if form]
    middle = [part[len(part) // 3 : len(part) // 3 + 16] for part in parts if len(part) >= 40]
    return [part.encode() for part in (*parts, *middle)]


TRACES = {name: traces(secret) for name, (_, secret) in CANARIES.items()}


def hits(data: bytes) -> list[str]:
    """Which canaries are in these bytes, whole, or by a piece from their middle."""
    return [name for name, forms in TRACES.items() if any(form in data for form in forms)]


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def found_in(folder: Path) -> dict[str, list[str]]:
    return {name: found for name, data in files_of(folder).items() if (found := hits(data))}


def test_the_search_finds_what_is_there():
    for name, (_, secret) in CANARIES.items():
        assert name in hits(b"x" + secret.encode() + b"y")
    assert len(CANARIES) >= 70
    assert len(VALUES) == 4


WRITER = """
import json, sys
from holdfast import app
from tests.attacks import test_canaries as canaries
store = app.open_store(sys.argv[1])
log = app.write_run(store, "run-1")
print(canaries.through_every_door(log), flush=True)
if sys.argv[2] == "closed":
    log.close(); store.close()
else:
    sys.stdin.readline()
"""


@pytest.mark.parametrize("ending", ["killed", "closed"])
def test_no_secret_is_in_any_byte_of_the_store(tmp_path, ending, record_property):
    """A process whose environment holds secrets writes all of them; then it is killed, or ends well."""
    place = tmp_path / "store" / "holdfast.db"
    argv = [sys.executable, "-c", WRITER, str(place), ending]
    with subprocess.Popen(argv, stdin=-1, stdout=-1, text=True, env={**os.environ, **ENVIRON}) as writer:
        passed = int(writer.stdout.readline())
        while_open = found_in(tmp_path)
        if ending == "killed":
            writer.send_signal(signal.SIGKILL)
    assert passed > 70 * 8
    assert while_open == {} == found_in(tmp_path)
    assert {name.partition("holdfast.db")[2] for name in files_of(tmp_path)} >= {"", "-witness", "-lock"}
    assert said_by_commands(place, tmp_path) == []
    with closing(app.open_store(str(place), read_only=True)) as store:
        assert verify_run(store, "run-1").findings == ()
        assert store.head("run-1").seq > passed
    record_property("canaries", (ending, len(CANARIES), passed))


def said_by_commands(place: Path, folder: Path) -> list[str]:
    """What the commands say, and an export, searched as well."""
    said = []
    verbs = (
        ["log", "run-1"],
        ["show", "run-1"],
        ["status"],
        ["status", "run-1"],
        ["verify"],
        ["show", "run-1", "5"],
        ["doctor"],
    )
    with surroundings(folder, HOLDFAST_STORE=str(place)):
        for arguments in (*verbs, *([*verb, "--json"] for verb in verbs), ["export", "run-1", "-"]):
            code, out, err = performed(arguments, b"")
            assert code == 0, err
            said += [f"{arguments}: {name}" for name in hits((out + err).encode())]
    return said


def test_no_secret_is_left_in_freed_pages_or_after_a_checkpoint(tmp_path):
    place = tmp_path / "store" / "holdfast.db"
    redactor = app.redactor(ENVIRON)
    for number in range(2):
        with SqliteStore(place, boot_id="b") as store, RunLog(store, f"run-{number}", app.world(), redactor) as log:
            through_every_door(log)
            store._writer.connection().execute("pragma wal_checkpoint(truncate)")
    assert found_in(tmp_path) == {}


@pytest.fixture(scope="module")
def server():
    with postgres.PostgresServer() as server:
        yield server


@pytest.mark.postgres
def test_no_secret_is_in_any_file_of_a_server(request, skip_or_fail, tmp_path):
    why = postgres.available()
    skip_or_fail(Available(why is None, why or ""))
    server = request.getfixturevalue("server")
    redactor = app.redactor(ENVIRON)
    with server.database() as url:
        with closing(PostgresStore(url)) as store, RunLog(store, "run-1", app.world(), redactor) as log:
            through_every_door(log)
            out = io.BytesIO()
            transfer.export_run(store, "run-1", out)
            assert hits(out.getvalue()) == []
            assert hits(json.dumps(read_state(store, "run-1").diagnosis).encode()) == []
        server.execute("checkpoint")
        assert found_in(server.data) == {}
        with closing(PostgresStore(url)) as store:
            store.put_artifact(f"{SECRET} is known to be stored as it is".encode() + os.urandom(300))
        server.execute("checkpoint")
        assert found_in(server.data), "the search sees nothing in the files of a server"


# --- what the runner writes by itself


def raising(text: str):
    def act(*arguments: object) -> None:
        raise RuntimeError(text)

    return act


def ran(tmp_path: Path, steps: dict) -> dict[str, list[str]]:
    place = tmp_path / "s" / "holdfast.db"
    with SqliteStore(place, boot_id="b") as store, RunLog(store, "run-1", a_world(), app.redactor(ENVIRON)) as log:
        Runner(log, steps).run("m", TOKENS["github_token"])
    with SqliteStore(place, boot_id="b") as store:
        artifacts = [state.artifact for state in read_state(store, "run-1").steps.values() if state.artifact]
        inside = {f"artifact {digest}": hits(store.get_artifact(digest)) for digest in artifacts}
    return found_in(tmp_path) | {name: found for name, found in inside.items() if found}


def test_what_steps_return_and_raise_holds_no_secret(tmp_path):
    text = "\n".join(text for text, _ in CANARIES.values())
    assert len(text) < MAX_INLINE
    steps = {
        "small": lambda: {"out": text},
        "large": lambda: {"out": [text, "x" * MAX_INLINE]},
        "effect": Effect("key-1", lambda key: {"answer": text}, "keyed", arguments={"password": SECRET}),
        "asked": Effect("key-2", raising("the line is dead"), "once", lambda key: Answer("unknown", f"saw {SERVICE}")),
    }
    assert ran(tmp_path, steps) == {}


SERVICE = ENVIRON["SERVICE_TOKEN"]


@pytest.mark.parametrize("before", [0, 150, 165, 180, 190])
@pytest.mark.parametrize("secret", [SERVICE, TOKENS["github_token"]], ids=["env", "token"])
@pytest.mark.parametrize("how", ["step", "effect"])
def test_the_text_of_an_exception_is_redacted_before_it_is_shortened(tmp_path, before, secret, how):
    """A secret that is cut in two by a limit is still half a secret."""
    act = raising("x " * (before // 2) + secret)
    ran(tmp_path, {"a": act if how == "step" else Effect("key", act, "once", lambda key: Answer("not_done"))})
    rest = [piece for at in range(0, len(secret) - 12, 4) if (piece := secret[at : at + 12])]
    for name, data in files_of(tmp_path).items():
        assert not [piece for piece in rest if piece.encode() in data], name


# --- disguises


def recorded(text: str, tmp_path: Path) -> dict[str, bytes]:
    with (
        SqliteStore(tmp_path / "s" / "holdfast.db", boot_id="b") as store,
        RunLog(store, "run-1", a_world(), app.redactor(ENVIRON)) as log,
    ):
        log.record(e.RunStarted(mission_id="m"), e.NoteRecorded(text=text))
    return files_of(tmp_path / "s")


def test_base64_hides_no_token_with_a_fixed_beginning(tmp_path):
    """At each of the three alignments, standard and url-safe. The kinds without a fixed beginning are a stated limit."""
    hidden = []
    for name, (text, _) in CANARIES.items():
        if name in TOKENS and name not in WITHOUT_A_FIXED_BEGINNING:
            for shift in range(3):
                hidden.append(base64.b64encode(b"-" * shift + b" " + text.encode()).decode())
                hidden.append(base64.urlsafe_b64encode(b"-" * shift + b" " + text.encode()).decode())
    for value in VALUES:
        hidden += [base64.b64encode(b"-" * shift + value.encode()).decode() for shift in range(3)]
    rest = [text for text in hidden if text[24:60] in REDACT.text(f"data: {text} end")]
    assert rest == []
    data = b"".join(recorded("\n".join(f"x {text}" for text in hidden[:60]), tmp_path).values())
    assert not [text for text in hidden[:60] if text[24:60].encode() in data]


REDACT = Redactor(VALUES)


def test_json_inside_json_hides_nothing(tmp_path):
    once = json.dumps({"message": [text for text, _ in CANARIES.values()][:60]})
    twice = json.dumps({"inner": once})
    for number, text in enumerate((once, twice)):
        for data in recorded(text, tmp_path / str(number)).values():
            assert hits(data) == []


def test_escaped_letters_hide_nothing():
    for name, (text, secret) in CANARIES.items():
        escaped = "".join(
            f"\\u{ord(letter):04x}" if letter.isalnum() and at % 3 == 0 else letter for at, letter in enumerate(text)
        )
        try:
            body = f'{{"text":"{escaped}"}}'.encode()
            json.loads(body)
        except ValueError:
            continue
        assert secret not in json.loads(REDACT.body(body))["text"], name


@pytest.mark.parametrize("size", [1, 7, 64, 4096])
def test_a_secret_split_over_chunks_of_a_stream_is_caught(size):
    text = "\n".join(f"output {text} more" for text, _ in CANARIES.values())
    stream = REDACT.stream()
    parts = [stream.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert hits("".join([*parts, stream.flush()]).encode()) == []


# --- what must stay, and what is not promised


def test_hashes_ids_and_commits_stay_as_they_are(tmp_path):
    commit, digest = "0123456789abcdef" * 2 + "01234567", "fedcba98" * 8
    run = "01890a5d-ac96-774b-bcce-b302099a8057"
    text = f"commit {commit} tree {digest} run {run} sha512-{'Ab1+/' * 17}=="
    with SqliteStore(tmp_path / "s" / "holdfast.db", boot_id="b") as store:
        with RunLog(store, run, a_world(), app.redactor(ENVIRON)) as log:
            log.record(e.RunStarted(mission_id=commit, input_hash=digest, plan=(commit,)))
            log.record(e.StepStarted(step_id=commit, input_hash=digest))
            log.record(e.EffectStarted(effect_key=digest, step_id=commit, arguments_hash=digest))
            log.record(e.EffectFinished(effect_key=digest, receipt={"sha": commit, "id": run, "max_tokens": 4096}))
            log.record(e.StepFinished(step_id=commit, artifact=digest, output=text))
        bodies = b"".join(record.body for record in store.read(run))
    assert b"[redacted" not in bodies
    assert bodies.count(commit.encode()) >= 7 and text.encode() in bodies


def test_a_refused_append_leaves_no_secret_behind(tmp_path):
    """What is too large or cannot follow was redacted before it was refused, and nothing of it was written."""
    with (
        SqliteStore(tmp_path / "s" / "holdfast.db", boot_id="b") as store,
        RunLog(store, "run-1", a_world(), app.redactor(ENVIRON)) as log,
    ):
        log.record(e.RunStarted(mission_id="m"))
        for event in (
            e.NoteRecorded(text=SECRET + "x" * 70_000),
            e.StepFinished(step_id="no", output=TOKENS["github_token"]),
        ):
            with pytest.raises(app.UsageError.__base__) as caught:
                log.record(event)
            assert hits(str(caught.value).encode()) == []
    assert found_in(tmp_path) == {}


def test_an_artifact_is_kept_as_it_is(tmp_path):
    """The stated limit: an artifact is bytes under their own hash, so nothing is taken out of it. Whoever puts it redacts it."""
    content = f"log of a tool: {SECRET} {TOKENS['github_token']}".encode()
    with SqliteStore(tmp_path / "s" / "holdfast.db", boot_id="b") as store:
        assert store.get_artifact(store.put_artifact(content)) == content
        clean = store.put_artifact(REDACT.data(content))
        assert TOKENS["github_token"].encode() not in store.get_artifact(clean)


def test_keys_and_numbers_are_not_changed(tmp_path):
    """The stated limit: the names of fields stay, and so do numbers."""
    token = TOKENS["github_token"]
    assert token in REDACT.value({token: 1}) and REDACT.value({"pin": 1234}) == {"pin": 1234}
