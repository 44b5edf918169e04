"""What a user must be allowed to do for each kind of work, and whether it is.

Each command is tried on keys of a queue that does not exist, in a form that changes nothing even
there: a server looks at rights before it looks at arguments or keys. Access to the keys of queues
that were named is tried by commands that fail on their arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from chasquimq import lua
from chasquimq.spark.client import Arg, Client
from chasquimq.wire import Keys
from chasquimq.wire.right import asked

OF_WORK = ("exists", "set", "unlink")  # of what writes need
# ... and of what reads of the DLQ and writes need together.
OF_ACTS = "type xlen xrange xrevrange command|info exists xinfo|stream xgroup|create xgroup|destroy"
OF_ACTS += " xcfgset xadd get set pexpire unlink"
NOBODY = "chasqui-doctor"  # a member, group and field that is nowhere
Call = tuple[Arg, ...]
_COMMAND = re.compile(r"permissions? to run the '([^']+)'|can't run this command", re.I)
_DENIED = re.compile(r"^NOPERM|no permissions?\b", re.I)


class Rights(NamedTuple):
    """Commands that are missing, by what needs them: `act` is triage, replay and purge; `work` is
    what handlers in tasks need beyond what a Worker does. `keys`: queues whose keys are not ours to
    use."""

    user: str
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    act: tuple[str, ...] = ()
    work: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    tried: int = 0


def connecting() -> Iterator[tuple[str, Call]]:
    yield "ping", ("PING",)
    yield "script|load", ("SCRIPT", "LOAD", lua.SOURCES["counts"])
    yield "evalsha", ("EVALSHA", "0" * 40, "no number")
    yield "time", ("TIME",)


def reading(keys: Keys) -> Iterator[tuple[str, Call]]:
    """For all views together."""
    yield from connecting()
    stream, delayed, some = keys.stream, keys.delayed, keys.result(NOBODY)
    yield "exists", ("EXISTS", stream)
    yield "type", ("TYPE", stream)
    yield "xlen", ("XLEN", stream)
    yield "xinfo|stream", ("XINFO", "STREAM", stream)
    yield "xrange", ("XRANGE", stream, "-", "+", "COUNT", 1)
    yield "xrevrange", ("XREVRANGE", stream, "+", "-", "COUNT", 1)
    yield "xpending", ("XPENDING", stream, NOBODY)
    yield "zcount", ("ZCOUNT", delayed, 0, 0)
    yield "zrange", ("ZRANGE", delayed, 0, 0)
    yield "hmget", ("HMGET", keys.spec(NOBODY), "spec")
    yield "scan", ("SCAN", 0, "COUNT", 1)
    yield "mget", ("MGET", some)
    yield "strlen", ("STRLEN", some)
    yield "pttl", ("PTTL", some)


def writing(keys: Keys) -> Iterator[tuple[str, Call]]:
    """For all ways of writing together."""
    yield from connecting()
    stream, delayed, some = keys.stream, keys.delayed, keys.result(NOBODY)
    group = (stream, NOBODY)
    yield "command|info", ("COMMAND", "INFO", "xcfgset")
    yield "exists", ("EXISTS", stream)
    yield "xinfo|stream", ("XINFO", "STREAM", stream)
    yield "xgroup|create", ("XGROUP", "CREATE", *group, "no id")
    yield "xgroup|destroy", ("XGROUP", "DESTROY", *group)
    yield "xcfgset", ("XCFGSET", stream, "IDMP-MAXSIZE", "no number")
    yield "xadd", ("XADD", stream, "NOMKSTREAM", "*", "d", "")
    yield "xlen", ("XLEN", stream)
    yield "xrange", ("XRANGE", stream, "-", "+", "COUNT", 1)
    yield "xtrim", ("XTRIM", stream, "MAXLEN", "no number")
    yield "zadd", ("ZADD", delayed, "XX", 0, NOBODY)
    yield "zcard", ("ZCARD", delayed)
    yield "zrange", ("ZRANGE", delayed, 0, 0)
    yield "publish", ("PUBLISH", keys.wake, "")
    yield "get", ("GET", some)
    yield "mget", ("MGET", some)
    yield "set", ("SET", some, "", "XX", "EX", "no number")
    yield "getrange", ("GETRANGE", some, 0, 0)
    yield "strlen", ("STRLEN", some)
    yield "hget", ("HGET", some, NOBODY)
    yield "hmget", ("HMGET", some, NOBODY)
    yield "hset", ("HSET", some, "odd", "", "number")
    yield "hdel", ("HDEL", some, "")
    yield "hincrby", ("HINCRBY", some, "", "no number")
    yield "lindex", ("LINDEX", some, 0)
    yield "lrange", ("LRANGE", some, 0, 0)
    yield "scard", ("SCARD", some)
    yield "spop", ("SPOP", some)
    yield "persist", ("PERSIST", some)
    yield "pexpire", ("PEXPIRE", some, "no number")
    yield "del", ("DEL", some)
    yield "unlink", ("UNLINK", some)


def acting(keys: Keys) -> Iterator[tuple[str, Call]]:
    """For triage, replay and purge: all of it, as who brings jobs back need not write rows."""
    some, known = keys.result(NOBODY), dict(reading(keys)) | dict(writing(keys))
    yield from connecting()
    yield from ((name, known[name]) for name in OF_ACTS.split())
    yield "xdel", ("XDEL", keys.stream, "0-1")
    yield "getbit", ("GETBIT", some, 0)
    yield "setbit", ("SETBIT", some, "no number", 0)
    yield "bitcount", ("BITCOUNT", some)


def working(keys: Keys) -> Iterator[tuple[str, Call]]:
    """For handlers in tasks, beyond what a Worker needs: `chasqui doctor` tells of that."""
    yield "xinfo|consumers", ("XINFO", "CONSUMERS", keys.stream, NOBODY)
    yield from ((name, call) for name, call in writing(keys) if name in OF_WORK)


# Of these there is no form without an effect: a script asks for them. How many arguments follow
# the key.
ASKED = {"append": 1, "hsetnx": 2, "rpush": 1, "sadd": 1}


def look(client: Client, nowhere: Keys, queues: Sequence[str] = ()) -> Rights:
    """`nowhere`: of a queue that does not exist, and whose keys this server would have."""
    read, write = dict(reading(nowhere)), dict(writing(nowhere))
    act, work = dict(acting(nowhere)), dict(working(nowhere))
    calls = read | write | act | work
    said = dict(zip(calls, client.ask_each([*calls.values()]), strict=True))
    refused = {name for name, reply in said.items() if _COMMAND.search(_words(reply))}
    usable = [name for name in queues if _may_use(client, Keys(name))]
    place = Keys(usable[0]) if usable else nowhere
    reaches = place is not nowhere or _may_use(client, nowhere)
    if reaches and not refused & {"evalsha", "script|load"}:
        refused |= _asked(client, place)
    return Rights(
        _user(client),
        tuple(name for name in read if name in refused),
        tuple(name for name in (*write, *ASKED) if name in refused),
        tuple(name for name in act if name in refused),
        tuple(name for name in work if name in refused),
        tuple(name for name in queues if name not in usable),
        len(calls) + len(ASKED),
    )


def _asked(client: Client, place: Keys) -> set[str]:
    with Client(client.address, ["may"], patience_s=0) as other:
        return {name.decode() for name in other.run("may", [place.stream], asked(ASKED))}


def _may_use(client: Client, keys: Keys) -> bool:
    """PEXPIRE asks for the right to write, and a text is no number of milliseconds."""
    some = (keys.stream, keys.delayed, keys.dlq, keys.events, keys.result(NOBODY))
    own = keys.tag + b"spark:" + NOBODY.encode()
    for reply in client.ask_each([("PEXPIRE", key, "no number") for key in (*some, own)]):
        words = _words(reply)
        if _DENIED.search(words) and not _COMMAND.search(words):
            return False
    return True


def _user(client: Client) -> str:
    [reply] = client.ask_each([("ACL", "WHOAMI")])
    return reply.decode() if isinstance(reply, bytes) else client.address.username or "default"


def _words(reply: Any) -> str:
    return str(reply) if isinstance(reply, Exception) else ""
