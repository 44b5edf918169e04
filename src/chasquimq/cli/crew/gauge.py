"""How full the queues of this process's Workers are, asked on connections beside theirs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from chasquimq.errors import ChasquiError
from chasquimq.observe.probe import Depths, depths
from chasquimq.store import Link
from chasquimq.worker import Worker

log = logging.getLogger("chasquimq.cli")

PATIENCE_S = 2.0


class Gauge:
    def __init__(self, workers: Iterable[Worker]) -> None:
        places = {(one.name, one.options.group, str(one.address)): one for one in workers}
        self._workers = list(places.values())
        self._links: dict[Worker, Link] = {}

    async def look(self) -> list[Depths]:
        """What was answered in time."""
        found: list[Depths] = []
        try:
            async with asyncio.timeout(PATIENCE_S):
                for worker in self._workers:
                    link = await self._link(worker)
                    found.append(await depths(link, worker.name, worker.options.group))
        except (ChasquiError, TimeoutError) as error:
            log.debug("how full the queues are cannot be said: %s", error)
        return found

    async def _link(self, worker: Worker) -> Link:
        link = self._links.get(worker)
        if link is None:
            link = Link(worker.dialer)
            await link.open()
            self._links[worker] = link
        return link

    async def close(self) -> None:
        for link in self._links.values():
            await link.close()
        self._links.clear()
