"""For each script that writes: a queue in which it has everything to do, and how it is called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hashlib import sha1
from typing import Any, NamedTuple

from chasquimq import wire
from chasquimq.store import build
from tests.store.shelf import GROUP, Shelf, envelope, member

CREATED = b"1700000000000"
HOLDER = CREATED + b" 100 token"
LATER = 4_102_444_800_000


class Call(NamedTuple):
    keys: list[Any]
    args: list[Any]
    more: tuple[bytes, ...] = ()  # keys that the script makes of its arguments


Prepare = Callable[[Shelf], Awaitable[Call]]


async def held(shelf: Shelf, *ids: str, times: int = 1) -> list[bytes]:
    await shelf.join()
    return shelf.deliver(*(envelope(job_id) for job_id in ids or ("a", "b")), times=times)


def spark(shelf: Shelf, kind: str) -> bytes:
    return shelf.keys.tag + b"spark:" + kind.encode()


def dead(shelf: Shelf, job_id: str) -> bytes:
    fields = wire.pack_dead(envelope(job_id), b"send", b"7-7", "unrecoverable")
    return bytes(
        shelf.redis.xadd(shelf.keys.dlq, dict(zip(fields[::2], fields[1::2], strict=True)))
    )


def delay(shelf: Shelf, job_id: str, score: float = LATER, name: bytes = b"") -> bytes:
    one = member(job_id, name)
    shelf.redis.zadd(shelf.keys.delayed, {one: score})
    shelf.redis.set(shelf.keys.didx(job_id), one, ex=5_000)
    return one


def spec(shelf: Shelf, score: float) -> str:
    shelf.redis.zadd(shelf.keys.repeat, {"k": score})
    shelf.redis.hset(
        shelf.keys.spec("k"), mapping={"spec": "bytes", "fired": 1, "catchup": "2", "aside": "x"}
    )
    return sha1(b"bytes").hexdigest()


# -- jobs ------------------------------------------------------------------------------------------


async def ack(shelf: Shelf) -> Call:
    return Call([shelf.keys.stream], [GROUP, *await held(shelf)])


async def ack_held(shelf: Shelf) -> Call:
    return Call([shelf.keys.stream], [GROUP, "me", *await held(shelf)])


async def retry(shelf: Shelf) -> Call:
    (entry_id,) = await held(shelf, "a")
    shelf.redis.set(shelf.keys.unique("a"), HOLDER, ex=100)
    keys = [shelf.keys.stream, shelf.keys.delayed, shelf.keys.unique("a")]
    args = [GROUP, "me", entry_id, 60_000, member("a"), shelf.keys.wake, CREATED]
    return Call(keys, args)


async def bury(shelf: Shelf) -> Call:
    (entry_id,) = await held(shelf, "a")
    shelf.redis.set(shelf.keys.unique("a"), HOLDER, ex=100)
    keys = [shelf.keys.stream, shelf.keys.dlq, shelf.keys.unique("a")]
    return Call(keys, [GROUP, "me", entry_id, 1_000, CREATED, 60, "d", envelope("a")])


async def free(shelf: Shelf) -> Call:
    (entry_id,) = await held(shelf, "a")
    shelf.redis.set(shelf.keys.unique("a"), HOLDER, ex=100)
    keys = [shelf.keys.stream, shelf.keys.unique("a"), shelf.keys.result("a")]
    return Call(keys, [GROUP, "me", entry_id, CREATED, 60, 60, b"\xc3"])


async def finish(shelf: Shelf) -> Call:
    one, other = await held(shelf)
    keys = [shelf.keys.stream, shelf.keys.result("a"), shelf.keys.result("b")]
    return Call(keys, [GROUP, "me", 60, one, b"\xc3", other, b"\xc3"])


async def give_back(shelf: Shelf) -> Call:
    one, other = await held(shelf)
    return Call([shelf.keys.stream], [GROUP, "me", one, 0, other, 2])


async def restore(shelf: Shelf) -> Call:
    (entry_id,) = await held(shelf, "a")
    shelf.redis.xdel(shelf.keys.stream, entry_id)
    return Call([shelf.keys.stream], [GROUP, "me", entry_id, "d", envelope("a")])


async def renew(shelf: Shelf) -> Call:
    started = shelf.keys.started
    args = [GROUP, "me", 0, started, "record", *await held(shelf)]
    return Call([shelf.keys.stream], args, (started,))


async def requeue(shelf: Shelf) -> Call:
    return Call([shelf.keys.stream], [GROUP, "me", 0, 2**53, *await held(shelf)])


async def started_upto(shelf: Shelf) -> Call:
    await held(shelf)
    shelf.redis.hset(shelf.keys.started, "me", "record")
    keys = [shelf.keys.stream, shelf.keys.started]
    return Call(keys, [GROUP, "me", "record", 1, 2, "front ", " behind"])


async def leave(shelf: Shelf) -> Call:
    shelf_ids = await held(shelf)
    shelf.redis.xdel(shelf.keys.stream, *shelf_ids)
    return Call([shelf.keys.stream], [GROUP, "me"])


async def sweep(shelf: Shelf) -> Call:
    shelf_ids = await held(shelf)
    shelf.redis.xdel(shelf.keys.stream, *shelf_ids)
    shelf.redis.xgroup_createconsumer(shelf.keys.stream, GROUP, "other")
    shelf.redis.set(shelf.keys.promoter_lock, "leader", ex=50)
    keys = [shelf.keys.stream, shelf.keys.promoter_lock]
    return Call(keys, [GROUP, "leader", 0, -1, "-", 100, 10])


async def open_stream(shelf: Shelf) -> Call:
    return Call([shelf.keys.stream], [GROUP, 100 if shelf.native else 0, 60, "1"])


async def add_once(shelf: Shelf) -> Call:
    keys = [shelf.keys.stream, shelf.keys.idmp("p", "a")]
    return Call(keys, [60, 1_000, "d", envelope("a")])


async def add_own(shelf: Shelf) -> Call:
    """Of a job that was removed unread."""
    await shelf.send(
        build("native", shelf.keys, producer_id=b"p").add_own(b"a", [b"d", envelope("a")], 60)
    )
    [(entry_id, _)] = shelf.entries()
    shelf.redis.xdel(shelf.keys.stream, entry_id)
    return Call([shelf.keys.stream], [b"p:own", "a", 1_000, "d", envelope("a")])


async def add_unique(shelf: Shelf) -> Call:
    keys = [shelf.keys.stream, shelf.keys.unique("a")]
    return Call(keys, [HOLDER, 60, 1_000, "d", envelope("a"), "u", "100"])


# -- delayed and dead jobs -------------------------------------------------------------------------


async def schedule(shelf: Shelf) -> Call:
    keys = [shelf.keys.delayed, shelf.keys.didx("a"), shelf.keys.unique("a")]
    args = ["at", LATER, member("a"), shelf.keys.wake, 60, 5, HOLDER, 60]
    return Call(keys, [*args, shelf.keys.events, 100, "a", ""], (shelf.keys.events,))


def _places(shelf: Shelf) -> list[bytes]:
    keys = shelf.keys
    return [keys.delayed, keys.didx("a"), keys.dlid("a"), keys.unique("a")]


async def reschedule(shelf: Shelf) -> Call:
    delay(shelf, "a")
    shelf.redis.set(shelf.keys.dlid("a"), "1", ex=5_000)
    shelf.redis.set(shelf.keys.unique("a"), HOLDER, ex=100)
    args = ["in", 60_000, "a", shelf.keys.wake, shelf.keys.events, 100]
    return Call(_places(shelf), args, (shelf.keys.events,))


async def cancel(shelf: Shelf) -> Call:
    delay(shelf, "a")
    shelf.redis.set(shelf.keys.unique("a"), HOLDER, ex=100)
    return Call(_places(shelf), ["a", 60])


async def promote(shelf: Shelf) -> Call:
    delay(shelf, "a", 2, b"send")
    delay(shelf, "b", 3)
    shelf.redis.zadd(shelf.keys.delayed, {b"\x05abc": 1, member("c"): LATER})
    shelf.redis.set(shelf.keys.unique("a"), HOLDER, ex=100)
    keys = [shelf.keys.delayed, shelf.keys.stream, shelf.keys.dlq, shelf.keys.promoter_lock]
    args = ["me", 5, 10, shelf.keys.didx(""), shelf.keys.unique("")]
    return Call(keys, args, (shelf.keys.unique("a"), shelf.keys.didx("a")))


async def release(shelf: Shelf) -> Call:
    shelf.redis.set(shelf.keys.promoter_lock, "me", ex=50)
    return Call([shelf.keys.promoter_lock], ["me"])


async def drop_lock(shelf: Shelf) -> Call:
    shelf.redis.set(shelf.keys.promoter_lock, "me")
    return Call([shelf.keys.promoter_lock], ["me"])


async def drop_index(shelf: Shelf) -> Call:
    shelf.redis.set(shelf.keys.didx("a"), member("a"))
    delay(shelf, "b")
    return Call([shelf.keys.delayed, shelf.keys.didx("a")], ["a", 10])


def _revived(shelf: Shelf) -> list[Any]:
    one, other = dead(shelf, "a"), dead(shelf, "b")
    return [
        *(one, envelope("a"), b"send", shelf.keys.unique("a"), HOLDER),
        *(other, envelope("b"), b"", b"", b""),
    ]


async def replay(shelf: Shelf) -> Call:
    args = _revived(shelf)
    return Call([shelf.keys.dlq, shelf.keys.stream], args, (shelf.keys.unique("a"),))


async def rebury(shelf: Shelf) -> Call:
    return Call([shelf.keys.dlq, spark(shelf, "back")], [60, "7-7", "d", envelope("a")])


# -- specs -----------------------------------------------------------------------------------------


async def due(shelf: Shelf) -> Call:
    spec(shelf, 5)
    shelf.redis.zadd(shelf.keys.repeat, {"gone": 4, "later": LATER})
    keys, prefix = [shelf.keys.repeat, shelf.keys.scheduler_lock], shelf.keys.spec("")
    return Call(keys, ["me", 5, 10, prefix, 1_000_000], (shelf.keys.spec("k"),))


async def fire(shelf: Shelf) -> Call:
    found = spec(shelf, 5)
    shelf.redis.set(shelf.keys.scheduler_lock, "me")
    keys = shelf.keys
    places = [keys.repeat, keys.spec("k"), keys.stream, keys.scheduler_lock]
    return Call(places, ["me", "k", 5, found, 7, 0, "", "send", envelope("a"), envelope("b")])


async def put_spec(shelf: Shelf) -> Call:
    found = spec(shelf, 5)
    args = ["k", found, LATER, "new", "retry", shelf.keys.wake, "", 5]
    return Call([shelf.keys.repeat, shelf.keys.spec("k")], args)


async def move_spec(shelf: Shelf) -> Call:
    found = spec(shelf, 5)
    args = ["k", 5, found, LATER, "why", shelf.keys.wake, "x"]
    return Call([shelf.keys.repeat, shelf.keys.spec("k")], args)


async def drop_spec(shelf: Shelf) -> Call:
    spec(shelf, 5)
    return Call([shelf.keys.repeat, shelf.keys.spec("k")], ["k"])


async def drop_empty_spec(shelf: Shelf) -> Call:
    shelf.redis.zadd(shelf.keys.repeat, {"k": 5})
    shelf.redis.hset(shelf.keys.spec("k"), "fired", 1)
    return Call([shelf.keys.repeat, shelf.keys.spec("k")], ["k"])


# -- Spark -----------------------------------------------------------------------------------------


def run(shelf: Shelf, state: str = "open", mode: str = "direct") -> bytes:
    key = spark(shelf, "run:1")
    counts = {"rows": 0, "skipped": 0, "moved": 0, "total": 2, "part:0": 1, "try:1": 0}
    shelf.redis.hset(key, mapping={"state": state, "mode": mode, **counts})
    return key


def _derived(shelf: Shelf) -> tuple[bytes, ...]:
    keys = shelf.keys
    return (keys.delayed, keys.didx("own"), keys.dlid("own"), keys.events)


ROWS = (envelope("x"), "send", "", "")
LATE = (envelope("own"), "", f"@{LATER}", "own")


async def spark_add(shelf: Shelf) -> Call:
    marker = spark(shelf, "chunks:1:0")
    shelf.redis.set(marker, b"0" * 16)
    args = [1, b"1" * 16, 60_000, 1_000, 100, 4, 1_000, *ROWS, *LATE, *LATE]
    return Call([shelf.keys.stream, run(shelf), marker], args, _derived(shelf))


async def spark_add_ids(shelf: Shelf) -> Call:
    rows = [envelope("x"), "send", "", "x", *LATE]
    args = [60_000, 1_000, 100, 1_000, "try:1", *rows]
    ids = tuple(spark(shelf, f"id:{one}") for one in ("x", "own"))
    return Call([shelf.keys.stream, run(shelf)], args, (*_derived(shelf), *ids))


async def spark_begin(shelf: Shelf) -> Call:
    keys = [spark(shelf, one) for one in ("run:1", "chunks:1:0", "queries", "aborted")]
    shelf.redis.hset(keys[2], "q", 1)
    return Call(keys, [60_000, "staged", "q", 2])


def stage(shelf: Shelf, name: str = "stage:1") -> bytes:
    key = spark(shelf, name)
    shelf.redis.xadd(key, {b"d": envelope("x"), b"n": b"send"}, id="1-1")
    late = {b"d": envelope("own"), b"n": b"", b"w": f"@{LATER}", b"i": b"own"}
    shelf.redis.xadd(key, late, id="1-2")
    return key


async def spark_commit(shelf: Shelf) -> Call:
    keys = [run(shelf, mode="staged"), spark(shelf, "manifest"), stage(shelf), stage(shelf, "s2")]
    shelf.redis.pexpire(keys[2], 60_000)
    return Call(keys, [1_000, 100, 60_000, 0, 2, 2])


async def spark_done(shelf: Shelf) -> Call:
    keys = [run(shelf, "moving", "staged"), spark(shelf, "manifest"), spark(shelf, "queries")]
    shelf.redis.rpush(keys[1], "stage")
    shelf.redis.hset(keys[2], "q", 1)
    return Call(keys, [60_000, "q", 2, "1"])


async def spark_drop(shelf: Shelf) -> Call:
    stages = spark(shelf, "stages")
    shelf.redis.sadd(stages, stage(shelf), stage(shelf, "s2"))
    return Call([run(shelf, mode="staged"), stages], [10], (spark(shelf, "s2"),))


async def spark_move(shelf: Shelf) -> Call:
    keys = [run(shelf, "moving", "staged"), stage(shelf), shelf.keys.stream]
    return Call(keys, [1_000, 100, 1_000], _derived(shelf))


async def spark_stage(shelf: Shelf) -> Call:
    keys = [run(shelf, mode="staged"), spark(shelf, "stages"), spark(shelf, "stage:1")]
    rows = [envelope("x"), "send", "", "", envelope("own"), "", f"@{LATER}", "own"]
    return Call(keys, [1, 0, 60_000, 4, *rows])


async def spark_purge(shelf: Shelf) -> Call:
    keys = [shelf.keys.dlq, spark(shelf, "notes")]
    return Call(keys, [60_000, 0, dead(shelf, "a"), 1, dead(shelf, "b")])


async def spark_replay(shelf: Shelf) -> Call:
    rows = _revived(shelf)
    keys = [shelf.keys.dlq, shelf.keys.stream, spark(shelf, "notes")]
    return Call(keys, [60_000, 0, *rows[:5], 1, *rows[5:]], (shelf.keys.unique("a"),))


EVERY: tuple[Prepare, ...] = (
    *(
        ack,
        ack_held,
        add_once,
        add_own,
        add_unique,
        bury,
        cancel,
        drop_empty_spec,
        drop_index,
        drop_lock,
    ),
    *(drop_spec, due, finish, fire, free, give_back, leave, move_spec, open_stream, promote),
    *(put_spec, rebury, release, renew, replay, requeue, reschedule, restore, retry, schedule),
    *(
        spark_add,
        spark_add_ids,
        spark_begin,
        spark_commit,
        spark_done,
        spark_drop,
        spark_move,
        spark_purge,
    ),
    *(spark_replay, spark_stage, started_upto, sweep),
)
CASES = {prepare.__name__: prepare for prepare in EVERY}
