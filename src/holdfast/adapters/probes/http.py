"""One HTTP request that carries its key, for servers that deduplicate by it. Follows no redirect and trusts no bad certificate.

`Idempotency-Key` is always sent, so the same request may be sent again: that is the policy `keyed`. A probe is
possible where the server can be asked: a GET whose 200 means done and whose 404 means not done.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import re
import socket
import ssl
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal
from urllib.parse import SplitResult, quote, urlsplit

from holdfast.adapters.probes.common import EffectError, check_key, sure
from holdfast.core.canonical import digest
from holdfast.core.errors import UsageError, shown
from holdfast.core.named import NamedTuple
from holdfast.core.stops import snippet
from holdfast.core.values import Answer

KEY_HEADER = "Idempotency-Key"
KEPT_HEADERS = ("content-type", "etag", "last-modified", "location", "x-request-id")
MAX_BODY = 16 * 1024 * 1024
MAX_INLINE = 2048
MAX_HEADER = 500
SECONDS = 30.0
_PIECE = 1 << 16
_HOST = re.compile("[a-z0-9._:-]+")
_OF_BODIES = frozenset({"content-type", "content-length", "content-encoding"})


class HttpFailed(EffectError):
    """The server did not say yes. `status` is what it said, None if nothing was heard."""

    advice = "The key goes with the request, so a server that knows it does not do it twice."

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Heard(NamedTuple):
    """An answer: its status, the headers that are kept, and its body as far as it was read."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_whole: bool

    @property
    def receipt(self) -> dict[str, Any]:
        seen = {"sha256": hashlib.sha256(self.body).hexdigest(), "bytes": len(self.body), "whole": self.is_whole}
        return {"status": self.status, "headers": self.headers, "body": {**seen, "text": self._text()}}

    def _text(self) -> str | None:
        """The body itself, if it is short and plain."""
        text = self.body.decode("utf-8", "replace")
        plain = text.encode() == self.body and all(letter.isprintable() or letter in "\t\r\n" for letter in text)
        return text if plain and len(self.body) <= MAX_INLINE else None


@dataclass(frozen=True)
class HttpRequest:
    """One request. `probe_url` may hold `{key}`; its GET is sent with the same headers, but without the key.

    A status of `accept` counts as success like any 2xx. The whole exchange takes at most `seconds`.
    """

    policy: ClassVar[Literal["keyed"]] = "keyed"

    method: str
    url: str
    body: bytes = field(default=b"", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    probe_url: str | None = None
    accept: tuple[int, ...] = ()
    cafile: str | None = None
    seconds: float = field(default=SECONDS, compare=False)

    def __post_init__(self) -> None:
        if not (self.method.isascii() and self.method.isalpha() and self.method.isupper()):
            raise UsageError(f"{self.method!r:.40} is not an HTTP method.", advice="Use POST, PUT, PATCH or DELETE.")
        if KEY_HEADER.lower() in map(str.lower, self.headers):
            raise UsageError(f"The header {KEY_HEADER} is sent by itself.", advice="Leave it out of the headers.")
        if not isinstance(self.body, (bytes, bytearray, memoryview)):
            raise UsageError(
                f"The body of a request is bytes, not a {type(self.body).__name__}.",
                advice="Encode text yourself, as in text.encode().",
            )
        if not isinstance(self.accept, Collection):
            raise UsageError(f"{shown(self.accept, 40)} is no list of statuses.", advice="Write accept=(303,).")
        for url in (self.url, self.probe_url or self.url):
            check_url(url)

    @property
    def arguments(self) -> dict[str, Any]:
        """Headers do not identify a request, but for the type of its body: credentials may change, and must not be kept."""
        kind = next((value for name, value in self.headers.items() if name.lower() == "content-type"), None)
        return {"method": self.method, "url": self.url, "body_sha256": digest(self.body), "content_type": kind}

    def act(self, key: str) -> dict[str, Any]:
        check_key(key)
        heard = self._exchange(self.method, self.url, {**self.headers, KEY_HEADER: key}, self.body)
        if 200 <= heard.status < 300 or heard.status in self.accept:
            return heard.receipt
        raise refusal(self.url, heard)

    def probe(self, key: str) -> Answer:
        return sure(lambda: self._answer(key))

    def _answer(self, key: str) -> Answer:
        check_key(key)
        if self.probe_url is None:
            return Answer("unknown", "no address was given at which the server could be asked")
        url = self.probe_url.replace("{key}", quote(key, safe=""))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _OF_BODIES}
        heard = self._exchange("GET", url, headers, b"")
        if heard.status == http.client.OK:
            return Answer("done", f"{shown_url(url)} answered 200", heard.receipt)
        if heard.status == http.client.NOT_FOUND:
            return Answer("not_done", f"{shown_url(url)} answered 404")
        return Answer("unknown", f"{shown_url(url)} answered {heard.status}")

    def _exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Heard:
        parts = check_url(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            with self._connection(parts) as connection:
                connection.request(method, target, body or None, {"Connection": "close", **headers})
                return hear(connection.getresponse())
        except (OSError, http.client.HTTPException, ValueError) as error:
            said = snippet(f"{type(error).__name__}: {error}")
            raise HttpFailed(f"{method} {shown_url(url)} got no whole answer ({said}).") from error

    @contextmanager
    def _connection(self, parts: SplitResult) -> Iterator[http.client.HTTPConnection]:
        """A connection that is cut when the time is over, however slowly the other side speaks."""
        host = parts.hostname or ""
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=self.cafile)
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, parts.port, timeout=self.seconds, context=context
            )
        else:
            connection = http.client.HTTPConnection(host, parts.port, timeout=self.seconds)
        over = threading.Event()
        watch = threading.Timer(self.seconds, cut, [connection, over])
        watch.daemon = True
        watch.start()
        try:
            yield connection
            if over.is_set():
                raise TimeoutError(f"it took more than {self.seconds:g} seconds")
        finally:
            watch.cancel()
            connection.close()


