"""HttpRequest against a real server on loopback that deduplicates by the key: sent twice, done once, and asked about."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest

from holdfast.adapters.probes import EffectError, HttpRequest
from holdfast.adapters.probes import http as http_probes
from holdfast.adapters.probes.http import HttpFailed
from holdfast.core.errors import UsageError
from holdfast.core.plain import check_plain
from holdfast.testing.crashlab import Available
from tests.adapters.probes.serving import Quiet, answer, body_of, handler, serving

KEY = "pay/1 of 2"
BODY = b'{"amount": 5}'


class Shop(Quiet):  # type: ignore[misc]  # a class made from names
    """Takes each order once, whatever the number of requests that carry its key. Tells how far a request has come."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), handler(respond))
        self.orders, self.requests, self.seen = {}, [], []
        self.lock, self.answers = threading.Lock(), {}
        self.arrived, self.done, self.may_answer = threading.Event(), threading.Event(), threading.Event()
        self.hold = ""  # where to wait: "before" or "after" the order is taken

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


def respond(request):
    if request.command == "POST":
        take_order(request, request.server)
    else:
        tell(request, request.server)


def take_order(request, shop):
    key, body = request.headers["Idempotency-Key"], body_of(request)
    shop.requests.append((key, body))
    shop.arrived.set()
    if shop.hold == "before":
        shop.may_answer.wait(20)
    with shop.lock:
        number = shop.orders.setdefault(key, len(shop.orders) + 1)
    shop.done.set()
    if shop.hold == "after":
        shop.may_answer.wait(20)
    answer(
        request, 201, json.dumps({"order": number}).encode(), {"Location": f"/orders/{number}", "Set-Cookie": "secret"}
    )


def tell(request, shop):
    body_of(request)
    shop.seen.append((request.path, dict(request.headers)))
    if request.path in shop.answers:
        answer(request, *shop.answers[request.path])
    else:
        name = request.path.removeprefix("/by-key/").replace("%2F", "/").replace("%20", " ")
        answer(request, *((200, b"there") if name in shop.orders else (404, b"not there")))


@pytest.fixture
def shop():
    with serving(Shop()) as server:
        yield server
        server.may_answer.set()


@pytest.fixture
def order(shop):
    return HttpRequest(
        "POST",
        f"{shop.url}/orders?token=word",
        BODY,
        {"Content-Type": "application/json", "Authorization": "Bearer word"},
        probe_url=f"{shop.url}/by-key/{{key}}",
    )


def test_a_request_sent_twice_is_done_once(shop, order):
    assert order.probe(KEY).settled_as == "not_done"
    receipt = order.act(KEY)
    assert order.act(KEY) == receipt and shop.orders == {KEY: 1} and shop.requests == [(KEY, BODY)] * 2
    assert (receipt["status"], receipt["headers"]) == (201, {"location": "/orders/1"})
    text = b'{"order": 1}'
    assert receipt["body"] == {
        "sha256": hashlib.sha256(text).hexdigest(),
        "bytes": len(text),
        "whole": True,
        "text": text.decode(),
    }
    check_plain(receipt)
    answer = order.probe(KEY)
    assert answer.settled_as == "done" and answer.receipt["body"]["text"] == "there"


def test_the_probe_shows_its_credentials_but_not_the_key(shop, order):
    order.probe(KEY)
    path, headers = shop.seen[-1]
    assert path == "/by-key/pay%2F1%20of%202" and headers["Authorization"] == "Bearer word"
    assert not {"Idempotency-Key", "Content-Type"} & headers.keys()


@pytest.mark.parametrize("status", [201, 204, 301, 302, 401, 403, 410, 429, 500, 503])
def test_only_200_and_404_are_an_answer(shop, order, status):
    shop.answers["/by-key/k"] = (status,)
    answer = order.probe("k")
    assert answer.settled_as == "unknown" and str(status) in answer.evidence


def test_without_an_address_to_ask_nothing_is_known(shop):
    assert HttpRequest("POST", f"{shop.url}/orders").probe(KEY).settled_as == "unknown"


