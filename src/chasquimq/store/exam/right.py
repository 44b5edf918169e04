"""What the user we are may do, by trying, and without any effect.

Where we may ask (`ACL DRYRUN`), the server is asked about every command on the queues' own keys.
Elsewhere each command is sent to keys of a queue that does not exist, in a form that changes
nothing even there: the server looks at rights before it looks for the key.

Access to a queue's own keys is then tried by GET and by removing a member that is in no set, which
on a key of any other kind fails, after the server has looked at rights.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from chasquimq import lua
from chasquimq.config import DialectName
from chasquimq.errors import StoreError
from chasquimq.store.dial import Dialer
from chasquimq.store.link import Link
from chasquimq.store.resp import Arg, Command, pack
from chasquimq.wire import Keys

NOBODY = "chasqui-doctor"  # a member, group and consumer that is nowhere
MOST_QUEUES = 20
DENIED_COMMAND = re.compile(r"permissions? to run the '([^']+)'|can't run this command", re.I)
DENIED = re.compile(r"^NOPERM|no permissions?\b", re.I)


class Rights(NamedTuple):
    """`missing`: what queues and workers need; `extra`: what durable adds and doctor would use;
    `keys`: the queues whose keys or channels are not all ours to use."""

    user: str
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    tried: int = 0
    asked: bool = True


def needed(keys: Keys, dialect: DialectName) -> Iterator[tuple[str, Command]]:
    """(right, a call of it) for all that queues and workers do."""
    stream, delayed, some = keys.stream, keys.delayed, keys.result(NOBODY)
    group = (stream, NOBODY)
    every: tuple[tuple[str, Command], ...] = (
        ("xadd", ("XADD", stream, "NOMKSTREAM", "*", "d", "")),
        ("xlen", ("XLEN", stream)),
        ("xrange", ("XRANGE", keys.dlq, "-", "+", "COUNT", 1)),
        ("xrevrange", ("XREVRANGE", keys.events, "+", "-", "COUNT", 1)),
        ("xread", ("XREAD", "COUNT", 1, "STREAMS", keys.events, "$")),
        ("xtrim", ("XTRIM", keys.events, "MAXLEN", "~", wire_max())),
        ("xreadgroup", ("XREADGROUP", "GROUP", NOBODY, NOBODY, "STREAMS", stream, ">")),
        ("xpending", ("XPENDING", *group)),
        ("xclaim", ("XCLAIM", *group, NOBODY, 0, "0-1", "JUSTID")),
        ("xack", ("XACK", *group, "0-1")),
        ("xdel", ("XDEL", stream, "0-1")),
        ("xgroup|create", ("XGROUP", "CREATE", *group, "no id")),
        ("xgroup|destroy", ("XGROUP", "DESTROY", *group)),
        ("xgroup|delconsumer", ("XGROUP", "DELCONSUMER", *group, NOBODY)),
        ("xinfo|stream", ("XINFO", "STREAM", stream)),
        ("xinfo|groups", ("XINFO", "GROUPS", stream)),
        ("xinfo|consumers", ("XINFO", "CONSUMERS", *group)),
        ("zadd", ("ZADD", delayed, "XX", 0, NOBODY)),
        ("zrem", ("ZREM", delayed, NOBODY)),
        ("zcard", ("ZCARD", delayed)),
        ("zcount", ("ZCOUNT", delayed, 0, 0)),
        ("zscore", ("ZSCORE", delayed, NOBODY)),
        ("zrange", ("ZRANGE", delayed, 0, 0)),
        ("zrangebyscore", ("ZRANGEBYSCORE", delayed, 0, 0, "LIMIT", 0, 1)),
        ("get", ("GET", some)),
        ("mget", ("MGET", some)),
        ("set", ("SET", some, "", "XX", "EX", "no number")),
        ("del", ("DEL", some)),
        ("exists", ("EXISTS", some)),
        ("expire", ("EXPIRE", some, "no number")),
        ("pexpire", ("PEXPIRE", some, "no number")),
        ("pttl", ("PTTL", some)),
        ("hmget", ("HMGET", keys.spec(NOBODY), "spec")),
        ("hset", ("HSET", keys.spec(NOBODY), "spec", "", "odd")),
        ("hdel", ("HDEL", keys.spec(NOBODY), "spec")),
        ("evalsha", ("EVALSHA", "0" * 40, 0)),
        ("script|load", ("SCRIPT", "LOAD", lua.SOURCES["counts"])),
        ("time", ("TIME",)),
        ("ping", ("PING",)),
        ("command|info", ("COMMAND", "INFO", "xcfgset")),
        ("client|id", ("CLIENT", "ID")),
        ("client|unblock", ("CLIENT", "UNBLOCK", 0)),
    )
    yield from every
    if dialect == "native":
        yield "xackdel", ("XACKDEL", *group, "IDS", 1, "0-1")
        yield "xcfgset", ("XCFGSET", stream, "IDMP-MAXSIZE", "no number")


def wire_max() -> int:
    """More than any stream has, so that nothing is trimmed."""
    return 2**53


def talked(keys: Keys) -> Iterator[tuple[str, Command]]:
    """What goes over channels. Telling nobody anything would still be heard by those who listen,
    so it is tried on a channel of nobody's."""
    yield "publish", ("PUBLISH", keys.wake, "")
    yield "subscribe", ("SUBSCRIBE", keys.wake)


