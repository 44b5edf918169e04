"""A traced job is a job for the reference, and a job of the reference can be traced by us."""

from __future__ import annotations

import asyncio
from typing import Any

from chasquimq import Job, Worker, sync
from chasquimq.observe.otel import OpenTelemetry
from tests.interop.conftest import MakeSide
from tests.interop.keys import Keys
from tests.observe.spans import Telescope, facts
from tests.servers import DialectServer

WORK: dict[str, Any] = {"concurrency": 4, "read_block_ms": 200}


def add_each_way(url: str, queue: str, tracing: OpenTelemetry) -> list[Job]:
    with sync.Queue(queue, redis_url=url, tracing=tracing) as door:
        jobs = [
            door.add("plain", {"n": 1}),
            door.add("", "unnamed"),
            door.add("own", 2, job_id="ñ-id"),
            door.add("rules", 3, attempts=3, backoff=50),
            door.add("unique", 4, job_id="u", unique="until_done"),
        ]
        return jobs + door.add_bulk([{"name": "bulk", "data": n} for n in range(20)])


def test_the_reference_runs_traced_jobs_as_they_were_added(
    side: MakeSide, keys: Keys, native_server: DialectServer, queue_name: str
) -> None:
    sky = Telescope()
    added = add_each_way(native_server.url, queue_name, sky.tracing)
    assert all(b"t" in fields for _, fields in keys.client.xrange(keys.stream))
    reference = side("reference")
    reference.work(**WORK)
    reference.wait_seen(len(added))
    keys.wait_drained()
    seen = sorted((job.id, job.name, job.data, job.attempt) for job in reference.seen())
    assert str(seen) == str(sorted((job.id, job.name, job.data, 0) for job in added))
    assert keys.client.xlen(keys.dlq) == 0


def test_a_traced_job_that_fails_with_the_reference_is_retried_and_linked_no_more(
    side: MakeSide, keys: Keys, native_server: DialectServer, queue_name: str
) -> None:
    sky = Telescope()
    with sync.Queue(queue_name, redis_url=native_server.url, tracing=sky.tracing) as door:
        door.add("n", 1, job_id="j", backoff=50)
    reference = side("reference")
    reference.work(fail_below=1, **WORK)
    reference.wait_seen(2)
    keys.wait_drained()
    assert [(job.id, job.attempt) for job in reference.seen()] == [("j", 0), ("j", 1)]


def test_a_job_of_the_reference_begins_a_trace(
    side: MakeSide, keys: Keys, native_server: DialectServer, queue_name: str
) -> None:
    sky = Telescope()
    reference = side("reference")
    added = [reference.add("n", {"x": 1}), *reference.add_bulk([{"name": "b", "data": 1}] * 3)]
    seen: list[str] = []

    async def handler(job: Job) -> None:
        seen.append(job.id)

    worker = Worker(
        queue_name, handler, redis_url=native_server.url, tracing=sky.tracing, burst=True
    )
    asyncio.run(worker.run())
    keys.wait_drained()
    assert sorted(seen) == sorted(job.id for job in added)
    runs = sky.spans("process")
    assert sorted(facts(run)["messaging.message.id"] for run in runs) == sorted(seen)
    assert [(run.parent, list(run.links)) for run in runs] == [(None, [])] * 4
