"""Whatever breaks half-way, no window is lost, and no spec.

A fire adds its jobs first and moves the spec then, because Lua has no rollback. What a server
refuses for want of memory or for a wrong type it refuses before anything was written. Only one
who may add jobs and may not move specs sees a window again; its jobs have the same ids then.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import redis

from chasquimq import lua
from chasquimq.errors import AccessError, QueueFullError, StoreError, StoreUnavailableError
from chasquimq.repeat import PAUSED_MS
from chasquimq.server import Server
from chasquimq.store.specs import Specs
from tests.replicas import replica_of
from tests.servers import DIALECTS, Dialect, DialectServer, binary_for
from tests.store.drawer import (
    AHEAD,
    PAST,
    arm,
    due,
    fields,
    fire,
    fired,
    firing,
    ids,
    look,
    scores,
    snapshot,
    spec,
)
from tests.store.faulty import break_off, wipe
from tests.store.shelf import Shelf

FORWARD = Path(__file__).with_name("forward.lua").read_text()
WINDOWS = range(PAST, PAST + 3)
OLD, NEW = spec("k"), spec("k", b"\xc3")

# -- scripts that break off ----------------------------------------------------------------------


async def tick(shelf: Shelf, then: int | None) -> None:
    """What a scheduler does, and does again."""
    for seen in (await due(shelf)).rows:
        await fire(shelf, firing(seen, *WINDOWS, then=then))


@pytest.mark.parametrize(
    ("then", "doubled", "commands"),
    [
        (AHEAD, {5: 1, 6: 2, 7: 3}, 9),  # GET ZSCORE HMGET, XADD 4-6, ZADD HSET HDEL
        (None, {5: 1, 6: 2, 7: 3}, 8),  # ... XADD 4-6, DEL ZREM
    ],
)
async def test_a_fire_that_breaks_off_anywhere_loses_no_window(
    shelf: Shelf, then: int | None, doubled: dict[int, int], commands: int
) -> None:
    for nth in count(1):
        wipe(shelf)
        arm(shelf, "k", PAST)
        once = firing(await look(shelf), *WINDOWS, then=then)
        broke = await break_off(
            shelf, nth, lambda link, f=once: Specs(shelf.keys, link).fire("me", [f])
        )
        await tick(shelf, then)
        found = Counter(fired(shelf))
        assert set(found) == set(ids(WINDOWS)), f"lost at command {nth}"
        twice = [one for one, times in found.items() if times > 1]
        assert twice == ids(WINDOWS)[: doubled.get(nth, 0)], f"doubled at command {nth}"
        assert max(found.values()) <= 2
        assert scores(shelf) == ({} if then is None else {b"k": AHEAD})
        assert bool(fields(shelf)) is (then is not None), "no hash stays behind"
        if not broke:
            break
    assert nth == commands + 1


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("next_ms", [AHEAD, None])
async def test_a_write_that_breaks_off_anywhere_loses_no_spec(
    shelf: Shelf, paused: bool, next_ms: int | None
) -> None:
    at = PAUSED_MS if paused else PAST
    for nth in count(1):
        wipe(shelf)
        arm(shelf, "k", at, fired=2, retry=b"r", aside=f"{PAST} ")
        _, seen = await shelf.store.specs.see("k")
        put = (seen, NEW, b"", next_ms)
        if not await break_off(shelf, nth, lambda link, p=put: Specs(shelf.keys, link).put(*p)):
            break
        _, seen = await shelf.store.specs.see("k")
        assert seen.packed in (OLD, NEW) and seen.fired == 2
        assert seen.score in (at, next_ms), f"lost at command {nth}"
        assert seen.live or seen.stood == PAST, f"it stood nowhere at command {nth}"
        assert seen.packed == NEW or seen.score == at, "the old bytes at the new moment"
        assert await shelf.store.specs.put(seen, NEW, b"", next_ms)
        assert scores(shelf) == {b"k": at if next_ms is None else next_ms}
        kept = {} if next_ms else {b"aside": f"{PAST} ".encode()}
        assert fields(shelf) == {b"spec": NEW, b"fired": b"2", **kept}
    assert nth > (4 if next_ms is None else 6)


async def test_a_new_spec_whose_write_breaks_off_can_be_written_again(shelf: Shelf) -> None:
    for nth in count(1):
        wipe(shelf)
        _, seen = await shelf.store.specs.see("k")
        put = (seen, NEW, b"r", AHEAD)
        if not await break_off(shelf, nth, lambda link, p=put: Specs(shelf.keys, link).put(*p)):
            break
        _, seen = await shelf.store.specs.see("k")
        assert seen.packed == NEW or not seen.armed, "a moment without a spec"
        assert await shelf.store.specs.put(seen, NEW, b"r", AHEAD)
        assert scores(shelf) == {b"k": AHEAD}
        assert fields(shelf) == {b"spec": NEW, b"retry": b"r"}
    assert nth > 5


@pytest.mark.parametrize("aside", [f"{PAST} why", ""], ids=["put aside", "taken up"])
async def test_a_move_that_breaks_off_anywhere_forgets_no_place(shelf: Shelf, aside: str) -> None:
    first, then = (PAST, PAUSED_MS) if aside else (PAUSED_MS, PAST)
    for nth in count(1):
        wipe(shelf)
        arm(shelf, "k", first, **({} if aside else {"aside": f"{PAST} why"}))
        _, seen = await shelf.store.specs.see("k")
        move = (seen, then, aside)
        if not await break_off(shelf, nth, lambda link, m=move: Specs(shelf.keys, link).move(*m)):
            break
        _, seen = await shelf.store.specs.see("k")
        assert seen.packed == OLD and seen.score in (first, then)
        assert seen.stood == PAST, f"it forgot where it stood at command {nth}"
        assert await shelf.store.specs.move(seen, then, aside)
        note = {b"aside": aside.encode()} if aside else {}
        assert scores(shelf) == {b"k": then} and fields(shelf) == {b"spec": OLD, **note}
    assert nth > 5


async def test_a_removal_that_breaks_off_anywhere_can_be_done_again(shelf: Shelf) -> None:
    for nth in count(1):
        wipe(shelf)
        arm(shelf, "k", PAST)
        if not await break_off(shelf, nth, lambda link: Specs(shelf.keys, link).drop("k")):
            break
        assert await shelf.store.specs.drop("k")
        assert snapshot(shelf) == {}
    assert nth == 3


async def test_a_look_that_breaks_off_anywhere_loses_no_spec(shelf: Shelf) -> None:
    for nth in count(1):
        wipe(shelf)
        arm(shelf, "k", PAST + 1)
        shelf.redis.zadd(shelf.keys.repeat, {"none": PAST})
        shelf.redis.hset(shelf.keys.spec("none"), "fired", 1)
        broke = await break_off(shelf, nth, lambda link: Specs(shelf.keys, link).due("me", 5, 9))
        assert (await look(shelf)).key == b"k"
        assert scores(shelf) == {b"k": PAST + 1}
        assert not fields(shelf, "none"), f"its counter stayed behind at command {nth}"
        if not broke:
            break
    assert nth > 9


# -- servers that refuse -------------------------------------------------------------------------

Act = Callable[[Specs, Any], Awaitable[Any]]
WRITES: dict[str, Act] = {
    "due": lambda specs, seen: specs.due("me", 5, 10),
    "fire": lambda specs, seen: specs.fire("me", [firing(seen, *WINDOWS)]),
    "leave out": lambda specs, seen: specs.fire("me", [firing(seen)]),
    "put": lambda specs, seen: specs.put(seen, NEW, b"r", AHEAD),
    "put on": lambda specs, seen: specs.put(seen, NEW, b"r", None),
    "put aside": lambda specs, seen: specs.put_aside(seen, "why"),
    "move": lambda specs, seen: specs.move(seen, AHEAD),
}
READS: dict[str, Act] = {
    "see": lambda specs, seen: specs.see("k"),
    "page": lambda specs, seen: specs.page(10, (0, "")),
}
ENDS: dict[str, Act] = {
    "drop": lambda specs, seen: specs.drop("k"),
    "over": lambda specs, seen: specs.fire("me", [firing(seen, then=None)]),
    "release": lambda specs, seen: specs.release("me"),
}


@pytest.mark.parametrize("verb", WRITES)
async def test_a_server_without_memory_refuses_and_everything_stays(
    own_shelf: Shelf, verb: str
) -> None:
    arm(own_shelf, "k", PAST, fired=1)
    seen = await look(own_shelf)
    before = snapshot(own_shelf)
    own_shelf.redis.config_set("maxmemory", 1)
    with pytest.raises(QueueFullError, match="out of memory"):
        await WRITES[verb](own_shelf.store.specs, seen)
    assert snapshot(own_shelf) == before
    own_shelf.redis.config_set("maxmemory", 0)
    assert await fire(own_shelf, firing(await look(own_shelf), *WINDOWS))
    assert fired(own_shelf) == ids(WINDOWS)


@pytest.mark.parametrize("verb", [*READS, *ENDS])
async def test_a_server_without_memory_still_shows_and_removes(own_shelf: Shelf, verb: str) -> None:
    arm(own_shelf, "k", PAST)
    seen = await look(own_shelf)
    own_shelf.redis.config_set("maxmemory", 1)
    await (READS | ENDS)[verb](own_shelf.store.specs, seen)
    assert bool(scores(own_shelf)) is (verb not in ("drop", "over"))


async def test_a_stream_of_another_type_refuses_and_the_spec_fires_when_it_is_gone(
    shelf: Shelf,
) -> None:
    arm(shelf, "k", PAST, fired=1)
    shelf.redis.set(shelf.keys.stream, "in the way")
    seen = await look(shelf)
    before = snapshot(shelf)
    for then in (AHEAD, None):
        with pytest.raises(StoreError, match="WRONGTYPE"):
            await fire(shelf, firing(seen, *WINDOWS, then=then, limit=4))
    assert snapshot(shelf) == before
    shelf.redis.delete(shelf.keys.stream)
    await tick(shelf, AHEAD)
    assert fired(shelf) == ids(WINDOWS)


@pytest.mark.parametrize("verb", [*WRITES, *READS, "over"])
async def test_who_may_not_see_a_spec_is_told_so_and_puts_none_aside(
    shelf: Shelf, new_user: Callable[..., str], verb: str
) -> None:
    """It is no hash to him, but the fault is not the spec's."""
    arm(shelf, "k", PAST)
    await due(shelf)
    tag = shelf.keys.tag.decode()
    names = [f"~{tag}{name}" for name in ("stream", "repeat", "scheduler:lock")]
    for rules in (["+@all", "allchannels", *names], ["+@all", "allchannels", "~*", "-hmget"]):
        narrow = Specs(shelf.keys, await shelf.new_link(new_user(*rules)))
        seen = (await shelf.store.specs.see("k"))[1]._replace(packed=None)
        shelf.redis.persist(shelf.keys.scheduler_lock)
        before = snapshot(shelf)
        with pytest.raises(AccessError, match=r"ACL failure|NOPERM|user executing the script"):
            await (WRITES | READS | ENDS)[verb](narrow, seen)
        shelf.redis.persist(shelf.keys.scheduler_lock)
        assert snapshot(shelf) == before


