"""How queues are, as operators see them: one round trip, whatever lies under their keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chasquimq import wire
from chasquimq.errors import AccessError
from chasquimq.job import Counts
from chasquimq.repeat import PAUSED_MS
from chasquimq.store import inspect
from chasquimq.store.inspect import Overview, Problem, overviews
from tests.store.shelf import GROUP, Shelf, member


async def look(shelf: Shelf, group: str = GROUP) -> Overview:
    return await shelf.store.inspect.overview(group)


async def test_a_queue_that_nobody_used_is_empty_and_gets_nothing(shelf: Shelf) -> None:
    found = await look(shelf)
    assert not found.exists
    assert (found.stream_depth, found.pending, found.dlq_depth) == (0, None, 0)
    assert (found.delayed_depth, found.delayed_lag_ms, found.delayed_next_ms) == (0, None, None)
    assert (found.repeatables, found.repeat_next_ms, found.memory_bytes) == (0, None, 0)
    assert (found.counts, found.consumers, found.problems) == (Counts(), (), ())
    assert (found.promoter, found.scheduler, found.paused) == (None, None, False)
    assert list(shelf.redis.scan_iter(match=shelf.keys.tag + b"*", count=10_000)) == []


async def test_each_place_is_looked_at(shelf: Shelf) -> None:
    await shelf.join()
    shelf.deliver(*[b"running"] * 2)
    shelf.put(*[b"waiting"] * 3)
    for _ in range(4):
        shelf.redis.xadd(shelf.keys.dlq, {b"d": b"dead"})
    shelf.redis.xadd(shelf.keys.events, {b"e": b"drained"})
    found = await look(shelf)
    assert (found.exists, found.stream_depth, found.pending) == (True, 5, 2)
    assert (found.dlq_depth, found.events_depth) == (4, 1)
    assert found.counts is not None and (found.counts.waiting, found.counts.running) == (3, 2)
    assert found.memory_bytes is not None and found.memory_bytes > 0
    [one] = found.consumers
    assert (one.name, one.pending) == ("me", 2)


async def test_what_is_due_and_what_comes_next_go_by_the_servers_clock(shelf: Shelf) -> None:
    now = shelf.now_ms()
    far = 3_600_000
    shelf.redis.zadd(shelf.keys.delayed, {member("a"): now + far})
    found = await look(shelf)
    assert (found.delayed_due, found.delayed_lag_ms) == (0, 0)
    assert found.delayed_next_ms is not None
    assert far - (shelf.now_ms() - now) <= found.delayed_next_ms <= far
    shelf.redis.zadd(shelf.keys.delayed, {member("b"): now - 9_000, member("c"): now - 1})
    found = await look(shelf)
    assert (found.delayed_depth, found.delayed_due, found.delayed_next_ms) == (3, 2, 0)
    assert found.delayed_lag_ms is not None
    assert 9_000 <= found.delayed_lag_ms <= 9_000 + shelf.now_ms() - now


async def test_paused_specs_are_told_apart_and_never_come_next(shelf: Shelf) -> None:
    shelf.redis.zadd(shelf.keys.repeat, {"paused": PAUSED_MS, "for ever": "inf"})
    found = await look(shelf)
    assert (found.repeatables, found.repeat_paused, found.repeat_next_ms) == (2, 2, None)
    shelf.redis.zadd(shelf.keys.repeat, {"hourly": shelf.now_ms() + 3_600_000, "late": 1})
    found = await look(shelf)
    assert (found.repeatables, found.repeat_paused, found.repeat_due) == (4, 2, 1)
    assert found.repeat_next_ms == 0


@pytest.mark.parametrize("score", ["inf", "-inf", 1e300, -5])
async def test_a_score_that_is_no_moment_is_survived(shelf: Shelf, score: Any) -> None:
    shelf.redis.zadd(shelf.keys.delayed, {member("a"): score})
    found = await look(shelf)
    assert found.delayed_depth == 1 and found.delayed_next_ms is not None


async def test_a_group_that_does_not_exist_has_nothing_pending(shelf: Shelf) -> None:
    await shelf.join()
    shelf.deliver(b"a")
    found = await look(shelf, "others")
    assert (found.stream_depth, found.pending, found.consumers) == (1, None, ())


async def test_who_leads_and_whether_it_is_paused(shelf: Shelf) -> None:
    shelf.redis.set(shelf.keys.promoter_lock, b"worker-1")
    shelf.redis.set(shelf.keys.scheduler_lock, b"s-\xff")
    shelf.redis.set(shelf.keys.paused, b"1")
    found = await look(shelf)
    assert (found.promoter, found.scheduler, found.paused) == ("worker-1", "s-\\xff", True)


async def test_all_that_ever_came_in_is_counted(shelf: Shelf) -> None:
    jobs = await shelf.join()
    shelf.put(b"a", b"b", b"c")
    before = await look(shelf)
    ids = shelf.deliver(b"d")
    await shelf.send(jobs.dialect.ack(list(ids)))
    after = await look(shelf)
    assert after.stream_added - before.stream_added == 1


WRONG = {
    "stream": ("stream", "dlq", "events"),
    "zset": ("delayed", "repeat"),
    "string": ("promoter_lock", "scheduler_lock"),
}


@pytest.mark.parametrize("place", [place for places in WRONG.values() for place in places])
async def test_a_key_of_another_type_is_told_of_and_hides_nothing_else(
    shelf: Shelf, place: str
) -> None:
    wanted = next(kind for kind, places in WRONG.items() if place in places)
    key = getattr(shelf.keys, place)
    if place != "stream":
        shelf.put(b"a", b"b")
    shelf.redis.hset(key, "in", "the way")
    found = await look(shelf)
    assert found.problems == (Problem(key.decode(), "hash", wanted),)
    assert str(found.problems[0]) == f"{key.decode()} is a hash, where a {wanted} belongs"
    assert found.stream_depth == (0 if place == "stream" else 2)
    counted = place not in ("stream", "dlq", "delayed", "repeat")
    assert (found.counts is not None) == counted


def round_trips(shelf: Shelf) -> int:
    """Each brings both scripts along."""
    stats: dict[str, Any] = shelf.redis.info("commandstats")
    return int(stats["cmdstat_script|load"]["calls"]) // 2


async def test_many_queues_are_few_round_trips(
    own_shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = own_shelf
    monkeypatch.setattr(inspect, "AT_ONCE", 50)
    queues = [wire.Keys(f"queue-{number}") for number in range(120)]
    for number, keys in enumerate(queues):
        shelf.redis.xadd(keys.stream, {b"d": b"%d" % number})
    shelf.redis.xadd(queues[7].dlq, {b"d": b"dead"})
    await look(shelf)
    before = round_trips(shelf)
    found = await overviews(shelf.link, queues, GROUP)
    assert round_trips(shelf) - before == 3
    assert [one.queue for one in found] == [keys.queue for keys in queues]
    assert [one.queue for one in found if one.dlq_depth] == ["queue-7"]
    assert {one.stream_depth for one in found} == {1}
    assert await overviews(shelf.link, [], GROUP) == []


async def test_a_server_that_forgot_the_scripts_is_told_them_again(own_shelf: Shelf) -> None:
    own_shelf.put(b"a")
    await look(own_shelf)
    own_shelf.redis.script_flush()
    assert (await look(own_shelf)).stream_depth == 1


async def test_it_writes_nothing(own_shelf: Shelf) -> None:
    own_shelf.put(b"a")
    offset = own_shelf.redis.info("persistence")["rdb_changes_since_last_save"]
    await look(own_shelf)
    assert own_shelf.redis.info("persistence")["rdb_changes_since_last_save"] == offset


async def test_who_may_not_ask_for_memory_sees_the_rest(
    shelf: Shelf, new_user: Callable[..., str]
) -> None:
    shelf.put(b"a")
    store = shelf.new_store(new_user("~*", "&*", "+@all", "-memory"))
    await store.open()
    found = await store.inspect.overview(GROUP)
    await store.close()
    assert (found.stream_depth, found.memory_bytes) == (1, None)


@pytest.mark.parametrize("forbidden", ["-script", "-xinfo"])
async def test_who_may_not_look_is_told_so(own_shelf: Shelf, forbidden: str) -> None:
    shelf = own_shelf
    shelf.put(b"a")
    rules = ("on", ">pw", "~*", "&*", "+@all", forbidden)  # not a secret
    shelf.redis.execute_command("ACL", "SETUSER", "guest", *rules)
    store = shelf.new_store(shelf.server.url.replace("redis://", "redis://guest:pw@"))
    await store.open()
    with pytest.raises(AccessError, match="looking at queue"):
        await store.inspect.overview(GROUP)
    await store.close()
