"""Plan: "Spark options": those of the source and the sink, their defaults and where they may stand.

Where an option may stand is tried: a reader or writer is made with a value of it, which asks no
server for anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from chasquimq.address import DEFAULT_URL
from chasquimq.errors import ChasquiError
from chasquimq.spark.options import SINK, SOURCE, SinkOptions, SourceOptions
from chasquimq.spark.said import field_of
from chasquimq.spark.source import ChasquiSource

PLACES = ("url", "urlEnv", "secretFile")  # of the server, for both
SAMPLES: dict[str, tuple[str, ...]] = {  # what is tried, besides the choices that an option has
    "queue": ("mail",),
    "url": ("redis://127.0.0.1",),
    "urlEnv": ("ANY_VARIABLE",),
    "secretFile": ("/any/file",),
    "group": ("default",),
    "startingOffsets": ("earliest", "latest", '{"mail": "1-0"}'),
    "endingOffsets": ("earliest", "latest", '{"mail": "1-0"}'),
    "startingTimestamp": ("1700000000000", "2026-11-16T12:00:00Z"),
    "endingTimestamp": ("1700000000000", "2026-11-16T12:00:00Z"),
    "maxOffsetsPerTrigger": ("1",),
    "minPartitions": ("1",),
    "failOnDataLoss": ("true", "false"),
    "payloadSchema": ("order_id BIGINT",),
    "fetchSize": ("1", "100000", "100001"),
    "pushdown": ("true", "false"),
    "idColumn": ("key",),
    "runId": ("monday",),
    "markerTtlMs": ("1000", "999"),
    "maxPayloadBytes": ("1", "0"),
    "maxDelayMs": ("0",),
    "maxStreamLen": ("1", "0"),
    "eventsMaxStreamLen": ("0",),
    "waitTimeoutMs": ("0",),
    "chunkRows": ("1", "1000", "1001"),
    "chunkBytes": ("1", "16777216", "16777217"),
    "rowsPerSecond": ("0.001", "1e9", "2e9"),
}
KEY = StructField("key", StringType())


def lines() -> Iterator[str]:
    yield f"format {ChasquiSource.name()!r}"
    yield f"url: default {DEFAULT_URL}"
    for kind, table, struct in (
        ("source", ("queue", *PLACES, *SOURCE), SourceOptions),
        ("sink", ("queue", *PLACES, *SINK), SinkOptions),
    ):
        uses = READS if kind == "source" else WRITES
        fields = {one.name: one for one in msgspec.structs.fields(struct)}
        hints = get_type_hints(struct)
        for name in table:
            field = fields.get(field_of(name))
            choices = _choices(hints.get(field_of(name)))
            if field is not None and not field.required:
                yield f"{kind} {name}: default {_told(field.default)}"
            for value in SAMPLES.get(name) or choices:
                yield f"{kind} {name}={value}: {_accepted(uses, name, value)}"


def _choices(hint: Any) -> tuple[str, ...]:
    if get_origin(hint) is Literal:
        return tuple(get_args(hint))
    return tuple(choice for inner in get_args(hint) for choice in _choices(inner))


def _told(default: object) -> str:
    return "none" if default is None else json.dumps(default)


# -- where an option may stand ---------------------------------------------------------------------


def _wanted(options: dict[str, str]) -> StructType:
    """A schema of the caller's own, which needs no Spark to be read."""
    view = options.get("view", "jobs")
    return StructType([StructField("job_id" if view == "results" else "queue", StringType())])


def _batch_read(options: dict[str, str]) -> None:
    ChasquiSource(options).reader(_wanted(options))


def _stream_read(options: dict[str, str]) -> None:
    options = {"view": "events", **options}
    ChasquiSource(options).streamReader(_wanted(options))


def _batch_write(options: dict[str, str]) -> None:
    ChasquiSource(options).writer(_columns(options), overwrite=False)


def _stream_write(options: dict[str, str]) -> None:
    ChasquiSource(options).streamWriter(_columns(options), overwrite=False)


def _columns(options: dict[str, str]) -> StructType:
    """A binary column where payloads are MessagePack already."""
    kind = BinaryType() if options.get("payloadFormat") == "binary" else StringType()
    payload = StructField("payload", kind)
    return StructType([payload, KEY] if "idColumn" in options else [payload])


Use = Callable[[dict[str, str]], None]
READS: dict[str, Use] = {"read": _batch_read, "readStream": _stream_read}
WRITES: dict[str, Use] = {"write": _batch_write, "writeStream": _stream_write}


def _accepted(uses: dict[str, Use], name: str, value: str) -> str:
    found = [use for use, made in uses.items() if _goes(made, name, value)]
    return ", ".join(found) or "refused"


def _goes(use: Use, name: str, value: str) -> bool:
    given = {"queue": "mail", name: value}
    if name == "payloadFormat" and value == "struct":
        given["payloadSchema"] = "order_id BIGINT"
    try:
        use(given)
    except ChasquiError:
        return False
    return True
