"""When a spec fires, beside a model that walks through all windows one by one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq.config import U32
from chasquimq.policy import repeat
from chasquimq.policy.cron import read_cron
from chasquimq.policy.repeat import Plan, first_fire, plan, take_up, upcoming
from chasquimq.repeat import MissedFiresPolicy, RepeatPattern, StoredSpec

EVERYTHING = MissedFiresPolicy.fire_all(U32)
POLICIES = st.sampled_from(
    [MissedFiresPolicy.skip(), MissedFiresPolicy.fire_once(), EVERYTHING]
) | st.builds(MissedFiresPolicy.fire_all, st.integers(1, 60))
MOST = 30  # windows that lie between a score and now

# An hour or two before a clock is turned in each zone, in spring and in autumn of 2026.
ZONES = {
    None: [1_767_225_600_000],
    "+05:30": [1_767_225_600_000],
    "Europe/Berlin": [1_774_738_800_000, 1_792_882_800_000],
    "America/New_York": [1_772_949_600_000, 1_793_505_600_000],
    "Australia/Lord_Howe": [1_775_311_200_000, 1_791_034_200_000],
}
CRONS = [
    "* * * * * *",
    "*/20 * * * * *",
    "*/10 * * * *",
    "0 * * * *",
    "30 2 * * *",
    "15,45 1-3 * * *",
    "0 0 1 * *",
    "0 0 29 2 *",
    "0 0 12 1 1 * 2026-2029",
]


class Case(NamedTuple):
    spec: StoredSpec
    score: int
    now: int  # at the score or later
    tick: int


def all_windows(spec: StoredSpec, score: int, until: int) -> list[int]:
    """The score and what follows it, one by one, up to `until`, and one more if there is one."""
    found, pattern = [score], spec.pattern
    while found[-1] <= until:
        if pattern.interval_ms:
            found.append(found[-1] + pattern.interval_ms)
        else:
            coming = read_cron(pattern.expression or "", pattern.tz).after(found[-1])
            if coming is None:
                break
            found.append(coming)
    return [at for at in found if spec.end_before_ms is None or at <= spec.end_before_ms]


def model(case: Case) -> tuple[list[int], list[int], int | None]:
    """(missed windows that fire, those on time, the next one), if nothing is cut."""
    spec, score, now, tick = case
    walked = all_windows(spec, score, now)
    due = [at for at in walked if at <= now]
    coming = next((at for at in walked if at > now), None)
    if len(due) == 1:
        return [], due, coming
    missed, on_time = [at for at in due if now - at > tick], [at for at in due if now - at <= tick]
    many = {"skip": 0, "fire-once": 1, "fire-all": spec.missed_fires.max_catchup}
    return missed[: many[spec.missed_fires.kind]], on_time, coming


def spec_of(draw: Any, pattern: RepeatPattern, span: list[int]) -> StoredSpec:
    """With an end on a window, between two, before all, after all, or with none."""
    ends = st.none() | st.builds(int.__add__, st.sampled_from(span), st.integers(-2, 2))
    return StoredSpec(
        key="k",
        job_name="",
        pattern=pattern,
        payload=b"",
        end_before_ms=draw(ends | st.integers(span[0], span[-1])),
        missed_fires=draw(POLICIES),
    )


@st.composite
def intervals(draw: Any) -> Case:
    interval = draw(st.integers(1, 20) | st.integers(1, 5_000))
    score = draw(st.integers(0, 10_000) | st.integers(1_700_000_000_000, 1_800_000_000_000))
    pattern = RepeatPattern.every(interval)
    now = score + draw(st.integers(0, MOST)) * interval + draw(st.integers(0, interval - 1))
    spec = spec_of(draw, pattern, list(range(score, now + 3 * interval, interval)))
    # Ticks at which some window is just on time, or just was not.
    edges = st.builds(lambda n, by: max(0, now - score - n * interval + by), COUNTS, NEAR)
    return Case(spec, score, now, draw(st.integers(0, 3_000) | edges))


COUNTS, NEAR = st.integers(0, MOST), st.integers(-1, 1)


@st.composite
def crons(draw: Any) -> Case:
    tz = draw(st.sampled_from(list(ZONES)))
    pattern = RepeatPattern.cron(draw(st.sampled_from(CRONS)), tz=tz)
    after = read_cron(pattern.expression or "", tz).after
    begin = draw(st.sampled_from(ZONES[tz])) + draw(st.integers(0, 3 * 3_600_000))
    walk = [first for first in [after(begin)] if first is not None]
    while len(walk) <= MOST and (coming := after(walk[-1])) is not None:
        walk.append(coming)
    # Other programs write scores with stray milliseconds.
    score = walk[0] + draw(st.just(0) | st.integers(1, 999))
    place = draw(st.integers(0, len(walk) - 1))
    # Where nothing follows, the pattern is over, or as far as we walked.
    until = walk[place + 1] if place + 1 < len(walk) else walk[place] + 999
    now = max(score, draw(st.integers(walk[place], until)))
    return Case(spec_of(draw, pattern, walk), score, now, draw(st.integers(0, 10**8)))


CASES = intervals() | crons()
NO_END = CASES.map(lambda case: case._replace(spec=endless(case.spec)))


def endless(spec: StoredSpec, missed: MissedFiresPolicy | None = None) -> StoredSpec:
    return StoredSpec(
        key="k",
        job_name="",
        pattern=spec.pattern,
        payload=b"",
        missed_fires=missed or spec.missed_fires,
    )


# -- one plan ------------------------------------------------------------------------------------


@given(CASES)
def test_a_plan_is_what_a_walk_through_all_windows_finds(case: Case) -> None:
    missed, on_time, coming = model(case)
    assert plan(*case, 10**9) == Plan((*missed, *on_time), coming)


@given(CASES, st.integers(1, MOST))
def test_a_plan_that_was_cut_is_the_beginning_of_the_whole(case: Case, most: int) -> None:
    missed, on_time, coming = model(case)
    whole, found = [*missed, *on_time], plan(*case, most)
    assert list(found.fires) == whole[:most]
    assert found.next_ms == (whole[most] if most < len(whole) else coming)
    if most < len(missed):
        kind, many = case.spec.missed_fires.kind, case.spec.missed_fires.max_catchup
        assert found.left == (1 if kind == "fire-once" else many or 0) - most
    else:
        assert found.left is None


@given(CASES, st.integers(1, MOST), st.none() | st.integers(0, 5))
def test_whatever_is_planned_holds_to_the_rules(case: Case, most: int, left: int | None) -> None:
    spec, score, now, _ = case
    fires, next_ms, rest = plan(*case, most, left)
    named = all_windows(spec, score, now)
    assert set(fires) <= set(named)
    assert all(one < other for one, other in pairwise(fires))
    assert all(score <= at <= now for at in fires)
    assert len(fires) <= most
    assert next_ms is None or next_ms in named
    assert not fires or next_ms is None or next_ms > fires[-1]
    if next_ms is not None and next_ms <= now:
        assert len(fires) == most, "what is due may only be left for later by a cut"
    assert rest is None or (rest > 0 and next_ms is not None and next_ms <= now)


@given(CASES, st.integers(1, 10**6))
def test_nothing_fires_before_its_time(case: Case, early: int) -> None:
    spec, score, _, tick = case
    over = spec.end_before_ms is not None and score > spec.end_before_ms
    assert plan(spec, score, score - early, tick, 10) == Plan((), None if over else score)


@given(CASES, st.lists(st.integers(1, 7), min_size=1, max_size=8))
def test_in_pieces_the_same_windows_fire_as_in_one_go(case: Case, cuts: list[int]) -> None:
    """For every policy and at every edge: a window that is left for the next piece is on time or
    missed as it was, since now is the same; a single one left over was to fire anyway."""
    fires: list[int] = []
    score, left, place = case.score, None, 0
    while True:
        piece = plan(case.spec, score, case.now, case.tick, cuts[place % len(cuts)], left)
        fires += piece.fires
        if piece.next_ms is None or piece.next_ms > case.now:
            break
        assert piece.next_ms > score
        score, left, place = piece.next_ms, piece.left, place + 1
    assert Plan(tuple(fires), piece.next_ms) == plan(*case, 10**9)


# -- a scheduler that ticks ----------------------------------------------------------------------


class Watch(NamedTuple):
    fired: list[int]
    score: int | None


def run(case: Case, gaps: list[int], most: int, drain: bool, each: Any = None) -> Watch:
    """Tick after each gap; with `drain` until nothing is due, else one plan per tick."""
    fired: list[int] = []
    score: int | None = case.score
    left, now = None, case.score - 1
    for gap in gaps:
        now += gap
        while score is not None and score <= now:
            piece = plan(case.spec, score, now, case.tick, most, left)
            if each:
                each(score, now, piece)
            fired += piece.fires
            score, left = piece.next_ms, piece.left
            if not drain:
                break
    return Watch(fired, score)


def step(case: Case) -> int:
    """From its score to the next window."""
    score, *later = all_windows(endless(case.spec), case.score, case.score)
    return later[0] - score if later else 1_000


def gaps_of(case: Case, parts: list[float]) -> list[int]:
    """Gaps around an interval, some of many."""
    return [round(part * step(case)) for part in parts]


def assert_none_lost(case: Case, fired: list[int], score: int | None) -> None:
    rest = [] if score is None else [score]
    walked = all_windows(case.spec, case.score, 2**53 if score is None else score - 1)
    assert fired + rest == walked


PARTS = st.lists(st.sampled_from([0.0, 0.01, 0.3, 1.0, 1.5]) | st.floats(0, 6), max_size=8)


@given(NO_END, PARTS)
def test_no_window_fires_twice_at_whatever_times_a_scheduler_ticks(
    case: Case, parts: list[float]
) -> None:
    for most, drain in ((1, False), (2, True), (1_000, True)):
        fired, score = run(case, gaps_of(case, parts), most, drain)
        assert all(one < other for one, other in pairwise(fired))
        assert score is None or not fired or score > fired[-1]


@given(NO_END, PARTS)
def test_fire_all_loses_no_window_at_whatever_times_a_scheduler_ticks(
    case: Case, parts: list[float]
) -> None:
    case = case._replace(spec=endless(case.spec, EVERYTHING))
    for most, drain in ((1, False), (2, True), (1_000, True)):
        fired, score = run(case, gaps_of(case, parts), most, drain)
        assert_none_lost(case, fired, score)


@given(NO_END, st.data())
def test_no_window_is_lost_while_no_gap_is_longer_than_a_tick(case: Case, data: Any) -> None:
    """Not even when a gap is a millisecond longer: a window at the last tick has fired then."""
    tick = min(case.tick, 20 * step(case))
    case = case._replace(tick=tick)
    gaps = data.draw(st.lists(st.just(tick + 1) | st.integers(0, tick + 1), max_size=12))
    for most in (1, 7, 10_000):
        fired, score = run(case, gaps, most, drain=True)
        assert_none_lost(case, fired, score)


@given(NO_END, PARTS)
def test_skip_fires_nothing_older_than_a_tick_but_a_single_window(
    case: Case, parts: list[float]
) -> None:
    case = case._replace(spec=endless(case.spec, MissedFiresPolicy.skip()))

    def look(score: int, now: int, piece: Plan) -> None:
        old = [at for at in piece.fires if now - at > case.tick]
        assert not old or [at for at in all_windows(case.spec, score, now) if at <= now] == old

    run(case, gaps_of(case, parts), 1_000, drain=True, each=look)


@given(intervals(), PARTS, st.integers(1, 50))
def test_an_interval_keeps_its_cadence(case: Case, parts: list[float], most: int) -> None:
    interval = case.spec.pattern.interval_ms or 0
    fired, score = run(case, gaps_of(case, parts), most, drain=True)
    assert {(at - case.score) % interval for at in fired} <= {0}
    assert score is None or (score - case.score) % interval == 0


# -- the first fire, the next ones, and those after a pause --------------------------------------


@given(CASES)
def test_what_is_taken_up_again_is_the_first_window_that_has_not_passed(case: Case) -> None:
    spec, score, now, _ = case
    assert take_up(spec, score, now) == model(case)[2]
    over = spec.end_before_ms is not None and score > spec.end_before_ms
    assert take_up(spec, score, score - 1) == (None if over else score)


@given(CASES, st.integers(0, 12))
def test_upcoming_fires_are_those_of_a_scheduler_that_is_never_late(case: Case, count: int) -> None:
    spec, score, _, tick = case
    fired: list[int] = []
    coming: int | None = score
    while coming is not None and len(fired) < count:
        fires, coming, _ = plan(spec, coming, coming, tick, 1)
        fired += fires
    assert upcoming(spec, score, count) == fired


@given(CASES, st.none() | st.integers(-(10**5), 10**5))
def test_the_first_fire_is_after_now_and_after_the_start(case: Case, start: int | None) -> None:
    spec, now = endless(case.spec), case.now
    start_after = None if start is None else max(0, now + start)
    begin = max(now, start_after or 0)
    found = first_fire(spec.pattern, now, start_after)
    if spec.pattern.interval_ms:
        assert found == begin + spec.pattern.interval_ms
    else:
        walked = all_windows(spec, case.score, begin)
        assert found == next((at for at in walked if at > begin), None)


# -- what it costs -------------------------------------------------------------------------------


def counted(calls: list[int], windows: Callable[..., repeat.After]) -> Callable[..., repeat.After]:
    def wrapped(pattern: RepeatPattern, anchor_ms: int) -> repeat.After:
        after = windows(pattern, anchor_ms)

        def count(at_ms: int) -> int | None:
            calls.append(at_ms)
            return after(at_ms)

        return count

    return wrapped


YEARS_MS = st.integers(0, 12 * 31_557_600_000)


@given(CASES, YEARS_MS, st.integers(1, 40))
def test_no_silence_is_so_long_that_it_is_walked_through(
    case: Case, silence: int, most: int
) -> None:
    calls: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeat, "windows", counted(calls, repeat.windows))
        found = plan(case.spec, case.score, case.now + silence, min(case.tick, 1_000), most)
        assert len(calls) <= len(found.fires) + 2
        calls.clear()
        take_up(case.spec, case.score, case.now + silence)
        first_fire(case.spec.pattern, case.now + silence, case.score)
        assert len(calls) <= 2
