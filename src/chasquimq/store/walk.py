"""Through large collections in pages: each a short command, so that the server serves others in
between, and none that brings more than a few megabytes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from chasquimq.store.link import Link
from chasquimq.store.resp import Arg
from chasquimq.store.sighting import Row
from chasquimq.wire.fault import as_error

PAGE = 500  # rows of an answer, at the most
PAGE_BYTES = 4_000_000  # about as much as an answer brings: jobs may be large
FIRST_PAGE = 10  # nobody knows yet how large they are
LAST = f"{2**64 - 1}-{2**64 - 1}"  # Redis refuses to look behind it, where nothing can lie

Progress = Callable[[int], None]  # so many more rows were looked at


class Walk:
    def __init__(self, link: Link, progress: Progress = lambda rows: None) -> None:
        self._link = link
        self._progress = progress

    async def entries(
        self,
        key: bytes,
        most: int,
        *,
        start: str = "-",
        end: str = "+",
        newest_first: bool = False,
    ) -> AsyncIterator[list[Row]]:
        """Entries of a stream from `start` to `end`, or back; none of the pages is empty."""
        count = FIRST_PAGE
        while most > 0 and start != f"({LAST}":
            count = min(count, most)
            ends = (end, start) if newest_first else (start, end)
            verb = "XREVRANGE" if newest_first else "XRANGE"
            rows = await self._link.ask(verb, key, *ends, "COUNT", count)
            if not rows:
                return
            self._progress(len(rows))
            yield [(entry_id, fields) for entry_id, fields in rows]
            if len(rows) < count:
                return
            last = f"({rows[-1][0].decode()}"
            start, end = (start, last) if newest_first else (last, end)
            most -= count
            count = next_count(sum(sum(map(len, fields)) for _, fields in rows), count)

    async def members(self, key: bytes, most: int) -> AsyncIterator[list[tuple[bytes, float]]]:
        """Members of a sorted set and their scores, the lowest first. Pages begin at a score and
        not at a rank: what is taken away in front meanwhile moves nothing past us."""
        count, score, behind = FIRST_PAGE, b"-inf", 0
        while most > 0:
            count = min(count, most)
            page = ("BYSCORE", "LIMIT", behind, count, "WITHSCORES")
            flat = await self._link.ask("ZRANGE", key, score, "+inf", *page)
            rows = list(zip(flat[::2], flat[1::2], strict=True))
            if not rows:
                return
            self._progress(len(rows))
            yield [(member, float(its)) for member, its in rows]
            if len(rows) < count:
                return
            alike = sum(its == rows[-1][1] for _, its in rows)
            behind = alike + (behind if rows[-1][1] == score else 0)
            score = rows[-1][1]
            most -= count
            count = next_count(sum(len(member) for member, _ in rows), count)


async def ask_all(link: Link, commands: Sequence[Sequence[Arg]]) -> list[Any]:
    """Several questions in one write; raises for the first that was refused."""
    if not commands:
        return []
    replies = await link.ask_each(*commands)
    for command, reply in zip(commands, replies, strict=True):
        if isinstance(reply, Exception):
            raise as_error(reply, str(command[0]))
    return replies


def next_count(size: int, count: int) -> int:
    """How many rows the next page may have, when these were so large."""
    return max(1, min(PAGE, PAGE_BYTES * count // max(size, 1)))