async def every_verb(shelf: Shelf, specs: Specs) -> None:
    _, seen = await specs.see("k")
    assert await specs.put(seen, OLD, b"r", PAST)
    for then in (PAST + 1, None):
        [seen] = (await specs.due("me", 5, 10)).rows
        [answer] = await specs.fire("me", [firing(seen, seen.score, then=then)])
        assert answer.jobs == 1
    shelf.redis.zadd(shelf.keys.repeat, {"none": PAST})
    assert (await specs.due("me", 5, 10)).gone == 1
    assert await specs.put((await specs.see("k"))[1], OLD, b"", PAST)
    [seen] = (await specs.due("me", 5, 10)).rows
    assert await specs.put_aside(seen, "why")
    [seen] = await specs.page(10, (0, ""))
    assert await specs.move(seen, AHEAD)
    assert await specs.drop("k")
    await specs.release("me")
    assert set(snapshot(shelf)) == {shelf.keys.stream}
    assert fired(shelf) == ids([PAST, PAST + 1])


@pytest.mark.parametrize("channels", [True, False], ids=["with channel", "without channel"])
async def test_the_keys_of_the_queue_are_all_that_anyone_needs(
    shelf: Shelf, new_user: Callable[..., str], channels: bool
) -> None:
    tag = shelf.keys.tag.decode()
    heard = [f"&{shelf.keys.wake.decode()}"] if channels else []
    url = new_user("+@all", f"~{tag}*", "resetchannels", *heard)
    await every_verb(shelf, Specs(shelf.keys, await shelf.new_link(url)))


