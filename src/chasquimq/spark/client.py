"""One synchronous connection to Redis, for drivers and executors.

    post(command) ... post(command)   written at once, answers wait
    collect(until=0)                  answers, in order

Whatever is sent here may be sent twice: it reads, or it is a script that recognises itself. So a
connection that breaks, a server that is loading or has forgotten a script are all answered alike:
connect again (which loads the scripts) and send once more what was not answered, in order.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import hiredis

from chasquimq import lua
from chasquimq.address import Address
from chasquimq.config import ConnectOptions
from chasquimq.errors import AccessError, StoreError, StoreUnavailableError
from chasquimq.wire.fault import Fault, as_error, classify

Arg = bytes | str | int
READ_BYTES = 1 << 18
PATIENCE_S = 30.0  # of trouble in a row; beyond it the task fails, and Spark has its own patience


class Client:
    """Belongs to one thread. `scripts` are loaded with every connection."""

    def __init__(
        self,
        address: Address,
        scripts: Iterable[str] = (),
        options: ConnectOptions | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.address = address
        self._scripts = tuple(scripts)
        self._options = options or ConnectOptions()
        self._patience_s = patience_s
        self._ssl = address.ssl_context()
        self._socket: socket.socket | None = None
        self._reader = hiredis.Reader()
        self._waiting: deque[bytes] = deque()  # sent, not answered
        self._trouble_since: float | None = None
        self._pause_s = self._options.retry_ms / 1000

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._waiting.clear()
        self._hang_up()

    def ask(self, *command: Arg) -> Any:
        """One answer. An error is raised."""
        [reply] = self.ask_each([command])
        if isinstance(reply, Exception):
            raise as_error(reply, str(command[0]))
        return reply

    def ask_each(self, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
        """As many answers, asked for in one write; errors among them as values."""
        assert not self._waiting, "answers are still on their way: collect() them first"
        if not commands:
            return []
        self._send([_pack(command) for command in commands])
        return self.collect()

    def run(self, script: str, keys: Sequence[Arg], args: Sequence[Arg] = ()) -> Any:
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
            try:
                reply = self._read()
            except OSError as error:
                self._mend(error)
                continue
            if isinstance(reply, Exception):
                fault = classify(reply)
                if fault in (Fault.AWAY, Fault.SCRIPT):
                    self._mend(reply)
                    continue
            self._waiting.popleft()
            self._trouble_since = None
            replies.append(reply)
        return replies

    # -- the connection --------------------------------------------------------------------------

    def _send(self, packed: list[bytes]) -> None:
        self._waiting.extend(packed)
        try:
            if self._socket is None:
                self._connect()  # which sends all that waits
            else:
                self._socket.sendall(b"".join(packed))
        except OSError as error:
            self._mend(error)

    def _read(self) -> Any:
        while (reply := self._reader.gets()) is False:
            if self._socket is None:
                raise ConnectionError("not connected")
            data = self._socket.recv(READ_BYTES)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._reader.feed(data)
        return reply

    def _mend(self, why: Exception) -> None:
        """Connect again and send what waits; the caller hears of it when patience ends."""
        while True:
            self._hang_up()
            now = time.monotonic()
            if self._trouble_since is None:
                self._trouble_since = now
                self._pause_s = self._options.retry_ms / 1000
            elif now - self._trouble_since > self._patience_s:
                self._waiting.clear()
                raise self._unavailable(why) from None
            time.sleep(self._pause_s)
            self._pause_s = min(self._pause_s * 2, self._options.max_retry_ms / 1000)
            try:
                self._connect()
                return
            except (OSError, StoreUnavailableError) as error:
                why = error

    def _unavailable(self, why: Exception) -> StoreError:
        if isinstance(why, StoreError):
            return why
        if isinstance(why, TimeoutError):
            why = TimeoutError("no answer in time")
        return StoreUnavailableError(
            f"cannot reach Redis at {self.address} ({why}); is it running there?"
        )

    def _connect(self) -> None:
        endpoint = self.address.resolve()
        timeout = self._options.timeout_ms / 1000
        try:
            if endpoint.path is not None:
                raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                raw.settimeout(timeout)
                raw.connect(endpoint.path)
            else:
                raw = socket.create_connection((endpoint.host, endpoint.port), timeout)
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._ssl is not None:
                raw = self._ssl.wrap_socket(raw, server_hostname=endpoint.host)
        except ssl.SSLCertVerificationError as error:
            raise AccessError(
                f"the certificate of {self.address} was refused ({error.verify_message}); "
                "give its authority by ?ssl_ca_certs=/path"
            ) from None
        raw.settimeout(self._options.reply_ms / 1000)
        self._socket = raw
        self._reader = hiredis.Reader()
        self._greet(raw)
        if self._waiting:
            raw.sendall(b"".join(self._waiting))

    def _greet(self, raw: socket.socket) -> None:
        password = self.address.password
        greetings: list[tuple[Arg, ...]] = []
        if password is not None:
            who = (self.address.username,) if self.address.username else ()
            greetings.append(("AUTH", *who, password.reveal()))
        greetings.append(("SELECT", self.address.db) if self.address.db else ("PING",))
        greetings += [("SCRIPT", "LOAD", lua.SOURCES[name]) for name in self._scripts]
        raw.sendall(b"".join(map(_pack, greetings)))
        for command in greetings:
            reply = self._read()
            if not isinstance(reply, Exception):
                continue
            if command[0] == "AUTH":
                if "without any password" in str(reply):
                    continue
                if classify(reply) is Fault.REFUSED:
                    # Not in the server's words: one that has no AUTH repeats its arguments.
                    raise StoreError(f"{self.address} does not take AUTH; is it behind a proxy?")
            if classify(reply) is Fault.ACCESS and password is None:
                raise AccessError(
                    f"{self.address} wants a password: give the address by urlEnv or secretFile"
                )
            raise as_error(reply, f"connecting to {self.address}")

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _pack(command: tuple[Arg, ...]) -> bytes:
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type] # they mean any length
    return packed
