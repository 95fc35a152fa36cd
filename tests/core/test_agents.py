"""A profile is data: a command line is built without a shell, nothing from outside becomes an option, and output is only read."""

from __future__ import annotations

import json

import pytest

from holdfast.core.agent_output import MAX_COMPLAINTS, MAX_KEPT, Listener, Said
from holdfast.core.agents import (
    MAX_ARGUMENT,
    BadProfile,
    Find,
    Places,
    call,
    filled,
    hinted,
    profile_from,
    shipped,
    shipped_profile,
)
from holdfast.core.errors import BadInput, TooLarge
from holdfast.core.reports import BEGIN, END


def places(prompt="Do it.", **more):
    return Places(prompt, "/s/prompt.txt", "/s/report.json", "/w", "/s", **more)


def plain(**more):
    return profile_from({"start": ["x", "{prompt}"], **more}, "mine")


# --- command lines


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_agent_starts_with_a_prompt_and_says_what_it_may_do(name):
    profile = shipped_profile(name)
    started = call(profile, places("- a prompt; $(x) {model}", model="m"))
    assert started.argv[0] == name and "m" in started.argv and profile.trust
    given = started.stdin.decode() if started.stdin else " ".join(started.argv)
    assert "- a prompt; $(x) {model}" in given or "/s/prompt.txt" in given
    assert not any(item.startswith("- a prompt") for item in started.argv)
    assert "m" not in call(profile, places()).argv and "--model" not in call(profile, places()).argv


@pytest.mark.parametrize("name", [name for name in shipped() if shipped_profile(name).resume])
def test_every_agent_that_can_resume_gets_its_session(name):
    profile = shipped_profile(name)
    resumed = call(profile, places(session="s-1"))
    assert "s-1" in resumed.argv and resumed.session == "s-1"
    assert resumed.argv != call(profile, places()).argv


def test_what_an_agent_cannot_do_is_said():
    assert not shipped_profile("mini").resume and "no sessions" in " ".join(shipped_profile("mini").cannot)
    assert "no sessions" in " ".join(shipped_profile("aider").cannot)
    with pytest.raises(BadProfile, match="'mini' cannot be used: it cannot resume a session"):
        call(shipped_profile("mini"), places(session="s"))


def test_placeholders_are_replaced_once_and_in_place():
    profile = plain(start=["x", "{other}", "--task={prompt}", "{cwd}:{folder}:{report}", '{"a": 1}'])
    argv = call(profile, places("{cwd} {session} {")).argv
    assert argv == ("x", "{other}", "--task={cwd} {session} {", "/w:/s:/s/report.json", '{"a": 1}')


def test_a_prompt_like_an_option_is_not_one():
    assert call(plain(), places("--yes")).argv == ("x", " --yes")
    assert call(plain(start=["x", "--", "{prompt}"]), places("--yes")).argv == ("x", "--", "--yes")
    assert call(plain(start=["x", "--p={prompt}"]), places("-x")).argv == ("x", "--p=-x")
    assert call(plain(start=["x", "-m", "{model}", "{prompt}"]), places(model="--evil")).argv[2] == " --evil"


def test_without_a_model_what_names_it_is_left_out():
    assert call(plain(start=["x", "-m", "{model}", "{prompt}"]), places()).argv == ("x", "Do it.")
    assert call(plain(start=["x", "--model={model}", "y", "{model}", "{prompt}"]), places()).argv == (
        "x",
        "y",
        "Do it.",
    )
    own = plain(start=["x", "-m", "{model}", "{prompt}"], model="own")
    assert call(own, places()).argv[2] == "own" and call(own, places(model="asked")).argv[2] == "asked"


@pytest.mark.parametrize("session", ["", "-x", "--last", "a\nb", "a\0", "x" * 5000])
def test_a_session_that_could_do_harm_is_refused(session):
    with pytest.raises(BadProfile) as caught:
        call(shipped_profile("codex"), places(session=session))
    said = f"{session!r:.60} cannot be the id of a session"
    assert str(caught.value) == f"The agent 'codex' cannot be used: {said}."
    assert "x" * 4096 in call(shipped_profile("codex"), places(session="x" * 4096)).argv


