"""Schedules without a server: planners and writers that come between each other in any order.

`Row` imitates what scripts keep and check. A planner sees what is due and fires it later; a writer
sees what is there and changes it later. Both are refused if the spec is not as they saw it; one
that is written anew may have moved on, if it is armed for a moment that is yet to come. The scripts
themselves are tested against servers; here stands what follows from such checks, with
`policy.repeat` as it is:

- until a spec is removed a window fires at most once, whoever plans it, and they only go forward;
- no limit is exceeded, nothing fires that was removed, paused or over;
- an interval keeps its cadence until its pattern changes, and fire-all loses none of its windows.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from chasquimq.config import U32
from chasquimq.policy.repeat import Plan, first_fire, plan, take_up
from chasquimq.repeat import PAUSED_MS, MissedFiresPolicy, RepeatPattern, StoredSpec
from tests.tiers import examples

TICK = 1_000
BEGIN = 1_792_889_999_000  # a second before a clock is turned back in Berlin
EVERYTHING = MissedFiresPolicy.fire_all(U32)
STEPS = {  # from window to window; some are in common
    RepeatPattern.every(700): 700,
    RepeatPattern.every(1_000): 1_000,
    RepeatPattern.every(2_000): 2_000,
    RepeatPattern.cron("* * * * * *"): 1_000,
    RepeatPattern.cron("*/2 * * * * *"): 2_000,
    RepeatPattern.cron("* * * * *", tz="Europe/Berlin"): 60_000,
}
PATTERNS = st.sampled_from(list(STEPS))
POLICIES = st.sampled_from(
    [EVERYTHING, MissedFiresPolicy.skip(), MissedFiresPolicy.fire_once()]
) | st.builds(MissedFiresPolicy.fire_all, st.integers(1, 9))
LIMITS = st.none() | st.none() | st.integers(1, 30)
LATER = st.none() | st.none() | st.none() | st.integers(0, 90_000)
PASSES = st.sampled_from([0, 1, 999, 1_000, 1_001, 2_000, 9_500, 30_000])
MOST = st.integers(1, 4) | st.just(1_000)
WHO = st.sampled_from(["one", "other"])


class Change(NamedTuple):
    """What somebody wants to be there; where nothing is said, as it is."""

    missed: MissedFiresPolicy
    limit: int | None = None
    pattern: RepeatPattern | None = None
    start_in: int | None = None
    end_in: int | None = None


ANEW = st.builds(Change, POLICIES, LIMITS, PATTERNS, LATER, LATER)
AGAIN = st.builds(Change, POLICIES, LIMITS, st.none(), st.none(), st.none())
CHANGES = ANEW | AGAIN | st.sampled_from(["pause", "resume"])


class Row(msgspec.Struct):
    spec: StoredSpec  # stands for its bytes
    score: int
    fired: int = 0
    stood: int | None = None  # of one that is paused
    catchup: tuple[int, int] | None = None  # how many, from which score on
    # What is remembered of it only to be checked:
    anchor: int = 0
    since: tuple[int, ...] = ()  # what fired since it was armed
    whole: bool = True  # none of its windows may be missing
    caught_up: int = 0  # in a catch-up that goes on
    allowed: int = 0

    @property
    def step(self) -> int:
        return STEPS[self.spec.pattern]


class Seen(NamedTuple):
    row: Row | None
    now: int


class Schedules(RuleBasedStateMachine):
    """One key, whose spec comes and goes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = BEGIN
        self.row: Row | None = None
        self.last = 0  # the latest window that fired since something is there
        self.planners: dict[str, Seen] = {}
        self.writers: dict[str, Seen] = {}

    def see(self) -> Seen:
        return Seen(self.row and msgspec.structs.replace(self.row), self.now)

    def stands_as(self, seen: Seen) -> bool:
        row, old = self.row, seen.row
        return (row and (row.score, row.stood)) == (old and (old.score, old.stood))

    def is_as(self, seen: Seen) -> bool:
        return self.stands_as(seen) and (self.row and self.row.spec) == (seen.row and seen.row.spec)

    @initialize(change=ANEW)
    def spec_is_there(self, change: Change) -> None:
        self.change(self.see(), change)

    @rule(by=PASSES)
    def time_passes(self, by: int) -> None:
        self.now += by

    def window_comes(self, late: int) -> bool:
        if self.row is None or self.row.stood is not None:
            return False
        self.now = max(self.now, self.row.score + late)
        return True

    # -- planners --------------------------------------------------------------------------------

    @rule(who=WHO, late=PASSES, most=MOST)
    def planner_sees_or_fires(self, who: str, late: int, most: int) -> None:
        if seen := self.planners.pop(who, None):
            self.fire(seen, most)
        elif self.window_comes(late):
            self.planners[who] = self.see()

    @rule(late=PASSES, most=MOST, times=st.integers(1, 3))
    def scheduler_ticks(self, late: int, most: int, times: int) -> None:
        for _ in range(times):
            if self.window_comes(late):
                self.fire(self.see(), most)

    def fire(self, seen: Seen, most: int) -> None:
        assert seen.row is not None
        spec, score, catchup = seen.row.spec, seen.row.score, seen.row.catchup
        left = catchup[0] if catchup and catchup[1] == score else None
        planned = plan(spec, score, seen.now, TICK, most, left)
        row = self.row
        if row is None or not self.is_as(seen):
            return
        self.holds_to_the_policy(row, seen.now, planned)
        may = max(spec.limit - row.fired, 0) if spec.limit else len(planned.fires)
        self.fires(row, planned.fires[:may])
        if planned.next_ms is None or (spec.limit and row.fired >= spec.limit):
            self.ends(row, seen.now)
            self.remove()
            return
        row.score = planned.next_ms
        row.catchup = None if planned.left is None else (planned.left, row.score)

    def holds_to_the_policy(self, row: Row, now: int, planned: Plan) -> None:
        """Of those that are late no more fire than the policy says, in however many pieces, or it
        is a single one."""
        policy, end = row.spec.missed_fires, row.spec.end_before_ms
        may = {"skip": 0, "fire-once": 1, "fire-all": policy.max_catchup}[policy.kind] or 0
        late = sum(now - at > TICK for at in planned.fires)
        if row.score + row.step <= (now if end is None else min(now, end)):
            assert late <= may
            assert late + row.caught_up <= max(may, row.allowed)
        row.allowed = max(may, row.allowed) if planned.left else 0
        row.caught_up = row.caught_up + late if planned.left else 0

    def fires(self, row: Row, fires: tuple[int, ...]) -> None:
        limit, end = row.spec.limit, row.spec.end_before_ms
        for at in fires:
            assert at > self.last, "a window fired twice, or after a later one"
            assert at <= self.now, "a window fired before its time"
            assert row.stood is None, "a paused spec fired"
            assert end is None or at <= end, "a spec fired after its end"
            assert (at - row.anchor) % row.step == 0, "the cadence was lost"
            self.last = at
            row.fired += 1
            assert not limit or row.fired <= limit, "the limit was exceeded"
        row.since += fires

    def ends(self, row: Row, now: int) -> None:
        if row.spec.limit and row.fired >= row.spec.limit:
            return
        end = row.spec.end_before_ms
        assert end is not None, "a spec without an end was removed"
        coming = row.anchor + ((now - row.anchor) // row.step + 1) * row.step
        assert coming > end, "a spec was removed that had a window to come"
        if row.whole:
            assert row.since == tuple(range(row.anchor, end + 1, row.step))

    # -- writers ---------------------------------------------------------------------------------

    @rule(who=WHO, change=CHANGES)
    def writer_sees_or_writes(self, who: str, change: Change | str) -> None:
        if seen := self.writers.pop(who, None):
            self.change(seen, change)
        else:
            self.writers[who] = self.see()

    @rule(change=AGAIN | st.sampled_from(["pause", "resume"]))
    def spec_is_changed_at_once(self, change: Change | str) -> None:
        before = self.row and (self.row.score, self.row.stood)
        self.change(self.see(), change)
        if isinstance(change, Change) and self.row:
            assert (self.row.score, self.row.stood) == before, "the next fire was moved"

    @rule(again=ANEW, stays_away=st.sampled_from([False, False, True]))
    def spec_is_removed(self, again: Change, stays_away: bool) -> None:
        self.remove()
        if not stays_away:
            self.change(self.see(), again)

    def remove(self) -> None:
        self.row, self.last = None, 0

    def change(self, seen: Seen, change: Change | str) -> None:
        old = seen.row
        if isinstance(change, Change):
            if old or change.pattern:
                self.put(seen, self.spec_of(old, change))
        elif old and change == "pause" and old.stood is None:
            self.move(seen, PAUSED_MS, old.score)
        elif old and change == "resume" and old.stood is not None:
            next_ms = take_up(old.spec, old.stood, seen.now)
            if next_ms is not None:
                assert next_ms > seen.now, "what has passed would fire"
                self.move(seen, next_ms, None)

    def spec_of(self, old: Row | None, change: Change) -> StoredSpec:
        if old and change.pattern is None:
            return msgspec.structs.replace(old.spec, missed_fires=change.missed, limit=change.limit)
        assert change.pattern is not None
        return StoredSpec(
            key="k",
            job_name="",
            pattern=change.pattern,
            payload=b"",
            limit=change.limit,
            start_after_ms=None if change.start_in is None else self.now + change.start_in,
            end_before_ms=None if change.end_in is None else self.now + change.end_in,
            missed_fires=change.missed,
        )

    def put(self, seen: Seen, spec: StoredSpec) -> None:
        old, next_ms = seen.row and seen.row.spec, None
        if not old or goes_elsewhere(old, spec):
            next_ms = first_fire(spec.pattern, seen.now, spec.start_after_ms)
            assert next_ms is not None
            assert next_ms > max(seen.now, spec.start_after_ms or 0)
            if spec.end_before_ms is not None and next_ms > spec.end_before_ms:
                return
        # From here on as a script: whether it goes on is known, whether it moved on is not.
        row, fires_all = self.row, spec.missed_fires == EVERYTHING
        if (row and row.spec) != old:
            return
        if next_ms is not None:
            assert not row or goes_elsewhere(row.spec, spec), "the cadence was lost"
            # If neither holds, it may have fired meanwhile, by the pattern that was there.
            if next_ms > self.now or self.stands_as(seen):
                fired = row.fired if row else 0
                self.row = Row(spec, next_ms, fired, anchor=next_ms, whole=fires_all)
        elif row:
            row.spec, row.whole = spec, row.whole and fires_all

    def move(self, seen: Seen, score: int, stood: int | None) -> None:
        if (row := self.row) and self.is_as(seen):
            # What passes while it is paused is left out, and a catch-up with it.
            row.whole = row.whole and stood is not None
            row.score, row.stood, row.catchup = score, stood, None

    # -- what holds at all times -----------------------------------------------------------------

    @invariant()
    def what_goes_on_goes_forward(self) -> None:
        if self.row:
            assert self.row.score > self.last
            assert (self.row.score == PAUSED_MS) == (self.row.stood is not None)

    @invariant()
    def fire_all_has_lost_no_window(self) -> None:
        row = self.row
        if row and row.whole:
            until = row.score if row.stood is None else row.stood
            assert row.since == tuple(range(row.anchor, until, row.step))


def goes_elsewhere(old: StoredSpec, new: StoredSpec) -> bool:
    return (old.pattern, old.start_after_ms) != (new.pattern, new.start_after_ms)


def test_whoever_comes_between_a_window_fires_at_most_once() -> None:
    run_state_machine_as_test(
        Schedules, settings=settings(max_examples=examples(200), stateful_step_count=40)
    )


def test_a_slow_writer_arms_no_window_that_fired_meanwhile() -> None:
    """Two patterns may have a window in common."""
    one = Schedules()
    one.change(one.see(), Change(EVERYTHING, pattern=RepeatPattern.cron("* * * * * *")))
    slow = one.see()
    one.scheduler_ticks(late=0, most=1, times=2)
    one.change(slow, Change(EVERYTHING, pattern=RepeatPattern.cron("*/2 * * * * *")))
    one.scheduler_ticks(late=0, most=1, times=2)


def test_a_slow_planner_fires_nothing_by_a_policy_that_is_no_more() -> None:
    one = Schedules()
    one.change(one.see(), Change(EVERYTHING, pattern=RepeatPattern.every(1_000)))
    one.window_comes(late=9_500)
    slow = one.see()
    one.change(one.see(), Change(MissedFiresPolicy.skip()))
    one.fire(slow, most=1_000)
    assert one.row is not None
    assert one.row.since == ()


def test_a_slow_resume_arms_no_window_that_fired_meanwhile() -> None:
    """Others resumed it, it fired, and they paused it again: only where it stood has changed."""
    one = Schedules()
    one.change(one.see(), Change(EVERYTHING, pattern=RepeatPattern.every(1_000)))
    one.change(one.see(), "pause")
    slow = one.see()
    one.change(one.see(), "resume")
    one.scheduler_ticks(late=0, most=1, times=1)
    one.change(one.see(), "pause")
    one.change(slow, "resume")
    one.scheduler_ticks(late=0, most=1, times=1)
