"""What `spark.read` would hand to its decoders, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from pyspark.sql.datasource import InputPartition

from chasquimq import BackoffSpec, Job, RepeatPattern
from chasquimq.address import read_url
from chasquimq.spark.client import Clients
from chasquimq.spark.options import SourceOptions, source_options
from chasquimq.spark.read import plan, scan
from chasquimq.spark.read.batch import pages
from chasquimq.spark.read.filters import Wanted
from tests.engine.desk import Desk
from tests.servers import DialectServer

HOUR = timedelta(hours=1)


class Reading:
    """One read: its parts, and the rows of each."""

    def __init__(self, server: DialectServer, queue: str, **options: Any) -> None:
        given = {name: str(value) for name, value in options.items()}
        self.options: SourceOptions = source_options({"url": server.url, "queue": queue, **given})
        self._address = read_url(server.url)

    def parts(self, wanted: Wanted | None = None) -> list[InputPartition]:
        with Clients(self._address, plan.SCRIPTS) as clients:
            return plan.plan(clients, self.options, wanted or Wanted(self.options.queues))

    def pages(self, part: Any) -> Iterator[list[Any]]:
        with Clients(self._address, scan.SCRIPTS) as clients:
            client = clients.of(part.queue)
            yield from pages(client, part, self.options)

    def rows_of(self, part: InputPartition) -> list[Any]:
        return [row for page in self.pages(part) for row in page]

    def rows(self, wanted: Wanted | None = None) -> list[Any]:
        return [row for part in self.parts(wanted) for row in self.rows_of(part)]

    def ids(self, wanted: Wanted | None = None) -> list[str]:
        return [row[0].decode() for row in self.rows(wanted)]


@contextmanager
def counted(server: DialectServer, *commands: str) -> Iterator[dict[str, int]]:
    """How often the server ran them meanwhile; on a server of one's own."""
    client = server.client()
    client.config_resetstat()
    calls: dict[str, int] = {}
    yield calls
    told = client.info("commandstats")
    for command in commands:
        calls[command] = told.get(f"cmdstat_{command.lower()}", {}).get("calls", 0)


async def fill_every_view(desk: Desk) -> dict[str, Job]:
    """Something for every view: two jobs that ran, one of them in vain; one that somebody has, one
    that waits, one for later, and two specs."""

    async def handler(job: Job) -> dict[str, int]:
        if job.name == "doomed":
            raise ValueError("no such address")
        return {"sent": job.data["n"]}

    made: dict[str, Job] = {}
    async with desk.queue() as queue:
        made["done"] = await queue.add("mail", {"n": 1})
        made["dead"] = await queue.add("doomed", {"n": 2}, attempts=1)
        worker = desk.worker(handler, store_results=True, burst=True)
        await worker.run()
        made["pending"] = await queue.add("mail", {"n": 3})
        desk.redis.xreadgroup("default", "ann", {desk.keys.stream: ">"})
        backoff = BackoffSpec(kind="fixed", delay_ms=50)
        made["waiting"] = await queue.add("", {"n": 4}, attempts=7, backoff=backoff)
        made["later"] = await queue.add("mail", [5], delay=HOUR)
        await queue.add("tick", None, repeat=RepeatPattern.every(60_000), limit=9)
        await queue.add("report", None, repeat=RepeatPattern.cron("0 6 * * *", tz="Europe/Berlin"))
    return made
