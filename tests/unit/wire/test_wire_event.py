from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq import wire
from chasquimq.errors import WireError
from chasquimq.wire import EventRow

EVENTS: list[tuple[tuple[Any, ...], str]] = [  # (what is packed, the fields)
    (("drained", "", 5), "e drained id  ts 5"),
    (("waiting", "j", 5, "send"), "e waiting id j ts 5 n send"),
    (("delayed", b"j", 5, b"send", {"delay_ms": 9}), "e delayed id j ts 5 n send delay_ms 9"),
    (
        ("active", "j", 5, "", {"created_ms": 4, "attempt": 1}),
        "e active id j ts 5 attempt 1 created_ms 4",
    ),
    (
        ("completed", "j", 5, "", {"duration_us": 7, "attempt": 1}),
        "e completed id j ts 5 attempt 1 duration_us 7",
    ),
    (
        ("failed", "j", 5, "", {"duration_us": 7, "reason": "boom", "attempt": 1, "by": "E"}),
        "e failed id j ts 5 attempt 1 reason boom duration_us 7 by E",
    ),
    (
        ("retry-scheduled", "j", 5, "", {"backoff_ms": 7, "attempt": 2}),
        "e retry-scheduled id j ts 5 attempt 2 backoff_ms 7",
    ),
    (
        ("dlq", "", 5, "", {"reason": "malformed", "attempt": 0, "by": None}),
        "e dlq id  ts 5 attempt 0 reason malformed",
    ),
]


@pytest.mark.parametrize(("arguments", "expected"), EVENTS)
def test_an_event_packs_to_the_documented_fields(arguments: Any, expected: str) -> None:
    assert wire.pack_event(*arguments) == expected.encode().split(b" ")


READ = [  # (fields, the row)
    ([b"e", b"drained", b"id", b"", b"ts", b"5"], EventRow("drained", None, "", {"ts": 5})),
    (
        [b"e", b"failed", b"id", b"j", b"n", b"send", b"attempt", b"x", b"reason", b"7"],
        EventRow("failed", "j", "send", {"attempt": "x", "reason": "7"}),
    ),
    ([b"zz", b"1", b"e", b"odd", b"lone"], EventRow("odd", None, "", {"zz": "1"})),
    ([b"e", b"\xff", b"id", None, b"ts", b"-1"], EventRow("\ufffd", None, "", {"ts": "-1"})),
    ([], EventRow("", None, "", {})),
]


@pytest.mark.parametrize(("fields", "expected"), READ)
def test_an_event_is_read_leniently(fields: Any, expected: EventRow) -> None:
    assert wire.unpack_event(fields) == expected


def test_a_row_keeps_the_order_of_its_fields() -> None:
    row = wire.unpack_event([b"ts", b"1", b"b", b"2", b"e", b"x", b"a", b"3"])
    assert list(row.fields) == ["ts", "b", "a"]


def test_no_fields_at_all_are_a_wire_error() -> None:
    with pytest.raises(WireError):
        wire.unpack_event(7)


def test_a_long_reason_is_cut_but_never_an_id() -> None:
    fields = wire.pack_event("failed", "j" * 5000, 5, "\ud800", {"reason": "ñ" * 9000})
    assert fields[3] == b"j" * 5000
    assert fields[7] == rb"\ud800"
    assert len(fields[-1]) == 4096


@given(
    kind=st.sampled_from(["waiting", "active", "completed", "failed", "retry-scheduled", "dlq"]),
    job_id=st.text(min_size=1, max_size=40),
    ts_ms=st.integers(0, 2**63),
    name=st.text(max_size=40),
    attempt=st.none() | st.integers(0, 2**32),
    reason=st.none() | st.text(max_size=40),
)
def test_an_event_survives_the_round_trip(
    kind: str, job_id: str, ts_ms: int, name: str, attempt: int | None, reason: str | None
) -> None:
    extras = {"attempt": attempt, "reason": reason}
    row = wire.unpack_event(wire.pack_event(kind, job_id, ts_ms, name, extras))
    told = {extra: value for extra, value in extras.items() if value is not None}
    assert row == EventRow(kind, job_id, name, {"ts": ts_ms, **told})
