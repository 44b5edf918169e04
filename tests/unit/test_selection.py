"""Which dead jobs are meant, and at what pace they come back."""

from __future__ import annotations

import inspect
import time
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from chasquimq import Queue
from chasquimq.errors import ArgumentError, ConfigError
from chasquimq.job import DeadEntry, Reason
from chasquimq.policy.pace import Pace
from chasquimq.policy.selection import Selection, Which, died_ms, select

NOW = 1_700_000_000_000
ROW = DeadEntry(
    dlq_id=f"{NOW - 5_000}-3",
    payload=b"",
    name="send",
    reason="unrecoverable",
    error_type="ValueError",
    failed_at_ms=NOW - 60_000,
)
OLD = DeadEntry(dlq_id=f"{NOW - 60_000}-0", payload=b"", reason="decode_failed")  # the reference's


def moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


MATCHES: list[tuple[DeadEntry, dict[str, Any], bool]] = [
    (ROW, {}, True),
    (OLD, {}, True),
    (ROW, {"name": "send"}, True),
    (ROW, {"name": "sen"}, False),
    (OLD, {"name": ""}, True),
    (ROW, {"name": ""}, False),
    (ROW, {"reason": "unrecoverable"}, True),
    (ROW, {"reason": Reason.UNRECOVERABLE}, True),
    (ROW, {"reason": "malformed"}, False),
    (ROW, {"error_type": "ValueError"}, True),
    (ROW, {"error_type": "TypeError"}, False),
    (OLD, {"error_type": "ValueError"}, False),
    (ROW, {"name": "send", "reason": "malformed"}, False),  # all must hold
    (ROW, {"ids": [ROW.dlq_id]}, True),
    (ROW, {"ids": {"job"}}, True),
    (ROW, {"ids": ("x", "job", "y")}, True),
    (ROW, {"ids": {"job": 1}.keys()}, True),
    (ROW, {"ids": ["jo"]}, False),
    (ROW, {"ids": []}, False),  # nobody, not everybody
    (ROW, {"ids": None, "name": None, "reason": None, "older_than": None}, True),
    # `failed_at_ms` counts where there is one, else the row's own id.
    (ROW, {"older_than": timedelta(seconds=59)}, True),
    (ROW, {"older_than": timedelta(seconds=61)}, False),
    (ROW, {"newer_than": timedelta(seconds=59)}, False),
    (ROW, {"newer_than": timedelta(seconds=61)}, True),
    (OLD, {"older_than": timedelta(seconds=59)}, True),
    (OLD, {"newer_than": timedelta(seconds=59)}, False),
    (ROW, {"older_than": moment(NOW - 59_999)}, True),
    (ROW, {"older_than": moment(NOW - 60_000)}, False),
    (ROW, {"newer_than": moment(NOW - 60_000)}, True),
    (ROW, {"newer_than": moment(NOW - 59_999)}, False),
    (ROW, {"older_than": moment(NOW - 59_999).replace(tzinfo=None)}, True),  # naive: UTC
    (ROW, {"newer_than": moment(NOW - 59_999).replace(tzinfo=None)}, False),
    (ROW, {"newer_than": moment(NOW - 60_000).astimezone(timezone(timedelta(hours=9)))}, True),
    (ROW, {"reason": "stalled"}, False),
    (structs.replace(ROW, reason="stalled"), {"reason": "stalled"}, True),  # a newer program's
    (ROW, {"older_than": timedelta(0)}, True),
    (ROW, {"newer_than": timedelta.max, "older_than": timedelta(0)}, True),
    (ROW, {"older_than": datetime(1, 1, 1, tzinfo=UTC)}, False),
]


@pytest.mark.parametrize(("entry", "which", "expected"), MATCHES)
def test_a_selection_means(entry: DeadEntry, which: Any, expected: bool) -> None:
    assert select(which, "here").matches(entry, "job", NOW) is expected


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Lima"])
def test_a_moment_without_a_zone_is_utc_wherever_we_are(
    monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        naive = moment(NOW - 60_000).replace(tzinfo=None)
        assert select({"newer_than": naive}, "here").matches(ROW, None, NOW)
        assert not select({"older_than": naive}, "here").matches(ROW, None, NOW)
    finally:
        monkeypatch.undo()
        time.tzset()


@given(at=st.integers(0, 2 * NOW), dies=st.integers(0, 2 * NOW))
def test_older_and_newer_than_the_same_moment_divide_the_dlq(at: int, dies: int) -> None:
    entry = DeadEntry(dlq_id="0-0", payload=b"", failed_at_ms=dies)
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)
    older = Selection(older_than=time).matches(entry, None, NOW)
    assert older is not Selection(newer_than=time).matches(entry, None, NOW)
    assert older is (died_ms(entry) < at)


