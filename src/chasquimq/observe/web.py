"""A small web server: a page per path, GET and HEAD, and nothing else.

A request has a time limit and a size limit, and only so many are served at once: whoever is slow,
or sends too much, is cut off, and the others are not held up.
"""

from __future__ import annotations

import errno
import io
import logging
import re
import socket
import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, NamedTuple, cast

from chasquimq.errors import ConfigError
from chasquimq.text import shown

log = logging.getLogger(__name__)

REQUEST_S = 5.0  # for a whole request, and for its answer
MAX_HEADER_BYTES = 16_384
MAX_REQUESTS = 32  # at a time


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
            return socket.create_server((host, port), family=family)
        if socket.has_dualstack_ipv6():
            try:
                return socket.create_server(
                    ("::", port), family=socket.AF_INET6, dualstack_ipv6=True
                )
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise
        return socket.create_server(("", port))
    except OSError as error:
        where = f"{f'[{host}]' if ':' in host else host}:{port}"
        if error.errno == errno.EADDRINUSE:
            why = "another program listens there already. Give another port, or end that program"
        elif error.errno in (errno.EACCES, errno.EPERM):
            why = "that is not allowed. Ports below 1024 often need privileges: take a higher one"
        else:
            why = f"{error.strerror or error}"
        raise ConfigError(f"cannot serve metrics at {where}: {why}") from None


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, listening: socket.socket, page: Page) -> None:
        # Not HTTPServer's: it looks up the host's name, which can take seconds.
        TCPServer.__init__(self, listening.getsockname()[:2], _Request, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.page = page
        self._places = threading.BoundedSemaphore(MAX_REQUESTS)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)  # whoever keeps the others busy will be cut off soon
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a request was broken off: %s", sys.exc_info()[1])


class _Request(BaseHTTPRequestHandler):
    timeout = REQUEST_S
    default_request_version = "HTTP/1.0"  # an answer has a head, whatever it is an answer to

    def setup(self) -> None:
        super().setup()
        # Instead of the usual reader, which would wait so long for each single byte.
        self.rfile = cast(io.BufferedReader, _Reader(self.connection, time.monotonic() + REQUEST_S))

    def do_GET(self) -> None:
        server = cast(Server, self.server)
        path = self.path.partition("?")[0]
        try:
            answer = server.page(path, self.headers.get("Accept", ""))
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
        self.connection.settimeout(REQUEST_S)
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


class _Reader:
    """The lines of a request's head: with one deadline, and one limit on their size."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._raw = _Until(connection, deadline)
        self._buffer = io.BufferedReader(self._raw)
        self._left = MAX_HEADER_BYTES
        self._lines = 0

    def readline(self, size: int = -1) -> bytes:
        line = self._buffer.readline(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(line)
        self._lines += 1
        if self._left >= 0:
            return line
        if self._lines > 1:
            raise LineTooLong("header line")  # which is answered with 431
        return line.ljust(size)  # as long as was asked for at most, which is answered with 414

    def close(self) -> None:
        self._buffer.close()


class _Until(socket.SocketIO):
    """Reads until a deadline, however the bytes trickle in."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        super().__init__(connection, "r")
        self._connection = connection
        self._deadline = deadline

    def readinto(self, buffer: Any) -> int | None:
        self._connection.settimeout(max(self._deadline - time.monotonic(), 0.001))
        return super().readinto(buffer)