@pytest.fixture(params=DIALECTS, ids=lambda dialect: dialect.name)
async def cluster_shelf(request: pytest.FixtureRequest, queue_name: str) -> AsyncIterator[Shelf]:
    """A node of a cluster that has no slot but the queue's: any other key it refuses."""
    dialect: Dialect = request.param
    config = {"cluster-enabled": "yes", "cluster-require-full-coverage": "no"}
    with Server(binary_for(dialect), config=config) as server:
        node = DialectServer(dialect.name, server, dialect.forced)
        shelf = await Shelf(node, queue_name).open()
        slot = shelf.redis.execute_command("CLUSTER", "KEYSLOT", shelf.keys.stream)
        shelf.redis.execute_command("CLUSTER", "ADDSLOTS", slot)
        while b"cluster_state:ok" not in shelf.redis.execute_command("CLUSTER", "INFO"):
            await asyncio.sleep(0.01)
        yield shelf
        await shelf.close()
        node.close()


async def test_a_node_of_a_cluster_finds_all_keys_of_a_script_in_one_slot(
    cluster_shelf: Shelf,
) -> None:
    with pytest.raises(redis.ResponseError, match=r"non local|not served|CLUSTERDOWN"):
        cluster_shelf.redis.eval(FORWARD, 0, "GET", "elsewhere")
    await every_verb(cluster_shelf, cluster_shelf.store.specs)


# -- scripts that only read ----------------------------------------------------------------------


@pytest.mark.parametrize("script", ["see_spec", "list_specs"])
async def test_a_script_that_only_reads_is_not_let_write(shelf: Shelf, script: str) -> None:
    flags = lua.SOURCES[script].partition("\n")[0]
    with pytest.raises(StoreError, match="Write commands are not allowed from read-only scripts"):
        await shelf.link.ask("EVAL", f"{flags}\n{FORWARD}", 0, "SET", shelf.keys.repeat, "1")
    assert snapshot(shelf) == {}


async def test_a_replica_shows_specs_and_neither_fires_nor_writes_them(own_shelf: Shelf) -> None:
    arm(own_shelf, "k", PAST)
    seen = await look(own_shelf)
    with replica_of(own_shelf.server) as replica:
        copy = Specs(own_shelf.keys, await own_shelf.new_link(replica.server.url))
        assert (await copy.see("k"))[1].packed == OLD
        assert [row.key for row in await copy.page(10, (0, ""))] == [b"k"]
        for verb in WRITES:
            with pytest.raises(StoreUnavailableError, match="READONLY"):
                await WRITES[verb](copy, seen)