def test_a_prompt_that_no_command_line_can_hold_is_refused():
    with pytest.raises(TooLarge) as caught:
        call(shipped_profile("mini"), places("x" * (MAX_ARGUMENT + 1)))
    assert "stdin" in caught.value.advice and str(caught.value).startswith("The prompt for mini ")
    assert "x" * MAX_ARGUMENT in call(plain(), places("x" * MAX_ARGUMENT)).argv
    with pytest.raises(BadInput, match="zero byte"):
        call(shipped_profile("mini"), places("a\0b"))
    assert len(call(shipped_profile("codex"), places("x" * 10**6)).stdin) == 10**6


def test_a_session_that_we_name_is_known_before_the_start():
    assert call(shipped_profile("aider"), places()).session == "/s/aider-chat.md"
    assert call(shipped_profile("codex"), places()).session is None
    assert filled("{folder}/{prompt}", places()) == "/s/{prompt}"


# --- profiles of users


def test_a_profile_may_be_like_a_shipped_one():
    assert "codex" in shipped()
    profile = profile_from({"like": "codex", "model": "big"}, "careful")
    assert (profile.name, profile.model, profile.start) == ("careful", "big", shipped_profile("codex").start)
    assert profile_from({"model": "big"}, "codex").start == shipped_profile("codex").start, "its own name is enough"


