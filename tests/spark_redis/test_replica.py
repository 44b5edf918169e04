"""Reports may be read from a replica, so that workers do not wait for them."""

from __future__ import annotations

from typing import NamedTuple

from chasquimq.spark.schema import COLUMNS
from tests.engine.desk import Desk
from tests.replicas import replica_of
from tests.servers import DialectServer
from tests.spark_redis.follower import Follower
from tests.spark_redis.reading import Reading, fill_every_view


class Server(NamedTuple):
    url: str


async def test_every_view_is_read_from_a_replica(
    own_server: DialectServer, queue_name: str
) -> None:
    await fill_every_view(Desk(own_server, queue_name))
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
