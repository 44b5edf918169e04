"""A queue whose slot is moved key by key is in two halves for a while: what is done to one waits
for the other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis

from chasquimq import Queue, Worker, wire
from chasquimq.native import Promoter
from tests.ha.doors import ignore, running
from tests.ha.kit import Cluster, client, until

HOLDER = "one-of-us"


@pytest.mark.timeout(120)
async def test_a_job_that_is_due_waits_for_what_says_that_it_is_unique(
    nodes: Cluster, queue_name: str
) -> None:
    """Promoted without it, its id would not be free when it is done."""
    keys = wire.Keys(queue_name)
    stream = keys.stream.decode()
    target = next(node for node in nodes.masters() if node is not nodes.owner(stream))
    async with Queue(queue_name, redis_url=nodes.url) as queue:
        only: Any = {"job_id": "only", "unique": "until_done"}
        await queue.add("a", 1, delay_ms=1, **only)
        # All that promotion names is there, so nothing but the marker is missing.
        here = client(nodes.owner(stream).port)
        here.set(keys.promoter_lock, HOLDER, ex=3_600)
        here.xadd(keys.dlq, {"d": b""})
        move = nodes.begin_move(stream, target)
        move.carry(keys.unique("only"))
        ran = _scripts(here)
        async with running(Promoter(nodes.url, queue_name, holder_id=HOLDER)):
            await asyncio.to_thread(until, lambda: _scripts(here) > ran + 1)
            assert here.zcard(keys.delayed) == 1
            assert here.xlen(keys.stream) == 0
            while left := move.left():
                move.carry(*left)
            move.end()
            await asyncio.to_thread(until, lambda: move.there.xlen(keys.stream) == 1)
        await Worker(queue_name, ignore, redis_url=nodes.url, burst=True).run()
        assert not (await queue.add("a", 2, **only)).duplicate


def _scripts(server: redis.Redis) -> int:
    """How many scripts have run there, to their end or not."""
    stats = server.info("commandstats")
    return sum(int(stats.get(f"cmdstat_{one}", {}).get("calls", 0)) for one in ("evalsha", "eval"))
