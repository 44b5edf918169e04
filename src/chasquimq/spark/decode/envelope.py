"""What an envelope tells of its job: the columns that jobs, pending and delayed share.

An envelope is read whole if one of these columns is asked for, and not at all if none is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa

from chasquimq import wire
from chasquimq.errors import WireError
from chasquimq.job import BackoffSpec, Envelope
from chasquimq.spark.decode.column import moments, numbers, texts
from chasquimq.spark.decode.page import Columns, Page, Values
from chasquimq.spark.decode.payload import Form

_BACKOFF = pa.struct(  # as in `spark/schema.py`
    [
        ("kind", pa.string()),
        ("delay_ms", pa.int64()),
        ("max_delay_ms", pa.int64()),
        ("multiplier", pa.float64()),
        ("jitter_ms", pa.int64()),
    ]
)
ABSENT = b""  # stands for an envelope that is not there
_NOTHING: Any = Envelope(None, None, None, None)  # type: ignore[arg-type]


def job_columns(page: Page, bodies: Callable[[], Sequence[bytes | None]], form: Form) -> Columns:
    @cache
    def jobs() -> list[Envelope]:
        return read_envelopes(page, bodies())

    def field(name: str) -> Values:
        return lambda: list(map(attrgetter(name), jobs()))

    return {
        "id": (texts, field("id")),
        "attempt": (numbers, field("attempt")),
        "created_at": (moments, field("created_at_ms")),
        "payload": (form.build, lambda: form.values(page, "payload", field("payload")())),
        "max_attempts": (numbers, lambda: [job.retry and job.retry.max_attempts for job in jobs()]),
        "backoff": (_backoffs, lambda: [job.retry and job.retry.backoff for job in jobs()]),
    }


def read_envelopes(page: Page, bodies: Sequence[bytes | None]) -> list[Envelope]:
    """Where there is none to be read, one of nothing but None."""
    usual = wire.unpack_envelopes(bodies)
    if usual is not None:
        return usual
    read = _unpack if ABSENT in bodies else wire.unpack_envelope
    return [job or _NOTHING for job in page.each("", read, bodies)]


def _unpack(body: bytes) -> Envelope:
    if not body:
        raise WireError("it has no envelope: the field d is missing")
    return wire.unpack_envelope(body)


def _backoffs(values: Sequence[BackoffSpec | None]) -> pa.Array:
    if not any(values):
        return pa.nulls(len(values), _BACKOFF)
    try:
        return pa.array([one and msgspec.structs.asdict(one) for one in values], _BACKOFF)
    except OverflowError:
        raise WireError("holds a number beyond BIGINT") from None