@pytest.mark.parametrize("status", [400, 404, 409, 500])
def test_a_refusal_is_an_error_that_says_what_the_server_said(shop, status):
    shop.answers["/x?secret=word"] = (status, b"no\x1b[2J such thing")
    with pytest.raises(HttpFailed, match=r"no.*such thing") as caught:
        HttpRequest("PUT", f"{shop.url}/x?secret=word", BODY).act(KEY)
    said = str(caught.value)
    assert caught.value.status == status and str(status) in said and "word" not in said and "\x1b" not in said


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(shop, status):
    shop.answers["/x"] = (status, b"", {"Location": f"{shop.url}/elsewhere?token=word"})
    request = HttpRequest("PUT", f"{shop.url}/x", BODY)
    with pytest.raises(HttpFailed, match="elsewhere; that is not followed") as caught:
        request.act(KEY)
    assert [path for path, _ in shop.seen] == ["/x"] and "word" not in str(caught.value)
    accepting = HttpRequest("PUT", f"{shop.url}/x", BODY, accept=(status,))
    assert accepting.act(KEY)["status"] == status


def test_a_large_or_strange_body_is_only_hashed(shop, monkeypatch):
    monkeypatch.setattr(http_probes, "MAX_BODY", 100_000)
    for body, whole in ((b"x" * 3000, True), (b"\x00\xff", True), ("\u202e".encode(), True), (b"y" * 200_000, False)):
        shop.answers["/x"] = (200, body)
        receipt = HttpRequest("PUT", f"{shop.url}/x", BODY).act(KEY)
        kept = body[:100_000]
        assert receipt["body"] == {
            "sha256": hashlib.sha256(kept).hexdigest(),
            "bytes": len(kept),
            "whole": whole,
            "text": None,
        }
        assert len(json.dumps(receipt)) < 4096


def test_a_server_that_is_not_there_or_says_nothing(order):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        request = HttpRequest(
            "POST", f"http://127.0.0.1:{port}/", BODY, probe_url=f"http://127.0.0.1:{port}/", seconds=0.3
        )
        for look in (lambda: request.act(KEY), lambda: request.probe(KEY)):
            begin = time.monotonic()
            try:
                answer = look()
            except HttpFailed as error:
                assert error.status is None and "no whole answer" in str(error)
            else:
                assert answer.settled_as == "unknown"
            assert time.monotonic() - begin < 5
    with pytest.raises(HttpFailed, match="no whole answer"):
        request.act(KEY)
    assert request.probe(KEY).settled_as == "unknown"


@pytest.mark.parametrize(
    "piece", [b"H", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\nx"]
)
def test_a_server_that_drips_is_cut_off(piece):
    """Each byte comes in time, the whole never does."""
    over = threading.Event()

    def drip(server):
        plug, _ = server.accept()
        with plug:
            try:
                plug.sendall(piece)
                for _ in range(200):
                    if over.wait(0.05):
                        break
                    plug.sendall(b"x")
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip, args=[server])
        thread.start()
        begin = time.monotonic()
        with pytest.raises(HttpFailed, match="no whole answer"):
            HttpRequest("POST", f"http://127.0.0.1:{server.getsockname()[1]}/", BODY, seconds=0.5).act(KEY)
        assert time.monotonic() - begin < 5
        over.set()
        thread.join()


def test_an_answer_that_breaks_off_is_no_answer(shop, order):
    shop.answers["/by-key/k"] = (200, b"short", {"Content-Length": "500", "Connection": "close"})
    assert order.probe("k").settled_as == "unknown"