def useful(keys: Keys) -> Iterator[tuple[str, Command]]:
    some = keys.result(NOBODY)
    yield "info", ("INFO", "server")
    yield "config|get", ("CONFIG", "GET", "appendfsync")
    yield "wait", ("WAIT", 0, 1)
    yield "waitaof", ("WAITAOF", 0, 0, 1)
    yield "slowlog|get", ("SLOWLOG", "GET", 1)
    yield "dbsize", ("DBSIZE",)
    yield "scan", ("SCAN", 0, "COUNT", 1)
    yield "type", ("TYPE", some)
    yield "memory|usage", ("MEMORY", "USAGE", some)
    yield "hexists", ("HEXISTS", keys.spec(NOBODY), "spec")


async def look(
    link: Link,
    dialer: Dialer,
    user: str,
    dialect: DialectName,
    queues: Sequence[str],
    nowhere: Keys,
) -> Rights:
    """`nowhere`: of a queue that does not exist, and whose keys this server would have."""
    places = [Keys(name) for name in queues[:MOST_QUEUES]]
    try:
        await link.ask("ACL", "DRYRUN", user, "PING")
    except StoreError:
        return await _tried(link, dialer, user, dialect, nowhere, places)
    return await _asked(link, user, dialect, places or [nowhere])


async def _asked(link: Link, user: str, dialect: DialectName, places: Sequence[Keys]) -> Rights:
    missing: dict[str, None] = {}
    extra: dict[str, None] = {}
    keys: dict[str, None] = {}
    tried = 0
    for place in places:
        for calls, gone in (
            ([*needed(place, dialect), *talked(place)], missing),
            ([*useful(place)], extra),
        ):
            said = await link.ask_each(*[("ACL", "DRYRUN", user, *call) for _, call in calls])
            for (right, _), answer in zip(calls, said, strict=True):
                _note(right, _words(answer), place.queue, gone, keys)
            tried = max(tried, len(calls))
    return Rights(user, tuple(missing), tuple(extra), tuple(keys), tried)


async def _tried(
    link: Link,
    dialer: Dialer,
    user: str,
    dialect: DialectName,
    nowhere: Keys,
    places: Sequence[Keys],
) -> Rights:
    missing: dict[str, None] = {}
    extra: dict[str, None] = {}
    keys: dict[str, None] = {}
    calls = [*needed(nowhere, dialect)]
    for each, gone in ((calls, missing), ([*useful(nowhere)], extra)):
        said = await link.ask_each(*[call for _, call in each])
        for (right, _), answer in zip(each, said, strict=True):
            _note(right, _words(answer), "", gone, {})
    right, publish = next(talked(nowhere))
    [answer] = await link.ask_each(publish)
    _note(right, _words(answer), "", missing, {})
    for right, words, queue in await _listened(dialer, [nowhere, *places]):
        _note(right, words, queue, missing, keys if queue else {})
    for place in places:
        reaches: list[Sequence[Arg]] = [
            trial for key in _each(place) for trial in (("GET", key), ("ZREM", key, NOBODY))
        ]
        for answer in await link.ask_each(*reaches):
            _note("", _words(answer), place.queue, {}, keys)
    tried = len(calls) + 2
    return Rights(user, tuple(missing), tuple(extra), tuple(keys), tried, asked=False)


async def _listened(dialer: Dialer, places: Sequence[Keys]) -> list[tuple[str, str, str]]:
    """Subscribe, on a connection of its own: one that listens can do nothing else."""
    pipe = await dialer.dial()
    found = []
    try:
        for place in places:
            queue = "" if place is places[0] else place.queue
            [answer] = await pipe.ask(pack("SUBSCRIBE", place.wake))
            found.append(("subscribe", _words(answer), queue))
    except ConnectionError:
        pass
    finally:
        pipe.close()
    return found


def _each(keys: Keys) -> Iterator[bytes]:
    """A key of every family."""
    yield from (keys.stream, keys.delayed, keys.dlq, keys.events, keys.repeat, keys.paused)
    yield from (keys.promoter_lock, keys.scheduler_lock, keys.durable)
    for family in (keys.result, keys.dlid, keys.didx, keys.unique, keys.spec):
        yield family(NOBODY)
    yield keys.idmp(NOBODY, NOBODY)


def _words(answer: Any) -> str:
    """A refusal is an error, or a text in the answer of DRYRUN."""
    if isinstance(answer, bytes):
        return answer.decode(errors="replace")
    return str(answer) if isinstance(answer, Exception) else ""


def _note(right: str, words: str, queue: str, gone: dict[str, None], keys: dict[str, None]) -> None:
    if not DENIED.search(words):
        return
    if DENIED_COMMAND.search(words):
        if right:
            gone[right] = None
    else:
        keys[queue] = None
