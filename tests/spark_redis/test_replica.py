"""Reports may be read from a replica, so that workers do not wait for them."""

from __future__ import annotations

from typing import NamedTuple

from chasquimq import Job, RepeatPattern
from chasquimq.spark.schema import COLUMNS
from tests.engine.desk import Desk
from tests.replicas import replica_of
from tests.servers import DialectServer
from tests.spark_redis.follower import Follower
from tests.spark_redis.reading import Reading


class Server(NamedTuple):
    url: str


async def fill(desk: Desk) -> None:
    async def handler(job: Job) -> str:
        if job.name == "doomed":
            raise ValueError
        return "done"

    async with desk.queue() as queue:
        await queue.add("fine", 1)
        await queue.add("doomed", 2, attempts=1)
        await desk.worker(handler, store_results=True, burst=True).run()
        await queue.add("waits", 3)
        desk.redis.xreadgroup("default", "ann", {desk.keys.stream: ">"})
        await queue.add("later", 4, delay_ms=3_600_000)
        await queue.add("again", 5, repeat=RepeatPattern.every(3_600_000))


async def test_every_view_is_read_from_a_replica(
    own_server: DialectServer, queue_name: str
) -> None:
    await fill(Desk(own_server, queue_name))
    with replica_of(own_server) as replica:
        for view in COLUMNS:
            rows = [
                Reading(server, queue_name, view=view).rows()  # type: ignore[arg-type]
                for server in (own_server, Server(replica.server.url))
            ]
            if view in ("pending", "results"):  # how long it was idle, and will live
                rows = [[[*row[:2], *row[3:]] for row in some] for some in rows]
            assert rows[0] == rows[1] != []
        with Follower(replica.server.url, queue_name) as follower:
            assert len(follower.all()) == len(Desk(own_server, queue_name).events())
