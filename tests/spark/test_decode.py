"""What decoders make of rows, as Spark itself understands it."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from chasquimq import wire
from chasquimq.job import Envelope
from chasquimq.wire import Keys
from tests.servers import DIALECTS, DialectServer, Servers

DATA = {
    "n": 7,
    "text": "ä𝄞\n",
    "total": 1.5,
    "nan": math.nan,
    "raw": b"\x00\xff",
    "huge": 2**64 - 1,
    "price": "12.30",
    "day": "2026-11-16",
    "at": "2026-11-16T12:00:00+02:00",
    "tags": ["a", None],
    "by": {"x": 1},
    "deep": {"list": [{"k": True}, None]},
    **{f"more{at}": at for at in range(40)},  # enough for Spark to search by halves
    "Ａ": "wide",
    "𝄞": "wider",
}
TYPED = (
    "n TINYINT, text STRING, total FLOAT, nan DOUBLE, raw BINARY, price DECIMAL(8, 2), day DATE, "
    "at TIMESTAMP, tags ARRAY<STRING>, by MAP<STRING, INT>, "
    "deep STRUCT<list: ARRAY<STRUCT<k: BOOLEAN>>>, huge VARIANT, `no such` STRING"
)


@pytest.fixture(scope="module")
def server(servers: Servers) -> DialectServer:
    return servers.shared(DIALECTS[0])


@pytest.fixture
def jobs(spark: SparkSession, server: DialectServer, queue_name: str) -> Any:
    """Reads a queue that holds DATA, a job that is none, and one of other data."""
    payloads = (wire.encode(DATA), None, wire.encode({"n": "seven"}))
    for at, payload in enumerate(payloads):
        body = (
            b"\xc1" if payload is None else wire.pack_envelope(Envelope(f"job-{at}", payload, at))
        )
        server.client().xadd(Keys(queue_name).stream, {b"d": body}, id=f"{at + 1}-0")

    def read(**options: str) -> DataFrame:
        reader = spark.read.format("chasqui").options(queue=queue_name, url=server.url, **options)
        return reader.load()

    return read


def test_json_is_what_from_json_reads(jobs: Any) -> None:
    schema = "n INT, text STRING, nan DOUBLE, raw BINARY, huge DECIMAL(20), deep STRING"
    found = jobs().where("id = 'job-0'").selectExpr(f"from_json(payload, '{schema}') AS d")
    [row] = found.select("d.*").collect()
    assert (row.n, row.text, bytes(row.raw), row.huge) == (7, DATA["text"], DATA["raw"], 2**64 - 1)
    assert math.isnan(row.nan)
    assert row.deep == '{"list":[{"k":true},null]}'


def test_a_variant_is_one_to_spark(jobs: Any) -> None:
    whole = jobs(payloadFormat="variant").where("id = 'job-0'")
    [row] = whole.selectExpr(
        "schema_of_variant(payload) AS kind",
        "payload:n::int AS n",
        "payload:text::string AS text",
        "payload:nan::double AS nan",
        "payload:raw::binary AS raw",
        "payload:huge::decimal(20) AS huge",
        "payload:deep.list[0].k::boolean AS k",
        "payload:more39::int AS more",
        "variant_get(payload, '$[\"Ａ\"]', 'string') AS wide",
        "variant_get(payload, '$[\"𝄞\"]', 'string') AS wider",
        "to_json(payload) AS json",
    ).collect()
    assert row.kind.startswith("OBJECT<at: STRING, by: OBJECT<x: BIGINT>, day: STRING")
    assert (row.n, row.text, row.huge, row.k, row.more) == (7, DATA["text"], 2**64 - 1, True, 39)
    assert (row.wide, row.wider, bytes(row.raw)) == ("wide", "wider", DATA["raw"])
    assert math.isnan(row.nan)
    assert row.json.startswith('{"at":"2026-11-16T12:00:00+02:00","by":{"x":1}')
    [python] = whole.collect()
    assert python.payload.toPython()["deep"] == DATA["deep"]


def test_a_struct_has_its_types_and_what_does_not_fit_is_told(jobs: Any) -> None:
    found = jobs(payloadSchema=TYPED)
    kind = found.schema["payload"].dataType
    assert isinstance(kind, StructType)
    assert [field.name for field in kind.fields][-2:] == ["huge", "no such"]

    good, none, bad = found.orderBy("enqueued_at").collect()
    assert good._corrupt_record is None
    told = good.payload.asDict()
    assert math.isnan(told.pop("nan"))
    assert told.pop("huge").toPython() == 2**64 - 1
    assert told.pop("deep").list[0].k is True
    at = told.pop("at")
    assert at.astimezone(UTC) == datetime(2026, 11, 16, 10, tzinfo=UTC)
    assert told == {
        "n": 7,
        "text": DATA["text"],
        "total": 1.5,
        "raw": bytearray(DATA["raw"]),
        "price": Decimal("12.30"),
        "day": date(2026, 11, 16),
        "tags": ["a", None],
        "by": {"x": 1},
        "no such": None,
    }
    assert none.id is none.payload is bad.payload is None
    assert none.entry_id == "2-0"
    assert bad.id == "job-2"
    assert "not a job envelope" in none._corrupt_record.reason
    assert bytes(none._corrupt_record.record) == b"\x92\xc4\x01d\xc4\x01\xc1"
    assert "$.n" in bad._corrupt_record.reason


def test_malformed_rows_can_be_left_out_or_end_the_query(jobs: Any) -> None:
    left = jobs(payloadSchema="n INT", mode="DROPMALFORMED")
    assert [(row.id, row.payload.n) for row in left.collect()] == [("job-0", 7)]
    assert "_corrupt_record" not in left.columns
    with pytest.raises(Exception, match=r"CMQ-302: queue .* entry '2-0': not a job envelope"):
        jobs(mode="FAILFAST").collect()
    with pytest.raises(Exception, match=r"column payload: \$\.n is interval"):
        jobs(payloadSchema="n INTERVAL DAY").collect()
