"""What may be said by `.option(...)`, read once into frozen structs.

Spark's options are texts whose names know no case. Each is named here as the documentation writes
it, beside what reads it; what is in neither table is refused with the nearest that is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from chasquimq.config import MAX_MS, Options, at_least, check_within, nearest, one_of, within
from chasquimq.errors import ArgumentError, ConfigError
from chasquimq.spark.place import Place, read_place
from chasquimq.spark.secret import Where
from chasquimq.wire import check_queue_name

View = Literal["jobs", "pending", "delayed", "dlq", "events", "results", "repeatables"]
PayloadFormat = Literal["json", "struct", "binary", "variant"]
Mode = Literal["PERMISSIVE", "DROPMALFORMED", "FAILFAST"]
CommitMode = Literal["direct", "staged"]
OnFull = Literal["wait", "fail"]
Written = Literal["value", "json", "binary"]

Offsets = Literal["earliest", "latest"] | dict[str, Place]
IN_STREAMS: frozenset[str] = frozenset(("jobs", "dlq", "events"))  # views whose rows have places
CORRUPT = "_corrupt_record"


class SourceOptions(Options, frozen=True):
    where: Where
    queues: tuple[str, ...]
    view: View = "jobs"
    group: str = "default"
    starting_offsets: Offsets = "earliest"
    ending_offsets: Offsets = "latest"
    starting_timestamp: int | None = None  # epoch ms; that very moment is in
    ending_timestamp: int | None = None  # ... is not
    max_offsets_per_trigger: int | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    payload_format: PayloadFormat = "json"
    payload_schema: str | None = None
    mode: Mode = "PERMISSIVE"
    fetch_size: int = 5_000
    pushdown: bool = False

    def __post_init__(self) -> None:
        one_of("view", self.view, get_args(View))
        one_of("payloadFormat", self.payload_format, get_args(PayloadFormat))
        one_of("mode", self.mode, get_args(Mode))
        if not self.group:
            raise ConfigError("group must not be empty")
        check_within("fetchSize", self.fetch_size, 1, 100_000)
        for name in ("max_offsets_per_trigger", "min_partitions"):
            if getattr(self, name) is not None:
                at_least(self, 1, name)
        if (self.payload_format == "struct") != (self.payload_schema is not None):
            raise ConfigError(
                "payloadFormat=struct and payloadSchema belong together: give the schema as DDL, "
                "as in payloadSchema='order_id BIGINT, total DOUBLE'"
            )
        if self.starting_offsets == "latest" and self.starting_timestamp is not None:
            raise ConfigError("give startingOffsets or startingTimestamp, not both")
        for offsets in (self.starting_offsets, self.ending_offsets):
            strange = [name for name in offsets if name not in self.queues] if offsets else []
            if isinstance(offsets, dict) and strange:
                raise ConfigError(f"offsets are given for {strange[0]!r:.80}, which is not read")


class SinkOptions(Options, frozen=True):
    where: Where
    queue: str
    commit_mode: CommitMode | None = None  # None: direct, or staged where a stream needs it
    id_column: str | None = None
    run_id: str | None = None
    marker_ttl_ms: int = 86_400_000
    payload_format: Written = "value"
    max_payload_bytes: int = 1_048_576
    max_stream_len: int = 1_000_000
    on_full: OnFull = "wait"
    wait_timeout_ms: int = 600_000
    chunk_rows: int = 250
    chunk_bytes: int = 1_048_576

    def __post_init__(self) -> None:
        if self.commit_mode is not None:
            one_of("commitMode", self.commit_mode, get_args(CommitMode))
        one_of("onFull", self.on_full, get_args(OnFull))
        one_of("payloadFormat", self.payload_format, get_args(Written))
        at_least(self, 1, "max_payload_bytes", "max_stream_len", "chunk_bytes")
        within(self, "chunk_rows", 1, 1_000)  # one script call: the server serves nobody meanwhile
        within(self, "marker_ttl_ms", 1_000, MAX_MS)
        within(self, "wait_timeout_ms", 0, MAX_MS)
        if self.commit_mode == "staged" and self.id_column is not None:
            raise ConfigError("idColumn needs no staging: leave out commitMode=staged")
        if self.run_id is not None:
            check_run_id(self.run_id)


def check_run_id(run_id: str) -> None:
    """It is part of a key, and people type it."""
    known = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    if not run_id or len(run_id) > 200 or not set(run_id) <= known:
        raise ConfigError(
            f"runId {run_id[:80]!r} must be 1 to 200 of the characters a-z A-Z 0-9 . _ -"
        )


# -- texts become values -----------------------------------------------------------------------


def _text(name: str, text: str) -> str:
    return text


def _whole(name: str, text: str) -> int:
    if not text.strip().isascii() or not text.strip().lstrip("-").isdigit():
        raise ArgumentError(f"{name} is a whole number, got {text!r:.80}")
    return int(text)


def _truth(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ArgumentError(f"{name} is true or false, got {text!r:.80}")
    return text.lower() == "true"


def _lower(name: str, text: str) -> str:
    return text.lower()


def _upper(name: str, text: str) -> str:
    return text.upper()


def _offsets(name: str, text: str) -> Offsets:
    """earliest, latest, or `{"queue": "<entry id>"}`."""
    if text.lower() == "earliest":
        return "earliest"
    if text.lower() == "latest":
        return "latest"
    try:
        given = json.loads(text)
        if not isinstance(given, dict) or not all(isinstance(one, str) for one in given.values()):
            raise ValueError
    except ValueError:
        raise ConfigError(
            f'{name} is earliest, latest or {{"queue": "<entry id>"}}, got {text!r:.80}'
        ) from None
    return {queue: read_place(place) for queue, place in given.items()}


def _moment(name: str, text: str) -> int:
    """Epoch milliseconds, as in Kafka's source, or ISO 8601; without a zone it is UTC."""
    if text.isascii() and text.isdigit():
        return check_within(name, int(text), 0, MAX_MS)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{name} is epoch milliseconds or like 2026-11-16T12:00:00Z, got {text!r:.80}"
        ) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


