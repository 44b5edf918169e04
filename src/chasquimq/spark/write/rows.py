"""Arrow batches -> jobs, encoded. Equal rows give equal bytes, whichever attempt encodes them."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

import msgspec
import pyarrow as pa

from chasquimq.errors import PayloadTooLargeError
from chasquimq.job import Envelope
from chasquimq.spark.options import SinkOptions
from chasquimq.wire import check_name, pack_envelope
from chasquimq.wire.ulid import derived

_encode = msgspec.msgpack.Encoder().encode


class Row(NamedTuple):
    body: bytes  # the envelope
    name: bytes
    said: bytes  # what the caller said of this job: equal for every attempt and every run


class Scribe:
    """Encodes the rows of one partition. `run`, `partition` and `created_ms` make its ids."""

    def __init__(self, options: SinkOptions, run: str, partition: int, created_ms: int) -> None:
        self._options = options
        self._created_ms = created_ms
        seed = blake2b(f"{run}:{partition}".encode(), digest_size=10).digest()
        self._ids = derived(created_ms, seed)

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
        for batch in batches:
            payloads = batch.column("payload").to_pylist()
            names = (
                batch.column("name").to_pylist()
                if "name" in batch.schema.names
                else [None] * len(payloads)
            )
            for payload, name in zip(payloads, names, strict=True):
                data = _encode(payload)
                if len(data) > self._options.max_payload_bytes:
                    raise PayloadTooLargeError(len(data), self._options.max_payload_bytes)
                raw_name = check_name(name or "")
                envelope = Envelope(next(self._ids), data, self._created_ms)
                yield Row(pack_envelope(envelope), raw_name, b"%b\0%b" % (raw_name, data))
