"""What operators do with dead jobs: look, bring back, throw away, carry off, bring in again.

1. `Walk` turns the DLQ's pages and keeps what a selection means. It ends where the DLQ ended
   when it began: what dies meanwhile is not chased;
2. each batch is one command or one script that looks whether a row is still there, so two
   operators at once, or one who is cut off, neither lose a row nor count it twice.

Options are checked before anything is connected to, opened or moved.
"""

from __future__ import annotations

import asyncio
import logging
import operator
import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from chasquimq import wire
from chasquimq.engine.archive import NO_MORE, File, Format, Sheet, Source
from chasquimq.errors import ArgumentError, ConfigError, WireError
from chasquimq.flow.aside import aside
from chasquimq.policy.pace import Pace
from chasquimq.policy.selection import Selection, Which, select
from chasquimq.store import Store
from chasquimq.store.dead import PAGE, DeadLetters, DeadRow, Replay, revive
from chasquimq.store.walk import next_count

__all__ = ["File", "Format", "Graveyard", "Progress", "Which"]

log = logging.getLogger("chasquimq.queue")

Act = Callable[[Sequence[DeadRow]], Awaitable[int]]
Progress = Callable[[int], object] | None  # is told after each batch how many are done

_NO_FILTER: Which = {}
LARGE_BYTES = 32_000_000  # of a page, if all its rows were as large as the largest before
_ENTRY_ID = re.compile(r"[0-9]{1,20}(-[0-9]{1,20})?")


