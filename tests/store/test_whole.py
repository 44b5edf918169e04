"""Scripts cannot half-happen: what can fail comes before the first write.

Lua takes nothing back. So each script that writes reads and checks all it needs first. Each of its
commands is made to fail in turn, each of its keys is given each other type, and what lies there
other contents: a script that fails must leave all keys as they were.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import redis

from chasquimq import lua
from chasquimq.errors import StoreError
from tests.store.commands import WRITES
from tests.store.faulty import break_off, wipe
from tests.store.script_cases import CASES, Call
from tests.store.shelf import Shelf

# They read, then write; nothing of theirs is a move, and what they take up stays pending.
CLAIMING = {"adopt", "claim"}
READS_ONLY = {"may"}
ROW_BY_ROW = {
    "give_back",
    "requeue",
}  # all bodies at once could be too many; its one key is known by then
SCRIPTS = pytest.mark.parametrize("script", CASES)

TYPES: dict[str, Callable[[redis.Redis, bytes], Any]] = {
    "string": lambda client, key: client.set(key, "in the way"),
    "list": lambda client, key: client.rpush(key, "in the way"),
    "hash": lambda client, key: client.hset(key, "in", "the way"),
    "set": lambda client, key: client.sadd(key, "in the way"),
    "zset": lambda client, key: client.zadd(key, {"in the way": 1}),
    "stream": lambda client, key: client.xadd(key, {"in": "the way"}),
}
HUGE = b"9" * 25
VALUES = (
    *(b"", b"1", b"-", b"nan", b"inf", HUGE, b"-" + HUGE, b"\xff\x00", b"1700000000000"),
    *(b"1700000000000 " + HUGE + b" x", b"1700000000000 0 x", HUGE + b" 100 x", HUGE + b" x"),
)


def knows(shelf: Shelf, script: str) -> bool:
    """Whether the server has the commands of a script: others have no IDMP."""
    return script != "add_own" or shelf.server.name.startswith("redis")


def everything(shelf: Shelf) -> dict[bytes, Any]:
    """All keys of the queue: bytes and times."""
    client = shelf.redis
    return {
        key: (client.dump(key), client.pexpiretime(key))
        for key in client.scan_iter(match=shelf.keys.tag + b"*", count=10_000)
    }


def test_every_script_that_writes_has_a_case() -> None:
    writing = {name for name, text in lua.SOURCES.items() if "flags=no-writes" not in text}
    assert set(CASES) == writing - CLAIMING - READS_ONLY


@SCRIPTS
async def test_a_case_lets_its_script_write(shelf: Shelf, script: str) -> None:
    if not knows(shelf, script):
        return
    call = await CASES[script](shelf)
    before = everything(shelf)
    await shelf.link.run(script, call.keys, call.args)
    assert script == "renew" or everything(shelf) != before


@SCRIPTS
async def test_whatever_fails_before_the_first_write_leaves_all_as_it_was(
    shelf: Shelf, script: str
) -> None:
    if not knows(shelf, script):
        return
    wrote = 0
    for nth in count(1):
        wipe(shelf)
        keys, args, _ = await CASES[script](shelf)
        before = everything(shelf)
        broken = await break_off(shelf, nth, lambda link, k=keys, a=args: link.run(script, k, a))
        if broken is None:
            break
        wrote = max(wrote, broken.wrote + (broken.command in WRITES))
        if not broken.wrote and broken.how == "call":
            assert everything(shelf) == before, f"{broken}: something was written"
        if broken.wrote and broken.command not in WRITES and script not in ROW_BY_ROW:
            assert broken.how == "pcall", f"{broken}: it can fail after a write"
    assert wrote > 0


@SCRIPTS
@pytest.mark.parametrize("kind", TYPES)
async def test_a_key_of_another_type_stops_a_script_before_its_first_write(
    shelf: Shelf, script: str, kind: str
) -> None:
    if not knows(shelf, script):
        return
    for at in count():
        wipe(shelf)
        call = await CASES[script](shelf)
        keys = [*call.keys, *call.more]
        if at == len(keys):
            break
        shelf.redis.delete(keys[at])
        TYPES[kind](shelf.redis, keys[at])
        await all_or_nothing(shelf, script, call)


@SCRIPTS
async def test_malformed_contents_stop_a_script_before_its_first_write(
    shelf: Shelf, script: str
) -> None:
    if not knows(shelf, script):
        return
    for value in VALUES:
        for at in count():
            wipe(shelf)
            call = await CASES[script](shelf)
            keys = [*call.keys, *call.more]
            if at == len(keys):
                break
            spoil(shelf.redis, keys[at], value)
            await all_or_nothing(shelf, script, call)


def spoil(client: redis.Redis, key: bytes, value: bytes) -> None:
    """Give what lies there, or could, another value."""
    kind = client.type(key)
    if kind == b"hash":
        client.hset(key, mapping=dict.fromkeys(client.hkeys(key), value))
        for one in (b"state", b"mode"):  # or nothing of it is looked at any further
            client.hset(key, one, {b"state": b"moving", b"mode": b"staged"}[one])
    elif kind == b"zset":
        score = {b"inf": "inf", b"-": "-inf"}.get(value, 0)
        client.zadd(key, dict.fromkeys(client.zrange(key, 0, -1), score))
        client.zadd(key, {value: score})
    elif kind == b"stream":
        client.xadd(key, {value: value})
    else:
        client.set(key, value, keepttl=True)


async def all_or_nothing(shelf: Shelf, script: str, call: Call) -> None:
    before = everything(shelf)
    try:
        await shelf.link.run(script, call.keys, call.args)
    except StoreError:
        assert everything(shelf) == before
