"""A small web server: a page per path, GET and HEAD, and nothing else.

One thread waits for all sockets: it accepts connections, reads the heads of requests and writes
answers. So a slow client occupies a socket and never a thread, and when there are too many of
them the oldest is cut off. Pages are made in other threads: probes in one that is reserved for
them, so that they are answered whatever else is asked for.
"""

from __future__ import annotations

import errno
import io
import logging
import re
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler
from queue import SimpleQueue
from typing import Any, NamedTuple

from chasquimq.errors import ConfigError
from chasquimq.text import shown

log = logging.getLogger("chasquimq.worker")

HEAD_S = 1.0  # for a client to send the head of its request
REQUEST_S = 5.0  # for a client to read its answer
MAX_HEADER_BYTES = 16_384
MAX_READING = 256  # connections whose request is incomplete
MAX_WRITING = 64  # connections that have not read their answer
MAX_PAGES = 32  # that are made at a time, besides probes
BACKLOG = 1_024  # connections that the kernel keeps until they are accepted
RECEIVE_BYTES = 65_536
PROBES = re.compile(rb"(?:GET|HEAD) /(?:livez|readyz|healthz|health)[ ?\r\n]")
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Answer(NamedTuple):
    status: HTTPStatus
    kind: str
    body: bytes


Page = Callable[[str, str], Answer]  # a path, and what an Accept header says


def text(status: HTTPStatus, *lines: str) -> Answer:
    return Answer(status, "text/plain; charset=utf-8", "".join(f"{x}\n" for x in lines).encode())


def read_place(place: str) -> tuple[str, int]:
    """Host and port. An empty host means all interfaces; a bare port, this machine only."""
    match = re.fullmatch(r"(?:(?P<host>\[[^\[\]\s]+\]|[^:\[\]\s]*)(?P<colon>:))?(?P<port>\d{1,5})",
                         place.strip(), re.ASCII)  # fmt: skip
    if match is None or int(match["port"]) > 65_535:
        raise ConfigError(
            f"the place to serve metrics must be a port or host:port, such as 9400, :9400 or "
            f"127.0.0.1:9400; got {shown(place, 60)!r}"
        )
    host = (match["host"] or "").strip("[]") if match["colon"] else "127.0.0.1"
    return host, int(match["port"])


def listen(host: str, port: int) -> socket.socket:
    try:
        if host:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            return socket.create_server((host, port), family=family, backlog=BACKLOG)
        if socket.has_dualstack_ipv6():
            try:
                return socket.create_server(
                    ("::", port),
                    family=socket.AF_INET6,
                    dualstack_ipv6=True,
                    backlog=BACKLOG,
                )
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise
        return socket.create_server(("", port), backlog=BACKLOG)
    except OSError as error:
        where = f"{f'[{host}]' if ':' in host else host}:{port}"
        if error.errno == errno.EADDRINUSE:
            why = "another program listens there already. Give another port, or end that program"
        elif error.errno in (errno.EACCES, errno.EPERM):
            why = "that is not allowed. Ports below 1024 often need privileges: take a higher one"
        else:
            why = f"{error.strerror or error}"
        raise ConfigError(f"cannot serve metrics at {where}: {why}") from None


