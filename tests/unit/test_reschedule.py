"""What `reschedule`, `run_now` and `counts` refuse before anything is sent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chasquimq import ArgumentError, ConfigError, Counts, Queue
from chasquimq.config import ProducerOptions
from chasquimq.engine.draft import read_time
from chasquimq.job import Due

NOW = 1_800_000_000_000
NOWHERE = "redis://127.0.0.1:1"

REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({}, ConfigError, "give delay_ms or delay"),
    ({"delay_ms": 5, "delay": 5}, ConfigError, "not both"),
    ({"delay_ms": -1}, ConfigError, "must be finite non-negative"),
    ({"delay": timedelta(seconds=-1)}, ConfigError, "must be finite non-negative"),
    ({"delay_ms": float("nan")}, ConfigError, "must be finite"),
    ({"delay_ms": "5"}, ArgumentError, "a number of ms, a timedelta or a datetime, got str"),
    ({"delay_ms": True}, ArgumentError, "got bool"),
    ({"delay": timedelta(days=31)}, ConfigError, "exceeds max_delay_secs"),
    ({"delay": datetime(2999, 1, 1, tzinfo=UTC)}, ConfigError, "exceeds max_delay_secs"),
    ({"delay_s": 5}, ArgumentError, "did you mean"),
]


@pytest.mark.parametrize(("options", "error", "words"), REFUSED)
async def test_a_time_that_makes_no_sense_is_refused(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        await Queue("q", redis_url=NOWHERE).reschedule("job", **options)


@pytest.mark.parametrize("job_id", ["", " ", 5, "\ud800", "x" * 1_025])
async def test_an_id_that_makes_no_sense_is_refused(job_id: Any) -> None:
    queue = Queue("q", redis_url=NOWHERE)
    for asking in (queue.run_now, queue.cancel_delayed, lambda i: queue.reschedule(i, 5)):
        with pytest.raises(ConfigError, match="job id"):
            await asking(job_id)


@pytest.mark.parametrize("group", ["", None, 5])
async def test_a_group_has_a_name(group: Any) -> None:
    with pytest.raises(ConfigError, match="group"):
        await Queue("q", redis_url=NOWHERE).counts(group)


@pytest.mark.parametrize(
    ("delay", "due"),
    [
        (5, Due(5)),
        (timedelta(minutes=1), Due(60_000)),
        (datetime.fromtimestamp(NOW / 1000 + 5, UTC), Due(NOW + 5_000, absolute=True)),
        (0, Due(0)),
        (datetime.fromtimestamp(NOW / 1000, UTC), Due(0)),
        (datetime(1971, 1, 1, tzinfo=UTC), Due(0)),
    ],
)
def test_what_has_passed_means_now(delay: Any, due: Due) -> None:
    assert read_time(delay, None, NOW, ProducerOptions()) == due
    assert read_time(None, delay, NOW, ProducerOptions()) == due


def test_counts_are_a_value() -> None:
    counts = Counts(1, 2, 3, 4, 5, 6)
    assert counts == Counts(1, 2, 3, 4, 5, 6) != Counts()
    assert list(counts.to_dict().values()) == [1, 2, 3, 4, 5, 6]
    with pytest.raises(AttributeError):
        counts.waiting = 7  # type: ignore[misc]
