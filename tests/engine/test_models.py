"""Models go into a queue and come out of it, as data and as results."""

from __future__ import annotations

from typing import Any

import pydantic
import pytest

from chasquimq import EncodeError, Job, ModelError, RetryError, wire
from tests.engine.desk import Desk
from tests.engine.invoice import INVOICES, WRITTEN, PydanticInvoice

each_kind = pytest.mark.parametrize("invoice", INVOICES, ids=lambda model: type(model).__name__)


class Login(pydantic.BaseModel):
    password: pydantic.SecretStr


@each_kind
async def test_a_handler_gets_the_model_that_was_added(desk: Desk, invoice: Any) -> None:
    kind: Any = type(invoice)
    got: dict[str, tuple[Any, Any]] = {}

    async def handle(job: Job) -> None:
        if job.name == "twice" and job.attempt == 0:
            raise RetryError("once more", delay=0)
        got[job.name] = (job.data, job.decode(list[kind] if job.name == "many" else kind))

    async with desk.queue() as queue:
        job = await queue.add("one", invoice)
        assert job.data is invoice and job.decode(kind) is invoice
        await queue.add("later", invoice, delay_ms=1)
        await queue.add("twice", invoice)
        await queue.add_bulk([{"name": "bulk", "data": invoice}])
        await queue.add("many", [invoice])
        async with desk.working(handle):
            await desk.settled()
    assert got == {
        **dict.fromkeys(("one", "later", "twice", "bulk"), (WRITTEN, invoice)),
        "many": ([WRITTEN], [invoice]),
    }
    assert desk.dead() == []


@each_kind
async def test_a_handler_returns_a_model(desk: Desk, invoice: Any) -> None:
    async def handle(job: Job) -> Any:
        return {"paid": [job.decode(type(invoice))]}

    async with desk.queue() as queue, desk.working(handle, store_results=True):
        job = await queue.add("pay", invoice)
        assert await job.wait_for_result() == {"paid": [WRITTEN]}


async def test_a_result_that_holds_a_secret_is_not_kept(desk: Desk) -> None:
    async def handle(job: Job) -> Any:
        return Login(password="hunter2")  # not a secret

    async with desk.queue() as queue, desk.working(handle, store_results=True):
        with pytest.raises(EncodeError, match=r"data\.password is a pydantic"):
            await queue.add("login", Login(password="hunter2"))  # not a secret
        assert desk.waiting() == 0
        job = await queue.add("login", 1)
        await desk.settled()
        assert await queue.get_job_result(job.id, default="none") == "none"
    (dead,) = desk.dead()
    assert dead[b"reason"] == b"unrecoverable" and b"asterisks" in dead[b"error"]
    assert b"hunter2" not in dead[b"error"]


@each_kind
async def test_data_that_do_not_fit_are_buried_at_once(desk: Desk, invoice: Any) -> None:
    """One run, whatever the number of attempts; and the DLQ says why, but not what."""
    runs: list[str] = []

    async def handle(job: Job) -> None:
        runs.append(job.id)
        job.decode(type(invoice))

    async with desk.queue() as queue, desk.working(handle):
        job = await queue.add("pay", {**WRITTEN, "id": "s3cret"}, attempts=5, backoff=1)
        await desk.settled()
    (dead,) = desk.dead()
    assert runs == [job.id]
    assert dead[b"reason"] == b"unrecoverable" and dead[b"error_type"] == b"ModelError"
    assert dead[b"error"].startswith(f"CMQ-014: job '{job.id}' does not fit".encode())
    assert b"data.id: " in dead[b"error"] and b"s3cret" not in dead[b"error"]
    assert wire.decode(wire.unpack_envelope(dead[b"d"]).payload)["id"] == "s3cret", "it is kept"


async def test_a_handler_may_expect_data_that_do_not_fit(desk: Desk) -> None:
    told: list[list[tuple[str, str]]] = []

    def handle(job: Job) -> None:  # in a thread
        try:
            job.decode(PydanticInvoice)
        except ModelError as error:
            told.append(error.problems)

    async with desk.queue() as queue, desk.working(handle):
        await queue.add("pay", {**WRITTEN, "lines": [{"text": "a"}]})
        await desk.settled()
    assert told == [[("data.lines[0].price", "Field required")]]
    assert desk.dead() == []
