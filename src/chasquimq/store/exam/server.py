"""A server as it describes itself. Whatever it does not tell stays None, and says so in `hidden`.

1. each question has a time limit of its own;
2. what we may not ask is noted (managed services hide much), and the rest goes on;
3. after a question without an answer no other is asked.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import hiredis
import msgspec

from chasquimq import lua
from chasquimq.errors import StoreError, StoreUnavailableError
from chasquimq.store.link import Link
from chasquimq.wire.info import parse_info

SETTINGS = (
    "maxmemory",
    "maxmemory-policy",
    "maxclients",
    "appendonly",
    "appendfsync",
    "save",
    "aof-use-rdb-preamble",
    "stop-writes-on-bgsave-error",
    "timeout",
    "stream-node-max-bytes",
    "stream-node-max-entries",
    "client-output-buffer-limit",
)
SPIN_S = 0.02
_REPLICA, _PORT = re.compile(r"slave\d+"), re.compile(r"[0-9]{1,5}")  # as INFO names them
SLOWEST = 128


class Slow(NamedTuple):
    """A command that the server was long busy with. `script`: it was one of ours."""

    command: str
    micros: int
    age_s: int
    script: str | None = None


class ServerFacts(msgspec.Struct, kw_only=True):
    info: dict[str, str] | None = None
    config: dict[str, str] | None = None
    knows_idmp: bool | None = None  # has it the commands of the native dialect?
    user: str | None = None
    keys: int | None = None  # of our database
    skew_ms: int | None = None  # its clock minus ours
    pings_ms: tuple[float, ...] = ()
    pause_ms: float = 0.0  # how long this machine itself kept us waiting, at the most
    slow: tuple[Slow, ...] | None = None
    hidden: list[str] = []
    unanswered: str | None = None  # the question that had no answer
    trouble: str | None = None  # why

    @property
    def answers(self) -> bool:
        return self.unanswered is None

    @property
    def replicas(self) -> list[tuple[str, int]]:
        """Host and port of those that follow it."""
        rows = (text for name, text in (self.info or {}).items() if _REPLICA.fullmatch(name))
        told = (dict(word.split("=", 1) for word in row.split(",") if "=" in word) for row in rows)
        return [
            (one["ip"], int(one["port"]))
            for one in told
            if one.get("ip") and _PORT.fullmatch(one.get("port", ""))
        ]


async def look(link: Link, limit_s: float, pings: int) -> ServerFacts:
    facts = ServerFacts(hidden=[])

    async def ping() -> None:
        await _ping(link, facts, pings)

    steps: tuple[tuple[str, Callable[[], Awaitable[None]]], ...] = (
        ("INFO", lambda: _info(link, facts)),
        ("CONFIG GET", lambda: _config(link, facts)),
        ("COMMAND INFO", lambda: _commands(link, facts)),
        ("ACL WHOAMI", lambda: _user(link, facts)),
        ("DBSIZE", lambda: _keys(link, facts)),
        ("TIME", lambda: _clock(link, facts)),
        ("PING", ping),
        ("SLOWLOG GET", lambda: _slow(link, facts)),
    )
    for name, step in steps:
        try:
            async with asyncio.timeout(limit_s):
                await step()
        except (TimeoutError, StoreUnavailableError) as error:
            facts.unanswered = name
            facts.trouble = str(error) or f"no answer within {limit_s:g} s"
            break
        except StoreError:  # an ACL, or a provider that renamed the command
            facts.hidden.append(name)
    return facts


async def _info(link: Link, facts: ServerFacts) -> None:
    facts.info = parse_info(await link.ask("INFO"))


async def _config(link: Link, facts: ServerFacts) -> None:
    flat = await link.ask("CONFIG", "GET", *SETTINGS)
    words = [bytes(word).decode(errors="replace") for word in flat]
    # Some providers answer with nothing at all instead of refusing.
    facts.config = dict(zip(words[::2], words[1::2], strict=True)) or None
    if facts.config is None:
        facts.hidden.append("CONFIG GET")


async def _commands(link: Link, facts: ServerFacts) -> None:
    [known] = await link.ask("COMMAND", "INFO", "xcfgset")
    facts.knows_idmp = bool(known)


async def _user(link: Link, facts: ServerFacts) -> None:
    facts.user = bytes(await link.ask("ACL", "WHOAMI")).decode(errors="replace")


async def _keys(link: Link, facts: ServerFacts) -> None:
    facts.keys = int(await link.ask("DBSIZE"))


async def _clock(link: Link, facts: ServerFacts) -> None:
    facts.skew_ms = await skew_ms(link)


async def skew_ms(link: Link) -> int:
    """How far its clock is ahead of ours. Asked three times: the answer that took the least time is
    the most exact."""
    best: tuple[float, float] | None = None
    for _ in range(3):
        began, before = time.perf_counter(), time.time()
        theirs_ms = await link.clock_ms()
        took = time.perf_counter() - began
        ahead_ms = theirs_ms - (before + took / 2) * 1000
        best = min(best or (took, ahead_ms), (took, ahead_ms))
    assert best is not None
    return round(best[1])


async def _ping(link: Link, facts: ServerFacts, count: int) -> None:
    facts.pause_ms = _longest_pause_ms()
    found = []
    for _ in range(count):
        began = time.perf_counter()
        await link.ask("PING")
        found.append((time.perf_counter() - began) * 1000)
        facts.pings_ms = tuple(found)


def _longest_pause_ms() -> float:
    """How long a program that never waits is kept from running: by others on this machine."""
    longest, now = 0.0, time.perf_counter()
    end = now + SPIN_S
    while now < end:
        before, now = now, time.perf_counter()
        longest = max(longest, now - before)
    return longest * 1000


async def _slow(link: Link, facts: ServerFacts) -> None:
    now_s = await link.clock_ms() // 1000
    rows = await link.ask("SLOWLOG", "GET", SLOWEST)
    facts.slow = tuple([_slow_row(row, now_s) for row in rows])


def _slow_row(row: list[Any], now_s: int) -> Slow:
    _, at_s, micros, words, *_ = row
    command = " ".join(bytes(word).decode(errors="backslashreplace") for word in words[:2])
    script = None
    if len(words) > 1 and bytes(words[0]).lower() in (b"evalsha", b"evalsha_ro"):
        script = _NAMES.get(bytes(words[1]).decode(errors="replace").lower())
    return Slow(command[:80], int(micros), max(now_s - int(at_s), 0), script)


def reads_in_c(kind: type = hiredis.Reader) -> bool:
    """Are answers read in C? A class of an extension has no Python behind its methods."""
    return not any(hasattr(value, "__code__") for value in vars(kind).values())


_NAMES = {sha: name for name, sha in lua.SHA.items()}
