"""What a task does with the dead jobs it was given, page by page; the answer is a row for each.

What is brought back is read from the DLQ itself: rows of a DataFrame may be old, or hold a payload
as text. One script moves or deletes a job and notes it. So a task that is run again, or a command
that is sent again because its answer was lost, does nothing twice and tells what was done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import pyarrow as pa

from chasquimq import lua, wire
from chasquimq.errors import WireError
from chasquimq.policy.pace import Pace
from chasquimq.spark.act.choice import PAGE
from chasquimq.spark.client import Client, Clients
from chasquimq.spark.read import scan
from chasquimq.spark.secret import Where
from chasquimq.wire import Keys, Revival
from chasquimq.wire.fault import as_error

Verb = Literal["replay", "purge"]
Act = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

SCRIPTS = ("spark_replay", "spark_purge")
CALL_BYTES = 1 << 20  # of envelopes in one call, if it has more than one
NOTES_MS = 86_400_000  # which must outlast the tasks

DONE: dict[Verb, str] = {"replay": "replayed", "purge": "purged"}
WOULD: dict[Verb, str] = {"replay": "would replay", "purge": "would purge"}
GONE, TAKEN, UNREADABLE = "gone", "taken", "unreadable"
OUTCOMES = pa.schema([(name, pa.string()) for name in ("queue", "entry_id", "id", "outcome")])
OUTCOMES_DDL = "queue STRING, entry_id STRING, id STRING, outcome STRING"


class Order(NamedTuple):
    """What all tasks of a run are told. `rate`: of each of them, per second."""

    verb: Verb
    where: Where
    run: str
    rate: float | None = None
    dry_run: bool = False


class Row(NamedTuple):
    """A dead job that lies there: its bit in the notes, and what it would be brought back as."""

    bit: int
    entry_id: str
    job_id: str | None
    revival: Revival | None  # None: no job can be read in it


class Outcome(NamedTuple):
    queue: str
    entry_id: str
    id: str | None
    outcome: str


def notes_key(keys: Keys, run: str) -> bytes:
    """A bit for each job of a run, set by the script that moves or deletes it."""
    return b"%bspark:notes:%b" % (keys.tag, run.encode())


def acting(order: Order) -> Act:
    """What runs on executors, for `mapInArrow`."""

    def act(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pace = Pace(order.rate, PAGE)
        with Clients(order.where.address(), SCRIPTS) as clients:
            for page in (page for batch in batches for page in batch.to_pylist()):
                queue = page["queue"]
                told = _Page(clients.of(queue), order, queue, page["bit"], page["entry_ids"])
                columns = [*zip(*told.outcomes(pace), strict=True)]
                yield pa.RecordBatch.from_arrays(
                    [pa.array(column, pa.string()) for column in columns], schema=OUTCOMES
                )

    return act


class _Page:
    """Jobs of one queue, whose bits follow each other."""

    def __init__(
        self, client: Client, order: Order, queue: str, bit: int, entry_ids: Sequence[str]
    ) -> None:
        self._client = client
        self._order = order
        self._keys = Keys(queue)
        self._notes = notes_key(self._keys, order.run)
        self._bits = {entry_id: bit + place for place, entry_id in enumerate(entry_ids)}
        self._ended: dict[str, tuple[str | None, str]] = {}

    def outcomes(self, pace: Pace) -> list[Outcome]:
        for found in scan.picked(self._client, self._keys.dlq, self._bits, pace.batch):
            rows = [self._row(entry_id, fields) for entry_id, fields in found]
            for some in calls(rows, pace.batch):
                if self._order.dry_run:
                    self._look(some)
                    continue
                time.sleep(pace.wait_s(time.monotonic()))
                self._do(some)
                pace.took(len(some), time.monotonic())
        self._missing([entry_id for entry_id in self._bits if entry_id not in self._ended])
        return [
            Outcome(self._keys.queue, entry_id, *self._ended[entry_id]) for entry_id in self._bits
        ]

    def _row(self, entry_id: bytes, fields: list[bytes]) -> Row:
        known = entry_id.decode()
        job_id = wire.dead_job_id(wire.unpack_dead(entry_id, fields))
        try:
            revival = wire.revive(known, fields)
        except WireError:
            revival = None
        return Row(self._bits[known], known, job_id, revival)

    def _do(self, rows: Sequence[Row]) -> None:
        args: list[lua.Arg] = [NOTES_MS]
        if self._order.verb == "purge":
            keys = [self._keys.dlq, self._notes]
            for row in rows:
                args += (row.bit, row.entry_id)
            self._end(rows, self._client.run("spark_purge", keys, args))
            return
        ready = []
        for row in rows:
            if row.revival is None:
                self._ended[row.entry_id] = row.job_id, UNREADABLE
            else:
                ready.append(row)
                args += (row.bit, *row.revival.args(self._keys))
        if ready:
            keys = [self._keys.dlq, self._keys.stream, self._notes]
            self._end(ready, self._client.run("spark_replay", keys, args))

    def _end(self, rows: Sequence[Row], answers: Sequence[int]) -> None:
        words = {1: DONE[self._order.verb], 0: GONE, -1: TAKEN}
        for row, answer in zip(rows, answers, strict=True):
            self._ended[row.entry_id] = row.job_id, words[answer]

    def _look(self, rows: Sequence[Row]) -> None:
        """A dry run: what would become of them."""
        would = WOULD[self._order.verb]
        for row in rows:
            ended = would
            if self._order.verb == "replay":
                ended = UNREADABLE if row.revival is None else would
                if row.revival is not None and row.revival.holder:
                    holder = self._client.ask("GET", row.revival.marker(self._keys))
                    ended = would if holder is None or holder.startswith(b"-") else TAKEN
            self._ended[row.entry_id] = row.job_id, ended

    def _missing(self, entry_ids: Sequence[str]) -> None:
        """Gone, or an earlier attempt of this task has done it."""
        asked = [("GETBIT", self._notes, self._bits[entry_id]) for entry_id in entry_ids]
        for entry_id, noted in zip(entry_ids, self._client.ask_each(asked), strict=True):
            if isinstance(noted, Exception):
                raise as_error(noted, "reading notes")
            self._ended[entry_id] = None, DONE[self._order.verb] if noted else GONE


def calls(rows: Sequence[Row], most: int) -> Iterator[list[Row]]:
    """What one call carries: at most so many, and so many bytes unless one alone has more."""
    call: list[Row] = []
    size = 0
    for row in rows:
        weight = 0 if row.revival is None else len(row.revival.envelope)
        if call and (len(call) == most or size + weight > CALL_BYTES):
            yield call
            call, size = [], 0
        call.append(row)
        size += weight
    if call:
        yield call