def cut(connection: http.client.HTTPConnection, over: threading.Event) -> None:
    """End the connection under its reader, who may take that for the end of the answer; so tell him."""
    over.set()
    if (plug := connection.sock) is not None:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(plug, socket.SHUT_RDWR)


def hear(response: http.client.HTTPResponse) -> Heard:
    """Read the answer. One that promised more than it brought is no answer."""
    body = bytearray()
    while len(body) < MAX_BODY and (piece := response.read(min(_PIECE, MAX_BODY - len(body)))):
        body += piece
    is_whole = len(body) < MAX_BODY or not response.read(1)
    if is_whole and response.length:
        raise http.client.IncompleteRead(bytes(body), response.length)
    found = {name: response.headers.get(name) for name in KEPT_HEADERS}
    kept = {name: snippet(value[:MAX_HEADER]) for name, value in found.items() if value}
    return Heard(response.status, kept, bytes(body), is_whole)


def check_url(url: str) -> SplitResult:
    """An address that says exactly where to go, and holds no password."""
    plain = url.isascii() and url.isprintable() and " " not in url
    try:
        parts = urlsplit(url)
        host = _HOST.fullmatch(parts.hostname or "")
        usable = plain and parts.scheme in ("http", "https") and host is not None and parts.port != 0
    except ValueError:
        usable = False
    if not usable or "@" in parts.netloc or parts.fragment:
        raise UsageError(
            "The address is not a plain http or https URL without user, password and fragment.",
            advice="Percent-encode what is special; put credentials into a header.",
        )
    return parts


def shown_url(url: str) -> str:
    """The address without its query, which may hold a secret."""
    return url.partition("?")[0]


def refusal(url: str, heard: Heard) -> HttpFailed:
    if 300 <= heard.status < 400:
        where = shown_url(heard.headers.get("location", "nowhere"))
        return HttpFailed(
            f"{shown_url(url)} answered {heard.status}, to go to {where}; that is not followed.", heard.status
        )
    said = snippet(heard.body[:MAX_INLINE].decode("utf-8", "replace"))
    return HttpFailed(f"{shown_url(url)} answered {heard.status}: {said or 'nothing'}", heard.status)
