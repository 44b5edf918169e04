"""Models cross to the reference as dicts; and what it adds becomes a model here."""

from __future__ import annotations

from typing import Any

import pytest

from chasquimq import Job, Queue
from tests.engine.desk import Desk
from tests.engine.invoice import INVOICES, WRITTEN
from tests.interop.conftest import MakeSide
from tests.interop.keys import Keys
from tests.servers import DialectServer

each_kind = pytest.mark.parametrize("invoice", INVOICES, ids=lambda model: type(model).__name__)


@each_kind
async def test_a_model_arrives_at_the_reference_as_a_dict(
    side: MakeSide, keys: Keys, native_server: DialectServer, queue_name: str, invoice: Any
) -> None:
    async with Queue(queue_name, redis_url=native_server.url) as queue:
        await queue.add("one", invoice)
        await queue.add("many", [invoice, {"inside": invoice}])
    worker = side("reference")
    worker.work(concurrency=1, read_block_ms=200)
    seen = {job.name: job.data for job in worker.wait_seen(2)}
    assert seen == {"one": WRITTEN, "many": [WRITTEN, {"inside": WRITTEN}]}
    keys.wait_drained()


@each_kind
async def test_data_of_the_reference_become_a_model(
    side: MakeSide, native_server: DialectServer, queue_name: str, invoice: Any
) -> None:
    got: list[Any] = []

    async def handle(job: Job) -> None:
        got.append(job.decode(type(invoice)))

    side("reference").add("one", WRITTEN)
    desk = Desk(native_server, queue_name)
    async with desk.working(handle):
        await desk.settled()
    assert got == [invoice]


@each_kind
async def test_a_model_that_is_a_result_is_read_by_the_reference(
    side: MakeSide, native_server: DialectServer, queue_name: str, invoice: Any
) -> None:
    async def handle(job: Job) -> Any:
        return invoice

    asker = side("reference")
    job = asker.add("one", 1)
    desk = Desk(native_server, queue_name)
    async with desk.working(handle, store_results=True):
        await desk.settled()
        assert asker.get_job_result(job.id) == WRITTEN
