"""Rows as scans hand them to decoders, and decoders for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import msgspec
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from chasquimq import wire
from chasquimq.job import BackoffSpec, Envelope, RetryOverride
from chasquimq.repeat import MissedFiresPolicy, RepeatPattern, StoredSpec
from chasquimq.spark.decode import decoder
from chasquimq.spark.options import CORRUPT, Mode, SourceOptions, View
from chasquimq.spark.schema import COLUMNS, CORRUPT_TYPE, check_schema
from chasquimq.spark.secret import Where

MS = 1_700_000_000_000
VIEWS: tuple[View, ...] = get_args(View)
DATA = {"order_id": 7, "email": "a@example.com", "total": 1.5, "tags": ["x", None], "paid": True}
ORDER = StructType(
    [
        StructField("order_id", LongType()),
        StructField("email", StringType()),
        StructField("total", DoubleType()),
        StructField("tags", ArrayType(StringType())),
        StructField("paid", BooleanType()),
    ]
)
FORMS: dict[str, DataType] = {
    "json": StringType(),
    "binary": BinaryType(),
    "variant": VariantType(),
    "struct": ORDER,
}
RETRY = RetryOverride(5, BackoffSpec("fixed", 100, None, None, 20))


def pack(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


def envelope(payload: bytes | None = None, **changes: Any) -> bytes:
    given = {"id": "job-7", "created_at_ms": MS, "attempt": 2, "retry": RETRY} | changes
    return wire.pack_envelope(Envelope(payload=pack(DATA) if payload is None else payload, **given))


SPEC = wire.pack_spec(
    StoredSpec(
        key="nightly",
        job_name="report",
        pattern=RepeatPattern.cron("0 3 * * *", tz="Europe/Berlin"),
        payload=b"\xc0",
        limit=100,
        start_after_ms=MS,
        end_before_ms=MS + 1,
        missed_fires=MissedFiresPolicy.fire_all(9),
    )
)
ENTRY_ID = b"1700000000001-3"
FIELDS = [b"d", envelope(), b"n", b"mail"]
DEAD = wire.pack_dead(
    envelope(),
    b"mail",
    b"1699999999999-0",
    "retries-exhausted",
    detail="why",
    job_id="job-7",
    attempt=25,
    error_type="ValueError",
    error="bad",
    failed_at_ms=MS + 5,
)
EVENT = wire.pack_event("completed", "job-7", MS, "mail", {"attempt": 1, "duration_us": 250})
# A row of each view in which nothing is wrong.
GOOD: dict[str, Any] = {
    "jobs": [ENTRY_ID, FIELDS],
    "pending": [ENTRY_ID, b"worker-1", 1234, 3, FIELDS],
    "delayed": (wire.join_member(b"mail", envelope()), b"1700000000123"),
    "dlq": [ENTRY_ID, DEAD],
    "events": [ENTRY_ID, EVENT],
    "results": (b"job-7", pack(DATA), 3_600_000),
    "repeatables": [b"nightly", b"1700000000000", [SPEC, None, b"41", None]],
}


def at(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


JOB = {
    "id": "job-7",
    "name": "mail",
    "attempt": 2,
    "created_at": at(MS),
    "payload": json.dumps(DATA, separators=(",", ":")),
    "max_attempts": 5,
    "backoff": {
        "kind": "fixed",
        "delay_ms": 100,
        "max_delay_ms": None,
        "multiplier": None,
        "jitter_ms": 20,
    },
}
ENTRY = {"entry_id": ENTRY_ID.decode(), "enqueued_at": at(MS + 1)}
# What they become.
EXPECTED: dict[str, dict[str, Any]] = {
    "jobs": ENTRY | JOB,
    "pending": ENTRY | JOB | {"consumer": "worker-1", "idle_ms": 1234, "delivery_count": 3},
    "delayed": {"run_at": at(MS + 123)} | JOB,
    "dlq": {
        "entry_id": ENTRY_ID.decode(),
        "failed_at": at(MS + 5),
        "id": "job-7",
        "name": "mail",
        "attempt": 25,
        "reason": "retries-exhausted",
        "detail": "why",
        "source_id": "1699999999999-0",
        "error_type": "ValueError",
        "error": "bad",
        "payload": JOB["payload"],
    },
    "events": {
        "entry_id": ENTRY_ID.decode(),
        "event": "completed",
        "job_id": "job-7",
        "name": "mail",
        "attempt": 1,
        "created_at": None,
        "backoff_ms": None,
        "delay_ms": None,
        "duration_us": 250,
        "reason": None,
        "ts": at(MS),
    },
    "results": {"job_id": "job-7", "value": JOB["payload"], "ttl_ms": 3_600_000},
    "repeatables": {
        "key": "nightly",
        "job_name": "report",
        "pattern": "0 3 * * *",
        "tz": "Europe/Berlin",
        "next_fire": at(MS),
        "limit": 100,
        "fired": 41,
        "start_after": at(MS),
        "end_before": at(MS + 1),
        "missed_fires": "fire-all",
    },
}


def schema_of_view(
    view: View, form: DataType = FORMS["json"], mode: Mode = "PERMISSIVE", only: Sequence[str] = ()
) -> StructType:
    columns = {name: kind or form for name, kind in COLUMNS[view].items()}
    if mode == "PERMISSIVE":
        columns[CORRUPT] = CORRUPT_TYPE
    names = only or list(columns)
    return StructType([StructField(name, columns[name]) for name in names])


def decode(
    view: View,
    rows: Sequence[Any],
    form: DataType = FORMS["json"],
    mode: Mode = "PERMISSIVE",
    only: Sequence[str] = (),
) -> pa.RecordBatch:
    """A batch as a reader would get it: the schema is checked as it is planned."""
    options = SourceOptions(where=Where(), queues=("q",), view=view, mode=mode)
    schema = schema_of_view(view, form, mode, only)
    check_schema(schema, options)
    return decoder("q", schema, options).batch(rows)


def one(view: View, row: Any, form: DataType = FORMS["json"], **how: Any) -> dict[str, Any]:
    [found] = decode(view, [row], form, **how).to_pylist()
    return found


def payload_of(data: bytes, kind: DataType) -> Any:
    """What a payload becomes; its row must be fine."""
    found = one("results", (b"job", data, -1), kind)
    assert found[CORRUPT] is None, found[CORRUPT]
    return found["value"]


def fault_of(data: bytes, kind: DataType) -> str:
    """Why a payload cannot be read. It is read between two others, which must not notice."""
    good = (b"good", b"\xc0", -1)
    rows = decode("results", [good, (b"job", data, -1), good], kind).to_pylist()
    assert [row["job_id"] for row in rows] == ["good", "job", "good"]
    assert rows[0][CORRUPT] is rows[2][CORRUPT] is rows[1]["value"] is None
    assert rows[1][CORRUPT]["record"] == data
    reason: str = rows[1][CORRUPT]["reason"]
    return reason