class Server:
    """Serves pages on a listening socket, from `start` to `stop`."""

    def __init__(self, listening: socket.socket, page: Page) -> None:
        self.socket = listening
        self._page = page
        self._selector = selectors.DefaultSelector()
        self._reading: dict[_Connection, None] = {}  # the oldest first
        self._writing: dict[_Connection, None] = {}
        self._probes: SimpleQueue[_Connection | None] = SimpleQueue()
        self._pages = threading.BoundedSemaphore(MAX_PAGES)
        self._made: deque[tuple[_Connection, bytes]] = deque()  # answers, for the sockets' thread
        self._woken, self._waker = socket.socketpair()
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._run, name="chasqui-endpoint", daemon=True),
            threading.Thread(target=self._make_probes, name="chasqui-probes", daemon=True),
        ]

    def start(self) -> None:
        for sock in (self.socket, self._woken, self._waker):
            sock.setblocking(False)
        self._selector.register(self.socket, selectors.EVENT_READ, self._accept)
        self._selector.register(self._woken, selectors.EVENT_READ, self._write_made)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Close all connections. Pages that are being made are not waited for."""
        self._stopping = True
        self._wake()
        self._probes.put(None)
        for thread in self._threads:
            thread.join(1.0)

    # -- the thread of the sockets -------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            for key, _ in self._selector.select(self._wait_s()):
                try:
                    key.data()
                except Exception:
                    log.exception("a defect of the endpoint")  # the others are served all the same
            self._drop_late()
        for connection in (*self._reading, *self._writing):
            self._drop(connection)
        for sock in (self.socket, self._woken, self._waker):
            sock.close()
        self._selector.close()

    def _wait_s(self) -> float | None:
        """Until the next connection has been too slow; the oldest of each kind is the first."""
        deadlines = [next(iter(some)).until for some in (self._reading, self._writing) if some]
        return max(min(deadlines) - time.monotonic(), 0.0) if deadlines else None

    def _drop_late(self) -> None:
        now = time.monotonic()
        for some in (self._reading, self._writing):
            while some and (oldest := next(iter(some))).until <= now:
                self._drop(oldest)

    def _drop(self, connection: _Connection) -> None:
        for some in (self._reading, self._writing):
            if connection in some:
                del some[connection]
                self._selector.unregister(connection.socket)
        connection.socket.close()

    def _accept(self) -> None:
        try:
            client, address = self.socket.accept()
        except OSError as error:  # the client has gone, or no file can be opened
            if error.errno in NO_ROOM and not self._drop_oldest():
                time.sleep(0.05)
            return
        client.setblocking(False)
        if len(self._reading) >= MAX_READING:
            self._drop(next(iter(self._reading)))
        connection = _Connection(client, str(address[0]), time.monotonic() + HEAD_S)
        self._reading[connection] = None
        self._selector.register(client, selectors.EVENT_READ, partial(self._read, connection))
        self._read(connection)  # mostly the request is there already

    def _drop_oldest(self) -> bool:
        for some in (self._reading, self._writing):
            if some:
                self._drop(next(iter(some)))
                return True
        return False

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self._drop(connection)
            return
        connection.head += data
        if not connection.head:
            self._drop(connection)
        elif not data or _is_whole(connection.head):
            del self._reading[connection]
            self._selector.unregister(connection.socket)
            self._order(connection)

    def _order(self, connection: _Connection) -> None:
        """Have the page made that is asked for."""
        if PROBES.match(connection.head):
            self._probes.put(connection)
            return
        if self._pages.acquire(blocking=False):
            try:
                threading.Thread(target=self._make_page, args=(connection,), daemon=True).start()
                return
            except RuntimeError:  # no thread can be started
                self._pages.release()
        busy = text(HTTPStatus.SERVICE_UNAVAILABLE, "busy; try again")
        self._write(connection, _Request(connection, lambda *_: busy).answer())

    def _write_made(self) -> None:
        with suppress(BlockingIOError):
            self._woken.recv(RECEIVE_BYTES)
        while self._made:
            self._write(*self._made.popleft())

    def _write(self, connection: _Connection, answer: bytes) -> None:
        connection.rest = memoryview(answer)
        connection.until = time.monotonic() + REQUEST_S
        self._write_on(connection)

    def _write_on(self, connection: _Connection) -> None:
        try:
            sent = connection.socket.send(connection.rest)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._drop(connection)
            return
        connection.rest = connection.rest[sent:]
        if not connection.rest:
            with suppress(OSError):
                connection.socket.shutdown(socket.SHUT_WR)
            self._drop(connection)
        elif connection not in self._writing:
            if len(self._writing) >= MAX_WRITING:
                self._drop(next(iter(self._writing)))
            self._writing[connection] = None
            self._selector.register(
                connection.socket, selectors.EVENT_WRITE, partial(self._write_on, connection)
            )

    # -- the threads that make pages -----------------------------------------------------------

    def _make_probes(self) -> None:
        while (connection := self._probes.get()) is not None:
            self._make(connection)

    def _make_page(self, connection: _Connection) -> None:
        try:
            self._make(connection)
        finally:
            self._pages.release()

    def _make(self, connection: _Connection) -> None:
        answer = b""
        try:
            answer = _Request(connection, self._page).answer()
        except Exception as error:
            log.debug("a request was broken off: %s", error)
        self._made.append((connection, answer))
        self._wake()

    def _wake(self) -> None:
        with suppress(OSError):  # it is awake, or has ended
            self._waker.send(b".")


class _Connection:
    """A client: what it has sent until now, what it has not read yet, and the time it has left."""

    def __init__(self, client: socket.socket, address: str, until: float) -> None:
        self.socket = client
        self.address = address
        self.until = until
        self.head = bytearray()
        self.rest = memoryview(b"")


def _is_whole(head: bytearray) -> bool:
    return b"\n\r\n" in head or b"\n\n" in head or len(head) > MAX_HEADER_BYTES


class _Request(BaseHTTPRequestHandler):
    """Reads a head, and writes the answer to it, both in memory."""

    default_request_version = "HTTP/1.0"  # an answer has a head, whatever it is an answer to

    def __init__(self, connection: _Connection, page: Page) -> None:
        # Not the parent's, which reads from a socket.
        self.client_address = (connection.address, 0)
        self.page = page
        self.rfile = _Lines(bytes(connection.head))
        self.wfile = self._answer = io.BytesIO()

    def answer(self) -> bytes:
        self.handle_one_request()
        return self._answer.getvalue()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        try:
            answer = self.page(path, self.headers.get("Accept", ""))
        except Exception:
            log.exception("cannot make the page %s", shown(path, 60))
            answer = text(HTTPStatus.INTERNAL_SERVER_ERROR, "failed; the log says why")
        self._send(answer)

    do_HEAD = do_GET

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):  # any other method
            return self._refuse
        raise AttributeError(name)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What is wrong, and nothing of what was sent."""
        status = HTTPStatus(code)
        self.close_connection = True
        self._send(text(status, f"{code} {status.phrase}"))

    def version_string(self) -> str:
        return "chasquimq"

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("%s: %s", self.address_string(), shown(format % args, 200))

    def _refuse(self) -> None:
        self._send(text(HTTPStatus.METHOD_NOT_ALLOWED, "GET and HEAD only"), allow="GET, HEAD")

    def _send(self, answer: Answer, **headers: str) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in headers.items():
            self.send_header(name.title(), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)


class _Lines(io.BytesIO):
    """The lines of a request's head, with one limit on their size."""

    def __init__(self, head: bytes) -> None:
        super().__init__(head)
        self._left = MAX_HEADER_BYTES
        self._lines = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        most = self._left + 1
        line = super().readline(most if size is None or size < 0 else min(size, most))
        self._left -= len(line)
        self._lines += 1
        if self._left >= 0:
            return line
        if self._lines > 1:
            raise LineTooLong("header line")  # which is answered with 431
        return line.ljust(size or 0)  # as long as was asked for at most: answered with 414
