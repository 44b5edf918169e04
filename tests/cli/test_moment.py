"""Times as people type them."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq.cli.moment import duration_ms, moment_ms, read_duration, read_moment, read_time
from chasquimq.cli.render import ago, brief
from chasquimq.errors import ConfigError

NINE = datetime(2026, 11, 16, 9, tzinfo=UTC)

DURATIONS = {
    "500ms": 500,
    "30s": 30_000,
    "5m": 300_000,
    "5min": 300_000,
    "2h": 7_200_000,
    "7d": 604_800_000,
    "1w": 604_800_000,
    "1h30m": 5_400_000,
    " 1h 30m ": 5_400_000,
    "1.5h": 5_400_000,
    "4 min 5 s": 245_000,
    "0s": 0,
}
MOMENTS = {
    "2026-11-16": NINE.replace(hour=0),
    "2026-11-16T09:00": NINE,
    "2026-11-16 09:00": NINE,
    "2026-11-16T09:00Z": NINE,
    "2026-11-16T09:00:00.000+00:00": NINE,
    "2026-11-16T10:00+01:00": NINE,
    "2026-11-16 10:00 Europe/Berlin": NINE,
    "2026-11-16T10:00[Europe/Berlin]": NINE,
    "2026-07-16 11:00 Europe/Berlin": datetime(2026, 7, 16, 9, tzinfo=UTC),
    "20261116T0900Z": NINE,
    "1794819600000": NINE,
}
NEITHER = [
    *("", " ", "30", "2x", "-2h", "h", "2h!", "1794819600", "tomorrow", "2026-13-01"),
    *("2026-11-16T25:00", "99999999999999d", "9" * 400 + "h", "0001-01-01T00:00+10:00"),
    *("2026-11-16 09:00Z Europe/Berlin", "2h\x1b[31m"),
]


@pytest.mark.parametrize("text", DURATIONS)
def test_how_long(text: str) -> None:
    assert duration_ms(read_duration(text, "--for")) == DURATIONS[text]
    assert read_time(text, "--for") == timedelta(milliseconds=DURATIONS[text])


@pytest.mark.parametrize("text", MOMENTS)
def test_when(text: str) -> None:
    assert read_moment(text, "--at") == MOMENTS[text] == read_time(text, "--at")


@pytest.mark.parametrize("text", NEITHER)
def test_what_is_neither_is_refused_by_the_name_of_its_option(text: str) -> None:
    for read in (read_time, read_duration, read_moment):
        with pytest.raises(ConfigError, match="--older-than") as refused:
            read(text, "--older-than")
        assert str(refused.value).isprintable()


def test_a_zone_that_nobody_knows_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"--at: .*did you mean 'Europe/Berlin'\?"):
        read_moment("2026-11-16 09:00 Europe/Berln", "--at")


def test_a_duration_counts_from_now_on_and_a_moment_does_not() -> None:
    assert moment_ms(timedelta(seconds=2), 1_000) == 3_000
    assert moment_ms(NINE, 1_000) == 1_794_819_600_000


@given(ms=st.integers(0, 10**12))
def test_what_our_tables_show_can_be_typed(ms: int) -> None:
    for shown in (ago(ms), brief(ms)):
        assert shown is not None
        read = duration_ms(read_duration(shown, "--for"))
        assert read <= ms + 1 and ms - read < max(100, ms * 0.05)  # the last unit is cut


@given(when=st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5.5))])))
def test_what_iso_prints_is_read_back(when: datetime) -> None:
    try:
        when.astimezone(UTC)
    except OverflowError:
        return
    assert read_moment(when.isoformat(), "--at") == when


@given(text=st.text(max_size=30))
def test_no_text_is_too_odd(text: str) -> None:
    with suppress(ConfigError):
        read_time(text, "--at")
