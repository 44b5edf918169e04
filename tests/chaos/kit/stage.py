"""One queue on a real server, with a fleet of worker processes and a ledger: where runs take place.

Jobs are numbers for workers with a `Behaviour`, and acts for sentries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import redis

from chasquimq import Queue, UnconfirmedError, wire
from tests.chaos.kit.dice import note
from tests.chaos.kit.fleet import SENTRY, Fleet, Orders, Process
from tests.chaos.kit.gate import open_gate
from tests.chaos.kit.handler import Behaviour
from tests.chaos.kit.history import Verdict, check
from tests.chaos.kit.ledger import Ledger, Record, read, tally
from tests.chaos.kit.proxy import Proxy
from tests.chaos.kit.scan import scan
from tests.chaos.kit.sentry import read_health
from tests.chaos.kit.wait import eventually
from tests.servers import DialectServer

LEASE_MS = 1000
CONCURRENCY = 8


class Stage:
    def __init__(self, server: DialectServer, queue: str, ledger: Ledger, fleet: Fleet) -> None:
        self.server = server
        self.queue = queue
        self.keys = wire.Keys(queue)
        self.ledger = ledger
        self.fleet = fleet

    @property
    def redis(self) -> Any:
        """A plain client, for what the server holds."""
        return self.server.client()

    def proxy(self) -> Proxy:
        """One in front of the server, to be entered."""
        port = self.server.server.port
        assert port is not None
        return Proxy(port)

    # -- workers -------------------------------------------------------------------------------

    def orders(self, behaviour: Behaviour, *, max_attempts: int = 25) -> Orders:
        return Orders(
            self.server.url,
            self.queue,
            str(self.ledger.path),
            concurrency=CONCURRENCY,
            max_attempts=max_attempts,
            claim_min_idle_ms=LEASE_MS,
            dialect=self.server.forced_dialect,
            behaviour=behaviour,
        )

    def sentries(self, count: int, lease_ms: int, **more: Any) -> list[Process]:
        """Start sentries; they connect to the server unless another `url` is given."""
        told = {"url": self.server.url, "dialect": self.server.forced_dialect, **more}
        orders = Orders(
            queue=self.queue, ledger=str(self.ledger.path), claim_min_idle_ms=lease_ms, **told
        )
        return self.fleet.start_many([orders] * count, module=SENTRY)

    def sentry(self, lease_ms: int, **more: Any) -> Process:
        return self.sentries(1, lease_ms, **more)[0]

    def health(self, sentry: Process) -> dict[str, Any]:
        return read_health(self.ledger.path, sentry.pid)

    def counters(self, sentry: Process) -> dict[str, int]:
        return dict(self.health(sentry).get("counters", {}))

    def open(self, gate: str) -> None:
        open_gate(self.ledger.path, gate)

    # -- jobs ----------------------------------------------------------------------------------

    async def add(
        self, numbers: range, chunk: int = 100, pause_s: float = 0, delay_ms: int | None = None
    ) -> None:
        """Add jobs and note what we were told of each."""
        async with self._doorway() as queue:
            for at in range(numbers.start, numbers.stop, chunk):
                some = range(at, min(at + chunk, numbers.stop))
                jobs = {f"job-{number}": number for number in some}
                await self._add(queue, jobs, delay_ms=delay_ms)
                await asyncio.sleep(pause_s)

    def act(self, acts: Mapping[str, Mapping[str, Any]]) -> None:
        """Add acts, by job id, all in one go and in this order."""

        async def add() -> None:
            async with self._doorway() as queue:
                await self._add(queue, acts)

        asyncio.run(add())

    def _doorway(self) -> Queue:
        return Queue(self.queue, redis_url=self.server.url, dialect=self.server.forced_dialect)

    async def _add(self, queue: Queue, jobs: Mapping[str, Any], **more: Any) -> None:
        for job_id in jobs:
            self.ledger.attempted(job_id)
        rows = [{"name": "c", "data": data, "job_id": job, **more} for job, data in jobs.items()]
        try:
            for job in await queue.add_bulk(rows):
                self.ledger.accepted(job.id)
        except UnconfirmedError:
            pass  # attempted, and no more is known

    # -- what came of it -----------------------------------------------------------------------

    def is_drained(self) -> bool:
        try:
            return scan(self.server.url, self.queue).drained
        except redis.ConnectionError:
            return False

    def drained(self, timeout: float = 30.0) -> None:
        eventually(self.is_drained, timeout, every=0.1, or_say=lambda: self.fleet.errors[-2000:])

    def verdict(self) -> Verdict:
        return note(check(self.ledger.path, scan(self.server.url, self.queue)))

    def ended(self) -> int:
        return tally(self.ledger.path)["end"]

    def facts(self, event: str) -> list[Record]:
        return [record for record in read(self.ledger.path) if record.event == event]

    def started(self, count: int) -> list[Record]:
        """Wait until so many runs have begun; answers them."""

        def begun() -> list[Record]:
            starts = self.facts("start")
            return starts if len(starts) >= count else []

        return eventually(begun, or_say=lambda: self.fleet.errors[-2000:])

    def pending(self) -> dict[str, str]:
        """Who holds what: consumers by entry id."""
        try:
            rows = self.redis.xpending_range(self.keys.stream, "default", "-", "+", 100_000)
        except redis.ResponseError:  # nobody has read yet: there is no group
            return {}
        return {row["message_id"].decode(): row["consumer"].decode() for row in rows}

    def idle_ms(self) -> int:
        """For how long the only pending entry has not been renewed, by the server's clock."""
        [row] = self.redis.xpending_range(self.keys.stream, "default", "-", "+", 2)
        return int(row["time_since_delivered"])

    def events(self, kind: str) -> list[wire.EventRow]:
        rows = [
            wire.unpack_event([part for pair in fields.items() for part in pair])
            for _, fields in self.redis.xrange(self.keys.events)
        ]
        return [row for row in rows if row.name == kind]

    def readers(self) -> int:
        """How many workers wait for jobs, on a server of our own. Before Redis 7.2 their names are
        listed with their first job only."""
        return sum(client["cmd"].lower() == "xreadgroup" for client in self.redis.client_list())

    def consumers(self) -> list[str]:
        rows = self.redis.xinfo_consumers(self.keys.stream, "default")
        return [row["name"].decode() for row in rows]
