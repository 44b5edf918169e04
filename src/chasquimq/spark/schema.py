"""The columns of each view; and which of them a reader asked for.

A schema is handed to Spark as DDL: the process that is asked for it has no Spark to parse with,
so the caller's own `payloadSchema` is passed on as it was given.
"""

from __future__ import annotations

from pyspark.sql.types import (
    BinaryType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from chasquimq.config import nearest
from chasquimq.errors import ConfigError
from chasquimq.spark.decode.payload import form_of
from chasquimq.spark.options import CORRUPT, SourceOptions, View

TEXT, NUMBER, MOMENT = StringType(), LongType(), TimestampType()
BACKOFF = StructType(  # as in `decode/envelope.py`
    [
        StructField("kind", TEXT),
        StructField("delay_ms", NUMBER),
        StructField("max_delay_ms", NUMBER),
        StructField("multiplier", DoubleType()),
        StructField("jitter_ms", NUMBER),
    ]
)
CORRUPT_TYPE = StructType([StructField("reason", TEXT), StructField("record", BinaryType())])
ANY: DataType | None = None  # what `payloadFormat` says, or the caller's own schema

Columns = dict[str, DataType | None]
_JOB: Columns = {
    "id": TEXT,
    "name": TEXT,
    "attempt": NUMBER,
    "created_at": MOMENT,
    "payload": ANY,
    "max_attempts": NUMBER,
    "backoff": BACKOFF,
}
_WAITING: Columns = {"queue": TEXT, "entry_id": TEXT, "enqueued_at": MOMENT, **_JOB}
COLUMNS: dict[View, Columns] = {
    "jobs": _WAITING,
    "pending": {**_WAITING, "consumer": TEXT, "idle_ms": NUMBER, "delivery_count": NUMBER},
    "delayed": {"queue": TEXT, "run_at": MOMENT, **_JOB},
    "dlq": {
        "queue": TEXT,
        "entry_id": TEXT,
        "failed_at": MOMENT,
        "id": TEXT,
        "name": TEXT,
        "attempt": NUMBER,
        "reason": TEXT,
        "detail": TEXT,
        "source_id": TEXT,
        "error_type": TEXT,
        "error": TEXT,
        "payload": ANY,
    },
    "events": {
        "queue": TEXT,
        "entry_id": TEXT,
        "event": TEXT,
        "job_id": TEXT,
        "name": TEXT,
        "attempt": NUMBER,
        "created_at": MOMENT,
        "backoff_ms": NUMBER,
        "delay_ms": NUMBER,
        "duration_us": NUMBER,
        "reason": TEXT,
        "ts": MOMENT,
    },
    "results": {"queue": TEXT, "job_id": TEXT, "value": ANY, "ttl_ms": NUMBER},
    "repeatables": {
        "queue": TEXT,
        "key": TEXT,
        "job_name": TEXT,
        "pattern": TEXT,
        "tz": TEXT,
        "next_fire": MOMENT,
        "limit": NUMBER,
        "fired": NUMBER,
        "start_after": MOMENT,
        "end_before": MOMENT,
        "missed_fires": TEXT,
    },
}


def schema_of(options: SourceOptions) -> str:
    """All columns of the view, as DDL."""
    payload = {"json": "STRING", "binary": "BINARY", "variant": "VARIANT"}.get(
        options.payload_format, f"STRUCT<{options.payload_schema}>"
    )
    columns = _columns(options).items()
    return ", ".join(
        f"`{name}` {payload if kind is None else kind.simpleString()}" for name, kind in columns
    )


def check_schema(wanted: StructType, options: SourceOptions) -> None:
    """A caller's own schema picks columns, and the form of payloads: nothing is decoded that it
    leaves out."""
    known = _columns(options)
    if not wanted.fields:
        raise ConfigError(f"the schema names no column; view {options.view} has {', '.join(known)}")
    for field in wanted.fields:
        if field.name not in known:
            hint = nearest(field.name, sorted(known))
            raise ConfigError(f"view {options.view} has no column {field.name!r:.80}; {hint}")
        if wanted.names.count(field.name) > 1:
            raise ConfigError(f"the schema names the column {field.name} twice")
        if not field.nullable:
            raise ConfigError(
                f"column {field.name} cannot be NOT NULL: it is null where a row cannot be read"
            )
        _check_type(field, known[field.name], options)


def _check_type(field: StructField, kind: DataType | None, options: SourceOptions) -> None:
    if kind is None and form_of(field.dataType, field.name) is not None:
        return
    if field.dataType != kind:
        may_be = "string, binary, variant or a struct" if kind is None else kind.simpleString()
        raise ConfigError(
            f"column {field.name} of view {options.view} is {may_be}, "
            f"not {field.dataType.simpleString()}"
        )


def _columns(options: SourceOptions) -> Columns:
    """What cannot be read has a column of its own where its rows are kept."""
    columns = COLUMNS[options.view]
    return {**columns, CORRUPT: CORRUPT_TYPE} if options.mode == "PERMISSIVE" else columns
