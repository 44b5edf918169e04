"""Streams of a queue on a real server, written and hurt by hand."""

from __future__ import annotations

from typing import Any

import redis

from chasquimq import wire
from chasquimq.wire import Keys
from tests.servers import DialectServer


class Events:
    """The events of one queue, or another stream of it."""

    def __init__(self, server: DialectServer, queue: str, dlq: bool = False) -> None:
        self.queue = queue
        self.redis: redis.Redis = server.client()
        self.key = Keys(queue).dlq if dlq else Keys(queue).events
        self.added = 0

    def add(self, count: int, at: str = "*", **more: str) -> list[tuple[str, str]]:
        """So many entries; their rows as a query should give them."""
        pipe = self.redis.pipeline(transaction=False)
        for _ in range(count):
            self.added += 1
            fields = wire.pack_event(
                "waiting", f"job-{self.added}", 1_700_000_000_000, "mail", more
            )
            pipe.execute_command("XADD", self.key, at, *fields)
        return [(self.queue, entry_id.decode()) for entry_id in pipe.execute()]

    def rows(self) -> list[tuple[str, str]]:
        """Those that are there."""
        found: Any = self.redis.execute_command("XRANGE", self.key, "-", "+")
        return [(self.queue, _text(row[0])) for row in found]

    def trim(self, keep: int) -> int:
        return int(self.redis.xtrim(self.key, maxlen=keep, approximate=False))

    def remove(self, *rows: tuple[str, str]) -> None:
        assert self.redis.xdel(self.key, *(entry_id for _, entry_id in rows)) == len(rows)

    def delete(self) -> None:
        """And let a millisecond pass, so that ids are not given twice."""
        last = self.rows()[-1:]
        self.redis.delete(self.key)
        while last and self._now() <= int(last[0][1].partition("-")[0]):
            pass

    def _now(self) -> int:
        seconds, micros = self.redis.time()
        return int(seconds) * 1000 + int(micros) // 1000


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
