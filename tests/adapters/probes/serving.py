"""Small HTTP servers on loopback for tests: one function answers everything, and nothing is printed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

METHODS = ("GET", "POST", "PUT")


def silent(*_: Any) -> None:
    """A client that was killed is what these servers are for."""


# Made from names, because it is the library that calls them.
Quiet: Any = type("Quiet", (ThreadingHTTPServer,), {"daemon_threads": True, "handle_error": silent})


def handler(respond: Callable[[Any], None]) -> Any:
    answers = {f"do_{method}": respond for method in METHODS}
    more = {"protocol_version": "HTTP/1.1", "log_message": silent}
    return type("Handler", (BaseHTTPRequestHandler,), {**answers, **more})


def body_of(request: Any) -> bytes:
    body: bytes = request.rfile.read(int(request.headers.get("Content-Length", 0)))
    return body


def answer(request: Any, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
    request.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(body)


@contextmanager
def serving(server: Any) -> Iterator[Any]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
