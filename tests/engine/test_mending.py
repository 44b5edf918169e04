"""Connections are mended whatever a credential provider raises."""

from __future__ import annotations

import asyncio

import pytest

from chasquimq import Job
from tests.engine.desk import Desk, eventually, producer_of
from tests.engine.vault import WAYS, Vault, consumer_of, cut, is_open

LEASE_MS = 600


@pytest.mark.parametrize("way", WAYS)
async def test_a_queue_is_connected_again_whatever_its_provider_raises(
    desk: Desk, way: str
) -> None:
    vault = Vault(way)
    async with desk.queue(credential_provider=vault) as queue:
        await queue.add("n", 1)
        link = producer_of(queue).link
        vault.times = 3
        cut(desk, link)
        await eventually(lambda: vault.fails >= 3)
        async with asyncio.timeout(15):
            await queue.add("n", 2)
        assert link.reconnects == 1


@pytest.mark.parametrize("way", WAYS)
async def test_every_connection_of_a_worker_is_mended_whatever_its_provider_raises(
    desk: Desk, way: str
) -> None:
    vault, runs = Vault(way), list[str]()

    async def handler(job: Job) -> None:
        runs.append(job.id)

    options = {"claim_min_idle_ms": LEASE_MS, "read_block_ms": 100}
    working = desk.working(handler, credential_provider=vault, **options)
    async with desk.queue() as queue, working as worker:
        await eventually(lambda: worker.health().healthy)
        vault.times = 8
        for link in consumer_of(worker).links.values():
            await eventually(lambda link=link: is_open(link))  # type: ignore[misc]
            cut(desk, link)
        await eventually(lambda: vault.fails >= 8)
        await queue.add("n", 1, job_id="a")
        await eventually(lambda: "a" in runs)
        await desk.settled()
        await eventually(lambda: worker.health().healthy)
        assert all(one.reconnects for one in worker.health().connections.values())


async def test_reconnecting_goes_on_when_its_task_was_cancelled_by_somebody_else(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    vault = Vault()
    async with desk.queue(credential_provider=vault) as queue:
        await queue.add("n", 1)
        link = producer_of(queue).link
        vault.times = 10_000
        cut(desk, link)
        for _ in range(3):
            await eventually(lambda: link._mending is not None and not link._mending.done())
            task = link._mending
            assert task is not None
            task.cancel()
            await asyncio.wait([task])
        vault.times = 0
        async with asyncio.timeout(15):
            await queue.add("n", 2)
    assert "CancelledError" in caplog.text


async def test_tries_are_counted_across_tasks_that_were_ended(desk: Desk) -> None:
    vault = Vault("a cancelled caller")
    queue = desk.queue(credential_provider=vault, reconnect_max_attempts=4)
    async with queue:
        await queue.add("n", 1)
        link = producer_of(queue).link
        vault.times = 10_000
        cut(desk, link)
        await eventually(lambda: link._given_up is not None)
        with pytest.raises(RuntimeError, match=r"gave up on .* after 4 tries"):
            await queue.add("n", 2)
        assert vault.fails == 4


async def test_a_close_ends_the_mending_at_once(desk: Desk) -> None:
    vault = Vault()
    queue = desk.queue(credential_provider=vault)
    await queue.add("n", 1)
    link = producer_of(queue).link
    vault.times = 10_000
    cut(desk, link)
    await eventually(lambda: vault.fails > 2)
    async with asyncio.timeout(5):
        await queue.close()
    failed = vault.fails
    await asyncio.sleep(0.3)
    assert vault.fails == failed
    assert link._mending is None or link._mending.done()


@pytest.mark.parametrize("way", ["CancelledError", "SystemExit", "no Exception"])
async def test_a_first_connection_says_that_the_provider_failed(desk: Desk, way: str) -> None:
    vault = Vault(way)
    vault.times = 1
    async with desk.queue(credential_provider=vault) as queue:
        with pytest.raises(RuntimeError, match=r"credential_provider of .* failed \("):
            await queue.add("n", 1)
        await queue.add("n", 2)
