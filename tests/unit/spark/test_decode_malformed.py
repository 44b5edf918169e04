"""What cannot be read is kept, dropped or refused, and spoils nothing beside it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chasquimq import wire
from chasquimq.errors import MalformedError
from chasquimq.repeat import PAUSED_MS, RepeatPattern, StoredSpec
from chasquimq.spark.options import CORRUPT, View
from tests.unit.spark.stored import (
    DEAD,
    ENTRY_ID,
    EXPECTED,
    FIELDS,
    FORMS,
    GOOD,
    JOB,
    SPEC,
    decode,
    envelope,
    one,
    pack,
)

HUGE = 2**64 - 1
NOT_UTF8 = b"\xff\xfe"
SURROGATE = b"\xed\xa0\x80"


def spec_with(**changes: Any) -> list[Any]:
    base = StoredSpec(key="k", job_name="n", pattern=RepeatPattern.every(1), payload=b"\xc0")
    return [wire.pack_spec(msgspec.structs.replace(base, **changes)), None, None, None]


def dead_with(field: bytes, value: bytes) -> list[bytes]:
    fields = list(DEAD)
    fields[fields.index(field) + 1] = value
    return fields


# (view, row, the columns that are null, a word of the reason)
BROKEN: dict[str, tuple[View, Any, set[str], str]] = {
    "no d": ("jobs", [ENTRY_ID, [b"n", b"mail"]], {*JOB} - {"name"}, "no envelope"),
    "an odd list": ("jobs", [ENTRY_ID, [b"d"]], {*JOB}, "no envelope"),
    "d is empty": ("jobs", [ENTRY_ID, [b"d", b""]], {*JOB}, "no envelope"),
    "no envelope": ("jobs", [ENTRY_ID, [b"d", b"{}"]], {*JOB}, "not a job envelope"),
    "cut short": ("jobs", [ENTRY_ID, [b"d", envelope()[:-1]]], {*JOB}, "not a job envelope"),
    "id no text": (
        "jobs",
        [ENTRY_ID, [b"d", b"\x94\xa2" + NOT_UTF8 + b"\xc4\x01\xc0\x00\x00"]],
        {*JOB},
        "not a job envelope",
    ),
    "payload cut": (
        "jobs",
        [ENTRY_ID, [b"d", envelope(b"\x81\xa1a"), b"n", b"mail"]],
        {"payload"},
        "payload: not readable",
    ),
    "payload empty": (
        "jobs",
        [ENTRY_ID, [b"d", envelope(b""), b"n", b"mail"]],
        {"payload"},
        "payload: not readable",
    ),
    "two payloads": (
        "jobs",
        [ENTRY_ID, [b"d", envelope(b"\xc0\xc0"), b"n", b"mail"]],
        {"payload"},
        "payload: not readable",
    ),
    "name": ("jobs", [ENTRY_ID, [b"d", envelope(), b"n", NOT_UTF8]], {"name"}, "name: is not UTF"),
    "a surrogate": (
        "jobs",
        [ENTRY_ID, [b"d", envelope(), b"n", SURROGATE]],
        {"name"},
        "name: is not UTF-8",
    ),
    "created_at": (
        "jobs",
        [ENTRY_ID, [b"d", envelope(created_at_ms=HUGE), b"n", b"mail"]],
        {"created_at"},
        "created_at: is beyond BIGINT",
    ),
    "created_at in the year 10000": (
        "jobs",
        [ENTRY_ID, [b"d", envelope(created_at_ms=253_402_300_800_000), b"n", b"mail"]],
        {"created_at"},
        "created_at: is a time beyond",
    ),
    "created_at in no year": (
        "jobs",
        [ENTRY_ID, [b"d", envelope(created_at_ms=2**62), b"n", b"mail"]],
        {"created_at"},
        "created_at: is a time beyond",
    ),
    "backoff": (
        "jobs",
        [
            ENTRY_ID,
            [
                b"d",
                wire.pack_envelope(
                    msgspec.structs.replace(
                        wire.unpack_envelope(envelope()),
                        retry=msgspec.structs.replace(
                            wire.unpack_envelope(envelope()).retry,
                            backoff=wire.unpack_retry(
                                pack([None, ["fixed", HUGE, None, None, None]])
                            ).backoff,
                        ),
                    )
                ),
                b"n",
                b"mail",
            ],
        ],
        {"backoff"},
        "backoff: holds a number beyond BIGINT",
    ),
    "an id that is no time": (
        "jobs",
        [b"18446744073709551615-1", FIELDS],
        {"enqueued_at"},
        "enqueued_at: is beyond BIGINT",
    ),
    "gone": ("pending", [ENTRY_ID, b"w", 1, 1, None], {*JOB}, "its entry is gone"),
    "consumer": (
        "pending",
        [ENTRY_ID, NOT_UTF8, 1, 1, FIELDS],
        {"consumer"},
        "consumer: is not UTF-8",
    ),
    "an empty member": ("delayed", (b"", b"1"), {*JOB}, "not a delayed member"),
    "a short member": ("delayed", (b"\x09\0\0\0ma", b"1"), {*JOB}, "not a delayed member"),
    "a name alone": ("delayed", (b"\x04\0\0\0mail", b"1"), {*JOB}, "not a delayed member"),
    "no envelope in a member": (
        "delayed",
        (b"\x04\0\0\0mail\xc0", b"1"),
        {*JOB} - {"name"},
        "not a job envelope",
    ),
    **{
        f"score {score.decode()}": (
            "delayed",
            (GOOD["delayed"][0], score),
            {"run_at"},
            "run_at: ",
        )
        for score in (b"inf", b"-inf", b"nan", b"1e300", b"253402300800000", b"-1e17", b"soon")
    },
    "a dead row of nothing": (
        "dlq",
        [ENTRY_ID, [b"hello", b"world"]],
        {*EXPECTED["dlq"]} - {"entry_id", "failed_at"},
        "no envelope",
    ),
    "a dead row of what was no job": (
        "dlq",
        [ENTRY_ID, dead_with(b"d", b"\xc1")],
        {"payload"},
        "not a job envelope",
    ),
    "failed_at_ms": (
        "dlq",
        [ENTRY_ID, dead_with(b"failed_at_ms", b"-5")],
        {"failed_at"},
        "failed_at: is no number",
    ),
    "dead attempt": (
        "dlq",
        [ENTRY_ID, dead_with(b"attempt", b"many")],
        {"attempt"},
        "attempt: is no number",
    ),
    "dead error": ("dlq", [ENTRY_ID, dead_with(b"error", NOT_UTF8)], {"error"}, "error: is not"),
    "an event of no kind": (
        "events",
        [ENTRY_ID, [b"id", b"job-7"]],
        {*EXPECTED["events"]} - {"entry_id", "job_id"},
        "not an event",
    ),
    "ts": (
        "events",
        [ENTRY_ID, [b"e", b"waiting", b"ts", b"0x10"]],
        {*EXPECTED["events"]} - {"entry_id", "event"},
        "ts: is no number",
    ),
    "a number beyond all": (
        "events",
        [ENTRY_ID, [b"e", b"waiting", b"attempt", b"9" * 30]],
        {*EXPECTED["events"]} - {"entry_id", "event"},
        "attempt: is beyond BIGINT",
    ),
    "a result": ("results", (b"job-7", b"\xc1", 5), {"value"}, "value: not readable"),
    "a result's id": ("results", (NOT_UTF8, b"\xc0", 5), {"job_id"}, "job_id: is not UTF-8"),
    "no string": ("results", (b"job-7", None, 5), {"value"}, "value: there is no string"),
    "no hash": (
        "repeatables",
        [b"nightly", b"1"],
        {*EXPECTED["repeatables"]} - {"key", "next_fire", "fired"},
        "not a hash with a spec",
    ),
    "no spec in the hash": (
        "repeatables",
        [b"nightly", b"1", [None, None, b"5", None]],
        {*EXPECTED["repeatables"]} - {"key", "next_fire", "fired"},
        "not a hash with a spec",
    ),
    "no spec": (
        "repeatables",
        [b"nightly", b"1", [b"\x90", None, None, None]],
        {*EXPECTED["repeatables"]} - {"key", "next_fire", "fired"},
        "not a repeatable spec",
    ),
    "limit": (
        "repeatables",
        [b"nightly", b"1", spec_with(limit=HUGE)],
        {"limit", "tz", "start_after", "end_before"},
        "limit: is beyond BIGINT",
    ),
    "start_after": (
        "repeatables",
        [b"nightly", b"1", spec_with(start_after_ms=2**55)],
        {"limit", "tz", "start_after", "end_before"},
        "start_after: is a time beyond",
    ),
    "fired": (
        "repeatables",
        [b"nightly", b"1", [SPEC, None, b"often", None]],
        {"fired"},
        "fired: is no number",
    ),
    "next_fire": (
        "repeatables",
        [b"nightly", b"%d" % (PAUSED_MS - 1), [SPEC, None, b"1", None]],
        {"next_fire"},
        "next_fire: is a time beyond",
    ),
}


def bytes_of(view: View, row: Any) -> bytes | None:
    if view in ("delayed", "results"):
        return row[0] if view == "delayed" else row[1]
    if view == "repeatables":
        return row[2][0] if len(row) > 2 else None
    return None if row[-1] is None else pack(row[-1])


@pytest.mark.parametrize("case", BROKEN)
def test_permissive_keeps_what_can_be_read_and_tells_the_rest(case: str) -> None:
    view, row, nulls, reason = BROKEN[case]
    good, bad, after = decode(view, [GOOD[view], row, GOOD[view]]).to_pylist()

    assert good == after == {"queue": "q"} | EXPECTED[view] | {CORRUPT: None}
    assert reason in bad[CORRUPT]["reason"]
    assert bad[CORRUPT]["record"] == bytes_of(view, row)
    assert {name for name, value in bad.items() if value is None} == nulls


@pytest.mark.parametrize("case", BROKEN)
def test_dropmalformed_leaves_it_out(case: str) -> None:
    view, row, _, _ = BROKEN[case]
    rows = [GOOD[view], row, row, GOOD[view], row]
    batch = decode(view, rows, mode="DROPMALFORMED")
    assert batch.to_pylist() == [{"queue": "q"} | EXPECTED[view]] * 2
    assert decode(view, [row], mode="DROPMALFORMED").num_rows == 0


@pytest.mark.parametrize("case", BROKEN)
def test_failfast_names_queue_row_and_reason(case: str) -> None:
    view, row, _, reason = BROKEN[case]
    with pytest.raises(MalformedError, match=r"^CMQ-302: queue 'q', ") as caught:
        decode(view, [GOOD[view], row, GOOD[view]], mode="FAILFAST")
    assert reason in str(caught.value)
    assert "PERMISSIVE" in str(caught.value)
    name = row[0][:40].hex() if view == "delayed" else row[0].decode(errors="replace")
    assert name in str(caught.value)


def test_the_first_of_several_is_named() -> None:
    rows = [[b"%d-0" % at, [b"n", NOT_UTF8] if at else FIELDS] for at in range(5)]
    with pytest.raises(MalformedError, match="entry '1-0': ") as caught:
        decode("jobs", rows, mode="FAILFAST", only=["name", "id"])
    assert "name: is not UTF-8; it has no envelope" in str(caught.value)


def test_what_a_row_holds_is_not_told() -> None:
    """Errors end up in logs, where a customer's data have no place."""
    row = [ENTRY_ID, [b"d", envelope(pack({"order_id": "hunter2"})), b"n", b"hunter2\xff"]]
    with pytest.raises(MalformedError) as caught:
        decode("jobs", [row], FORMS["struct"], mode="FAILFAST")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("case", BROKEN)
def test_what_nobody_asks_for_cannot_be_malformed(case: str) -> None:
    view, row, nulls, _ = BROKEN[case]
    readable = [name for name in EXPECTED[view] if name not in nulls]
    whole = one(view, row)
    for name in readable:
        assert one(view, row, only=[name, CORRUPT]) == {name: whole[name], CORRUPT: None}


def test_a_broken_part_that_two_columns_need_is_told_once() -> None:
    row = one("dlq", [ENTRY_ID, [b"d", b"\xc1"]])
    assert row[CORRUPT]["reason"].count("not a job envelope") == 1


@pytest.mark.parametrize("score", [b"inf", b"-inf", b"nan"])
def test_a_score_that_is_no_time_is_told(score: bytes) -> None:
    row = one("delayed", (GOOD["delayed"][0], score))
    assert row[CORRUPT]["reason"] == f"run_at: score {score.decode()} is no time"


def test_several_faults_of_a_row_are_all_told() -> None:
    fields = [b"d", envelope(b"\xc1", created_at_ms=HUGE), b"n", NOT_UTF8]
    reason = one("jobs", [ENTRY_ID, fields])[CORRUPT]["reason"]
    assert all(f"{name}: " in reason for name in ("name", "created_at", "payload"))
