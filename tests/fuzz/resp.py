"""Whatever bytes a server sends, cut anywhere: every flight ends exactly once, and nothing is
raised."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import hiredis

from chasquimq.store.pipe import MORE, Pipe
from chasquimq.wire.fault import legible
from tests.fuzz.draw import Draw
from tests.fuzz.kit import Check

REPLY_S = 30.0
# A parser sets memory aside for as many as a reply declares: how much a machine has is not asked.
VAST = re.compile(rb"[*%~>|][+ ]?0*[1-9][0-9]{5}")


class Wire(asyncio.Transport):
    """The end of a connection that keeps nothing; the pipe is fed by hand."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: Any) -> None:
        pass

    def abort(self) -> None:
        pass


class Trial:
    """One connection from its beginning to its end, and what became of its flights."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.pipe = Pipe(2**16, REPLY_S)
        self.pipe.on_push = lambda reply: self.replies.append(reply)
        self.pipe.on_closed = self._closed
        self.pipe.connection_made(Wire())
        self.counts: list[int] = []
        self.landed: list[int] = []  # numbers of flights, in the order of their ends
        self.lost: list[int] = []
        self.replies: list[Any] = []
        self.closes = 0

    def send(self) -> None:
        number, count = len(self.counts), 1 + self.draw.number() % 4
        self.counts.append(count)

        def landed(replies: list[Any]) -> None:
            assert len(replies) == count, "landed with more or less than it waits for"
            self._end(self.landed, number, replies)
            self._react()

        def lost(replies: list[Any]) -> None:
            assert len(replies) < count, "lost, though it had all"
            self._end(self.lost, number, replies)

        self.pipe.send(b"PING\r\n" * count, count, landed, lost)

    def _end(self, how: list[int], number: int, replies: list[Any]) -> None:
        assert number not in (*self.landed, *self.lost), "a flight ended twice"
        how.append(number)
        self.replies += replies

    def _react(self) -> None:
        """Owners send the next one, or give up, from within their answer."""
        act = self.draw.number()
        if act == 254:
            self.pipe.close()
        elif act % 4 == 1 and len(self.counts) < 64:
            self.send()

    def _closed(self) -> None:
        self.closes += 1


def run(data: bytes) -> None:
    draw = Draw(data)
    stream, cut = draw.blob(), draw.number()
    if VAST.search(stream):
        return
    trial = Trial(draw)
    at = 0
    while at < len(stream) and not trial.pipe.closed:
        if draw.number() % 3 != 1:
            trial.send()
        size = 1 + (draw.number() if draw else cut)
        trial.pipe.data_received(stream[at : at + size])
        at += size
    told = trial.pipe.closed
    trial.pipe.connection_lost(None)
    trial.send()
    ended = [*trial.landed, *sorted(trial.lost)]  # what a broken line lost comes newest first
    assert ended == sorted(ended), "flights ended out of order"
    assert len(ended) == len(trial.counts), "a flight never ended"
    assert trial.pipe.idle and trial.closes == 1
    if not told:
        assert repr(trial.replies) == repr(_uncut(stream)), "the cuts changed what was said"


def _uncut(stream: bytes) -> list[Any]:
    reader = hiredis.Reader(
        replyError=lambda text: hiredis.ReplyError(legible(text)), notEnoughData=MORE
    )
    reader.feed(stream)
    replies = []
    while (reply := reader.gets()) is not MORE:
        replies.append(reply)
    return replies


@contextmanager
def opened() -> Iterator[Check]:
    loop = asyncio.new_event_loop()

    async def session(data: bytes) -> None:
        run(data)

    try:
        yield lambda data: loop.run_until_complete(session(data))
    finally:
        loop.close()