WRONG = {
    "no start": ({}, "start"),
    "empty start": ({"start": []}, "used: `start` names no program."),
    "empty program": ({"start": ["", "{prompt}"]}, "used: `start` names no program."),
    "placeholder as program": ({"start": ["{prompt}"]}, "used: the program itself cannot be a placeholder."),
    "start is text": ({"start": "x {prompt}"}, "agents.mine.start"),
    "unknown key": ({"start": ["x", "{prompt}"], "starts": 1}, "starts"),
    "bad output": ({"start": ["x", "{prompt}"], "output": "yaml"}, "agents.mine.output"),
    "bad rule": ({"start": ["x", "{prompt}"], "result": [{"pth": "a"}]}, "agents.mine.result"),
    "bad like": (
        {"like": "g" * 99},
        f"used: `like` is {repr('g' * 99)[:60]}, which is none of {', '.join(shipped())}.",
    ),
    "like is no text": ({"like": ["codex"]}, "like"),
    "a name": ({"name": "x", "start": ["x", "{prompt}"]}, "used: `name` is given by the title of its table."),
    "no prompt": ({"start": ["x"]}, "used: {prompt} must stand in `start`."),
    "prompt twice": (
        {"start": ["x", "{prompt}"], "prompt_by": "stdin"},
        "used: {prompt} goes to the standard input, so it must not stand in `start`.",
    ),
    "no prompt to resume": (
        {"start": ["x", "{prompt}"], "resume": ["x", "{session}"], "session_is": "s"},
        "used: {prompt} must stand in `resume`.",
    ),
    "session too early": (
        {"start": ["x", "{prompt}", "{session}"]},
        "used: `start` asks for {session}, and there is none yet.",
    ),
    "session forgotten": (
        {"start": ["x", "{prompt}"], "resume": ["x", "{prompt}"]},
        "used: `resume` does not say {session}.",
    ),
    "session unknown": (
        {"start": ["x", "{prompt}"], "resume": ["x", "{prompt}", "{session}"]},
        "used: `resume` needs `session` to find its id.",
    ),
    "zero byte": ({"start": ["x", "{prompt}", "\0"]}, "used: a command line cannot hold a zero byte."),
    "bad variable": (
        {"start": ["x", "{prompt}"], "env": {"A=B": "1"}},
        "used: `env` holds a name that no variable can have.",
    ),
    "no variable": (
        {"start": ["x", "{prompt}"], "env": {"": "1"}},
        "used: `env` holds a name that no variable can have.",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_profile_is_refused_by_its_key(name):
    table, words = WRONG[name]
    with pytest.raises(BadProfile) as caught:
        profile_from(table, "mine")
    assert words in str(caught.value) and caught.value.name == "mine"
    assert str(caught.value) == f"The agent 'mine' cannot be used: {caught.value.problem}."
    assert caught.value.advice.startswith("Its keys are like, start, prompt_by, resume, ")


def test_a_very_long_name_is_cut_short_in_what_is_said_of_it():
    with pytest.raises(BadProfile) as caught:
        profile_from({"start": []}, "n" * 99)
    assert str(caught.value) == f"The agent '{'n' * 59} cannot be used: `start` names no program."


def test_a_right_profile_of_ones_own_is_taken_as_it_is():
    profile = plain(resume=["x", "{prompt}", "{session}"], session_is="{folder}/{cwd}/{report}", env={"A": "1"})
    assert profile.env == {"A": "1"}
    assert call(profile, places()) == (("x", "Do it."), None, "/s//w//s/report.json")
    assert call(profile, places(session="s")) == (("x", "Do it.", "s"), None, "s")


def test_a_prompt_goes_where_the_profile_says():
    assert call(plain(prompt_by="file"), places()) == (("x", "/s/prompt.txt"), None, None)
    assert call(plain(start=["x"], prompt_by="stdin"), places("a\ud800")) == (("x",), b"a?", None)


# --- what they say

CODEX = [
    {"type": "thread.started", "thread_id": "t-1"},
    {"type": "item.completed", "item": {"type": "agent_message", "text": "first"}},
    {"type": "item.completed", "item": {"type": "command_execution", "text": "no"}},
    {"type": "item.completed", "item": {"type": "agent_message", "text": "last"}},
    {"type": "turn.completed", "usage": {"input_tokens": 11, "output_tokens": 7}},
    {"type": "turn.completed", "usage": {"input_tokens": 1, "output_tokens": 1}},
    {"type": "error", "message": "oops"},
    {"type": "turn.failed", "error": {"message": "failed"}},
]
CLAUDE = [
    {"type": "system", "subtype": "init", "session_id": "c-1"},
    {
        "type": "result",
        "is_error": False,
        "result": "well",
        "session_id": "c-2",
        "total_cost_usd": 0.25,
        "usage": {
            "input_tokens": 1,
            "output_tokens": 20,
            "cache_creation_input_tokens": 300,
            "cache_read_input_tokens": 4000,
        },
    },
]
GEMINI = [
    {"type": "init", "session_id": "g-1"},
    {"type": "message", "role": "user", "content": "no"},
    {"type": "message", "role": "assistant", "content": "Let me", "delta": True},
    {"type": "message", "role": "assistant", "content": " look.", "delta": True},
    {"type": "tool_use", "tool_name": "run_shell_command", "tool_id": "1", "parameters": {"command": "ls"}},
    {"type": "tool_result", "tool_id": "1", "status": "success", "output": ""},
    {"type": "message", "role": "assistant", "content": "BEGIN_JSON\n", "delta": True},
    {"type": "message", "role": "assistant", "content": "{}", "delta": True},
    {"type": "result", "status": "error", "error": {"message": "bad"}, "stats": {"total_tokens": 5}},
]
OPENCODE = [
    {"type": "text", "sessionID": "o-1", "part": {"text": "hi "}},
    {"type": "text", "sessionID": "o-1", "part": {"text": "there"}},
    {"type": "step_finish", "sessionID": "o-1", "part": {"cost": 0.5, "tokens": {"input": 3, "output": 4}}},
    {
        "type": "step_finish",
        "sessionID": "o-1",
        "part": {"cost": 0.25, "tokens": {"input": 3, "output": 4, "cache": {"read": 50, "write": 6}}},
    },
]
HEARD = {
    "codex": (CODEX, ("t-1", "last", None, 20, ("oops", "failed"))),
    "claude": (CLAUDE, ("c-1", "well", 0.25, 4321, ())),
    "gemini": (GEMINI, ("g-1", "Let me look.\nBEGIN_JSON\n{}", None, 5, ("bad",))),
    "opencode": (OPENCODE, ("o-1", "hi there", 0.75, 70, ())),
}


def test_only_what_is_counted_over_a_session_is_taken_off():
    """Each start of claude tells its own cost, and codex the tokens of the whole session."""
    assert {name: shipped_profile(name).whole_session for name in ("claude", "codex")} == {
        "claude": (),
        "codex": ("tokens",),
    }


@pytest.mark.parametrize("name", HEARD)
def test_session_result_cost_and_errors_are_found(name):
    events, expected = HEARD[name]
    listener = Listener(shipped_profile(name))
    listener.hear("not JSON")
    listener.hear("{torn")
    for event in events:
        listener.hear(json.dumps(event))
    assert listener.said()[:5] == expected


CLAUDE_ACTS = [{"type": "tool_use", "input": {"command": "make test"}}]
SHOWN = {
    "codex": ({"type": "item.started", "item": {"command": "make test"}}, "make test"),
    "claude": ({"type": "assistant", "message": {"content": CLAUDE_ACTS}}, "make test"),
    "gemini": ({"type": "tool_use", "parameters": {"file_path": "a.py"}}, "a.py"),
    "opencode": ({"type": "text", "part": {"text": " hello "}}, "hello"),
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_an_agent_is_at_can_be_shown(name):
    event, expected = SHOWN[name]
    listener = Listener(shipped_profile(name))
    for one in (event, {**event, "type": "other"}, {"type": "assistant", "message": {"content": []}}):
        listener.hear(json.dumps(one))
    assert listener.progress == expected


def test_a_path_goes_through_lists_by_number():
    found = []
    for path in ("a.1", "a.2", "a.x", "a.1.b", "a.99999999999999", "a.0000000009", "a.000000009"):
        listener = Listener(plain(output="jsonl", progress=[{"path": path}]))
        listener.hear('{"a": ["no", "yes"]}')
        found.append(listener.progress)
    assert found == ["yes", *[""] * 6]


def test_an_error_of_claude_is_one_only_if_it_says_so():
    listener = Listener(shipped_profile("claude"))
    listener.hear(json.dumps({"type": "result", "is_error": True, "result": "usage limit reached|1794834000"}))
    assert listener.said().errors == ("usage limit reached|1794834000",)


def test_text_is_read_after_its_words_and_its_end_is_the_result():
    listener = Listener(shipped_profile("aider"))
    for line in ("Tokens: 3.2k sent. Cost: $0.01 message, $0.02 session.", "Cost: $", "Cost: $0.02, more", "done"):
        listener.hear(line)
    listener.hear("warned", is_error=True)
    said = listener.said()
    assert said.money == pytest.approx(0.03) and said.result.endswith("done") and said.complaints == "warned"


def test_in_text_a_value_stands_behind_the_first_of_its_words_and_an_object_is_text():
    finds = [{"after": "R: ", "which": "join"}, {"path": "a"}]
    listener = Listener(plain(result=finds, money=[{"after": "Cost: "}]))
    for line in ("R: one", "R: two", '{"a": "b"}', "Cost: 1 Cost: 2"):
        listener.hear(line)
    said = listener.said()
    assert (said.result, said.money) == ("one\ntwo", 1.0)
    assert said.tail == 'R: one\nR: two\n{"a": "b"}\nCost: 1 Cost: 2'


def test_an_object_on_a_line_of_its_own_is_read_whatever_stands_before_it_and_up_to_a_length():
    def heard(line):
        listener = Listener(plain(output="jsonl", result=[{"path": "t", "where": {"bad": "false"}}, {"path": "u"}]))
        listener.hear(line)
        return listener.said().result

    assert heard(' \t{"t": "x", "bad": false, "u": "y"}') == "x\ny"
    assert heard('{"t": "x", "bad": true}') == heard('{"t": "x", "bad": 0}') == ""
    assert heard('{"u": "\ud800"}') == "?"
    assert heard('{"u": "y"}'.ljust(1 << 20)) == "y" and heard('{"u": "y"}'.ljust((1 << 20) + 1)) == ""
    document = Listener(plain(output="json", result=[{"path": "u"}]))
    document.hear('{"u": "\ud800"}')
    assert document.said().result == "?"


def test_an_error_in_text_is_a_line_that_begins_with_it():
    listener = Listener(shipped_profile("aider"))
    limit = "litellm.RateLimitError: RateLimitError: OpenAIException - slow down"
    for line in (limit, "Retrying in 0.2 seconds...", "    except litellm.RateLimitError:", " litellm.Timeout: no"):
        listener.hear(line)
    assert listener.said().errors == (limit,)


def test_what_an_agent_has_to_know_beside_its_prompt_ends_it():
    told = hinted(shipped_profile("aider"), "Do it.\n")
    assert told == f"Do it.\n\n{shipped_profile('aider').hint}\n" and told.endswith(f"{BEGIN} and {END}.\n")
    assert hinted(shipped_profile("codex"), "Do it.\n") == "Do it.\n"


def test_a_document_is_read_from_a_file_or_from_the_output():
    listener = Listener(shipped_profile("mini"))
    listener.hear("words")
    assert listener.said().result == "words", "no document: what it said is all there is"
    listener.read(b'{"info": {"submission": "sub", "model_stats": {"instance_cost": 0.5}}}')
    assert listener.said()[1:3] == ("sub", 0.5)
    own = plain(output="json", result=[{"path": "answer"}], tokens=[{"path": "n"}])
    listener = Listener(own)
    for line in ('{"answer": "yes",', '"n": 5}'):
        listener.hear(line)
    assert listener.said()[1:4] == ("yes", None, 5)


@pytest.mark.parametrize("value", [True, None, [1], {"a": 1}, "many", "5X", -1, 1e300, float("1e15") * 2])
def test_only_sensible_numbers_are_added_up(value):
    listener = Listener(plain(output="jsonl", tokens=[{"path": "n", "which": "sum"}], money=[{"path": "n"}]))
    listener.hear(json.dumps({"n": value}))
    assert listener.said().tokens is None and listener.said().money is None
    listener.hear(json.dumps({"n": 2}))
    assert listener.said().tokens == 2
    listener.hear(json.dumps({"n": value}))
    assert listener.said().tokens == 2


@pytest.mark.parametrize("value", [0, 1e15, "$3.", " 4;"])
def test_a_number_may_be_nothing_or_much_and_stand_in_a_sentence(value):
    listener = Listener(plain(output="jsonl", tokens=[{"path": "n"}]))
    listener.hear(json.dumps({"n": value}))
    assert listener.said().tokens == {0: 0, 1e15: 10**15, "$3.": 3, " 4;": 4}[value]


@pytest.mark.parametrize("session", ["", "-x", "a\nb", "x" * 5000])
def test_a_session_that_cannot_be_handed_back_is_none(session):
    listener = Listener(shipped_profile("codex"))
    listener.hear(json.dumps({"type": "thread.started", "thread_id": session}))
    assert listener.session is None


def test_what_is_not_an_object_or_too_deep_or_too_long_is_skipped():
    listener = Listener(shipped_profile("codex"))
    for line in (
        "[1]",
        "5",
        "{" * 10_000,
        '{"type": ' + "[" * 10_000,
        '{"a": "' + "x" * (1 << 21) + '"}',
        '{"type": {"a": 1}}',
    ):
        listener.hear(line)
    listener.read(b"[1]")
    assert listener.said().result == "" and listener.session is None


def test_memory_is_bounded():
    listener = Listener(plain(output="jsonl", result=[{"path": "t", "which": "join"}], errors=[{"path": "e"}]))
    for _ in range(40):
        listener.hear(json.dumps({"t": "x" * 100_000, "e": "y" * 100_000}))
        listener.hear("z" * 100_000, is_error=True)
    said = listener.said()
    assert len(said.result) == MAX_KEPT and len(said.errors) == 20
    assert len(said.complaints) <= MAX_COMPLAINTS and len(said.tail) <= MAX_COMPLAINTS
    assert all(len(error) <= MAX_COMPLAINTS for error in said.errors)


def test_of_many_complaints_the_last_are_kept_whole_and_of_a_very_long_one_the_end():
    listener = Listener(plain())
    lines = [f"{number:0127}" for number in range(200)]
    for line in lines:
        listener.hear(line, is_error=True)
    assert listener.said().complaints == "\n".join(lines[-MAX_COMPLAINTS // 128 :])
    listener.hear("b" + "e" * MAX_COMPLAINTS, is_error=True)
    assert listener.said().complaints == "e" * MAX_COMPLAINTS


def test_nothing_said_is_nothing_known():
    assert Listener(shipped_profile("codex")).said() == Said()
    assert Find() == Find("", {}, "last", "")
