"""Rows of each view become columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from chasquimq import wire
from chasquimq.repeat import PAUSED_MS, RepeatPattern, StoredSpec
from chasquimq.spark.options import CORRUPT, View
from tests.unit.spark.stored import (
    ENTRY_ID,
    EXPECTED,
    FORMS,
    GOOD,
    MS,
    SPEC,
    VIEWS,
    at,
    decode,
    envelope,
    one,
    schema_of_view,
)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED", "FAILFAST"])
def test_all_columns_of_a_good_row(view: View, mode: Any) -> None:
    corrupt = {CORRUPT: None} if mode == "PERMISSIVE" else {}
    expected = {"queue": "q"} | EXPECTED[view] | corrupt
    assert decode(view, [GOOD[view]] * 3, mode=mode).to_pylist() == [expected] * 3


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("form", FORMS)
def test_a_batch_is_what_spark_expects(view: View, form: str) -> None:
    """To the last detail of its types, or Spark refuses it; also where there is nothing."""
    expected = to_arrow_schema(schema_of_view(view, FORMS[form]), timezone="UTC")
    for rows in ([GOOD[view]], []):
        batch = decode(view, rows, FORMS[form])
        batch.validate(full=True)
        assert batch.schema.equals(expected, check_metadata=True)
        assert batch.num_rows == len(rows)


@pytest.mark.parametrize("view", VIEWS)
def test_each_column_can_be_had_alone(view: View) -> None:
    for name, value in EXPECTED[view].items():
        assert one(view, GOOD[view], only=[name]) == {name: value}
    assert one(view, GOOD[view], only=["queue"]) == {"queue": "q"}


# -- what is not there -----------------------------------------------------------------------------


def test_what_a_plain_job_does_not_say_is_null() -> None:
    row = one("jobs", [ENTRY_ID, [b"d", envelope(retry=None)]])
    assert row["name"] is row["max_attempts"] is row["backoff"] is row[CORRUPT] is None


@pytest.mark.parametrize("view", ["jobs", "delayed", "dlq"])
def test_an_empty_name_is_none(view: View) -> None:
    fields = wire.join_entry(envelope(), b"", b"60")  # a unique job has the field, also unnamed
    member = wire.join_member(b"", envelope())
    row = one(view, (member, b"1") if view == "delayed" else [ENTRY_ID, fields])
    assert (row["id"], row["name"], row[CORRUPT]) == ("job-7", None, None)


def test_fields_come_in_any_order_and_the_first_counts() -> None:
    fields = [b"u", b"60", b"n", b"first", b"d", envelope(), b"t", b"00-..", b"n", b"second"]
    other = [b"d", envelope(id="other"), b"d", b"nonsense"]
    found = decode("jobs", [[ENTRY_ID, fields], [ENTRY_ID, other]]).to_pylist()
    assert [(row["id"], row["name"], row[CORRUPT]) for row in found] == [
        ("job-7", "first", None),
        ("other", None, None),
    ]


def test_a_dead_row_of_the_reference_is_told_by_its_envelope_and_its_id() -> None:
    fields = [b"d", envelope(), b"source_id", b"1-0", b"reason", b"retries-exhausted"]
    row = one("dlq", [ENTRY_ID, fields])
    assert (row["id"], row["attempt"], row["failed_at"]) == ("job-7", 2, at(MS + 1))
    assert row["error"] is row["error_type"] is row["detail"] is row["name"] is row[CORRUPT] is None


def test_an_event_of_no_job() -> None:
    row = one("events", [ENTRY_ID, wire.pack_event("drained", "", MS)])
    assert (row["event"], row["job_id"], row["name"], row[CORRUPT]) == ("drained", None, None, None)


def test_fields_of_events_that_nobody_knows_are_no_fault() -> None:
    row = one("events", [ENTRY_ID, [b"zone", b"\xff", b"e", b"stalled", b"id", b"a", b"new", b""]])
    assert (row["event"], row["job_id"], row["ts"], row[CORRUPT]) == ("stalled", "a", None, None)


def test_a_result_that_is_kept_for_ever() -> None:
    assert one("results", (b"a", b"\xc0", -1))["ttl_ms"] is None


@pytest.mark.parametrize("score", [b"%d" % PAUSED_MS, b"inf", b"-1", b"-inf"])
def test_a_spec_that_does_not_fire_has_no_next_fire(score: bytes) -> None:
    row = one("repeatables", [b"nightly", score, [SPEC, None, None, b"1700000000000 "]])
    assert (row["next_fire"], row["fired"], row[CORRUPT]) == (None, 0, None)


def test_a_spec_of_an_interval() -> None:
    spec = StoredSpec(key="k", job_name="", pattern=RepeatPattern.every(60_000), payload=b"\xc0")
    row = one("repeatables", [b"k", b"1700000000000.75", [wire.pack_spec(spec), None, None, None]])
    assert (row["pattern"], row["tz"], row["job_name"]) == ("every:60000", None, None)
    assert (row["missed_fires"], row["limit"], row["next_fire"]) == ("skip", None, at(MS))


@pytest.mark.parametrize(
    ("score", "micros"),
    [
        (b"1700000000123", 1_700_000_000_123_000),
        (b"1.7e+12", 1_700_000_000_000_000),
        (b"1700000000123.5", 1_700_000_000_123_500),
        (b"-1.5", -1500),
        (b"0", 0),
        (b"253402300799999", 253_402_300_799_999_000),
    ],
)
def test_a_score_is_a_time(score: bytes, micros: int) -> None:
    batch = decode("delayed", [(GOOD["delayed"][0], score)])
    assert batch.column("run_at").cast(pa.int64()).to_pylist() == [micros]
    assert batch.column(CORRUPT).to_pylist() == [None]
