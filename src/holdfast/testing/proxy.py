"""A TCP proxy that fails on purpose: cuts after exactly n bytes, swallows, delays. It understands no protocol.

Bytes are counted over all connections since the last `heal`, so the same conversation fails at the same byte each time.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Literal

from holdfast.core.named import NamedTuple

Direction = Literal["up", "down"]
CHUNK = 65536
RESET = struct.pack("ii", 1, 0)


class Cut(NamedTuple):
    """Let exactly `after` bytes pass in one direction, then end the connection: by a reset, or by a plain close."""

    direction: Direction
    after: int
    reset: bool = True


class Proxy:
    """Forwards 127.0.0.1:`port` to a server. `up` is towards the server, `down` is towards the client."""

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self.passed: dict[Direction, int] = {"up": 0, "down": 0}
        self.cuts_made = 0
        self._cut: Cut | None = None
        self._delay = 0.0
        self._swallow = False
        self._lock = threading.Lock()
        self._links: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, name="proxy-accept", daemon=True).start()

    def cut(self, direction: Direction, after: int, reset: bool = True) -> None:
        """Arm one cut, counted from now. It fires once; later connections pass."""
        with self._lock:
            self.passed = {"up": 0, "down": 0}
            self._cut = Cut(direction, after, reset)

    def black_hole(self) -> None:
        """Go on accepting connections and bytes, and answer nothing."""
        self._swallow = True

    def delay(self, seconds: float) -> None:
        """Hold every chunk back for this long."""
        self._delay = seconds

    def heal(self) -> None:
        """Forget every fault and count from zero. Connections that were swallowed stay broken and are ended."""
        with self._lock:
            swallowed, self._swallow, self._cut, self._delay = self._swallow, False, None, 0.0
            self.passed = {"up": 0, "down": 0}
        if swallowed:
            self.drop_all()

    def drop_all(self) -> None:
        """Reset every open connection now."""
        with self._lock:
            links, self._links = self._links, []
        for client, server in links:
            _end(client, reset=True)
            _end(server, reset=True)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop_all()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self.target, timeout=10)
        except OSError:
            _end(client, reset=True)
            return
        server.settimeout(None)
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._links.append((client, server))
        ways: tuple[tuple[Direction, socket.socket, socket.socket], ...] = (
            ("up", client, server),
            ("down", server, client),
        )
        for direction, source, sink in ways:
            threading.Thread(target=self._pump, args=(direction, source, sink), name="proxy-pump", daemon=True).start()

    def _pump(self, direction: Direction, source: socket.socket, sink: socket.socket) -> None:
        while True:
            try:
                data = source.recv(CHUNK)
                allowed, cut = self._allow(direction, len(data))
                if self._delay:
                    time.sleep(self._delay)
                if allowed and not self._swallow:
                    sink.sendall(data[:allowed])
            except OSError:
                cut, data = None, b""
            if cut or not data:
                self._finish(source, sink, reset=bool(cut and cut.reset))
                return

    def _allow(self, direction: Direction, size: int) -> tuple[int, Cut | None]:
        """How many of these bytes may pass, and the cut that fires after them."""
        with self._lock:
            cut = self._cut
            left = cut.after - self.passed[direction] if cut and cut.direction == direction else size + 1
            if size < left or cut is None:
                self.passed[direction] += size
                return size, None
            self.passed[direction] += left
            self._cut = None
            self.cuts_made += 1
            return left, cut

    def _finish(self, source: socket.socket, sink: socket.socket, reset: bool) -> None:
        """The first of the two pumps ends the connection; the other finds it already forgotten."""
        with self._lock:
            known = len(self._links)
            self._links = [link for link in self._links if source not in link]
            if len(self._links) == known:
                return
        _end(sink, reset)
        _end(source, reset)


def _end(end: socket.socket, reset: bool) -> None:
    """SHUT_RD wakes the other pump without a packet; only then does closing with linger 0 send the reset."""
    with suppress(OSError):
        if reset:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        end.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)
    end.close()
