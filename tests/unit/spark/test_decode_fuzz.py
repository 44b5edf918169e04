"""Whatever lies in Redis: a row comes out for each that went in, and nothing else is raised."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    FloatType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from chasquimq import wire
from chasquimq.errors import MalformedError, WireError
from chasquimq.spark.options import CORRUPT, View
from tests.unit.spark.stored import DATA, FORMS, GOOD, VIEWS, decode, envelope, pack

STRANGE: DataType = StructType(
    [
        StructField("order_id", ByteType()),
        StructField("email", DecimalType(10, 2)),
        StructField("total", FloatType()),
        StructField("tags", ArrayType(StringType(), containsNull=False)),
        StructField("paid", VariantType()),
        StructField("when", TimestampType()),
        StructField("day", DateType(), nullable=False),
        StructField("by", MapType(ShortType(), StringType())),
    ]
)
KINDS = {**FORMS, "strange": STRANGE}

numbers = st.integers(0, 2**64 - 1) | st.sampled_from((0, 127, 2**31, 2**53, 2**63, 10**13))
texts = st.sampled_from((b"", b"\xff", b"job-7", b"17", b"-5", b"1e9", b"9" * 25)) | st.binary()
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(("1e-999999999", "NaN", "2026-11-16", "0001-01-01T00:00:00+14:00", "1.5"))
    | st.binary(max_size=5)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from((*DATA, "when", "day", "by")) | scalars, inner, max_size=6
        )
    ),
    max_leaves=20,
)


@st.composite
def mutated(draw: st.DrawFn, whole: bytes) -> bytes:
    """Some bytes of it changed, cut out or put in."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(data)


payloads = values.map(pack) | mutated(pack(DATA)) | st.binary(max_size=40)
envelopes = (
    st.builds(
        lambda payload, ms, attempt: envelope(payload, created_at_ms=ms, attempt=attempt),
        payloads,
        numbers,
        st.integers(0, 2**32 - 1),
    )
    | mutated(envelope())
    | st.binary(max_size=40)
    | values.map(pack)
)
entry_ids = st.builds(b"%d-%d".__mod__, st.tuples(numbers, numbers))
scores = (
    st.floats().map(lambda score: repr(score).encode())
    | numbers.map(lambda score: b"%d" % score)
    | st.sampled_from((b"inf", b"-inf", b"nan", b"1.7e+12", b"9007199254740991"))
)


@st.composite
def entries(draw: st.DrawFn, like: list[bytes]) -> list[bytes]:
    """Fields like those of a good entry: other values, another order, some missing or twice."""
    pairs = list(zip(like[::2], like[1::2], strict=True))
    chosen = draw(st.lists(st.sampled_from(pairs) | st.tuples(texts, texts), min_size=1))
    fields: list[bytes] = []
    for name, value in chosen:
        other = envelopes if name == b"d" else texts
        fields += (name, draw(st.just(value) | other))
    return fields


specs = mutated(GOOD["repeatables"][2][0]) | st.binary(max_size=40) | values.map(pack)
ROWS: dict[View, st.SearchStrategy[Any]] = {
    "jobs": st.builds(lambda *row: list(row), entry_ids, entries(GOOD["jobs"][1])),
    "pending": st.builds(
        lambda *row: list(row),
        entry_ids,
        texts,
        st.integers(0, 2**63 - 1),
        st.integers(0, 2**63 - 1),
        st.none() | entries(GOOD["jobs"][1]),
    ),
    "delayed": st.tuples(
        st.builds(wire.join_member, texts, envelopes)
        | mutated(GOOD["delayed"][0])
        | st.binary(max_size=40),
        scores,
    ),
    "dlq": st.builds(lambda *row: list(row), entry_ids, entries(GOOD["dlq"][1])),
    "events": st.builds(lambda *row: list(row), entry_ids, entries(GOOD["events"][1])),
    "results": st.tuples(texts, st.none() | payloads, st.integers(-1, 2**63 - 1)),
    "repeatables": st.builds(
        lambda key, score, found: [key, score, *found],
        texts,
        scores,
        st.just([])
        | st.just([None])
        | st.tuples(st.none() | specs, st.none() | texts, st.none() | texts, st.none() | texts).map(
            lambda found: [list(found)]
        ),
    ),
}


@pytest.mark.parametrize("view", VIEWS)
@given(st.data(), st.sampled_from(list(KINDS)))
def test_a_page_is_its_rows(view: View, data: st.DataObject, form: str) -> None:
    """Each mode, and a page at a time or row by row: the same."""
    rows = data.draw(st.lists(ROWS[view] | st.just(GOOD[view]), max_size=6))
    kind = KINDS[form]

    kept = decode(view, rows, kind)
    kept.validate(full=True)
    assert kept.num_rows == len(rows)
    assert repr(kept.to_pylist()) == repr(
        [found for row in rows for found in decode(view, [row], kind).to_pylist()]
    )

    faulty = [row[CORRUPT] is not None for row in kept.to_pylist()]
    dropped = decode(view, rows, kind, mode="DROPMALFORMED")
    dropped.validate(full=True)
    sound = kept.filter(pa.array([not one for one in faulty], pa.bool_())).drop_columns([CORRUPT])
    assert repr(dropped.to_pylist()) == repr(sound.to_pylist())

    if any(faulty):
        with pytest.raises(MalformedError):
            decode(view, rows, kind, mode="FAILFAST")
    else:
        assert repr(decode(view, rows, kind, mode="FAILFAST").to_pylist()) == repr(
            dropped.to_pylist()
        )


@given(st.lists(envelopes, max_size=5))
def test_an_envelope_is_read_as_a_worker_reads_it(bodies: list[bytes]) -> None:
    rows = [[b"1-0", [b"d", body]] for body in bodies]
    for body, row in zip(bodies, decode("jobs", rows, KINDS["binary"]).to_pylist(), strict=True):
        try:
            job = wire.unpack_envelope(body)
        except WireError:
            assert row["id"] is row["payload"] is None
            assert row[CORRUPT] is not None
        else:
            assert (row["id"], row["payload"], row["attempt"]) == (job.id, job.payload, job.attempt)


@given(st.binary(max_size=60) | values.map(pack) | mutated(pack(DATA)))
def test_a_payload_is_read_as_a_worker_reads_it(payload: bytes) -> None:
    [row] = decode("results", [(b"a", payload, -1)]).to_pylist()
    try:
        wire.decode(payload)
    except WireError:
        assert row[CORRUPT] is not None
    else:
        assert row[CORRUPT] is None or "key" in row[CORRUPT]["reason"]
