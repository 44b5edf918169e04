"""A link whose scripts break off at their n-th command, and a census of where jobs are then."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import redis

from chasquimq import lua, wire
from chasquimq.errors import StoreError, WireError
from chasquimq.store import Link
from chasquimq.store.resp import Arg
from tests.store.commands import WRITES
from tests.store.shelf import GROUP, Shelf

PREAMBLE = Path(__file__).with_name("faulty.lua").read_text()
PREAMBLE = PREAMBLE.replace("WRITES", " ".join(sorted(WRITES)))


class Broken(NamedTuple):
    """Where a script broke off: how many writes were done, and the command that failed."""

    wrote: int
    how: str  # call or pcall
    command: str


async def break_off(shelf: Shelf, nth: int, act: Callable[[Any], Awaitable[Any]]) -> Broken | None:
    """Do it over a link whose scripts fail at their n-th command; None if they have no n-th."""
    mark = shelf.keys.tag + b"injected"
    with suppress(StoreError):
        await act(FaultyLink(shelf.link, nth, mark))
    said = shelf.redis.getdel(mark)
    if said is None:
        return None
    wrote, how, command = said.decode().split()
    return Broken(int(wrote), how, command)


class FaultyLink:
    """Runs the store's scripts with one command of theirs failing; in all else a `Link`."""

    def __init__(self, link: Link, nth: int, mark: bytes) -> None:
        self._link = link
        self._preamble = PREAMBLE.replace("NTH", str(nth)).replace("INJECTED", mark.decode())

    async def ask(self, *command: Arg) -> Any:
        if command[0] != "EVALSHA":
            return await self._link.ask(*command)
        source = lua.BY_SHA[str(command[1])]
        flags = source[: source.index("\n") + 1] if source.startswith("#!") else ""
        text = flags + self._preamble + source.removeprefix(flags)
        return await self._link.ask("EVAL", text, *command[2:])

    async def run(self, script: str, keys: Any, args: Any = ()) -> Any:
        return await self.ask(*lua.call(script, keys, args))

    async def run_each(self, script: str, calls: Any, args: Any) -> list[Any]:
        each = zip(calls, args, strict=True)
        return [await self.run(script, keys, words) for keys, words in each]


def places(shelf: Shelf) -> dict[str, list[str]]:
    """Where each job is alive, by its id; bytes that are no job are named by themselves.

    An entry that was acked and is still there is not alive: nobody will be given it. A job that
    is done has its place, too, if its result was kept.
    """
    found: defaultdict[str, list[str]] = defaultdict(list)
    if shelf.redis.type(shelf.keys.stream) == b"stream":
        pending, read_to = _group(shelf)
        for entry_id, fields in shelf.entries():
            if entry_id in pending or _order(entry_id) > read_to:
                where = "pending" if entry_id in pending else "waiting"
                found[_job(fields[b"d"])].append(where)
    if shelf.redis.type(shelf.keys.delayed) == b"zset":
        for one in shelf.delayed():
            try:
                found[_job(wire.split_member(one)[1])].append("delayed")
            except WireError:
                found[repr(one)].append("delayed")
    if shelf.redis.type(shelf.keys.dlq) == b"stream":
        for fields in shelf.dead():
            found[_job(fields[b"d"])].append("dead")
    results = shelf.keys.result("")
    for key in shelf.redis.scan_iter(match=results + b"*", count=10_000):
        found[key.removeprefix(results).decode()].append("kept")
    return dict(found)


def wipe(shelf: Shelf) -> None:
    for key in shelf.redis.scan_iter(match=shelf.keys.tag + b"*", count=10_000):
        shelf.redis.delete(key)


def _group(shelf: Shelf) -> tuple[dict[bytes, Any], tuple[int, ...]]:
    try:
        pending = shelf.pending()
    except redis.ResponseError:  # no group: nothing has been read
        return {}, (-1,)
    (group,) = [
        g for g in shelf.redis.xinfo_groups(shelf.keys.stream) if g["name"] == GROUP.encode()
    ]
    return pending, _order(group["last-delivered-id"])


def _order(entry_id: bytes) -> tuple[int, ...]:
    return tuple(map(int, entry_id.split(b"-")))


def _job(body: bytes) -> str:
    try:
        return wire.unpack_envelope(body).id
    except WireError:
        return repr(body)