Reading = Callable[[str, str], Any]
_WHERE: dict[str, tuple[str, Reading]] = {
    "url": ("url", _text),
    "urlEnv": ("url_env", _text),
    "secretFile": ("secret_file", _text),
}
_QUEUE: dict[str, tuple[str, Reading]] = {"queue": ("queue", _text), "path": ("path", _text)}
SOURCE: dict[str, tuple[str, Reading]] = {
    "view": ("view", _lower),
    "group": ("group", _text),
    "startingOffsets": ("starting_offsets", _offsets),
    "endingOffsets": ("ending_offsets", _offsets),
    "startingTimestamp": ("starting_timestamp", _moment),
    "endingTimestamp": ("ending_timestamp", _moment),
    "maxOffsetsPerTrigger": ("max_offsets_per_trigger", _whole),
    "minPartitions": ("min_partitions", _whole),
    "failOnDataLoss": ("fail_on_data_loss", _truth),
    "payloadFormat": ("payload_format", _lower),
    "payloadSchema": ("payload_schema", _text),
    "mode": ("mode", _upper),
    "fetchSize": ("fetch_size", _whole),
    "pushdown": ("pushdown", _truth),
}
SINK: dict[str, tuple[str, Reading]] = {
    "commitMode": ("commit_mode", _lower),
    "idColumn": ("id_column", _text),
    "runId": ("run_id", _text),
    "markerTtlMs": ("marker_ttl_ms", _whole),
    "payloadFormat": ("payload_format", _lower),
    "maxPayloadBytes": ("max_payload_bytes", _whole),
    "maxStreamLen": ("max_stream_len", _whole),
    "onFull": ("on_full", _lower),
    "waitTimeoutMs": ("wait_timeout_ms", _whole),
    "chunkRows": ("chunk_rows", _whole),
    "chunkBytes": ("chunk_bytes", _whole),
}
# What Spark itself puts among the options of a streaming query.
_OF_SPARK = frozenset(("checkpointlocation", "queryname"))


def source_options(given: Mapping[str, str]) -> SourceOptions:
    said = _read(given, SOURCE)
    names = _queue_of(said)
    queues = tuple(dict.fromkeys(name.strip() for name in names.split(",")))
    for queue in queues:
        check_queue_name(queue)
    if "payload_schema" in said:
        said.setdefault("payload_format", "struct")
    return SourceOptions(where=_where(said), queues=queues, **said)


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    said = _read(given, SINK)
    queue = _queue_of(said)
    if "," in queue:
        raise ConfigError(f"one queue is written at a time, got {queue!r:.80}")
    check_queue_name(queue)
    return SinkOptions(where=_where(said), queue=queue, **said)


def _read(given: Mapping[str, str], known: dict[str, tuple[str, Reading]]) -> dict[str, Any]:
    table = {name.lower(): (name, *row) for name, row in (_WHERE | _QUEUE | known).items()}
    said: dict[str, Any] = {}
    for word, text in given.items():
        if word.lower() in _OF_SPARK:
            continue
        if word.lower() not in table:
            names = [*_WHERE, *_QUEUE, *known]
            by_lower = {name.lower(): name for name in names}
            hint = nearest(word.lower(), sorted(by_lower))
            for lower, name in by_lower.items():
                hint = hint.replace(f"'{lower}'", f"'{name}'")
            raise ArgumentError(f"format('chasqui') has no option {word!r:.80}; {hint}")
        name, field, reading = table[word.lower()]
        said[field] = reading(name, text)
    return said


def _queue_of(said: dict[str, Any]) -> str:
    queue: str | None = said.pop("queue", None)
    path: str | None = said.pop("path", None)
    if queue is None and path is None:
        raise ConfigError("which queue? Give it by .option('queue', 'emails')")
    return queue if queue is not None else str(path)


def _where(said: dict[str, Any]) -> Where:
    return Where(**{field: said.pop(field) for field, _ in _WHERE.values() if field in said})
