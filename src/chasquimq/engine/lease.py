"""Keep what we hold ours: renew it each third of the lease, from another thread.

A thread, because a handler may keep the event loop busy for longer than the lease; with an
event loop of its own, so that the connection is the same kind as everywhere else. All workers of a
process share it.

Claiming from others is allowed only while our own renewals have been without a gap for a whole
lease: after an outage every consumer's entries look abandoned, and whoever claims first would
run what others are still running.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

from chasquimq import wire
from chasquimq.flow.aside import aside
from chasquimq.flow.backroom import Stay, backroom
from chasquimq.store import Jobs, Link, Store
from chasquimq.wire.fault import words

log = logging.getLogger("chasquimq.worker")

CHUNK = 2_000
YOUNG = 10  # what was delivered within so much of a lease can wait for the next renewal
GAP = 0.5  # of a lease between two renewals: we may be the ones who are cut off
FRESH = 0.8  # of a lease: a renewal younger than that leaves time for an ack to arrive


class Lease:
    def __init__(
        self,
        store: Store,
        jobs: Jobs,
        lease_ms: int,
        held: Callable[[], list[bytes]],
        lost: Callable[[list[bytes]], None],
        running: Callable[[], list[bytes]],
        slots: Callable[[], int],
        acks: int,
    ) -> None:
        """`held`, and which of it is `running`: asked in the other thread. Of what we hold only
        the first entries have been started: one for each of the `slots`, and as many more as there
        are `acks` that are gathered and not written yet. Asked as well: in front of those may lie
        what an earlier run under our name left."""
        self.renewed_at = time.monotonic()
        self.steady_since: float | None = None
        self._gone: frozenset[bytes] = frozenset()  # what the last renewal found to be lost
        self._loop = asyncio.get_running_loop()
        self._dialer = store.dialer.elsewhere(self._loop, max(lease_ms // 3, 1))
        self._jobs = jobs
        self._lease_s = lease_ms / 1000
        self._young_ms = lease_ms // YOUNG
        self._held = held
        self._lost = lost
        self._running = running
        self._slots = slots
        self._acks = acks
        self._seen: dict[bytes, float] = {}  # what runs, and when that was first seen
        self._cancel: Callable[[], object] = _nothing
        self._started: Future[None] = Future()
        self._ended: Stay | None = None
        self.link: Link | None = None
        self.trouble = ""  # why the last renewal failed

    async def start(self) -> None:
        """Returns when it is there to be stopped."""
        self._ended = backroom.enter(self._live())
        await asyncio.wait([asyncio.wrap_future(self._started)])

    async def stop(self) -> None:
        stay = self._ended
        if stay is not None:
            # In a thread of its own: handlers may have taken all those of the event loop.
            async with aside(lambda ended: backroom.leave(stay)):
                await asyncio.wait([asyncio.wrap_future(self._started)])
                self._cancel()
                await asyncio.wait([asyncio.wrap_future(stay)])

    def steady(self) -> bool:
        """Whether our renewals have been without a gap for a whole lease. A gap is half a lease: a
        renewal that is a third late leaves time to stop claiming before others may claim of us."""
        since, now = self.steady_since, time.monotonic()
        if since is None or now - self.renewed_at > self._lease_s * GAP:
            return False
        return now - since >= self._lease_s

    def fresh(self, ids: Sequence[bytes]) -> bool:
        """Whether these are certainly still ours. The event loop may not have heard yet, or not
        have got round to it, that some are not."""
        if self.gap() >= FRESH * self._lease_s:
            return False
        gone = self._gone  # read last, as it is written first
        return not gone or gone.isdisjoint(ids)

    def gap(self) -> float:
        """Seconds since our last renewal."""
        return time.monotonic() - self.renewed_at

    @property
    def alive(self) -> bool:
        return self._ended is not None and not self._ended.done()

    async def _live(self) -> None:
        """In the other thread: renew, wait, again, until it is cancelled from outside. A worker
        whose event loop was closed under it runs nothing any more, and must not look alive."""
        task = asyncio.current_task()
        assert task is not None
        self._cancel = partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel)
        self._started.set_result(None)
        link = self.link = Link(self._dialer)
        opened = False
        try:
            while not self._loop.is_closed():
                began = time.monotonic()
                try:
                    if not opened:
                        await link.open()
                        opened = True
                    await self._renew(link)
                    self.trouble = ""
                except (KeyboardInterrupt, GeneratorExit):
                    raise
                except BaseException as error:  # whatever: a lease not renewed is a lease lost
                    if isinstance(error, asyncio.CancelledError) and task.cancelling():
                        raise
                    self.steady_since = None
                    self.trouble = words(error)
                    log.warning("renewing leases failed, trying again: %s", self.trouble)
                # From its beginning: one that got no answer for a third is repeated at once, or
                # its lease would be over when the next one is due.
                await asyncio.sleep(max(began + self._lease_s / 3 - time.monotonic(), 0))
        except asyncio.CancelledError:
            pass
        await link.close()

    def _record(self, now: float) -> bytes:
        """What we have started, for those who find us dead."""
        self._seen = {one: self._seen.get(one, now) for one in self._running()}
        runs = [(one, int((now - since) * 1000)) for one, since in self._seen.items()]
        return wire.pack_started(self._slots(), self._acks, runs)

    async def _renew(self, link: Link) -> None:
        began = time.monotonic()
        ids = self._held()
        lost: list[bytes] = []
        for at in range(0, max(len(ids), 1), CHUNK):
            record = b"" if at else self._record(began)
            lost += await self._jobs.renew(link, ids[at : at + CHUNK], self._young_ms, record)
        if self.steady_since is None or began - self.renewed_at > self._lease_s * GAP:
            self.steady_since = began
        self._gone = frozenset(lost)  # first: from the next line on an ack may pass for fresh
        self.renewed_at = began
        if lost:
            self._loop.call_soon_threadsafe(self._lost, lost)


def _nothing() -> None:
    pass
