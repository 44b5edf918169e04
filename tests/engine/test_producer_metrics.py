"""What the sinks of a producer hear: what came in, what was refused, and what was mended."""

from __future__ import annotations

import pytest

from chasquimq import InMemorySink, QueueFullError
from chasquimq.observe.metrics import JobAdded
from tests.engine.desk import Desk, eventually


async def test_a_queue_s_sink_hears_of_added_and_refused_jobs(desk: Desk) -> None:
    sink = InMemorySink()
    async with desk.queue(metrics=sink, max_stream_len=3, events_enabled=False) as queue:
        await queue.add("a", 1)
        await queue.add("later", 1, delay_ms=60_000)
        await queue.add("a", 1, job_id="own", unique_for=9_000)
        await queue.add("a", 1, job_id="own", unique_for=9_000)  # not a second one
        with pytest.raises(QueueFullError):
            await queue.add_bulk([{"name": "a", "data": n} for n in range(5)])
        await queue.add_bulk([{"name": "b", "data": 1}])
        with pytest.raises(QueueFullError):
            await queue.add("a", 1)
    assert sink.heard("job_added") == [
        JobAdded("a", False),
        JobAdded("later", True),
        JobAdded("a", False),
        JobAdded("b", False),
    ]
    assert sink.heard("refused") == [5, 1]
    assert (sink.rollup().worker.added, sink.rollup().worker.refused) == (4, 6)
    assert desk.redis.exists(desk.keys.events) == 0


async def test_a_server_without_memory_is_told_as_refused(own_desk: Desk) -> None:
    sink = InMemorySink()
    async with own_desk.queue(metrics=sink) as queue:
        await queue.add("a", 1)
        own_desk.redis.config_set("maxmemory", 1)
        with pytest.raises(QueueFullError):
            await queue.add("a", 1)
        with pytest.raises(QueueFullError):
            await queue.add_bulk([{"name": "a", "data": n} for n in range(3)])
        own_desk.redis.config_set("maxmemory", 0)
    assert sum(sink.heard("refused")) == 4
    assert len(sink.heard("job_added")) == 1


async def test_a_mended_connection_of_a_producer_is_told(own_desk: Desk) -> None:
    sink = InMemorySink()
    async with own_desk.queue(metrics=sink) as queue:
        await queue.add("a", 1)
        own_desk.redis.client_kill_filter(_type="normal", skipme=True)
        await eventually(lambda: len(sink.heard("reconnected")) == 2)
    assert sorted(sink.heard("reconnected")) == ["producer", "requests"]


async def test_a_sink_goes_with_the_events_of_a_queue(desk: Desk) -> None:
    sink = InMemorySink()
    async with desk.queue(metrics=[sink], waiting_events=True) as queue:
        await queue.add("a", 1, job_id="now")
        await queue.add("a", 1, job_id="later", delay_ms=60_000)
    assert len(sink.heard("job_added")) == 2
    told = sorted((row.name, row.job_id) for row in desk.events())
    assert told == [("delayed", "later"), ("waiting", "now")]
