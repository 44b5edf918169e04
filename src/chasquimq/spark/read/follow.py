"""How far the next batch of a streaming query goes in each queue.

To the end of the stream, or so many rows on; to what was there when the query started, if it shall
end by itself. Where a stream is not the one that the query has read, entries are lost: nobody knows
how many, and with failOnDataLoss=false it goes on with those that are there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from chasquimq.errors import ConfigError, DataLossError
from chasquimq.spark.client import Clients
from chasquimq.spark.options import SourceOptions
from chasquimq.spark.place import Place
from chasquimq.spark.read.mark import Mark, Offset, Span, read_mark, share, write_mark
from chasquimq.spark.read.walk import SCRIPT, Stream, Walked, locate, look, walk
from chasquimq.wire import Keys

log = logging.getLogger("chasquimq.queue")


def report(options: SourceOptions, queue: str, lost: int | None, after: Place | str) -> None:
    """Events that are gone, so many or nobody knows how many."""
    if options.fail_on_data_loss:
        raise DataLossError(queue, lost, str(after))
    log.warning(
        "CHASQUI_DATA_LOSS: %s events of queue %r behind %s are gone; the query goes on without "
        "them, as failOnDataLoss=false says",
        "an unknown number of" if lost is None else lost,
        queue,
        after,
    )


class Follow:
    """Lives as long as the query: its connections mend themselves."""

    def __init__(self, options: SourceOptions) -> None:
        self.clients = Clients(options.where.address(), [SCRIPT])
        self.counted = options.view == "events"
        self._options = options
        self._target: dict[str, Mark] = {}
        self._seen: dict[str, Stream] = {}

    def key(self, queue: str) -> bytes:
        keys = Keys(queue)
        return keys.events if self.counted else keys.dlq

    def look(self, queues: Iterable[str]) -> dict[str, Stream]:
        found: dict[str, Stream] = {}
        for client, names in self.clients.shared(queues):
            streams = look(client, [self.key(queue) for queue in names])
            found.update(zip(names, streams, strict=True))
        return found

    def walk(self, queue: str, begin: Mark, upto: Place, most: int | None = None) -> Walked:
        return walk(self.clients.of(queue), self.key(queue), begin, upto, most)

    def aim(self) -> None:
        """No further than to what is there now."""
        streams = self.look(self._options.queues)
        self._target = {queue: stream.tip for queue, stream in streams.items()}

    def tips(self) -> Offset:
        """Where the streams ended when `offset` looked."""
        seen = self._seen or self.look(self._options.queues)
        return {queue: write_mark(seen[queue].tip, self.counted) for queue in sorted(seen)}

    def offset(self, start: Offset, most: int | None) -> Offset:
        """Where a batch that begins at `start` ends."""
        self._check_queues(start)
        self._seen = self.look(self._options.queues)
        spans = {queue: self._span(queue, start) for queue in sorted(self._seen)}
        if most is not None:
            spans = self._shorten(spans, most)
        return {queue: span.entry(self.counted) for queue, span in spans.items()}

    def _check_queues(self, start: Offset) -> None:
        """A queue that is not named any more would be given up without a word."""
        for queue in start:
            if queue in self._options.queues:
                continue
            if self._options.fail_on_data_loss:
                raise ConfigError(
                    f"CHASQUI_DATA_LOSS: the checkpoint knows queue {queue!r:.80}, which is not "
                    "read any more; name it in option queue again, or give up what is left of it "
                    "by failOnDataLoss=false"
                )
            log.warning("queue %r of the checkpoint is not read any more", queue)

    def _span(self, queue: str, start: Offset) -> Span:
        """All that is there of a queue."""
        stream, told = self._seen[queue], start.get(queue)
        goal = self._target.get(queue, stream.tip)
        if told is None:
            begin = self._begin(queue, stream, new=not start)
            return Span(begin, max(begin, goal))
        begin = read_mark(queue, told, self.counted)
        if self.counted and not (stream.knows(begin) and stream.knows(goal)):
            report(self._options, queue, None, begin.place)
            if not stream.knows(goal):  # made anew since the query started: for the next one
                return Span(begin, begin, told)
            begin, told = self._anew(queue, stream, begin.place), None
        return Span(begin, max(begin, goal), told)

    def _begin(self, queue: str, stream: Stream, new: bool) -> Mark:
        """Where to begin with a queue that the checkpoint does not know. One that is added to a
        query begins with all that is there, as a new partition of Kafka's does."""
        options, place = self._options, None
        if new and options.starting_offsets == "latest":
            return self._target.get(queue, stream.tip)
        if new and options.starting_timestamp is not None:
            place = Place(options.starting_timestamp, 0)
        elif new and isinstance(options.starting_offsets, dict):
            place = options.starting_offsets.get(queue)
        if place is None:
            return stream.head
        if place.ms > stream.now_ms and place > stream.last:
            raise ConfigError(
                f"queue {queue!r:.80} cannot be read from {place} on: by the server's clock it is "
                f"only {stream.now_ms}; begin at startingOffsets=latest"
            )
        return self._locate(queue, stream, place.before)

    def _locate(self, queue: str, stream: Stream, place: Place) -> Mark:
        return locate(self.clients.of(queue), self.key(queue), stream, place)

    def _anew(self, queue: str, stream: Stream, place: Place) -> Mark:
        """Where to go on in a stream that was deleted and made anew, or went back to an older
        state: behind what was read, if its ids have got there; else all that is there is new."""
        if stream.first <= place <= stream.last:
            return self._locate(queue, stream, place)
        return stream.head

    def _shorten(self, spans: dict[str, Span], most: int) -> dict[str, Span]:
        """So many rows at the most, of all queues together."""
        oldest_first = sorted(spans, key=lambda queue: spans[queue].begin.place)
        sizes = {queue: self._size(queue, spans[queue], most) for queue in oldest_first}
        for queue, rows in share(most, sizes).items():
            if rows < sizes[queue]:
                begin, end, told = spans[queue]
                walked = self.walk(queue, begin, end.place, rows)
                there = walked.over or walked.mark.place == end.place
                spans[queue] = Span(begin, end if there else walked.mark, told)
        return spans

    def _size(self, queue: str, span: Span, most: int) -> int:
        """How many rows; if they are more than `most`, some number that is more."""
        if self.counted:
            gone = max(0, self._seen[queue].gone(span.begin))
            return max(0, span.end.n - span.begin.n - gone)
        return self.walk(queue, span.begin, span.end.place, most + 1).rows
