"""Rows become jobs: equal ones each time, and one that cannot is named without being shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    TimestampType,
)

from chasquimq import wire
from chasquimq.errors import EncodeError
from chasquimq.job import BackoffSpec, Envelope, RetryOverride
from chasquimq.spark.write.check import layout
from chasquimq.spark.write.rows import PIECE_ROWS, Rows, Scribe
from tests.spark_redis.writing import batches, schema_of, sink

NOW_MS = 1_794_830_400_000
NOW = datetime.fromtimestamp(NOW_MS / 1000, UTC)
LONG, TEXT = LongType(), StringType()
BACKOFF = schema_of(
    kind=TEXT, delay_ms=LONG, max_delay_ms=LONG, multiplier=DoubleType(), jitter_ms=LONG
)
KINDS: dict[str, DataType] = {
    "payload": TEXT,
    "name": TEXT,
    "id": TEXT,
    "delay_ms": LONG,
    "run_at": TimestampType(),
    "max_attempts": IntegerType(),
    "backoff": BACKOFF,
}


def encode(
    rows: list[dict[str, Any]],
    *,
    kinds: dict[str, DataType] | None = None,
    run: str = "run",
    partition: int = 3,
    size: int = 100,
    **options: Any,
) -> Rows:
    """All of them, together."""
    columns = dict.fromkeys(name for row in rows for name in row)
    schema = schema_of(**{name: ({**KINDS, **(kinds or {})})[name] for name in columns})
    given = sink(**options)
    scribe = Scribe(layout(schema, given), given, run, partition, NOW_MS)
    parts = list(scribe.rows(batches(schema, rows, size)))
    assert scribe.count == len(rows)
    columns_of = zip(*parts, strict=True)
    joined = [None if part[0] is None else [x for one in part for x in one] for part in columns_of]
    return Rows(*joined)


def envelopes(rows: list[dict[str, Any]], **options: Any) -> list[Envelope]:
    return [wire.unpack_envelope(body) for body in encode(rows, **options).bodies]


def numbered(count: int) -> list[dict[str, Any]]:
    return [{"payload": f"{number}"} for number in range(count)]


def test_a_row_is_the_job_a_queue_would_add() -> None:
    [envelope] = envelopes([{"payload": "hello"}])
    assert envelope == Envelope(envelope.id, b"\xa5hello", NOW_MS, 0)
    assert wire.pack_envelope(envelope) == encode([{"payload": "hello"}]).bodies[0]
    assert len(envelope.id) == 26


@pytest.mark.parametrize("size", [0, 31, 32, 255, 256, 65_535, 65_536])
def test_payloads_of_all_sizes(size: int) -> None:
    [envelope] = envelopes([{"payload": "x" * size}])
    assert wire.decode(envelope.payload) == "x" * size


def test_ids_are_the_same_each_time_and_different_otherwise() -> None:
    rows = numbered(PIECE_ROWS * 2 + 7)
    ids = [envelope.id for envelope in envelopes(rows)]
    assert len(set(ids)) == len(ids)
    assert ids == sorted(ids)
    assert ids == [envelope.id for envelope in envelopes(rows, size=333)]
    others = (envelopes(rows, run="other"), envelopes(rows, partition=4))
    for other in others:
        assert not set(ids) & {envelope.id for envelope in other}


def test_batches_do_not_matter() -> None:
    rows = [
        {"payload": f"{number}", "delay_ms": number % 3, "name": f"n{number % 5}"}
        for number in range(500)
    ]
    assert encode(rows, size=500) == encode(rows, size=7)


def test_names_and_ids_stand_beside_the_body() -> None:
    long_id = "ü" * 512
    rows = encode(
        [
            {"payload": "a", "name": "mail", "id": "order-1"},
            {"payload": "b", "name": None, "id": None},
            {"payload": "c", "name": "", "id": long_id},
        ]
    )
    assert rows.names == [b"mail", b"", b""]
    assert rows.ids == [b"order-1", b"", long_id.encode()]
    ids = [wire.unpack_envelope(body).id for body in rows.bodies]
    assert ids[0] == "order-1"
    assert len(ids[1]) == 26
    assert ids[2] == long_id


def test_whole_numbers_are_ids_too() -> None:
    rows = encode(
        [{"payload": "a", "id": -7}, {"payload": "b", "id": 2**63 - 1}], kinds={"id": LONG}
    )
    assert rows.ids == [b"-7", b"9223372036854775807"]


def test_delays() -> None:
    given = [None, 0, 1, 2_592_000_000]
    rows = encode([{"payload": "a", "delay_ms": delay} for delay in given])
    assert rows.dues == [b"", b"", b"+1", b"+2592000000"]


def test_moments_are_whole_milliseconds() -> None:
    given = [None, NOW - timedelta(days=9), NOW + timedelta(microseconds=1999)]
    rows = encode([{"payload": "a", "run_at": moment} for moment in given])
    assert rows.dues == [b"", b"@%d" % (NOW_MS - 9 * 86_400_000), b"@%d" % (NOW_MS + 1)]


def test_rules_for_retries_go_into_the_fifth_slot() -> None:
    full = {
        "kind": "exponential",
        "delay_ms": 5,
        "max_delay_ms": 50,
        "multiplier": 1.5,
        "jitter_ms": 0,
    }
    bare = dict.fromkeys(full) | {"kind": "fixed", "delay_ms": 7}
    found = envelopes(
        [
            {"payload": "a", "max_attempts": 3, "backoff": full},
            {"payload": "a", "max_attempts": None, "backoff": bare},
            {"payload": "a", "max_attempts": 1, "backoff": None},
            {"payload": "a", "max_attempts": None, "backoff": None},
        ]
    )
    assert [envelope.retry for envelope in found] == [
        RetryOverride(3, BackoffSpec("exponential", 5, 50, 1.5, 0)),
        RetryOverride(None, BackoffSpec("fixed", 7)),
        RetryOverride(1),
        None,
    ]


def test_one_rule_alone_is_enough() -> None:
    subset = schema_of(delay_ms=IntegerType(), kind=TEXT)
    [one] = envelopes(
        [{"payload": "a", "backoff": {"delay_ms": 9, "kind": "fixed"}}], kinds={"backoff": subset}
    )
    assert one.retry == RetryOverride(None, BackoffSpec("fixed", 9))
    [other] = envelopes([{"payload": "a", "max_attempts": 2**31 - 1}])
    assert other.retry == RetryOverride(2**31 - 1)


def test_columns_of_nulls() -> None:
    nothing = dict.fromkeys(("name", "id", "delay_ms", "max_attempts", "backoff"))
    kinds = dict.fromkeys(nothing, NullType())
    [body] = encode([{"payload": "a", **nothing}], kinds=kinds).bodies
    assert body == encode([{"payload": "a"}]).bodies[0]


def backoff(**fields: Any) -> dict[str, Any]:
    return {
        "kind": "fixed",
        "delay_ms": 1,
        "max_delay_ms": None,
        "multiplier": None,
        "jitter_ms": None,
    } | fields


FAULTS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"name": "n" * 257}, {}, "column 'name': job name is 257 bytes, limit is 256"),
    ({"name": "a\tb"}, {}, "column 'name': job name 'a.tb' holds control characters"),
    ({"id": ""}, {}, "column 'id': job id '' is blank"),
    ({"id": " "}, {}, "column 'id': job id ' ' is blank"),
    ({"id": "i" * 1025}, {}, "column 'id': job id is 1025 bytes"),
    ({"id": None}, {"idColumn": "id"}, "column 'id': is null"),
    ({"delay_ms": -1}, {}, "column 'delay_ms': must not be negative, got -1"),
    (
        {"delay_ms": 2_592_000_001},
        {},
        "is 2592000001 ms away, limit is 2592000000; raise maxDelayMs",
    ),
    ({"delay_ms": 2**53}, {"maxDelayMs": 0}, "column 'delay_ms': is 9007199254740992 ms away"),
    ({"delay_ms": 10}, {"maxDelayMs": 9}, "is 10 ms away, limit is 9"),
    ({"run_at": datetime(1969, 12, 31, tzinfo=UTC)}, {}, "column 'run_at': is before 1970"),
    ({"run_at": NOW + timedelta(days=31)}, {}, "column 'run_at': is 2678400000 ms away"),
    ({"max_attempts": 0}, {}, "column 'max_attempts': must be from 1 to 4294967295, .* got 0"),
    ({"max_attempts": -1}, {}, "column 'max_attempts': must be from 1"),
    (
        {"backoff": backoff(kind="linear")},
        {},
        "column 'backoff': kind must be fixed or exponential, got",
    ),
    (
        {"backoff": backoff(kind=None)},
        {},
        "column 'backoff': kind must be fixed or exponential, got",
    ),
    (
        {"backoff": backoff(delay_ms=None)},
        {},
        "column 'backoff': delay_ms is null",
    ),
    (
        {"backoff": backoff(delay_ms=-1)},
        {},
        "column 'backoff': backoff delay_ms must not be negative",
    ),
    ({"backoff": backoff(jitter_ms=2**53)}, {}, "column 'backoff': .* beyond what Redis can count"),
    ({"backoff": backoff(multiplier=-1.0)}, {}, "column 'backoff': multiplier must be finite"),
    (
        {"backoff": backoff(multiplier=float("nan"))},
        {},
        "column 'backoff': multiplier must be finite",
    ),
    ({"payload": "s" * 1000}, {"maxPayloadBytes": 1000}, "column 'payload': is too large"),
    (
        {"payload": "secret {"},
        {"payloadFormat": "json"},
        r"'payload': is no JSON \(JSON is malformed",
    ),
    ({"payload": ""}, {"payloadFormat": "json"}, "column 'payload': is no JSON"),
    (
        {"payload": '{"secret": 18446744073709551616}'},
        {"payloadFormat": "json"},
        "a number beyond 64",
    ),
    ({"payload": "[" * 600 + '"secret"' + "]" * 600}, {"payloadFormat": "json"}, "nested too deep"),
    ({"payload": "[" * 100_000}, {"payloadFormat": "json"}, "nested too deep|no JSON"),
]


@pytest.mark.parametrize(("row", "options", "says"), FAULTS, ids=[row[2][:50] for row in FAULTS])
def test_a_row_that_is_no_job_is_named_and_not_shown(
    row: dict[str, Any], options: dict[str, Any], says: str
) -> None:
    good = dict.fromkeys(row) | {"payload": "1"}
    if options.get("idColumn"):
        good["id"] = "x"
    rows = [dict(good) for _ in range(2_345)]
    if "id" in row:
        for number, one in enumerate(rows):
            one["id"] = f"id-{number}"
    rows[2_105] = good | row
    with pytest.raises(EncodeError, match=says) as caught:
        encode(rows, size=500, **options)
    text = str(caught.value)
    assert "row 2105 of partition 3 (the first is 0)" in text
    assert "secret" not in text
    assert caught.value.__cause__ is None
    assert len(text) < 500


BYTES: list[tuple[bytes, str]] = [
    (b"", "cannot be read as MessagePack"),
    (b"\xc1", "cannot be read as MessagePack"),
    (b"\x01\x01", "cannot be read as MessagePack"),
    (b"\x92\x01", "cannot be read as MessagePack"),
    (b"\xd6\xff\x00\x00\x00\x00", "extension"),
    (b"\xc7\x01\x05\x00", "extension type"),
    (b"\x91" * 600 + b"\xc0", "cannot be read as MessagePack"),
]


@pytest.mark.parametrize(("data", "says"), BYTES)
def test_bytes_that_workers_would_refuse_are_refused(data: bytes, says: str) -> None:
    with pytest.raises(EncodeError, match=says):
        encode([{"payload": data}], kinds={"payload": BinaryType()}, payloadFormat="binary")


def test_text_that_is_no_utf_8() -> None:
    broken = pa.array([b"ok", b"\xff\xfe"], pa.binary()).view(pa.string())
    for name in ("payload", "name"):
        schema = schema_of(payload=TEXT, name=TEXT)
        good = pa.array(["a", "b"])
        columns = {"payload": good, "name": good} | {name: broken}
        given = sink()
        scribe = Scribe(layout(schema, given), given, "run", 0, NOW_MS)
        with pytest.raises(EncodeError, match=f"row 1 of .*column '{name}': .*not UTF-8"):
            list(scribe.rows(iter([pa.record_batch(columns)])))


@pytest.mark.parametrize(
    ("spark", "arrow", "number"),
    [
        (TimestampType(), pa.timestamp("us", "UTC"), pa.array([2**62], pa.int64())),
        (DateType(), pa.date32(), pa.array([2**30], pa.int32())),
    ],
)
def test_times_beyond_the_calendar(spark: DataType, arrow: pa.DataType, number: pa.Array) -> None:
    given = sink()
    scribe = Scribe(layout(schema_of(payload=spark), given), given, "run", 0, NOW_MS)
    with pytest.raises(EncodeError, match=r"row 0 .*a time outside of the years 1 to 9999"):
        list(scribe.rows(iter([pa.record_batch({"payload": number.view(arrow)})])))


def test_the_size_that_a_queue_would_refuse_is_refused() -> None:
    """As engine/draft.py counts it: 64 bytes for the envelope, 64 for rules, and the own id."""
    fits = "x" * (1_000 - 64 - 3)
    assert encode([{"payload": fits}], maxPayloadBytes=1_000).bodies
    with pytest.raises(EncodeError, match="the job is 1001 bytes, limit is 1000"):
        encode([{"payload": fits + "x"}], maxPayloadBytes=1_000)
    with pytest.raises(EncodeError, match="the job is 1002 bytes"):
        encode([{"payload": fits, "id": "ab"}], maxPayloadBytes=1_000)
    with pytest.raises(EncodeError, match="the job is 1064 bytes"):
        encode([{"payload": fits, "max_attempts": 1}], maxPayloadBytes=1_000)


def test_large_rows_are_encoded_a_few_at_a_time() -> None:
    rows = [{"payload": "x" * 1_000_000} for _ in range(40)]
    schema, given = schema_of(payload=TEXT), sink()
    scribe = Scribe(layout(schema, given), given, "run", 0, NOW_MS)
    sizes = [len(part.bodies) for part in scribe.rows(batches(schema, rows, 40))]
    assert sum(sizes) == 40
    assert max(sizes) <= 5
