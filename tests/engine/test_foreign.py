"""What the code of others raises where we call it ends none of our loops, and costs no job: not
even a CancelledError, or what is no Exception."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel, model_serializer

from chasquimq import BackoffSpec, Job
from tests.engine.desk import Desk, eventually


class Signal(BaseException):
    """As some libraries raise: no Exception."""


RAISED = [asyncio.CancelledError, Signal, SystemExit, GeneratorExit]


@pytest.mark.parametrize("kind", [asyncio.CancelledError, Signal, GeneratorExit])
async def test_a_sink_that_raises_anything_is_not_felt(
    desk: Desk, kind: type[BaseException]
) -> None:
    """A SystemExit ends the program, as it is meant to."""
    runs, told = list[str](), list[str]()

    class Sink:
        def handler_names(self, names: list[str]) -> None:
            raise kind

        def job_outcome(self, outcome: object) -> None:
            told.append("outcome")
            raise kind

        def leases_lost(self, count: int) -> None:
            raise kind

        def reader_batch(self, batch: object) -> None:
            raise kind

        def pulse(self, worker: str, health: object) -> None:
            raise kind

        def promoter_tick(self, tick: object) -> None:
            raise kind

        def retry_scheduled(self, retry: object) -> None:
            raise kind

        def job_added(self, added: object) -> None:
            raise kind

    async def handler(job: Job) -> None:
        runs.append(job.id)
        if job.data == 3:
            raise ValueError("again")

    slow = BackoffSpec.fixed(3_600_000, jitter_ms=0)
    working = desk.working(handler, metrics=Sink(), backoff=slow)
    async with desk.queue(metrics=Sink()) as queue, working as worker:
        await queue.add_bulk([{"name": "n", "data": n} for n in range(20)])
        await eventually(lambda: desk.waiting() == 0 and desk.delayed() == 1)
        await eventually(lambda: worker.health().held == 0)
        assert worker.health().slots == worker.health().slots_limit
    assert len(runs) == 20 and len(told) == 20


@pytest.mark.parametrize("kind", RAISED)
async def test_a_result_that_raises_anything_when_it_is_kept_is_buried(
    desk: Desk, kind: type[BaseException]
) -> None:
    class Odd(BaseModel):
        @model_serializer
        def shown(self) -> dict[str, Any]:
            raise kind

    async def handler(job: Job) -> Any:
        return Odd() if job.data == "odd" else "fine"

    async with desk.queue() as queue, desk.working(handler, store_results=True) as worker:
        await queue.add("n", "odd", job_id="odd")
        await eventually(lambda: desk.dead())
        for n in range(10):
            await queue.add("n", n)
        await desk.settled()
        await eventually(lambda: worker.health().held == 0)
        assert worker.health().slots == worker.health().slots_limit
    assert [row[b"job_id"] for row in desk.dead()] == [b"odd"]


@pytest.mark.parametrize("kind", RAISED)
async def test_an_error_that_raises_anything_when_it_is_shown_is_buried(
    desk: Desk, kind: type[BaseException]
) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise kind

    async def handler(job: Job) -> None:
        raise Odd

    async with desk.queue() as queue, desk.working(handler, max_attempts=1) as worker:
        await queue.add("n", 1, job_id="odd")
        await desk.settled()
        await eventually(lambda: worker.health().held == 0)
        assert worker.health().slots == worker.health().slots_limit
    assert [row[b"error_type"] for row in desk.dead()] == [b"Odd"]
