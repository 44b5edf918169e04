"""A server that died while it wrote a script's effects to its append-only file.

What a script wrote stands there between MULTI and EXEC. A file that ends in between is cut at the
restart, and nothing of the script counts. Valkey cuts in front of MULTI. Redis cuts inside, if a
command is torn: what it writes from then on belongs to a transaction that never ends, until another
script's EXEC ends it. As long as it runs all is well; its next start runs the torn half once more,
or forgets what came after. A rewrite of the file in between heals it, which is what we advise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from chasquimq.errors import StoreError
from chasquimq.server import Server
from tests.chaos.kit.wait import eventually
from tests.store.faulty import places
from tests.store.shelf import GROUP, Shelf, envelope
from tests.store.test_crash_safety import MOVES, Act


def commands(data: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    """Where each command of the file begins, from there on, and its name."""
    while at < len(data):
        begin = at
        if data[at : at + 1] == b"#":  # a note of the time
            at = data.index(b"\n", at) + 1
            continue
        line = data.index(b"\r\n", at)
        count, at, words = int(data[at + 1 : line]), line + 2, []
        for _ in range(count):
            line = data.index(b"\r\n", at)
            size = int(data[at + 1 : line])
            words.append(data[line + 2 : line + 2 + size])
            at = line + size + 4
        yield begin, words[0].upper()


def journal(server: Server) -> Path:
    [file] = (server.folder / "appendonlydir").glob("*.incr.aof")
    return file


async def torn(shelf: Shelf, verb: str) -> tuple[Act, bool]:
    """Let the server die within a move. Answers the move, which nobody has heard the end of, and
    whether the file was cut inside its transaction."""
    act = await MOVES[verb].prepare(shelf)
    before = journal(shelf.server.server).stat().st_size
    await act(shelf.link)
    is_inside = tear(shelf, before)
    assert places(shelf) == {job: [MOVES[verb].source] for job in "ab"}  # as if it never ran
    return act, is_inside


def tear(shelf: Shelf, since: int) -> bool:
    """Kill the server, tear the last write of the first transaction since then, and start it
    again; answers whether it has cut its file inside of that."""
    server = shelf.server.server
    file = journal(server)
    server.kill()
    found = list(commands(file.read_bytes(), since))
    begin, end = (
        next(place for place, (_, name) in enumerate(found) if name == one)
        for one in (b"MULTI", b"EXEC")
    )
    with file.open("r+b") as half:
        half.truncate(found[end - 1][0] + 5)
    server.start()
    is_inside = file.stat().st_size > found[begin][0]
    assert is_inside == (shelf.server.name != "valkey") or server.binary.version > (8, 6, 3)
    return is_inside


async def again(shelf: Shelf, act: Act) -> None:
    """Whoever heard no answer tries again, over a connection that is mended meanwhile."""
    async with asyncio.timeout(20):
        while True:
            try:
                await act(shelf.link)
                return
            except StoreError:
                await asyncio.sleep(0.02)


def crash(shelf: Shelf) -> None:
    shelf.server.server.kill()
    shelf.server.server.start()


def rewrite(shelf: Shelf) -> None:
    shelf.redis.bgrewriteaof()
    eventually(lambda: shelf.redis.info("persistence")["aof_rewrites"])
    eventually(lambda: not shelf.redis.info("persistence")["aof_rewrite_in_progress"])


@pytest.mark.parametrize("verb", ["retry", "bury", "finish", "promote"])
async def test_a_torn_transaction_costs_nothing_once_the_file_is_rewritten(
    own_shelf: Shelf, verb: str
) -> None:
    shelf = own_shelf
    act, _ = await torn(shelf, verb)
    rewrite(shelf)
    await again(shelf, act)
    moved = {job: [MOVES[verb].target] for job in "ab"}
    assert places(shelf) == moved
    crash(shelf)
    assert places(shelf) == moved


@pytest.mark.parametrize("verb", ["retry", "bury", "finish", "promote"])
async def test_without_a_rewrite_redis_may_run_half_of_it_twice_but_loses_nothing(
    own_shelf: Shelf, verb: str
) -> None:
    """A member and a result are there once however often they are written; an entry is not."""
    shelf = own_shelf
    act, is_inside = await torn(shelf, verb)
    await again(shelf, act)
    target = MOVES[verb].target
    assert places(shelf) == {job: [target] for job in "ab"}
    crash(shelf)
    doubled = {"bury": ["a"], "promote": ["a", "b"]}.get(verb, []) if is_inside else []
    assert places(shelf) == {job: [target] * (2 if job in doubled else 1) for job in "ab"}


@pytest.mark.parametrize("rewritten", [True, False], ids=["rewritten", "as it is"])
async def test_redis_may_forget_what_was_added_after_a_torn_transaction(
    own_shelf: Shelf, rewritten: bool
) -> None:
    """Unless a script, or the rewrite, came in between."""
    shelf = own_shelf
    _, is_inside = await torn(shelf, "promote")
    if rewritten:
        rewrite(shelf)
    shelf.redis.xadd(shelf.keys.stream, {"d": envelope("added")})
    crash(shelf)
    assert ("added" in places(shelf)) == (rewritten or not is_inside)


async def test_a_torn_delivery_is_made_anew_and_leaves_nothing_behind(own_shelf: Shelf) -> None:
    """The most frequent transaction of all, and a harmless one: what is acked is acked."""
    shelf = own_shelf
    if shelf.server.server.binary.version < (7, 2, 0):
        pytest.skip("Redis 7.0 writes a delivery without a transaction")
    await shelf.join()
    shelf.redis.xadd(shelf.keys.stream, {"d": envelope("a")})
    before = journal(shelf.server.server).stat().st_size
    shelf.redis.xreadgroup(GROUP, "first", {shelf.keys.stream: ">"})
    tear(shelf, before)
    assert places(shelf) == {"a": ["waiting"]}
    ((_, [(entry_id, _)]),) = shelf.redis.xreadgroup(GROUP, "second", {shelf.keys.stream: ">"})
    shelf.redis.xack(shelf.keys.stream, GROUP, entry_id)
    shelf.redis.xdel(shelf.keys.stream, entry_id)
    crash(shelf)
    assert places(shelf) == {}
    assert shelf.pending() == {}
