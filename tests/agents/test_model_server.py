"""The scripted model answers in three languages, streamed or whole, and takes its turn from the history alone."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from holdfast.testing.model_server import ModelServer, Turn

TURNS = [Turn(run="echo 1"), Turn(say="done")]
PARAMETERS = {"properties": {"command": {"type": "string"}}}
FUNCTION = {"name": "bash", "parameters": PARAMETERS}
CALL, RESULT = {"role": "assistant", "tool_calls": []}, {"role": "tool", "content": "1"}
ITEMS = [{"type": "function_call"}, {"type": "function_call_output"}, {"type": "reasoning"}]
ASKED = {
    "/v1/chat/completions": (
        {"messages": []},
        {"messages": [CALL, RESULT]},
        [{"type": "function", "function": FUNCTION}],
    ),
    "/v1/responses": ({"input": "go"}, {"input": ITEMS}, [{"type": "function", **FUNCTION}, {"type": "web_search"}]),
    "/v1/messages": (
        {"messages": []},
        {"messages": [{"role": "assistant"}]},
        [{"name": "Bash", "input_schema": PARAMETERS}],
    ),
}


def post(server, path, body):
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ASKED)
def test_the_turn_is_the_number_of_model_turns_in_the_history(path, stream):
    first, second, tools = ASKED[path]
    with ModelServer(TURNS) as server:
        asked = post(server, path, {**first, "tools": tools, "stream": stream})
        said = post(server, path, {**second, "tools": tools, "stream": stream})
        assert "echo 1" in asked and "bash" in asked.lower() and "done" in said and "echo 1" not in said
        assert [one.turn for one in server.asked] == [0, 1]
        assert stream == asked.startswith(("data:", "event:"))


def test_the_shape_of_the_tool_decides_how_it_is_called():
    body = {"input": [], "stream": False}
    shapes = (
        ({"cmd": {"type": "string"}}, {"cmd": "echo 1"}),
        ({"command": {"type": "array"}}, {"command": ["bash", "-c", "echo 1"]}),
        ({"command": {"type": "string"}}, {"command": "echo 1"}),
    )
    with ModelServer(TURNS) as server:
        for properties, expected in shapes:
            tools = [{"name": "view", "parameters": {}}, {"name": "shell", "parameters": {"properties": properties}}]
            called = json.loads(post(server, "/v1/responses", {**body, "tools": tools}))["output"][0]
            assert (called["name"], json.loads(called["arguments"])) == ("shell", expected)


def test_a_request_without_tools_is_not_a_turn_and_a_refusal_is_a_status():
    with ModelServer([Turn(say="no", status=429, headers={"Retry-After": "9"}, error={"type": "limit"})]) as server:
        assert "scripted" in post(server, "/v1/chat/completions", {"messages": []}) and server.asked == []
        with pytest.raises(urllib.error.HTTPError) as caught:
            post(server, "/v1/messages", {"messages": [], "tools": [FUNCTION]})
        with caught.value as refused:
            assert (refused.code, refused.headers["Retry-After"]) == (429, "9")
            assert json.loads(refused.read())["error"] == {"message": "no", "type": "limit"}
        with pytest.raises(urllib.error.HTTPError) as caught:
            post(server, "/v1/other", {})
        caught.value.close()
        with urllib.request.urlopen(server.url + "/v1/models", timeout=10) as answer:
            assert json.load(answer)["data"] == []
