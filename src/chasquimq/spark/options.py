"""The options of `format("chasqui")`, read once into frozen structs that check themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

from chasquimq.config import MAX_MS, Options, check_least, check_within, one_of
from chasquimq.errors import ConfigError
from chasquimq.spark import said
from chasquimq.spark.said import Offsets, Reading, name_of
from chasquimq.spark.secret import Where
from chasquimq.wire import check_queue_name, check_stored_queue_name

View = Literal["jobs", "pending", "delayed", "dlq", "events", "results", "repeatables"]
PayloadFormat = Literal["json", "struct", "binary", "variant"]
Mode = Literal["PERMISSIVE", "DROPMALFORMED", "FAILFAST"]
CommitMode = Literal["direct", "staged"]
OnFull = Literal["wait", "fail"]
Written = Literal["value", "json", "binary"]

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
        check_within("fetchSize", self.fetch_size, 1, 100_000)
        for name in ("max_offsets_per_trigger", "min_partitions"):
            if getattr(self, name) is not None:
                check_least(name_of(name), getattr(self, name), 1)
        if (self.payload_format == "struct") != (self.payload_schema is not None):
            raise ConfigError(
                "payloadFormat=struct and payloadSchema belong together: give the schema as DDL, "
                "as in payloadSchema='order_id BIGINT, total DOUBLE'"
            )
        self._check_stretch()

    def _check_stretch(self) -> None:
        """From where to where: said once, of queues that are read, and not backwards."""
        start, end = self.starting_timestamp, self.ending_timestamp
        if self.starting_offsets != "earliest" and start is not None:
            raise ConfigError("give startingOffsets or startingTimestamp, not both")
        if self.ending_offsets != "latest" and end is not None:
            raise ConfigError("give endingOffsets or endingTimestamp, not both")
        if self.ending_offsets == "earliest":
            raise ConfigError(
                "endingOffsets=earliest would read nothing; leave it out, or give ids"
            )
        if start is not None and end is not None and start > end:
            raise ConfigError("startingTimestamp is later than endingTimestamp")
        named = [self.starting_offsets, self.ending_offsets]
        for queue in (name for offsets in named if isinstance(offsets, dict) for name in offsets):
            if queue not in self.queues:
                raise ConfigError(f"offsets are given for {queue!r:.80}, which is not read")


class SinkOptions(Options, frozen=True):
    where: Where
    queue: str
    commit_mode: CommitMode | None = None  # None: direct, or staged where a stream needs it
    id_column: str | None = None
    run_id: str | None = None
    marker_ttl_ms: int = 86_400_000
    payload_format: Written = "value"
    max_payload_bytes: int = 1_048_576
    max_delay_ms: int = 2_592_000_000  # 0: no limit
    max_stream_len: int = 1_000_000
    events_max_stream_len: int = 100_000  # 0: no event is told of delayed rows
    on_full: OnFull = "wait"
    wait_timeout_ms: int = 600_000
    chunk_rows: int = 250
    chunk_bytes: int = 1_048_576
    rows_per_second: float | None = None  # None: as fast as it goes

    def __post_init__(self) -> None:
        if self.commit_mode is not None:
            one_of("commitMode", self.commit_mode, get_args(CommitMode))
        one_of("onFull", self.on_full, get_args(OnFull))
        one_of("payloadFormat", self.payload_format, get_args(Written))
        for name in ("max_payload_bytes", "max_stream_len"):
            check_least(name_of(name), getattr(self, name), 1)
        # One script call: the server serves nobody meanwhile.
        check_within("chunkRows", self.chunk_rows, 1, 1_000)
        check_within("chunkBytes", self.chunk_bytes, 1, 16_777_216)
        check_within("maxDelayMs", self.max_delay_ms, 0, MAX_MS)
        check_least("eventsMaxStreamLen", self.events_max_stream_len, 0)
        check_within("markerTtlMs", self.marker_ttl_ms, 1_000, MAX_MS)
        check_within("waitTimeoutMs", self.wait_timeout_ms, 0, MAX_MS)
        if self.rows_per_second is not None and not 0.001 <= self.rows_per_second <= 1e9:
            raise ConfigError(
                f"rowsPerSecond must be from 0.001 to 1e9, got {self.rows_per_second:g}; leave it "
                "out to write as fast as it goes"
            )
        if self.commit_mode == "staged" and self.id_column is not None:
            raise ConfigError("idColumn needs no staging: leave out commitMode=staged")
        if self.run_id is not None:
            check_run_id(self.run_id)


def check_run_id(run_id: str) -> None:
    """It is part of a key, and people type it."""
    if not re.fullmatch(r"[\w.-]{1,200}", run_id, re.ASCII):
        raise ConfigError(
            f"runId {run_id[:80]!r} must be 1 to 200 of the characters a-z A-Z 0-9 . _ -"
        )
    if run_id in ("id", "queries"):
        raise ConfigError(f"runId {run_id!r} names a key of the sink's own; give it another")


_WHERE: dict[str, Reading] = {"url": said.text, "urlEnv": said.text, "secretFile": said.text}
# What load("emails") says, and load(["emails", "orders"]).
_QUEUE: dict[str, Reading] = {"queue": said.text, "path": said.text, "paths": said.listed}
SOURCE: dict[str, Reading] = {
    "view": said.lower,
    "group": said.text,
    "startingOffsets": said.offsets,
    "endingOffsets": said.offsets,
    "startingTimestamp": said.moment,
    "endingTimestamp": said.moment,
    "maxOffsetsPerTrigger": said.whole,
    "minPartitions": said.whole,
    "failOnDataLoss": said.truth,
    "payloadFormat": said.lower,
    "payloadSchema": said.text,
    "mode": said.upper,
    "fetchSize": said.whole,
    "pushdown": said.truth,
}
SINK: dict[str, Reading] = {
    "commitMode": said.lower,
    "idColumn": said.text,
    "runId": said.text,
    "markerTtlMs": said.whole,
    "payloadFormat": said.lower,
    "maxPayloadBytes": said.whole,
    "maxDelayMs": said.whole,
    "maxStreamLen": said.whole,
    "eventsMaxStreamLen": said.whole,
    "onFull": said.lower,
    "waitTimeoutMs": said.whole,
    "chunkRows": said.whole,
    "chunkBytes": said.whole,
    "rowsPerSecond": said.number,
}
_OF_PLACES = ("starting_offsets", "ending_offsets", "starting_timestamp", "ending_timestamp")


def source_options(given: Mapping[str, str]) -> SourceOptions:
    told = said.read(given, _WHERE | _QUEUE | SOURCE)
    queues = tuple(dict.fromkeys(name.strip() for name in _queue_of(told).split(",")))
    for queue in queues:
        check_stored_queue_name(queue)
    if "payload_schema" in told:
        told.setdefault("payload_format", "struct")
    options = SourceOptions(where=_where(told), queues=queues, **told)
    if options.view not in IN_STREAMS:
        _refuse((name for name in _OF_PLACES if name in told), options.view)
    return options


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    told = said.read(given, _WHERE | _QUEUE | SINK)
    queue = _queue_of(told).strip()
    if "," in queue:
        raise ConfigError(f"one queue is written at a time, got {queue!r:.80}")
    check_queue_name(queue)
    return SinkOptions(where=_where(told), queue=queue, **told)


def where_options(given: Mapping[str, str]) -> Where:
    """Where the server is, for what is neither read nor written by `format("chasqui")`."""
    return _where(said.read(given, _WHERE))


def _queue_of(told: dict[str, Any]) -> str:
    named = [told.pop(name) for name in _QUEUE if name in told]
    if len(named) > 1:
        raise ConfigError("the queue is named twice: by the option, and by load(...) or save(...)")
    if not named:
        raise ConfigError("which queue? Give it by .option('queue', 'emails')")
    return str(named[0])


def _where(told: dict[str, Any]) -> Where:
    fields = [said.field_of(name) for name in _WHERE]
    return Where(**{field: told.pop(field) for field in fields if field in told})


def _refuse(fields: Iterable[str], view: View) -> None:
    """Rows of these views have no places: to ignore the option would be to read too much."""
    for field in fields:
        raise ConfigError(
            f"{name_of(field)} is for the views {', '.join(sorted(IN_STREAMS))}; "
            f"filter the rows of view {view} instead"
        )
