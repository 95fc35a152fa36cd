"""A model on loopback that follows a script: what real agents talk to instead of a provider. It knows nothing.

Speaks OpenAI chat completions and Responses, and Anthropic messages; streaming or as one JSON document. It has no memory:
its turn is the number of model turns in the history that it is sent, so an agent that lost its history makes it repeat itself.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from holdfast.core.named import NamedTuple

JSON = dict[str, Any]
SHELLS = ("exec_command", "shell_command", "shell", "bash", "local_shell", "run_shell_command", "Bash")
USAGE = (11, 7)  # tokens in and out, of every turn


class Turn(NamedTuple):
    """What the model does next: run a command, say something and be done, or refuse with a status and an error object."""

    run: str = ""
    say: str = ""
    status: int = 200
    headers: Mapping[str, str] = {}
    error: Mapping[str, Any] = {}


class Asked(NamedTuple):
    """One request: where it came in, which turn it was, and what it held."""

    path: str
    turn: int
    body: JSON


class ModelServer:
    """Serves while it is entered. `asked` has every request for a turn; `skip` says how many turns a prompt calls done."""

    def __init__(self, turns: Sequence[Turn], skip: Callable[[str], int] = lambda request: 0) -> None:
        self.turns, self._skip = turns, skip
        self.asked: list[Asked] = []
        self._http = _Quiet(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def turn(self, path: str, number: int, body: JSON) -> Turn:
        """The turn of this number; the last one for ever. Whoever offers no tool only wants a title."""
        if not body.get("tools"):
            return Turn(say="scripted")
        number += self._skip(json.dumps(body))
        self.asked.append(Asked(path, number, body))
        return self.turns[min(number, len(self.turns) - 1)]


def _silent(*_: object) -> None:
    """A client that was killed is what this server is for."""


# Made from names, because it is the library that calls them.
_Quiet: Any = type("_Quiet", (ThreadingHTTPServer,), {"daemon_threads": True, "handle_error": _silent})


def _handler(server: ModelServer) -> Any:
    answers = {"do_GET": _list_models, "do_POST": lambda request: _take_turn(server, request)}
    more = {"protocol_version": "HTTP/1.1", "log_message": _silent}
    return type("Handler", (BaseHTTPRequestHandler,), {**answers, **more})


def _list_models(request: BaseHTTPRequestHandler) -> None:
    _send(request, 200, {"object": "list", "data": [], "models": []})


def _take_turn(server: ModelServer, request: BaseHTTPRequestHandler) -> None:
    data = request.rfile.read(int(request.headers.get("Content-Length") or 0))
    speaker = next((one for end, one in _SPEAKERS.items() if request.path.split("?")[0].endswith(end)), None)
    if speaker is None:
        _send(request, 404, {"error": {"message": f"There is no {request.path} here."}})
        return
    body = json.loads(data)
    turn = server.turn(request.path, speaker.turns_in(body), body)
    if turn.status != 200:
        _send(request, turn.status, {"error": {"message": turn.say, "type": "scripted", **turn.error}}, turn.headers)
    elif body.get("stream"):
        _stream(request, speaker.events(turn, body))
    else:
        _send(request, 200, speaker.document(turn, body))


def _send(request: BaseHTTPRequestHandler, status: int, value: JSON, headers: Mapping[str, str] | None = None) -> None:
    _answer(request, status, json.dumps(value), {"Content-Type": "application/json", **(headers or {})})


def _stream(request: BaseHTTPRequestHandler, events: Sequence[JSON | str]) -> None:
    pieces = []
    for event in events:
        name = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
        pieces.append(f"{name}data: {event if isinstance(event, str) else json.dumps(event)}\n\n")
    _answer(request, 200, "".join(pieces), {"Content-Type": "text/event-stream"})


def _answer(request: BaseHTTPRequestHandler, status: int, text: str, headers: Mapping[str, str]) -> None:
    data = text.encode()
    request.send_response(status)
    for name, value in {**headers, "Content-Length": str(len(data))}.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(data)


# --- the tool that runs commands, as each agent calls it


def _tool_call(body: JSON, command: str) -> tuple[str, str]:
    """Name and arguments of a call to whichever tool of the request runs commands."""
    for name, schema in sorted(_tools(body), key=lambda tool: _rank(tool[0])):
        known = schema.get("properties", {})
        if "cmd" in known:
            return name, json.dumps({"cmd": command})
        if "command" in known:
            listed = known["command"].get("type") == "array"
            return name, json.dumps({"command": ["bash", "-c", command] if listed else command})
    raise LookupError("none of the tools runs commands")


def _rank(name: str) -> int:
    return SHELLS.index(name) if name in SHELLS else len(SHELLS)


def _tools(body: JSON) -> list[tuple[str, JSON]]:
    """Names and schemas, in the shape of any of the three."""
    tools = [{**tool, **tool.get("function", {})} for tool in body["tools"]]
    return [
        (tool["name"], tool.get("parameters") or tool.get("input_schema") or {}) for tool in tools if "name" in tool
    ]


# --- three languages


class _Chat:
    """OpenAI chat completions."""

    def turns_in(self, body: JSON) -> int:
        return sum(message["role"] == "assistant" for message in body["messages"])

    def _message(self, turn: Turn, body: JSON) -> JSON:
        if not turn.run:
            return {"role": "assistant", "content": turn.say}
        name, arguments = _tool_call(body, turn.run)
        call = {
            "id": f"call_{self.turns_in(body)}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    def document(self, turn: Turn, body: JSON) -> JSON:
        finish = "tool_calls" if turn.run else "stop"
        choice = {"index": 0, "message": self._message(turn, body), "finish_reason": finish}
        return {**self._top(body), "object": "chat.completion", "choices": [choice], "usage": self._usage()}

    def events(self, turn: Turn, body: JSON) -> list[JSON | str]:
        top = {**self._top(body), "object": "chat.completion.chunk"}
        message = self._message(turn, body)
        for number, one in enumerate(message.get("tool_calls", [])):
            one["index"] = number
        finish = "tool_calls" if turn.run else "stop"
        first = {**top, "choices": [{"index": 0, "delta": message, "finish_reason": None}]}
        last = {**top, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "usage": self._usage()}
        return [first, last, "[DONE]"]

    def _top(self, body: JSON) -> JSON:
        return {"id": f"chatcmpl-{self.turns_in(body)}", "created": 0, "model": body.get("model", "scripted")}

    def _usage(self) -> JSON:
        return {"prompt_tokens": USAGE[0], "completion_tokens": USAGE[1], "total_tokens": sum(USAGE)}


class _Responses:
    """OpenAI Responses."""

    def turns_in(self, body: JSON) -> int:
        items = body["input"] if isinstance(body["input"], list) else []
        return sum(
            item.get("type") in ("function_call", "custom_tool_call", "local_shell_call")
            or item.get("role") == "assistant"
            for item in items
        )

    def _item(self, turn: Turn, body: JSON) -> JSON:
        number = self.turns_in(body)
        if not turn.run:
            content = [{"type": "output_text", "text": turn.say, "annotations": []}]
            return {
                "type": "message",
                "id": f"msg_{number}",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        name, arguments = _tool_call(body, turn.run)
        call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "status": "completed"}
        return {**call, "name": name, "arguments": arguments}

    def document(self, turn: Turn, body: JSON) -> JSON:
        usage = {"input_tokens": USAGE[0], "output_tokens": USAGE[1], "total_tokens": sum(USAGE)}
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        top = {"id": f"resp_{self.turns_in(body)}", "object": "response", "created_at": 0, "status": "completed"}
        named = {"model": body.get("model", "scripted"), "output": [self._item(turn, body)]}
        return {**top, **named, "usage": {**usage, **details}}

    def events(self, turn: Turn, body: JSON) -> list[JSON | str]:
        document = self.document(turn, body)
        item = document["output"][0]
        begun = {**document, "status": "in_progress", "output": [], "usage": None}
        return [
            {"type": "response.created", "response": begun},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": document},
        ]


class _Messages:
    """Anthropic messages."""

    def turns_in(self, body: JSON) -> int:
        return sum(message["role"] == "assistant" for message in body["messages"])

    def _block(self, turn: Turn, body: JSON) -> JSON:
        if not turn.run:
            return {"type": "text", "text": turn.say}
        name, arguments = _tool_call(body, turn.run)
        return {"type": "tool_use", "id": f"toolu_{self.turns_in(body)}", "name": name, "input": json.loads(arguments)}

    def document(self, turn: Turn, body: JSON) -> JSON:
        stop = "tool_use" if turn.run else "end_turn"
        top = {
            "id": f"msg_{self.turns_in(body)}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model", "scripted"),
        }
        usage = {"input_tokens": USAGE[0], "output_tokens": USAGE[1]}
        return {**top, "content": [self._block(turn, body)], "stop_reason": stop, "stop_sequence": None, "usage": usage}

    def events(self, turn: Turn, body: JSON) -> list[JSON | str]:
        document = self.document(turn, body)
        block = document["content"][0]
        if turn.run:
            empty, delta = (
                {**block, "input": {}},
                {"type": "input_json_delta", "partial_json": json.dumps(block["input"])},
            )
        else:
            empty, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": turn.say}
        ends = {"stop_reason": document["stop_reason"], "stop_sequence": None}
        return [
            {"type": "message_start", "message": {**document, "content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": empty},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": ends, "usage": document["usage"]},
            {"type": "message_stop"},
        ]


_SPEAKERS: dict[str, _Chat | _Responses | _Messages] = {
    "/chat/completions": _Chat(),
    "/responses": _Responses(),
    "/messages": _Messages(),
}
