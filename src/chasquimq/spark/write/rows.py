"""Arrow batches -> jobs, encoded. Equal rows give equal bytes, whichever attempt encodes them.

Column by column, not row by row: most of it then happens outside of Python's loop. A row that no
Queue would take is found when its column fails, and named without showing its payload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from chasquimq import wire
from chasquimq.config import MAX_MS, U32
from chasquimq.errors import ChasquiError, ConfigError, EncodeError
from chasquimq.job import BackoffSpec, RetryOverride
from chasquimq.spark.options import SinkOptions
from chasquimq.spark.write.check import BACKOFF, Layout
from chasquimq.spark.write.value import payloads, trouble
from chasquimq.wire.ulid import derived

PIECE_ROWS = 2_000  # of a batch at a time, fewer of large ones: what is encoded lies in memory
PIECE_BYTES = 4_194_304

# What an envelope adds to its payload at the most, as engine/draft.py counts it: a job that a Queue
# would refuse is refused here.
_ENVELOPE_BYTES = 64
_RETRY_BYTES = 64
_HEADS = [wire.bin_header(size) for size in range(256)]
_REFUSALS = (ChasquiError, ValueError, ArithmeticError, RecursionError, msgspec.MsgspecError)


class Rows(NamedTuple):
    """Jobs, as lists of one length; None where all of it would be b""."""

    bodies: list[bytes]  # envelopes
    names: list[bytes] | None = None
    dues: list[bytes] | None = None  # b"" at once, b"+<ms>" after it came in, b"@<ms>" at this time
    ids: list[bytes] | None = None  # those that the caller chose, b"" for derived ones


class Scribe:
    """Encodes the rows of one partition. `run`, `partition` and `created_ms` make its ids."""

    def __init__(
        self, layout: Layout, options: SinkOptions, run: str, partition: int, created_ms: int
    ) -> None:
        self.count = 0  # rows that are encoded
        self._layout = layout
        self._options = options
        self._partition = partition
        self._created_ms = created_ms
        self._seed = blake2b(f"{run}:{partition}".encode(), digest_size=10).digest()
        self._tail = b"\xcf%b\x00" % created_ms.to_bytes(8, "big")  # the last two slots
        # Of these few are different, and each is checked.
        name, backoff = lru_cache(10_000)(_name), lru_cache(1_000)(_backoff)
        self._retry = lru_cache(1_000)(_retry)
        self._readers: dict[str, Callable[[pa.Array], list[Any]]] = {
            "payload": payloads(layout.types["payload"], options.payload_format),
            "name": lambda column: [*map(name, column.to_pylist())],
            "delay_ms": lambda column: [*map(self._after, column.to_pylist())],
            "run_at": lambda column: [*map(self._moment, column.cast(pa.int64()).to_pylist())],
            "id": lambda column: [*map(self._id, column.to_pylist())],
            "max_attempts": lambda column: [*map(_attempts, column.to_pylist())],
            "backoff": lambda column: [*map(backoff, _fields(column))],
        }

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Rows]:
        for batch in batches:
            fitting = batch.num_rows * PIECE_BYTES // max(batch.nbytes, 1)
            size = min(PIECE_ROWS, max(fitting, 1))
            for first in range(0, batch.num_rows, size):
                piece = batch.slice(first, size)
                yield self._encode(piece)
                self.count += piece.num_rows

    def _encode(self, piece: pa.RecordBatch) -> Rows:
        columns = {name: self._read(piece, name) for name in self._layout.places}
        made = derived(self._created_ms, self._seed, self.count, piece.num_rows)
        retries = None
        if "max_attempts" in columns or "backoff" in columns:
            nothing = [None] * len(made)
            attempts, backoffs = columns.get("max_attempts"), columns.get("backoff")
            retries = [*map(self._retry, attempts or nothing, backoffs or nothing)]
        encoded, ids = columns["payload"], columns.get("id")
        self._check_sizes(encoded, ids, retries)
        dues = columns.get("delay_ms") or columns.get("run_at")
        return Rows(self._bodies(made, encoded, ids, retries), columns.get("name"), dues, ids)

    def _bodies(
        self,
        made: list[bytes],
        encoded: list[bytes],
        ids: list[bytes] | None,
        retries: list[bytes] | None,
    ) -> list[bytes]:
        tail, join = self._tail, b"".join
        heads = [
            _HEADS[len(one)] if len(one) < 256 else wire.bin_header(len(one)) for one in encoded
        ]
        if ids is None and retries is None:
            plain = zip(made, heads, encoded, strict=True)
            return [join((b"\x94\xba", one, head, data, tail)) for one, head, data in plain]
        empty = [b""] * len(made)
        parts = zip(ids or empty, made, heads, encoded, retries or empty, strict=True)
        bodies = []
        for own, one, head, data, retry in parts:
            job_id = wire.str_header(len(own)) + own if own else b"\xba" + one
            slots = b"\x95" if retry else b"\x94"
            bodies.append(join((slots, job_id, head, data, tail, retry)))
        return bodies

    def _check_sizes(
        self, encoded: list[bytes], ids: list[bytes] | None, retries: list[bytes] | None
    ) -> None:
        limit = self._options.max_payload_bytes - _ENVELOPE_BYTES
        if max(map(len, encoded)) <= limit and ids is None and retries is None:
            return
        for at, data in enumerate(encoded):
            size = len(data)
            size += len(ids[at]) if ids is not None else 0
            size += _RETRY_BYTES if retries is not None and retries[at] else 0
            if size > limit:
                raise self._fault(
                    at,
                    "payload",
                    f"is too large: the job is {size + _ENVELOPE_BYTES} bytes, limit is "
                    f"{self._options.max_payload_bytes}; store the data elsewhere and enqueue a "
                    "reference, or raise maxPayloadBytes, and max_payload_bytes of every worker",
                )

    def _read(self, piece: pa.RecordBatch, name: str) -> list[Any]:
        column, read = piece.column(self._layout.places[name]), self._readers[name]
        try:
            return read(column)
        except _REFUSALS:
            for at in range(len(column)):
                try:
                    read(column.slice(at, 1))
                except _REFUSALS as error:
                    what = trouble(error) if name == "payload" else _words(error)
                    raise self._fault(at, name, what) from None
            raise

    def _fault(self, at: int, column: str, what: str) -> EncodeError:
        name = self._layout.names[column]
        return EncodeError(
            f"row {self.count + at} of partition {self._partition} (the first is 0), column "
            f"{name!r}: {what}. Neither it nor any row behind it was written"
        )

    # -- one value at a time -------------------------------------------------------------------

    def _id(self, job_id: str | int | None) -> bytes:
        if job_id is not None:
            return wire.check_job_id(str(job_id))
        if self._options.id_column is not None:
            raise ConfigError("is null: it is what tells rows apart, so every row needs one")
        return b""

    def _after(self, delay_ms: int | None) -> bytes:
        if not delay_ms:
            return b""
        if delay_ms < 0:
            raise ConfigError(f"must not be negative, got {delay_ms}")
        self._check_delay(delay_ms)
        return b"+%d" % delay_ms

    def _moment(self, epoch_us: int | None) -> bytes:
        if epoch_us is None:
            return b""
        if epoch_us < 0:
            raise ConfigError("is before 1970")
        self._check_delay(epoch_us // 1000 - self._created_ms)
        return b"@%d" % (epoch_us // 1000)

    def _check_delay(self, delay_ms: int) -> None:
        limit_ms = min(self._options.max_delay_ms or MAX_MS, MAX_MS - self._created_ms)
        if delay_ms > limit_ms:
            raise ConfigError(
                f"is {delay_ms} ms away, limit is {limit_ms}; raise maxDelayMs (0 means no limit), "
                "or write the job later"
            )


def _words(error: Exception) -> str:
    return str(error.args[0]) if isinstance(error, ChasquiError) else "is not UTF-8"


def _name(name: str | None) -> bytes:
    return wire.check_name(name or "")


def _attempts(attempts: int | None) -> int | None:
    if attempts is not None and not 1 <= attempts <= U32:
        raise ConfigError(f"must be from 1 to {U32}, or null for the worker's, got {attempts}")
    return attempts


def _fields(column: pa.Array) -> list[tuple[Any, ...] | None]:
    """The fields of a backoff in their order, None where there is none."""
    if pa.types.is_null(column.type):
        return [None] * len(column)
    found = dict(zip(column.type.names, column.flatten(), strict=True))
    nothing = [None] * len(column)
    parts = [found[name].to_pylist() if name in found else nothing for name in BACKOFF]
    there = column.is_valid().to_pylist()
    rows = zip(there, zip(*parts, strict=True), strict=True)
    return [row if is_there else None for is_there, row in rows]


def _backoff(fields: tuple[Any, ...] | None) -> BackoffSpec | None:
    if fields is None:
        return None
    said = {name: value for name, value in zip(BACKOFF, fields, strict=True) if value is not None}
    if "multiplier" in said:
        said["multiplier"] = float(said["multiplier"])
        if not 0 <= said["multiplier"] < float("inf"):
            raise ConfigError(f"multiplier must be finite and not negative: {fields[3]}")
    if said.get("kind") not in ("fixed", "exponential"):
        raise ConfigError(f"kind must be fixed or exponential, got {said.get('kind')!r:.80}")
    if "delay_ms" not in said:
        raise ConfigError("delay_ms is null; it is how long to wait before the next run")
    spec = BackoffSpec(**said)
    for ms in (spec.delay_ms, spec.max_delay_ms, spec.jitter_ms):
        if ms is not None and ms > MAX_MS:
            raise ConfigError(f"{ms} ms lie beyond what Redis can count exactly")
    return spec


def _retry(attempts: int | None, backoff: BackoffSpec | None) -> bytes:
    """The fifth slot, b"" for none."""
    if attempts is None and backoff is None:
        return b""
    return wire.pack_retry(RetryOverride(attempts, backoff))
