"""On the driver: what each task will read.

Parts of a stream are ranges of entry ids, of the delayed set ranges of places, each with about as
many rows; all end with what is there now. Results and repeatables are one part for each queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition

from chasquimq.errors import StoreError
from chasquimq.spark.client import Clients
from chasquimq.spark.options import IN_STREAMS, SourceOptions, View
from chasquimq.spark.place import Place, Range, read_place
from chasquimq.spark.read.cut import Survey
from chasquimq.spark.read.filters import EVERYTHING, Wanted
from chasquimq.spark.read.mark import share
from chasquimq.spark.read.part import Bound, Members, Part, Picked
from chasquimq.spark.read.piece import Look
from chasquimq.spark.read.probe import Prober
from chasquimq.wire import Keys
from chasquimq.wire.fault import Fault, as_error, classify

SCRIPTS = ("spark_probe", "spark_ranks")
ROWS = 100_000  # in a part, unless minPartitions says otherwise
MOST_PARTS = 64
PICKED = 1_000  # entries that one task is asked for by name
CUT_BYTES = 2_048  # of a member: name and id are within, so they tell jobs apart

Sizes = dict[str, int]
KINDS: dict[View, tuple[str, Callable[[Keys], bytes]]] = {
    "jobs": ("stream", lambda keys: keys.stream),
    "pending": ("stream", lambda keys: keys.stream),
    "dlq": ("stream", lambda keys: keys.dlq),
    "events": ("stream", lambda keys: keys.events),
    "delayed": ("zset", lambda keys: keys.delayed),
    "repeatables": ("zset", lambda keys: keys.repeat),
}


def key_of(view: View, queue: str) -> bytes:
    return KINDS[view][1](Keys(queue))


def plan(clients: Clients, options: SourceOptions, wanted: Wanted) -> list[InputPartition]:
    planner = _Planner(clients, options, wanted)
    if options.view in KINDS:
        planner.check_kinds()
    if wanted.ids is not None:
        return list(planner.picked(wanted.ids))
    if options.view in IN_STREAMS or options.view == "pending":
        return list(planner.streams())
    if options.view == "delayed":
        return list(planner.delayed())
    return [Part(queue) for queue in wanted.queues]


class _Planner:
    def __init__(self, clients: Clients, options: SourceOptions, wanted: Wanted) -> None:
        self._clients = clients
        self._options = options
        self._wanted = wanted
        self._keys = {
            queue: key_of(options.view, queue) for queue in wanted.queues if options.view in KINDS
        }

    def check_kinds(self) -> None:
        wanted = KINDS[self._options.view][0]
        for client, queues in self._clients.shared(self._keys):
            replies = client.ask_each([("TYPE", self._keys[queue]) for queue in queues])
            for queue, reply in zip(queues, replies, strict=True):
                if isinstance(reply, Exception):
                    raise as_error(reply, "TYPE")
                kind = reply.decode()
                if kind not in (wanted, "none"):
                    raise StoreError(
                        f"view {self._options.view} of queue {queue!r}: the key "
                        f"{self._keys[queue].decode()} holds a {kind}, not a {wanted}, so another "
                        "program wrote it; is this the right server and database?"
                    )

    # -- streams ---------------------------------------------------------------------------------

    def picked(self, ids: frozenset[Place]) -> Iterator[InputPartition]:
        for queue in self._wanted.queues:
            after, upto = self._stretch(queue)
            names = [str(place) for place in sorted(ids) if after < place <= upto]
            for start in range(0, len(names), PICKED):
                yield Picked(queue, tuple(names[start : start + PICKED]))

    def streams(self) -> Iterator[InputPartition]:
        found = self._pending if self._options.view == "pending" else self._stream
        surveys = {queue: survey for queue in self._keys if (survey := found(queue))}
        parts = self._shares({queue: survey.size() for queue, survey in surveys.items()})
        for queue, survey in surveys.items():
            for after, upto in survey.cut(parts[queue]):
                yield Part(queue, str(after), str(upto))

    def _stream(self, queue: str) -> Survey | None:
        key, stretch = self._keys[queue], self._stretch(queue)
        client = self._clients.of(queue)
        probe = Prober(client, key)
        if stretch.after >= stretch.upto:
            return None
        [last] = probe([Look(stretch, back=True, most=1)])
        if not last.many:
            return None
        length = client.ask("XLEN", key)
        return Survey(Range(stretch.after, last.near), length, stretch == EVERYTHING, probe)

    def _pending(self, queue: str) -> Survey | None:
        """What is pending are entries of the stream, so it is cut where the stream would be."""
        client, key = self._clients.of(queue), self._keys[queue]
        [told] = client.ask_each([("XPENDING", key, self._options.group)])
        if isinstance(told, Exception):
            if classify(told) is Fault.GROUP:
                return None
            raise as_error(told, "XPENDING")
        length, first, last, _ = told
        if not length:
            return None
        old = self._wanted.stretch
        all_of_it = Range(read_place(first).before, read_place(last))
        stretch = Range(max(old.after, all_of_it.after), min(old.upto, all_of_it.upto))
        if stretch.after >= stretch.upto:
            return None
        return Survey(stretch, length, stretch == all_of_it, Prober(client, key))

    def _stretch(self, queue: str) -> Range:
        """From where to where, as the options and the filters say."""
        options, (after, upto) = self._options, self._wanted.stretch
        afters, uptos = [after], [upto]
        if isinstance(options.starting_offsets, dict) and queue in options.starting_offsets:
            afters.append(options.starting_offsets[queue].before)
        if options.starting_timestamp is not None:
            afters.append(Place(options.starting_timestamp, 0).before)
        if isinstance(options.ending_offsets, dict) and queue in options.ending_offsets:
            uptos.append(options.ending_offsets[queue])
        if options.ending_timestamp is not None:
            uptos.append(Place(options.ending_timestamp, 0).before)
        return Range(max(afters), min(uptos))

    # -- others ----------------------------------------------------------------------------------

    def delayed(self) -> Iterator[InputPartition]:
        low, high = ("" if ms is None else ms for ms in self._wanted.due)
        sizes: Sizes = {}
        for queue, key in self._keys.items():
            limits = ("-inf" if low == "" else f"({low}", "+inf" if high == "" else high)
            sizes[queue] = self._clients.of(queue).ask("ZCOUNT", key, *limits)
        for queue, parts in self._shares(sizes).items():
            args: tuple[Any, ...] = (parts, low, high, CUT_BYTES)
            after = Bound(str(low).encode()) if low != "" else None
            client = self._clients.of(queue)
            for score, member in client.run("spark_ranks", (self._keys[queue],), args):
                yield Members(queue, after, Bound(score, member))
                after = Bound(score, member)

    def _shares(self, sizes: Sizes) -> dict[str, int]:
        """How many parts each queue gets."""
        some = {queue: size for queue, size in sizes.items() if size > 0}
        if self._options.min_partitions is not None:
            return share(max(self._options.min_partitions, len(some)), some)
        return {queue: min(MOST_PARTS, -(-size // ROWS)) for queue, size in some.items()}
