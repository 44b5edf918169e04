"""A queue's drawers on a real server: the store's own classes beside a plain client.

Tests act through the store and look through the client.
"""

from __future__ import annotations

from typing import Any

import redis

from chasquimq import lua, wire
from chasquimq.address import CredentialProvider, read_url
from chasquimq.config import MAX_MS, ConnectOptions, StreamOptions
from chasquimq.job import Envelope
from chasquimq.store import Dialect, Dialer, Jobs, Link, Memory, Row, Store, build, open_stream
from chasquimq.store.jobs import FIRST
from chasquimq.store.resp import Arg
from tests.servers import DialectServer

GROUP = "default"
# Short where the code under test waits, so that tests do not.
QUICK = ConnectOptions(timeout_ms=5_000, reply_ms=5_000, retry_ms=5, max_retry_ms=50)


async def claim(
    jobs: Jobs,
    idle_ms: int,
    count: int,
    not_after_ms: int = MAX_MS,
    unless: tuple[bytes, ...] = (),
) -> list[Row]:
    """Claim the first of what silent consumers have left, from wherever they lie."""
    after, ids = FIRST, list[bytes]()
    while len(ids) < count:
        page = await jobs.abandoned(idle_ms, after)
        ids += [row[0] for row in page.rows]
        after = page.after
        if after == FIRST:
            break
    return await jobs.claim(ids[:count], idle_ms, not_after_ms, unless)


class Shelf:
    def __init__(self, server: DialectServer, queue_name: str) -> None:
        self.server = server
        self.keys = wire.Keys(queue_name)
        self.redis: redis.Redis = server.client()
        self.store = self.new_store()
        self.links: list[Link] = [self.store.link]

    @property
    def native(self) -> bool:
        return self.server.name == "redis-native"

    @property
    def link(self) -> Link:
        return self.store.link

    def new_store(
        self,
        url: str | None = None,
        provider: CredentialProvider | None = None,
        options: ConnectOptions = QUICK,
    ) -> Store:
        dialer = Dialer(read_url(url or self.server.url), provider, options)
        return Store(self.keys, dialer, self.server.forced_dialect)

    async def open(self) -> Shelf:
        await self.store.open()
        return self

    async def close(self) -> None:
        for link in self.links:
            await link.close()

    # -- the drawers -----------------------------------------------------------------------------

    async def new_link(self, url: str | None = None) -> Link:
        """Another connection, closed with the shelf."""
        link = Link(Dialer(read_url(url or self.server.url), None, QUICK))
        self.links.append(link)
        await link.open()
        return link

    def dialect(self, **options: Any) -> Dialect:
        return build(self.store.dialect_name, self.keys, **options)

    def jobs(self, consumer: str = "me", link: Link | None = None) -> Jobs:
        return Jobs(self.keys, self.dialect(group=GROUP), link or self.link, GROUP, consumer)

    async def join(self) -> Jobs:
        """The stream and its group are there; answers the drawer of the consumer `me`."""
        jobs = self.jobs()
        await jobs.join(StreamOptions())
        return jobs

    async def open_stream(self, group: str = "", **options: Any) -> Memory:
        return await open_stream(
            self.link, self.keys, self.dialect(), StreamOptions(), group, **options
        )

    async def send(self, command: bytes, link: Link | None = None) -> Any:
        """A command for a pipe, as a round trip that raises and repairs as `Link.ask` does."""
        return await (link or self.link).ask(*words(command))

    # -- what Redis holds ------------------------------------------------------------------------

    def entries(self, key: bytes | None = None) -> list[tuple[bytes, dict[bytes, bytes]]]:
        return list(self.redis.xrange(key or self.keys.stream))

    def dead(self) -> list[dict[bytes, bytes]]:
        return [fields for _, fields in self.redis.xrange(self.keys.dlq)]

    def delayed(self) -> dict[bytes, float]:
        return dict(self.redis.zrange(self.keys.delayed, 0, -1, withscores=True))

    def pending(self) -> dict[bytes, tuple[str, int]]:
        """Who holds each entry, and how often it was delivered."""
        rows = self.redis.xpending_range(self.keys.stream, GROUP, "-", "+", 10_000)
        return {
            row["message_id"]: (row["consumer"].decode(), row["times_delivered"]) for row in rows
        }

    def idle_ms(self, entry_id: bytes) -> int:
        (row,) = self.redis.xpending_range(self.keys.stream, GROUP, entry_id, entry_id, 1)
        return int(row["time_since_delivered"])

    def now_ms(self) -> int:
        seconds, micros = self.redis.time()
        return seconds * 1000 + micros // 1000

    # -- what others may have put there ------------------------------------------------------------

    def put(self, *bodies: bytes, name: bytes = b"") -> list[bytes]:
        named = {b"n": name} if name else {}
        return [self.redis.xadd(self.keys.stream, {b"d": body, **named}) for body in bodies]

    def deliver(self, *bodies: bytes, consumer: str = "me", times: int = 1) -> list[bytes]:
        """Entries that a consumer holds; answers their ids."""
        ids = self.put(*bodies)
        self.redis.xreadgroup(GROUP, consumer, {self.keys.stream: ">"})
        for _ in range(times - 1):
            self.redis.xclaim(self.keys.stream, GROUP, consumer, 0, ids)
        return ids


def envelope(job_id: str = "job", payload: bytes = b"\xc0", attempt: int = 0) -> bytes:
    return wire.pack_envelope(Envelope(job_id, payload, 1_700_000_000_000, attempt))


def member(job_id: str = "job", name: bytes = b"") -> bytes:
    return wire.join_member(name, envelope(job_id))


def words(command: bytes) -> list[Arg]:
    """The arguments of one packed command."""
    count, rest = command.split(b"\r\n", 1)
    found: list[Arg] = []
    for _ in range(int(count[1:])):
        size, rest = rest.split(b"\r\n", 1)
        length = int(size[1:])
        found.append(rest[:length])
        assert rest[length : length + 2] == b"\r\n"
        rest = rest[length + 2 :]
    assert rest == b"", "one command, and nothing behind it"
    if found[0] == b"EVALSHA":  # `Link.ask` finds the script's source by its name in text
        found[:2] = ["EVALSHA", bytes(found[1]).decode()]
        assert found[1] in lua.BY_SHA
    return found
