"""When a spec fires: the documented cases, one by one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from chasquimq.config import MAX_MS, U32
from chasquimq.errors import ConfigError
from chasquimq.policy.repeat import Plan, first_fire, plan, take_up, upcoming, windows, zone
from chasquimq.repeat import MissedFiresPolicy, RepeatPattern, StoredSpec
from tests.shown import shown

BASE = 1_700_000_000_000
TICK = 1_000
MOST = 1_000
N = 10_000
EVERY = RepeatPattern.every(N)
SKIP, ONCE = MissedFiresPolicy.skip(), MissedFiresPolicy.fire_once()
fire_all = MissedFiresPolicy.fire_all
POLICIES = [SKIP, ONCE, fire_all(3), fire_all(100)]
YEARS = RepeatPattern.cron("0 0 0 1 1 * 2030-2031")  # it fires twice, and never again


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def spec(
    missed: MissedFiresPolicy = SKIP, pattern: RepeatPattern = EVERY, end: int | None = None
) -> StoredSpec:
    return StoredSpec(
        key="k",
        job_name="",
        pattern=pattern,
        payload=b"",
        end_before_ms=end,
        missed_fires=missed,
    )


def at(*windows: float) -> tuple[int, ...]:
    return tuple(BASE + round(number * N) for number in windows)


# -- which windows fire --------------------------------------------------------------------------

PLANS = [  # (policy, how many intervals after its score, which windows fire)
    (SKIP, 5.5, ()),
    (ONCE, 5.5, (0,)),
    (fire_all(1), 5.5, (0,)),
    (fire_all(3), 5.5, (0, 1, 2)),
    (fire_all(6), 5.5, (0, 1, 2, 3, 4, 5)),
    (fire_all(100), 5.5, (0, 1, 2, 3, 4, 5)),
    *[(policy, late, (0,)) for policy in POLICIES for late in (0, 0.05, 0.1, 0.5, 0.9999)],
    # The last is no older than a tick: it is on time, and counts for no allowance.
    (SKIP, 5.1, (5,)),
    (ONCE, 5.1, (0, 5)),
    (fire_all(3), 5.1, (0, 1, 2, 5)),
    (fire_all(5), 5.1, (0, 1, 2, 3, 4, 5)),
    (fire_all(6), 5.1, (0, 1, 2, 3, 4, 5)),
    (SKIP, 5, (5,)),
    # A millisecond older, and it was missed.
    (SKIP, 5.1001, ()),
    (ONCE, 5.1001, (0,)),
    (fire_all(3), 5.1001, (0, 1, 2)),
    # Two are due: the older one was missed.
    (SKIP, 1, (1,)),
    (ONCE, 1, (0, 1)),
    (SKIP, 1.5, ()),
    (ONCE, 1.5, (0,)),
    (fire_all(1), 1.5, (0,)),
    (fire_all(2), 1.5, (0, 1)),
]


@pytest.mark.parametrize(("missed", "late", "fires"), PLANS, ids=shown)
def test_a_policy_says_which_windows_fire(
    missed: MissedFiresPolicy, late: float, fires: tuple[int, ...]
) -> None:
    now_ms = BASE + round(late * N)
    coming = BASE + (int(late) + 1) * N
    assert plan(spec(missed), BASE, now_ms, TICK, MOST) == Plan(at(*fires), coming)


@pytest.mark.parametrize("missed", POLICIES, ids=shown)
def test_a_single_window_fires_however_late_it_is(missed: MissedFiresPolicy) -> None:
    week = spec(missed, RepeatPattern.every(7 * 86_400_000))
    assert plan(week, BASE, BASE + 6 * 86_400_000, TICK, MOST).fires == (BASE,)
    last = spec(missed, end=BASE)
    assert plan(last, BASE, BASE + 10**9, TICK, MOST) == Plan((BASE,), None)


@pytest.mark.parametrize("missed", POLICIES, ids=shown)
def test_what_is_not_due_yet_does_not_fire(missed: MissedFiresPolicy) -> None:
    assert plan(spec(missed), BASE, BASE - 1, TICK, MOST) == Plan((), BASE)
    assert plan(spec(missed, end=BASE - 1), BASE, BASE - 2, TICK, MOST) == Plan((), None)


@pytest.mark.parametrize("missed", POLICIES, ids=shown)
def test_an_interval_shorter_than_a_tick_fires_every_window(missed: MissedFiresPolicy) -> None:
    fast = spec(missed, RepeatPattern.every(100))
    expected = tuple(range(BASE, BASE + TICK + 1, 100))
    assert plan(fast, BASE, BASE + TICK, TICK, MOST) == Plan(expected, BASE + 1_100)


def test_a_window_a_millisecond_older_than_a_tick_was_missed_also_if_it_is_the_first() -> None:
    second = spec(SKIP, RepeatPattern.every(TICK))
    assert plan(second, BASE, BASE + TICK, TICK, MOST).fires == (BASE, BASE + TICK)
    assert plan(second, BASE, BASE + TICK + 1, TICK, MOST).fires == (BASE + TICK,)


def test_every_millisecond_is_an_interval() -> None:
    least = spec(SKIP, RepeatPattern.every(1))
    assert plan(least, BASE, BASE + 3, TICK, MOST) == Plan(
        (BASE, *range(BASE + 1, BASE + 4)), BASE + 4
    )
    a_tick = plan(least, BASE, BASE + 10**10, TICK, 10**6)
    assert a_tick.fires == tuple(range(BASE + 10**10 - TICK, BASE + 10**10 + 1))
    assert a_tick.next_ms == BASE + 10**10 + 1


def test_only_what_is_due_now_is_on_time_without_a_tick() -> None:
    assert plan(spec(SKIP), BASE, BASE + 2 * N, 0, MOST).fires == at(2)
    assert plan(spec(SKIP), BASE, BASE + 2 * N + 1, 0, MOST).fires == ()


def test_cron_windows_are_missed_alike() -> None:
    hourly = spec(ONCE, RepeatPattern.cron("0 * * * *", tz="Europe/Berlin"))
    score, now_ms = ms("2026-10-24T22:00:00Z"), ms("2026-10-25T02:30:00Z")
    assert plan(hourly, score, now_ms, TICK, MOST) == Plan((score,), ms("2026-10-25T03:00:00Z"))
    whole = spec(fire_all(9), hourly.pattern)
    # At 01:00 UTC the clock goes back to 2:00, and an expression for every hour follows it.
    expected = tuple(ms(f"2026-10-{day}T{hour}:00:00Z") for day, hour in NIGHT)
    assert plan(whole, score, now_ms, TICK, MOST).fires == expected


NIGHT = [("24", "22"), ("24", "23"), ("25", "00"), ("25", "01"), ("25", "02")]


def test_a_score_between_windows_fires_once_and_then_the_clock_is_followed() -> None:
    """Other programs write scores with stray milliseconds."""
    minutes = spec(fire_all(9), RepeatPattern.cron("* * * * *"))
    score = ms("2026-01-01T00:05:10.293Z")
    found = plan(minutes, score, ms("2026-01-01T00:07:30Z"), TICK, MOST)
    assert found.fires == (score, ms("2026-01-01T00:06:00Z"), ms("2026-01-01T00:07:00Z"))
    assert found.next_ms == ms("2026-01-01T00:08:00Z")


# -- the end -------------------------------------------------------------------------------------

ENDS = [  # (policy, end_before, how many intervals late, which windows fire, which is next)
    (SKIP, -0.1, 0, (), None),  # written when the end had passed already
    (SKIP, -0.1, 5.5, (), None),
    (SKIP, 0, 0, (0,), None),
    (SKIP, 0, 5.5, (0,), None),  # a single one
    (SKIP, 0.5, 5.5, (0,), None),
    (SKIP, 1, 0, (0,), 1),
    (SKIP, 1, 5.5, (), None),
    (ONCE, 1, 5.5, (0,), None),
    (fire_all(9), 0.9999, 5.5, (0,), None),
    (fire_all(9), 1, 5.5, (0, 1), None),
    (fire_all(9), 2.5, 5.5, (0, 1, 2), None),
    (fire_all(2), 2.5, 5.5, (0, 1), None),
    (fire_all(9), 5, 5.05, (0, 1, 2, 3, 4, 5), None),
    (SKIP, 5, 5.05, (5,), None),
    (SKIP, 4.9, 5.05, (), None),
    (SKIP, 5.5, 5.05, (5,), None),
    (SKIP, 6, 5.05, (5,), 6),
    (SKIP, 5.9999, 5.5, (), None),
    (SKIP, 6, 5.5, (), 6),
]


@pytest.mark.parametrize(("missed", "end", "late", "fires", "coming"), ENDS, ids=shown)
def test_no_window_exists_after_end_before(
    missed: MissedFiresPolicy, end: float, late: float, fires: tuple[int, ...], coming: int | None
) -> None:
    [end_ms] = at(end)
    found = plan(spec(missed, end=end_ms), BASE, BASE + round(late * N), TICK, MOST)
    assert found == Plan(at(*fires), None if coming is None else at(coming)[0])


def test_the_beginning_of_time_is_an_end_too() -> None:
    assert plan(spec(end=0), BASE, BASE, TICK, MOST) == Plan((), None)
    assert plan(spec(end=0), 0, BASE, TICK, MOST) == Plan((0,), None)


def test_a_pattern_that_runs_out_of_years_ends_its_spec() -> None:
    first, last = ms("2030-01-01T00:00:00Z"), ms("2031-01-01T00:00:00Z")
    assert first_fire(YEARS, ms("2026-05-05T00:00:00Z")) == first
    assert plan(spec(SKIP, YEARS), first, first, TICK, MOST) == Plan((first,), last)
    assert plan(spec(SKIP, YEARS), last, last, TICK, MOST) == Plan((last,), None)
    late = last + 10**10
    assert plan(spec(SKIP, YEARS), first, late, TICK, MOST) == Plan((), None)
    assert plan(spec(ONCE, YEARS), first, late, TICK, MOST) == Plan((first,), None)
    assert plan(spec(fire_all(5), YEARS), first, late, TICK, MOST) == Plan((first, last), None)
    assert first_fire(YEARS, last) is None
    assert take_up(spec(SKIP, YEARS), first, last) is None
    assert upcoming(spec(SKIP, YEARS), first, 5) == [first, last]


def test_no_window_is_beyond_what_a_score_can_tell() -> None:
    huge = RepeatPattern.every(MAX_MS - 10)
    assert first_fire(huge, 9) == MAX_MS - 1
    assert first_fire(huge, 10) is None
    assert first_fire(RepeatPattern.every(MAX_MS), 0) is None
    assert plan(spec(SKIP, huge), 9, BASE, TICK, MOST) == Plan((9,), MAX_MS - 1)
    assert plan(spec(SKIP, huge), BASE, BASE, TICK, MOST) == Plan((BASE,), None)
    assert upcoming(spec(SKIP, huge), 9, 5) == [9, MAX_MS - 1]
    assert take_up(spec(SKIP, huge), 9, BASE) == MAX_MS - 1
    assert take_up(spec(SKIP, huge), 10, BASE) is None


# -- plans that were cut -------------------------------------------------------------------------


def test_a_long_catch_up_is_cut_and_goes_on_with_what_is_left() -> None:
    long, now_ms = spec(fire_all(7)), BASE + round(9.5 * N)
    one = plan(long, BASE, now_ms, TICK, 3)
    assert one == Plan(at(0, 1, 2), at(3)[0], 4)
    two = plan(long, at(3)[0], now_ms, TICK, 3, one.left)
    assert two == Plan(at(3, 4, 5), at(6)[0], 1)
    three = plan(long, at(6)[0], now_ms, TICK, 3, two.left)
    assert three == Plan(at(6), at(10)[0])


def test_a_cut_that_uses_up_the_allowance_leaves_nothing_to_catch_up() -> None:
    assert plan(spec(fire_all(3)), BASE, at(9.5)[0], TICK, 3) == Plan(at(0, 1, 2), at(10)[0])
    assert plan(spec(fire_all(3)), BASE, at(9)[0], TICK, 3) == Plan(at(0, 1, 2), at(9)[0])
    assert plan(spec(ONCE), BASE, at(9.05)[0], TICK, 1) == Plan(at(0), at(9)[0])
    assert plan(spec(ONCE), at(9)[0], at(9.05)[0], TICK, 1) == Plan(at(9), at(10)[0])


def test_windows_on_time_are_cut_and_go_on_without_an_allowance() -> None:
    fast = spec(SKIP, RepeatPattern.every(100))
    one = plan(fast, BASE, BASE + 550, TICK, 4)
    assert one == Plan((BASE, BASE + 100, BASE + 200, BASE + 300), BASE + 400)
    assert plan(fast, BASE + 400, BASE + 550, TICK, 4).fires == (BASE + 400, BASE + 500)


def test_a_plan_that_is_just_not_cut_is_over() -> None:
    assert plan(spec(fire_all(9)), BASE, at(2.5)[0], TICK, 3) == Plan(at(0, 1, 2), at(3)[0])
    ends = spec(fire_all(9), end=at(2)[0])
    assert plan(ends, BASE, at(9)[0], TICK, 3) == Plan(at(0, 1, 2), None)
    assert plan(ends, BASE, at(9)[0], TICK, 2) == Plan(at(0, 1), at(2)[0], 7)


LEFT = [  # (the policy by now, what was left of the catch-up, which windows fire)
    (fire_all(100), 2, (0, 1)),
    (fire_all(100), 0, ()),
    (fire_all(100), -5, ()),
    (fire_all(3), 50, (0, 1, 2)),  # a spec that was written anew meanwhile
    (fire_all(3), 10**30, (0, 1, 2)),
    (ONCE, 50, (0,)),
    (SKIP, 50, ()),
]


@pytest.mark.parametrize(("missed", "left", "fires"), LEFT, ids=shown)
def test_a_catch_up_goes_on_as_the_policy_is_by_now(
    missed: MissedFiresPolicy, left: int, fires: tuple[int, ...]
) -> None:
    assert plan(spec(missed), BASE, at(5.5)[0], TICK, MOST, left).fires == at(*fires)


# -- the first fire, the next ones, and those after a pause --------------------------------------

FIRST = [  # (pattern, now, start_after, first fire)
    (EVERY, BASE, None, BASE + N),
    (EVERY, BASE, 0, BASE + N),
    (EVERY, BASE, BASE - 5, BASE + N),
    (EVERY, BASE, BASE, BASE + N),
    (EVERY, BASE, BASE + 5, BASE + 5 + N),
    (RepeatPattern.every(1), BASE, None, BASE + 1),
    (YEARS, BASE, ms("2030-01-01T00:00:00Z"), ms("2031-01-01T00:00:00Z")),
    (YEARS, BASE, ms("2030-01-01T00:00:00Z") - 1, ms("2030-01-01T00:00:00Z")),
    (YEARS, BASE, ms("2031-01-01T00:00:00Z"), None),
    (
        RepeatPattern.cron("0 9 * * *", tz="Asia/Tokyo"),
        ms("2026-01-01T00:00:00Z"),
        None,
        ms("2026-01-02T00:00:00Z"),
    ),
]


@pytest.mark.parametrize(("pattern", "now_ms", "start", "expected"), FIRST, ids=shown)
def test_a_spec_first_fires_after_now_and_after_its_start(
    pattern: RepeatPattern, now_ms: int, start: int | None, expected: int | None
) -> None:
    assert first_fire(pattern, now_ms, start) == expected


TAKE_UP = [  # (where it stood, now, end_before, next fire)
    (0, -1, None, 0),
    (0, 0, None, 1),  # what is past is left out; now is past
    (0, 0.5, None, 1),
    (0, 7.5, None, 8),
    (0, 8, None, 9),
    (3, 0, None, 3),
    (3, 0, 3, 3),
    (3, 0, 2.9, None),
    (0, 7.5, 8, 8),
    (0, 7.5, 7.9, None),
]


@pytest.mark.parametrize(("stood", "now", "end", "expected"), TAKE_UP, ids=shown)
def test_a_spec_that_is_taken_up_again_keeps_its_cadence(
    stood: float, now: float, end: float | None, expected: float | None
) -> None:
    one = spec(fire_all(U32), end=None if end is None else at(end)[0])
    found = take_up(one, at(stood)[0], at(now)[0])
    assert found == (None if expected is None else at(expected)[0])


def test_upcoming_fires_begin_with_the_next_and_stop_at_the_end() -> None:
    assert upcoming(spec(), BASE, 3) == list(at(0, 1, 2))
    assert upcoming(spec(end=at(1.5)[0]), BASE, 3) == list(at(0, 1))
    assert upcoming(spec(end=at(1)[0]), BASE, 3) == list(at(0, 1))
    assert upcoming(spec(end=BASE - 1), BASE, 3) == []
    assert upcoming(spec(), BASE, 0) == []


# -- patterns ------------------------------------------------------------------------------------


def test_the_windows_of_an_interval_lie_on_both_sides_of_its_anchor() -> None:
    after = windows(RepeatPattern.every(10), 100)
    assert [after(at_ms) for at_ms in (85, 89, 90, 99, 100, 109, 110)] == [
        90, 90, 100, 100, 110, 110, 120,
    ]  # fmt: skip


NEVER = [
    RepeatPattern("every"),
    RepeatPattern("every", interval_ms=0),
    RepeatPattern("every", interval_ms=-1),
    RepeatPattern("yearly", interval_ms=5),
    RepeatPattern("unreadable"),
    RepeatPattern("cron"),
    RepeatPattern("cron", "* * *"),
    RepeatPattern("cron", "* * * * *", "Mars/Olympus"),
    RepeatPattern("cron", "0 0 30 2 *"),
]


@pytest.mark.parametrize("pattern", NEVER, ids=shown)
def test_a_pattern_that_cannot_fire_is_refused_everywhere(pattern: RepeatPattern) -> None:
    calls: list[Any] = [
        lambda: first_fire(pattern, BASE),
        lambda: plan(spec(SKIP, pattern), BASE, BASE + N, TICK, MOST),
        lambda: take_up(spec(SKIP, pattern), BASE, BASE + N),
        lambda: upcoming(spec(SKIP, pattern), BASE, 3),
    ]
    for call in calls:
        with pytest.raises(ConfigError):
            call()


def test_fires_are_shown_on_the_clock_of_their_pattern() -> None:
    assert zone(EVERY) is UTC
    assert zone(RepeatPattern.cron("* * * * *", tz="Asia/Tokyo")) == ZoneInfo("Asia/Tokyo")
    half = zone(RepeatPattern.cron("* * * * *", tz="+05:30"))
    assert half.utcoffset(None) == timedelta(hours=5, minutes=30)