class Walk:
    """The rows that a selection means, oldest first, a page at a time. A page has as many rows as
    may be expected to fit into a few megabytes, judged by those before it."""

    def __init__(self, dead: DeadLetters, selection: Selection, after: str, size: int) -> None:
        self._dead = dead
        self._selection = selection
        self._after = after
        self._most = self._size = size
        self._largest = 1  # bytes of a row, as far as is known
        self._until = ""
        self._now_ms = 0

    async def begin(self) -> Walk:
        newest = await self._dead.newest()
        if newest is not None:
            self._until = newest[0]
            self._judge([newest[1]])
        if self._selection.has_age:
            self._now_ms = await self._dead.clock_ms()
        return self

    async def page(self) -> list[DeadRow]:
        """Empty at the end, and not before."""
        while self._until:
            rows = await self._dead.page(self._after, self._until, self._size)
            if len(rows) < self._size:
                self._until = ""
            if rows:
                self._after = rows[-1].entry.dlq_id
                self._judge([sum(map(len, row.fields)) for row in rows])
            if meant := [row for row in rows if self._means(row)]:
                return meant
        return []

    def _judge(self, sizes: Sequence[int]) -> None:
        """How many rows the next page may have, when these were so large. Once one was large, all
        might be: a page of small ones does not make us forget it."""
        self._largest = max(self._largest, *sizes)
        fitting = next_count(sum(sizes), len(sizes))
        self._size = max(1, min(self._most, fitting, LARGE_BYTES // self._largest))

    def _means(self, row: DeadRow) -> bool:
        chosen = self._selection
        job_id = None if chosen.ids is None else wire.dead_job_id(row.entry)
        return chosen.matches(row.entry, job_id, self._now_ms)


class Graveyard:
    def __init__(self, store: Callable[[], Awaitable[Store]]) -> None:
        self._store = store

    async def peek(
        self, limit: int, after: str | None = None, which: Which = _NO_FILTER
    ) -> list[dict[str, Any]]:
        most = _most(limit)
        if after is not None and not (isinstance(after, str) and _ENTRY_ID.fullmatch(after)):
            raise ConfigError(f"after is a dlq_id, such as '1700000000000-0'; got {after!r:.80}")
        chosen = select(which, "Queue.peek_dlq", ("limit", "after"))
        # Where only some are meant, nobody knows how many must be read to find as many.
        size = max(1, min(most, PAGE)) if chosen.means_all else PAGE
        walk = await self._walk(chosen, after or "", size)
        found: list[DeadRow] = []
        while len(found) < most and (page := await walk.page()):
            found += page
        return [row.entry.to_dict() for row in found[: max(0, most)]]

    async def replay(
        self,
        limit: int | None,
        *,
        dry_run: bool = False,
        rate: float | None = None,
        progress: Progress = None,
        which: Which = _NO_FILTER,
    ) -> int:
        most, pace = _most(limit), Pace(rate, PAGE)
        chosen = select(which, "Queue.replay_dlq", ("limit", "dry_run", "rate", "progress"))
        dead, stay, taken = (await self._store()).dead, 0, 0

        async def bring_back(rows: Sequence[DeadRow]) -> int:
            nonlocal stay, taken
            ready = _readable(rows)
            stay += len(rows) - len(ready)
            done = Replay(len(ready)) if dry_run else await dead.replay(ready)
            taken += done.taken
            return done.moved

        walk = await self._walk(chosen)
        pace = Pace(None, PAGE) if dry_run else pace
        moved = await _each(walk, most, bring_back, pace, progress)
        if stay:
            log.warning("%d rows of the dlq stay there: no job can be read in them", stay)
        if taken:
            log.warning("%d dead jobs stay in the dlq: living ones have their unique ids", taken)
        return moved

    async def purge(
        self,
        limit: int | None,
        *,
        everything: bool,
        dry_run: bool,
        progress: Progress = None,
        which: Which,
    ) -> int:
        most = _most(limit)
        own = ("limit", "everything", "dry_run", "progress")
        chosen = select(which, "Queue.purge_dlq", own)
        if chosen.means_all != bool(everything):
            raise ConfigError(
                "purge_dlq deletes: give a filter (ids, name, reason, error_type, older_than, "
                "newer_than), or everything=True; one of the two"
            )
        dead = (await self._store()).dead

        async def delete(rows: Sequence[DeadRow]) -> int:
            return len(rows) if dry_run else await dead.delete(rows)

        walk = await self._walk(chosen)
        return await _each(walk, most, delete, Pace(None, PAGE), progress)

    async def export(
        self, target: File, format: Format | None, which: Which, progress: Progress = None
    ) -> int:
        chosen = select(which, "Queue.export_dlq", ("target", "format", "progress"))
        sheet = Sheet(target, format)
        walk = await self._walk(chosen)
        written = 0
        async with aside(sheet.end) as call:
            await call(sheet.open)
            while page := await walk.page():
                await call(sheet.write, page)
                written += len(page)
                if progress is not None:
                    progress(written)
        return written

    async def bring_in(
        self, source: File, format: Format | None, *, dry_run: bool, progress: Progress = None
    ) -> int:
        rows, trouble = Source(source, format), ""
        dead, added = (await self._store()).dead, 0
        with _telling(lambda: added):
            async with aside(rows.end) as call:
                await call(rows.open)
                while not trouble and (batch := await call(rows.read)) != NO_MORE:
                    added += await dead.put_back(batch.rows, dry_run=dry_run)
                    trouble = batch.trouble
                    if progress is not None:
                        progress(added)
        if trouble:
            raise WireError(
                f"{trouble}; {added} rows were added before it. Repair or remove it and import "
                "again: what is in already is not added twice"
            )
        return added

    async def _walk(self, chosen: Selection, after: str = "", size: int = PAGE) -> Walk:
        return await Walk((await self._store()).dead, chosen, after, size).begin()


async def _each(walk: Walk, most: int, act: Act, pace: Pace, progress: Progress) -> int:
    """Act on what the walk finds, batch by batch, until so many are done."""
    done, clock = 0, asyncio.get_running_loop().time
    with _telling(lambda: done):
        while done < most and (page := await walk.page()):
            while page and done < most:
                if wait_s := pace.wait_s(clock()):
                    await asyncio.sleep(wait_s)
                # Of a batch, some may be gone or unreadable: then the next one makes up for them.
                size = min(pace.batch, most - done)
                batch, page = page[:size], page[size:]
                count = await act(batch)
                pace.took(count, clock())
                done += count
                if progress is not None:
                    progress(done)
    return done


def _readable(rows: Sequence[DeadRow]) -> list[wire.Revival]:
    ready = []
    for row in rows:
        try:
            ready.append(revive(row))
        except WireError as error:
            log.debug("dlq entry %s stays: %s", row.entry.dlq_id, error)
    return ready


def _most(limit: int | None) -> int:
    if limit is None:
        return sys.maxsize
    try:
        return operator.index(limit)
    except TypeError:
        raise ArgumentError(f"limit is a whole number, got {limit!r:.80}") from None


@contextmanager
def _telling(done: Callable[[], int]) -> Iterator[None]:
    """An error in here says how far it had come."""
    try:
        yield
    except Exception as error:
        if count := done():
            error.add_note(f"{count} rows were done before this; to go on, call it again")
        raise
