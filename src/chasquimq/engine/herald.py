"""Tell of jobs that came in, and of those that were refused. No add ever waits for it.

An order that was accepted is announced, job by job. What becomes of it is the sinks' affair; what
the events stream writes goes over the producer's own connection, and is dropped, and counted, where
it would have to wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from chasquimq.engine.order import Answer
from chasquimq.engine.writer import LinkWriter
from chasquimq.happening import Added, Announce, EventsDropped
from chasquimq.job import Draft
from chasquimq.store import Link
from chasquimq.wire import decode_name

log = logging.getLogger("chasquimq.queue")

Observe = Callable[[LinkWriter], Announce]  # the events sink writes through the writer


class Herald:
    def __init__(self, link: Link, observe: Observe, max_waiting: int) -> None:
        self.writer = LinkWriter(link, max_waiting)
        self.writer.on_dropped = self._complain
        self.announce = observe(self.writer)
        self._complained = False

    def promise(self, answer: Answer, ids: Sequence[str], drafts: Sequence[Draft]) -> None:
        """Announce those of an order, when they are in."""
        answer.add_done_callback(partial(self._tell, ids, drafts))

    async def close(self) -> None:
        """See what was told written, but do not wait for long; the connection ends with it."""
        await self.writer.close()

    def _tell(self, ids: Sequence[str], drafts: Sequence[Draft], answer: Answer) -> None:
        if answer.cancelled():
            return  # the caller left, and nobody knows what became of it
        told = answer.result()
        for place, draft in enumerate(drafts):
            if told is None or (place not in told.errors and place not in told.duplicates):
                delayed = draft.due is not None
                self.announce(Added(ids[place], decode_name(draft.name), delayed))

    def _complain(self, count: int) -> None:
        self.announce(EventsDropped(count))
        if not self._complained:
            self._complained = True
            log.warning("%d events of added jobs were dropped, more go without a word", count)
