"""One synchronous connection to Redis, for drivers and executors.

    post(command) ... post(command)   written at once, answers wait
    collect(until=0)                  answers, in order

Whatever is sent here may be sent twice: it reads, or it is a script that recognises itself. So a
connection that breaks, a server that is loading or has forgotten a script are all answered alike:
connect again (which loads the scripts) and send once more what was not answered, in order. That
also follows a failover and a slot that moves: where to connect is asked each time.
"""

from __future__ import annotations

import logging
import random
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import hiredis

from chasquimq import alert, lua
from chasquimq.address import Address, Endpoint, distrust
from chasquimq.config import ConnectOptions
from chasquimq.errors import (
    AccessError,
    ChasquiError,
    StoreError,
    StoreUnavailableError,
)
from chasquimq.wire import Keys
from chasquimq.wire.fault import Fault, as_error, classify, legible

log = logging.getLogger("chasquimq.redis")

Arg = bytes | str | int
MORE = object()  # the rest of a reply is still to come; False may be a reply
READ_BYTES = WRITE_BYTES = 1 << 18
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
PATIENCE_S = 30.0  # of trouble in a row; beyond it the task fails, and Spark has its own patience


class HungUpError(ConnectionError):
    """The other side did, in order."""


class Client:
    """Belongs to one thread. `scripts` are loaded with every connection."""

    def __init__(
        self,
        address: Address,
        scripts: Iterable[str] = (),
        options: ConnectOptions | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        assert address.kind != "cluster" or address.key, "say of which key: address.of(key)"
        self.address = address
        self.opened = 0  # how often it has connected: what a cursor meant before is not known now
        self._scripts = tuple(scripts)
        self._options = options or ConnectOptions()
        self._patience_s = patience_s
        address.ssl_context()  # raises where its files cannot be loaded
        self._first = b""  # byte that came over this connection
        self._socket: socket.socket | None = None
        self._reader = _reader()
        self._arrived: deque[bytes] = deque()  # not yet fed to it
        self._waiting: deque[bytes] = deque()  # sent, not answered
        self._trouble_since: float | None = None
        self._pause_s = 0.0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        return self._socket is None

    def hang_up(self, why: str) -> None:
        """Another server is the right one now: the next look at this connection finds its end.
        Called from another thread."""
        line = self._socket
        if line is not None:
            with suppress(OSError):
                socket.socket.shutdown(line, socket.SHUT_RDWR)  # below TLS, which is not ours

    def close(self) -> None:
        """What was not collected is forgotten; the next command connects again."""
        self._waiting.clear()
        self._trouble_since = None
        self._hang_up()

    def ask(self, *command: Arg) -> Any:
        """One answer. An error is raised."""
        [reply] = self.ask_each([command])
        if isinstance(reply, Exception):
            raise as_error(reply, str(command[0]))
        return reply

    def ask_each(self, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
        """As many answers, in order; errors among them as values."""
        assert not self._waiting, "answers are still on their way: collect() them first"
        if commands:
            self._send([_pack(command) for command in commands])
        return self.collect()

    def run(self, script: str, keys: Sequence[Arg], args: Sequence[Arg] = ()) -> Any:
        assert script in self._scripts, f"name {script} among the scripts of this client"
        return self.ask(*lua.call(script, keys, args))

    def post(self, *command: Arg) -> None:
        self._send([_pack(command)])

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def collect(self, until: int = 0) -> list[Any]:
        """Answers, in order, until no more than so many are still to come."""
        replies: list[Any] = []
        while len(self._waiting) > until:
            replies.append(self._next())
        return replies

    # -- the connection --------------------------------------------------------------------------

    def _send(self, packed: list[bytes]) -> None:
        self._waiting.extend(packed)
        try:
            if self._socket is None:
                self._open()  # which sends all that waits
            else:
                self._write(self._socket, b"".join(packed))
        except (OSError, StoreUnavailableError) as error:
            self._mend(error)

    def _write(self, line: socket.socket, data: bytes) -> None:
        """Takes in what is answered meanwhile: two who only write wait for each other for ever."""
        ready = select.poll()
        ready.register(line, select.POLLIN | select.POLLOUT)
        rest = memoryview(data)
        line.settimeout(0)  # something may have come that is no answer, as TLS sends its tickets
        while rest:
            events = ready.poll(self._options.reply_ms)
            if not events:
                raise TimeoutError
            with suppress(*_NOT_NOW):
                if events[0][1] & select.POLLIN:
                    self._take(line)
            with suppress(*_NOT_NOW):
                if events[0][1] & ~select.POLLIN:  # or it is broken, which sending tells
                    rest = rest[line.send(rest[:WRITE_BYTES]) :]
        line.settimeout(self._options.reply_ms / 1000)

    def _take(self, line: socket.socket) -> None:
        data = line.recv(READ_BYTES)
        if not data:
            raise HungUpError("the server closed the connection")
        self._first = self._first or data[:1]
        self._arrived.append(data)

    def _next(self) -> Any:
        while True:
            try:
                reply = self._read()
            except OSError as error:
                self._mend(error)
                continue
            if isinstance(reply, Exception) and classify(reply) in (Fault.AWAY, Fault.SCRIPT):
                self._mend(reply)
                continue
            self._waiting.popleft()
            self._trouble_since = None
            return reply

    def _read(self) -> Any:
        try:
            while (reply := self._reader.gets()) is MORE:
                if not self._arrived:
                    if self._socket is None:
                        raise ConnectionError("not connected")
                    self._take(self._socket)
                # Piece by piece: behind each answer the reader moves all that it was fed.
                self._reader.feed(self._arrived.popleft())
        except (hiredis.ProtocolError, TypeError, MemoryError):
            # The last two: a map whose key is a list, and a count beyond memory.
            raise ConnectionError("what answers there is no Redis") from None
        return reply

    def _mend(self, why: Exception) -> None:
        """Connect again and send what waits; the caller hears of it when patience ends."""
        while True:
            self._hang_up()
            self._bear(why)
            try:
                self._open()
                return
            except (OSError, StoreUnavailableError) as error:
                why = error

    def _bear(self, why: Exception) -> None:
        """The first trouble is answered at once, and silently: servers close what is idle."""
        now = time.monotonic()
        if self._trouble_since is None:
            self._trouble_since, self._pause_s = now, 0.0
            return
        if now - self._trouble_since > self._patience_s:
            self.close()
            raise self._unavailable(why) from None
        if not self._pause_s:
            log.warning("%s; trying again", self._words(why))
            self._pause_s = self._options.retry_ms / 1000
        time.sleep(self._pause_s * random.uniform(0.5, 1.0))  # not all executors at once
        self._pause_s = min(self._pause_s * 2, self._options.max_retry_ms / 1000)

    def _unavailable(self, why: Exception) -> StoreUnavailableError:
        tried = f" (tried for {self._patience_s:.0f} s)" if self._patience_s >= 1 else ""
        return StoreUnavailableError(self._words(why) + tried)

    def _words(self, why: Exception) -> str:
        if isinstance(why, ChasquiError):
            return str(why.args[0])
        if isinstance(why, hiredis.ReplyError):
            return f"Redis at {self.address} does not serve us ({why})"
        if isinstance(why, TimeoutError):
            return f"no answer from Redis at {self.address}"
        return f"cannot reach Redis at {self.address} ({why}); is it running there?"

    def _open(self) -> None:
        """Connect, greet, and send all that waits."""
        try:
            endpoint = self.address.resolve()
            self._first = b""
            try:
                self._socket = self._connect(endpoint)
                if self.address.kind != "server":
                    from chasquimq.failover import follow  # seldom, as the addresses that need it

                    follow(self.address, endpoint, self)
                self._reader = _reader()
                self._arrived.clear()
                self._greet(self._socket)
            except OSError as error:
                raise self._unreached(endpoint, error) from None
            self.opened += 1
        except (OSError, StoreUnavailableError):
            raise
        except ChasquiError:  # nobody but a person can mend it
            self.close()
            raise
        self._write(self._socket, b"".join(self._waiting))

    def _connect(self, endpoint: Endpoint) -> socket.socket:
        seconds = self._options.timeout_ms / 1000
        if endpoint.path is not None:
            raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        else:
            raw = socket.create_connection((endpoint.host, endpoint.port), seconds)
        try:
            raw.settimeout(seconds)
            if endpoint.path is not None:
                raw.connect(endpoint.path)
            else:
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            context = self.address.ssl_context()
            if context is not None:
                raw = self._encrypted(raw, context, endpoint)
        except ssl.SSLCertVerificationError as error:
            raw.close()
            raise distrust(self.address, error) from None
        except OSError:
            raw.close()
            raise
        return raw

    def _encrypted(
        self, raw: socket.socket, context: ssl.SSLContext, endpoint: Endpoint
    ) -> socket.socket:
        try:
            return context.wrap_socket(raw, server_hostname=endpoint.host)
        except TimeoutError:
            raise ConnectionError("nobody answers in TLS") from None

    def _unreached(self, endpoint: Endpoint, error: OSError) -> Exception:
        """As `store/dial.py` does: what is known of a connection that was not made, or broke before
        its first answer."""
        if self._first == alert.FIRST:
            return alert.speaks_tls(self.address, self.address)
        refused = alert.turned_away(self.address, self.address, error)
        broke = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError, ssl.SSLEOFError)
        if refused is not None or self._first or not isinstance(error, (*broke, HungUpError)):
            return refused or error
        if not self.opened:  # else it speaks as we do
            learned = alert.listen(self.address, endpoint, self.address)
            if learned is not None:
                return learned
        return ConnectionError(alert.silence(self.address))

    def _greet(self, raw: socket.socket) -> None:
        password = self.address.password
        greetings: list[tuple[Arg, ...]] = []
        if password is not None:
            who = (self.address.username,) if self.address.username else ()
            greetings.append(("AUTH", *who, password.reveal()))
        greetings.append(("SELECT", self.address.db) if self.address.db else ("PING",))
        if self.address.kind == "sentinel":
            greetings.append(("ROLE",))
        greetings += [("SCRIPT", "LOAD", lua.SOURCES[name]) for name in self._scripts]
        self._write(raw, b"".join(map(_pack, greetings)))
        replies = [(command[0], self._read()) for command in greetings]
        for command, reply in replies:
            if command == "ROLE":
                self._check_role(reply)
            elif isinstance(reply, Exception):
                self._refused(str(command), reply)

    def _check_role(self, role: Any) -> None:
        """As `store/dial.py` does: a server that was the master may come back as one."""
        if isinstance(role, Exception):
            return
        if not isinstance(role, list) or role[:1] != [b"master"]:
            raise StoreUnavailableError(f"what the Sentinels of {self.address} name is no master")

    def _refused(self, command: str, reply: Exception) -> None:
        """What the server has against a greeting."""
        fault, password = classify(reply), self.address.password
        if command == "AUTH" and "without any password" in str(reply):
            return
        if command == "AUTH" and fault in (Fault.REFUSED, Fault.DIALECT):
            # Not in the server's words: one that has no AUTH repeats its arguments.
            raise StoreError(f"{self.address} does not take AUTH; is it behind a proxy?")
        if fault is Fault.ACCESS and password is None and "NOAUTH" in str(reply):
            raise AccessError(
                f"{self.address} wants a password: give the address by urlEnv or secretFile"
            )
        raise as_error(reply, f"connecting to {self.address}")

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Clients:
    """A client for each queue where they lie on several nodes of a cluster, else one for all. Like
    them it belongs to one thread."""

    def __init__(
        self, address: Address, scripts: Iterable[str] = (), patience_s: float = PATIENCE_S
    ) -> None:
        self._address = address
        self._scripts = tuple(scripts)
        self._patience_s = patience_s
        self._made: dict[str, Client] = {}

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for client in self._made.values():
            client.close()

    def of(self, queue: str) -> Client:
        key = Keys(queue).stream.decode() if self._address.kind == "cluster" else ""
        if key not in self._made:
            address = self._address.of(key)
            self._made[key] = Client(address, self._scripts, patience_s=self._patience_s)
        return self._made[key]

    def shared(self, queues: Iterable[str]) -> Iterator[tuple[Client, list[str]]]:
        """Queues by their client: what is asked about several goes in one write where it can."""
        names: dict[Client, list[str]] = {}
        for queue in queues:
            names.setdefault(self.of(queue), []).append(queue)
        yield from names.items()


def _reader() -> hiredis.Reader:
    return hiredis.Reader(
        replyError=lambda text: hiredis.ReplyError(legible(text)), notEnoughData=MORE
    )


def _pack(command: tuple[Arg, ...]) -> bytes:
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type] # they mean any length
    return packed