@pytest.mark.parametrize(
    ("which", "kind", "words"),
    [
        ({"ids": "abc"}, ArgumentError, "ids is a list"),
        ({"ids": b"abc"}, ArgumentError, "ids is a list"),
        ({"ids": 5}, ArgumentError, "ids is a list"),
        ({"ids": iter(["a"])}, ArgumentError, "ids is a list"),
        ({"ids": ["a", 5]}, ArgumentError, "an id is a str, got int"),
        ({"ids": [b"a"]}, ArgumentError, "an id is a str, got bytes"),
        ({"name": b"send"}, ArgumentError, "name is a str"),
        ({"error_type": ValueError}, ArgumentError, "error_type is a str"),
        ({"reason": 5}, ArgumentError, "reason is a str"),
        ({"reason": "retry_exhausted"}, ConfigError, "did you mean 'retries_exhausted'"),
        ({"reason": "qqq"}, ConfigError, "known: .*malformed"),
        ({"reason": ""}, ConfigError, "known: "),
        ({"older_than": 5}, ArgumentError, "older_than is a timedelta"),
        ({"newer_than": True}, ArgumentError, "newer_than is a timedelta"),
        ({"newer_than": date(2024, 1, 1)}, ArgumentError, "newer_than is a timedelta"),
        ({"older_than": timedelta(seconds=-1)}, ConfigError, "must not be negative"),
        ({"older": timedelta(1)}, ArgumentError, "did you mean 'older_than'"),
        ({"names": "send"}, ArgumentError, "here has no option 'names'; did you mean 'name'"),
    ],
)
def test_filters_that_make_no_sense_are_refused(
    which: Any, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        select(which, "here")


def test_only_no_filter_at_all_means_all() -> None:
    assert select({}, "here").means_all
    assert select({"name": None, "ids": None}, "here").means_all
    for which in ({"ids": []}, {"name": ""}, {"older_than": timedelta(0)}):
        assert not select(which, "here").means_all  # type: ignore[arg-type]


def test_only_an_age_needs_a_clock() -> None:
    assert Selection(older_than=timedelta(1)).has_age
    assert Selection(newer_than=timedelta(1)).has_age
    assert not Selection(older_than=moment(NOW), name="x").has_age


def test_a_selection_has_what_the_keywords_are() -> None:
    assert Selection.__struct_fields__ == tuple(Which.__annotations__)


@pytest.mark.parametrize("method", ["peek_dlq", "replay_dlq", "purge_dlq", "export_dlq"])
async def test_an_option_with_a_wrong_name_is_answered_with_the_nearest(method: str) -> None:
    """Before anything is connected to: there is no server at that place."""
    queue = Queue("q", redis_url="redis://127.0.0.1:1")
    parameters = inspect.signature(getattr(Queue, method)).parameters
    own = [n for n, p in parameters.items() if p.kind is p.KEYWORD_ONLY or n == "limit"]
    must = {"target": "x.jsonl"} if "target" in parameters else {}
    for option in [*own, *Which.__annotations__]:
        with pytest.raises(ArgumentError, match=f"{method} has no option .* mean '{option}'"):
            await getattr(queue, method)(**must, **{f"{option}x": 1})


# -- pace ------------------------------------------------------------------------------------------


def simulate(
    rate: float | None, jobs: int, trip_s: float = 0.0, late_s: float = 0.0
) -> list[float]:
    """When each job goes, if a batch takes `trip_s` and sleeps end `late_s` too late."""
    pace, now, gone = Pace(rate, 100), 1_000.0, []
    while len(gone) < jobs:
        if wait := pace.wait_s(now):
            now += wait + late_s
        batch = min(pace.batch, jobs - len(gone))
        gone += [now - 1_000.0] * batch
        now += trip_s
        pace.took(batch, now)
    return gone


def test_a_slow_pace_goes_one_by_one() -> None:
    assert simulate(5, 6) == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert simulate(0.5, 3) == pytest.approx([0.0, 2.0, 4.0])


def test_a_pace_is_kept_whatever_a_batch_costs() -> None:
    assert simulate(50, 500, trip_s=0.05)[-1] == pytest.approx(9.9)
    assert simulate(5, 6, trip_s=0.1, late_s=0.01)[-1] <= 1.02


def test_a_fast_pace_is_not_slowed_by_sleeps_that_end_late() -> None:
    assert simulate(10_000, 20_000, trip_s=0.002, late_s=0.004)[-1] < 2.1
    assert simulate(10_000, 20_000)[-1] > 1.9


def test_no_pace_does_not_wait() -> None:
    assert set(simulate(None, 1_000)) == {0.0}
    assert Pace(None, 100).batch == 100


def test_a_long_pause_is_not_followed_by_a_flood() -> None:
    pace = Pace(100, 100)
    pace.wait_s(0.0)
    pace.took(pace.batch, 60.0)  # the server was away for a minute
    gone, now = 0, 60.0
    while not (wait := pace.wait_s(now)):
        gone += pace.batch
        pace.took(pace.batch, now)
    assert gone <= 20 and wait > 0


def test_what_was_not_moved_is_not_waited_for() -> None:
    pace = Pace(1, 100)
    pace.took(0, 5.0)
    assert pace.wait_s(5.0) == 0.0


@pytest.mark.parametrize("rate", [0, -1, float("inf"), float("nan"), 1e-9, 10**400])
def test_a_rate_is_more_than_nothing_and_finite(rate: float) -> None:
    with pytest.raises(ConfigError, match="rate must be"):
        Pace(rate, 100)


@pytest.mark.parametrize("rate", [True, "5", timedelta(1)])
def test_a_rate_is_a_number(rate: Any) -> None:
    with pytest.raises(ArgumentError, match="rate is a number"):
        Pace(rate, 100)
