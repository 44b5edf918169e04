"""Dead jobs as a real Worker leaves them, and what lies in Redis before and after."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from chasquimq import Job, Queue, UnrecoverableError, Worker, wire
from chasquimq.errors import WireError
from chasquimq.job import Envelope
from tests.servers import DialectServer


class Waiting(NamedTuple):
    """A row of the main stream."""

    envelope: Envelope
    name: str
    data: Any


class Deaths:
    """A queue whose handler fails at every job, as its data says: `{"say": ..., "as": ...}`."""

    def __init__(self, server: DialectServer, queue: str) -> None:
        self.url, self.queue, self.keys = server.url, queue, wire.Keys(queue)
        self.redis = server.client()

    def die(self, jobs: Sequence[Mapping[str, Any]]) -> None:
        """Each is what `add` takes: name, data and options. All of them end in the DLQ."""
        asyncio.run(self._die(jobs))

    async def _die(self, jobs: Sequence[Mapping[str, Any]]) -> None:
        async def handle(job: Job) -> None:
            error = {"key": KeyError, "fatal": UnrecoverableError}.get(job.data.get("as"))
            raise (error or ValueError)(job.data["say"])

        async with Queue(self.queue, redis_url=self.url) as queue:
            for job in jobs:
                await queue.add(**{"attempts": 1, **job})
        await Worker(self.queue, handle, redis_url=self.url, burst=True).run()

    def numbered(self, count: int, **options: Any) -> None:
        """Jobs that die of the same, whose data tells which they are."""
        self.die([{"name": "n", "data": {"n": n, "say": "no"}, **options} for n in range(count)])

    def bury(self, fields: Sequence[bytes]) -> str:
        return self.redis.execute_command("XADD", self.keys.dlq, "*", *fields).decode()

    @property
    def dead(self) -> dict[str, Any]:
        """What lies in the DLQ: entry id -> data, None where there is none."""
        found = {}
        for entry_id, fields in self.redis.xrange(self.keys.dlq):
            try:
                found[entry_id.decode()] = wire.decode(wire.unpack_envelope(fields[b"d"]).payload)
            except WireError:
                found[entry_id.decode()] = None
        return found

    @property
    def waiting(self) -> list[Waiting]:
        rows = []
        for _, fields in self.redis.xrange(self.keys.stream):
            envelope = wire.unpack_envelope(fields[b"d"])
            rows.append(
                Waiting(envelope, fields.get(b"n", b"").decode(), wire.decode(envelope.payload))
            )
        return rows

    @property
    def numbers(self) -> list[int]:
        """Of the jobs that wait, in order of their numbers: doubles show."""
        return sorted(one.data["n"] for one in self.waiting)

    def notes(self) -> list[bytes]:
        return list(self.redis.scan_iter(match=self.keys.tag + b"spark:*", count=10_000))