def test_a_certificate_of_nobody_is_not_trusted(tmp_path, skip_or_fail):
    openssl = shutil.which("openssl") or ""
    skip_or_fail(Available(bool(openssl), "openssl is not installed"))
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        [
            *(
                openssl,
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-days",
                "2",
            ),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(key), "-out", str(cert)),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server = Shop()
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server):
        url = f"https://localhost:{server.server_port}/orders"
        with pytest.raises(HttpFailed, match="CERTIFICATE_VERIFY_FAILED"):
            HttpRequest("POST", url, BODY).act(KEY)
        with pytest.raises(HttpFailed, match="CERTIFICATE_VERIFY_FAILED"):  # trusted, but of another name
            HttpRequest("POST", url.replace("localhost", "127.0.0.1"), BODY, cafile=str(cert)).act(KEY)
        assert server.orders == {}
        assert HttpRequest("POST", url, BODY, cafile=str(cert)).act(KEY)["status"] == 201


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "x",
            "ftp://h/",
            "file:///etc/passwd",
            "http://",
            "http:///x",
            "http://u:p@h/",
            "http://h/ x",
            "http://h/\r\nX: y",
        ),
        *("http://h:x/", "http://h:99999/", "http://h/#part", "http://h/é", "http://[::1", "//h/x"),
    ],
)
def test_an_address_that_is_not_plain_is_refused(url):
    with pytest.raises(UsageError, match="plain http"):
        HttpRequest("POST", url)
    with pytest.raises(UsageError, match="plain http"):
        HttpRequest("POST", "http://h/", probe_url=url + "{key}")


def test_bad_methods_and_headers_are_refused(shop):
    for method in ("", "post", "GE T", "POST\r\nX:", "PÖST"):
        with pytest.raises(UsageError, match="not an HTTP method"):
            HttpRequest(method, shop.url)
    with pytest.raises(UsageError, match="sent by itself"):
        HttpRequest("POST", shop.url, headers={"idempotency-key": "mine"})
    for headers in ({"X": "a\r\nY: b"}, {"X\r\nY": "b"}):
        with pytest.raises(EffectError):
            HttpRequest("POST", shop.url, headers=headers).act(KEY)
    assert shop.requests == []


def test_what_a_request_is_made_of_is_looked_at_before_it_is_sent(shop):
    with pytest.raises(UsageError, match="bytes, not a str") as refused:
        HttpRequest("POST", shop.url, "text")
    assert "encode" in refused.value.advice
    with pytest.raises(UsageError, match="303 is no list of statuses"):
        HttpRequest("POST", shop.url, b"", accept=303)


def test_its_arguments_identify_it_without_its_secrets(order):
    check_plain(order.arguments)
    other = HttpRequest(order.method, order.url, BODY, {**order.headers, "Authorization": "Bearer new"})
    assert other.arguments == order.arguments and "Bearer" not in str(order.arguments) + repr(order)
    assert HttpRequest(order.method, order.url, b"x", order.headers).arguments != order.arguments


# --- killed between sending and hearing


@pytest.mark.crash
@pytest.mark.parametrize("hold", ["before", "after"])
def test_killed_while_it_waits_for_the_answer_it_is_done_once_in_the_end(shop, order, hold):
    shop.hold = hold
    pid = os.fork()
    if pid == 0:
        try:
            order.act(KEY)
        finally:
            os._exit(0)
    assert (shop.arrived if hold == "before" else shop.done).wait(20)
    assert order.probe(KEY).settled_as == ("done" if hold == "after" else "not_done")
    os.kill(pid, signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    assert order.probe(KEY).settled_as == ("done" if shop.orders else "not_done")
    shop.may_answer.set()
    assert order.act(KEY)["status"] == 201
    assert shop.done.wait(20) and shop.orders == {KEY: 1} and len(shop.requests) == 2
    assert order.probe(KEY).settled_as == "done"


@pytest.mark.crash
def test_killed_at_any_time_it_is_done_once_in_the_end(shop, order, record_property):
    tried = 0
    for number in range(12):
        key = f"order-{number}"
        pid = os.fork()
        if pid == 0:
            try:
                order.act(key)
            finally:
                os._exit(0)
        time.sleep(number * 0.002)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        order.act(key)
        assert order.probe(key).settled_as == "done" and list(shop.orders).count(key) == 1
        tried += 1
    record_property("crash", ("http: kill after a while", tried, {"whole": tried, "refused": 0}, 0))
