"""Doors that are given Sentinels find the master, and follow it when it changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from chasquimq import Queue, QueueEvents, Worker
from chasquimq.address import read_url
from chasquimq.errors import AccessError, ConfigError, StoreError, StoreUnavailableError
from chasquimq.spark.client import Client
from tests.ha.crowd import Crowd
from tests.ha.kit import SERVICE, Watched, client, until, watched
from tests.servers import Dialect, binary_for


@pytest.mark.timeout(120)
async def test_a_master_is_killed_and_comes_back(sentinels: Watched, queue_name: str) -> None:
    crowd = Crowd(sentinels.url, queue_name, durability="replicated", durability_timeout_ms=1_000)
    async with crowd.at_work():
        await crowd.goes_on()
        sentinels.master.kill()
        port = await asyncio.to_thread(until, lambda: _other(sentinels), 60.0)
        await crowd.until(lambda: client(port).exists(f"{{chasqui:{queue_name}}}:stream"))
        sentinels.master.start()  # it takes itself for a master until a Sentinel tells it
        await asyncio.to_thread(until, lambda: _is_replica(sentinels.master.port))
        await crowd.goes_on()  # confirmed by a replica again
    # What was confirmed as replicated is on the other one, and has run.
    assert set(crowd.accepted) <= set(crowd.runs)
    assert set(crowd.runs) <= set(crowd.accepted) | set(crowd.unsure)
    assert len(crowd.accepted) > 100


def _other(sentinels: Watched) -> int:
    port = sentinels.named()
    return port if port == sentinels.replica.port else 0


def _is_replica(port: int | None) -> bool:
    return client(port).info("replication")["role"] == "slave"


@pytest.mark.timeout(120)
async def test_a_switch_by_hand_loses_and_doubles_nothing(
    sentinels: Watched, queue_name: str
) -> None:
    """The old master lives and is made a replica: what it answers then tells us to go."""
    crowd = Crowd(sentinels.url, queue_name, durability="replicated", durability_timeout_ms=1_000)
    async with crowd.at_work():
        await crowd.goes_on()
        one = sentinels.sentinels[0].redis
        await asyncio.to_thread(until, lambda: one.sentinel_failover(SERVICE))
        await asyncio.to_thread(until, lambda: _other(sentinels), 60.0)
        await crowd.goes_on()
    assert set(crowd.accepted) <= set(crowd.runs)


async def test_every_door_goes_through(sentinels: Watched, queue_name: str) -> None:
    seen = []

    async def handle(job: object) -> None:
        seen.append(job)

    events = QueueEvents(queue_name, redis_url=sentinels.url, last_event_id="0")
    async with Queue(queue_name, redis_url=sentinels.url) as queue:
        await queue.add("a", 1)
        await Worker(queue_name, handle, redis_url=sentinels.url, burst=True).run()
    assert len(seen) == 1
    async for event in events:
        if event.name == "completed":
            break
    await events.close()
    with Client(read_url(sentinels.url)) as spark:
        assert spark.ask("XLEN", f"{{chasqui:{queue_name}}}:stream") == 0


async def test_a_server_that_is_a_replica_by_now_is_not_written_to(
    sentinels: Watched, queue_name: str
) -> None:
    """Sentinels name a server for a while after it has changed."""
    client(sentinels.master.port).replicaof("127.0.0.1", 1)
    for door in (_add, _ask):
        with pytest.raises(StoreUnavailableError, match="no master"):
            await door(sentinels.url, queue_name)


async def _add(url: str, queue: str) -> None:
    await Queue(queue, redis_url=url).add("a", 1)


async def _ask(url: str, queue: str) -> None:
    with Client(read_url(url), patience_s=0) as spark:
        spark.ask("XLEN", f"{{chasqui:{queue}}}:stream")


async def test_who_is_not_known_or_not_there_is_told(sentinels: Watched, queue_name: str) -> None:
    wrong = sentinels.url.replace(SERVICE, "another")
    with pytest.raises(StoreError, match="knows a master named 'another'"):
        await Queue(queue_name, redis_url=wrong).add("a", 1)
    with pytest.raises(StoreUnavailableError, match=r"no Sentinel of .* answers .*refused"):
        await Queue(queue_name, redis_url="redis+sentinel://127.0.0.1:1/m").add("a", 1)
    for one in sentinels.sentinels[:2]:
        one.close()
    async with Queue(queue_name, redis_url=sentinels.url) as queue:
        assert (await queue.add("a", 1)).id  # less than half answer, and that is more than nobody


async def test_sentinels_with_a_password(
    dialect: Dialect, tmp_path: Path, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    word = "s3ntin3ls-own"  # not a secret
    with watched(binary_for(dialect), tmp_path, password=word) as servers:
        with pytest.raises(ConfigError, match="SENTINELS_WORD"):
            await Queue(queue_name, redis_url=servers.url).add("a", 1)
        monkeypatch.setenv("SENTINELS_WORD", word)
        async with Queue(queue_name, redis_url=servers.url) as queue:
            assert (await queue.add("a", 1)).id
        monkeypatch.setenv("SENTINELS_WORD", "wr0ng-one")
        with pytest.raises(AccessError, match="refused the login") as caught:
            await Queue(queue_name, redis_url=servers.url).add("a", 1)
        assert "wr0ng-one" not in str(caught.value)
