"""A producer and a worker that go on while servers fail: what was accepted, and what ran."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from chasquimq import Queue, StoreUnavailableError, UnconfirmedError, Worker
from chasquimq.address import CredentialProvider
from chasquimq.job import Job

PATIENCE_S = 60.0


class Crowd:
    def __init__(
        self,
        url: str,
        name: str,
        provider: CredentialProvider | None = None,
        delay_ms: int = 0,
        **options: Any,
    ) -> None:
        """`delay_ms`: of every second job."""
        self.name = name
        self._delay_ms = delay_ms
        self._where: Any = {"redis_url": url, "credential_provider": provider}
        self.queue = Queue(name, **self._where, **options)
        self.accepted: list[str] = []
        self.unsure: list[str] = []  # nobody knows whether they came in
        self.runs: Counter[str] = Counter()
        self._number = 0
        self._stop = asyncio.Event()

    async def handle(self, job: Job) -> None:
        self.runs[job.data] += 1

    @asynccontextmanager
    async def at_work(self, *, all_of_them: bool = True) -> AsyncIterator[None]:
        """Adds one job after another, and runs them, as long as it lasts. At the end it waits until
        all that were accepted have run; without durability a failover may have lost some."""
        worker = Worker(self.name, self.handle, claim_min_idle_ms=2_000, **self._where)
        async with asyncio.TaskGroup() as group:
            group.create_task(worker.run())
            adding = group.create_task(self._add())
            try:
                yield
                self._stop.set()
                await adding
                if all_of_them:
                    await self.until(lambda: set(self.accepted) <= set(self.runs))
            finally:
                self._stop.set()
                await worker.close()
        await self.queue.close()

    async def _add(self) -> None:
        while not self._stop.is_set():
            self._number += 1
            word = f"job {self._number}"
            delay_ms = self._delay_ms if self._number % 2 else 0
            try:
                await self.queue.add("count", word, delay=delay_ms)
                self.accepted.append(word)
            except UnconfirmedError:
                self.unsure.append(word)
            except StoreUnavailableError:
                pass  # it is not in
            await asyncio.sleep(0.002)

    def stop_adding(self) -> None:
        self._stop.set()

    async def until(self, what: Any) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not what():
                await asyncio.sleep(0.02)

    async def goes_on(self, jobs: int = 100) -> None:
        """So many more have been accepted and run since now."""
        accepted, ran = len(self.accepted), sum(self.runs.values())
        await self.until(
            lambda: len(self.accepted) >= accepted + jobs and sum(self.runs.values()) >= ran + jobs
        )
