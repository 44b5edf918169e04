"""Two schedulers, one of them stopped between its steps: each window fires exactly once.

Whatever happens between seeing that a spec is due and firing it: another leads, or both believe
they do; somebody removes, rewrites or pauses the spec. That the scheduler itself is cancelled or
cut off meanwhile is in `test_scheduler_cuts.py`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chasquimq.engine.scheduler import MOST
from chasquimq.happening import Fired
from chasquimq.job import Envelope
from chasquimq.store.specs import Seen, Specs
from chasquimq.wire import pack_envelope
from tests.engine.desk import Desk
from tests.engine.rivals import (
    ALL,
    CASES,
    KEY,
    MINUTE,
    Case,
    Rival,
    arm,
    data_of,
    fired,
    fired_once,
    lock_expires,
    nothing_left,
    now_ms,
    rivals,
    score,
    windows,
)

each_case = pytest.mark.parametrize("case", CASES, ids=str)


# -- who leads ------------------------------------------------------------------------------------


@each_case
async def test_two_that_both_believe_they_lead_fire_once(desk: Desk, case: Case) -> None:
    """They have the same holder id, so no lock tells them apart."""
    first_ms = await arm(desk, case)
    async with rivals(desk, "same", "same") as (first, second):
        await first.see()
        await second.see()
        await asyncio.gather(first.go_on(), second.go_on())
        assert first.leads and second.leads
        told = [it for rival in (first, second) for it in rival.told if isinstance(it, Fired)]
        await second.tick()
    fired_once(desk, case, first_ms)
    assert [it.job_id for it in told] == windows(first_ms, case.fires)


@each_case
async def test_one_that_wakes_up_after_another_fired_fires_nothing(desk: Desk, case: Case) -> None:
    first_ms = await arm(desk, case)
    async with rivals(desk, "one", "two") as (first, second):
        await first.see()
        lock_expires(desk)
        await second.tick()
        fired_once(desk, case, first_ms)
        await first.go_on()
        assert (first.leads, second.leads) == (False, True)
        assert not [it for it in first.told if isinstance(it, Fired)]
        await second.tick()
    fired_once(desk, case, first_ms)


@each_case
async def test_one_that_leads_no_longer_leaves_it_to_the_other(desk: Desk, case: Case) -> None:
    """The other has seen what is due and not fired it: nothing but the lock speaks against us."""
    first_ms = await arm(desk, case)
    async with rivals(desk, "one", "two") as (first, second):
        await first.see()
        lock_expires(desk)
        await second.see()
        await first.go_on()
        assert not first.leads
        assert fired(desk) == []
        await second.go_on()
        assert second.leads
    fired_once(desk, case, first_ms)


@each_case
async def test_one_whose_lock_expired_fires_only_when_it_has_it_again(
    desk: Desk, case: Case
) -> None:
    first_ms = await arm(desk, case)
    async with rivals(desk, "one") as (first,):
        await first.see()
        lock_expires(desk)
        await first.go_on()
        assert not first.leads
        assert fired(desk) == []
        await first.tick()
        assert first.leads
        await first.tick()
    fired_once(desk, case, first_ms)


# -- what becomes of the spec meanwhile -----------------------------------------------------------


@each_case
async def test_a_spec_that_is_removed_meanwhile_leaves_no_job_and_no_key(
    desk: Desk, case: Case
) -> None:
    await arm(desk, case)
    async with rivals(desk, "one") as (first,), desk.queue() as queue:
        await first.see()
        assert await queue.remove_repeatable_by_key("bill")
        await first.go_on()
        nothing_left(desk)
        await first.tick()
    nothing_left(desk)


@each_case
@pytest.mark.parametrize("half", ["member", "hash"])
async def test_a_spec_that_is_half_removed_meanwhile_is_not_brought_back(
    desk: Desk, case: Case, half: str
) -> None:
    """Another program removes in two steps, one of which is still to come."""
    await arm(desk, case)
    async with rivals(desk, "one") as (first,):
        steps = {
            "member": lambda: desk.redis.zrem(desk.keys.repeat, "bill"),
            "hash": lambda: desk.redis.delete(desk.keys.spec("bill")),
        }
        await first.see()
        steps.pop(half)()
        await first.go_on()
        await first.tick()
        for step in steps.values():
            step()
    nothing_left(desk)


@each_case
async def test_a_spec_that_is_removed_and_written_again_fires_from_then_on(
    desk: Desk, case: Case
) -> None:
    await arm(desk, case)
    async with rivals(desk, "one") as (first,), desk.queue() as queue:
        await first.see()
        assert await queue.remove_repeatable_by_key("bill")
        again_ms = now_ms(desk)
        every = {"kind": "every", "interval_ms": MINUTE}
        await queue.upsert_repeatable_job(
            "n", "old", repeat=every, key="bill", missed_fires=case.missed
        )
        await first.go_on()
        await first.tick()
    assert fired(desk) == []
    next_ms = score(desk)
    assert next_ms is not None
    assert next_ms >= again_ms + MINUTE
    assert desk.redis.hget(desk.keys.spec("bill"), "fired") is None


@each_case
async def test_a_job_carries_what_was_written_last_before_it_fired(desk: Desk, case: Case) -> None:
    first_ms = await arm(desk, case, data="old")
    async with rivals(desk, "one") as (first,), desk.queue() as queue:
        await first.see()
        every = {"kind": "every", "interval_ms": MINUTE}
        await queue.upsert_repeatable_job(
            "n", "new", repeat=every, key="bill", missed_fires=case.missed
        )
        assert await first.go_on() < 1, "what was changed is looked at again, and soon"
        assert fired(desk) == []
        await first.tick()
    fired_once(desk, case, first_ms)
    assert data_of(desk) == ["new"] * case.fires


@each_case
async def test_a_spec_that_is_paused_meanwhile_does_not_fire(desk: Desk, case: Case) -> None:
    first_ms = await arm(desk, case)
    async with rivals(desk, "one") as (first,), desk.queue() as queue:
        await first.see()
        assert await queue.pause_repeatable("bill")
        await first.go_on()
        await first.tick()
        assert fired(desk) == []
        [meta] = await queue.get_repeatable_jobs()
        assert (meta.paused, meta.next_fire_ms, meta.fired) == (True, first_ms, 0)
        assert await queue.resume_repeatable("bill")
        await first.tick()
    assert fired(desk) == []
    assert score(desk) == first_ms + case.due * MINUTE


@each_case
async def test_a_pause_that_saw_a_spec_before_it_fired_looks_again(
    desk: Desk, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be listed, and taken up, with a next fire that has been."""
    first_ms = await arm(desk, case)
    async with rivals(desk, "one") as (first,), desk.queue() as queue:
        see = Specs.see

        async def seen_too_early(self: Specs, key: str) -> tuple[int, Seen]:
            found = await see(self, key)
            await first.tick()
            return found

        with monkeypatch.context() as patched:
            patched.setattr(Specs, "see", seen_too_early)
            assert await queue.pause_repeatable("bill")
        [meta] = await queue.get_repeatable_jobs()
        assert (meta.paused, meta.next_fire_ms) == (True, first_ms + case.due * MINUTE)
        assert await queue.resume_repeatable("bill")
    fired_once(desk, case, first_ms)


@each_case
async def test_a_window_that_another_program_fired_meanwhile_is_not_fired_again(
    desk: Desk, case: Case
) -> None:
    """It has no lock of ours: it adds the job and writes the next score, as the reference does."""
    first_ms = await arm(desk, case)
    async with rivals(desk, "one") as (first,):
        await first.see()
        body = pack_envelope(Envelope("theirs", b"\xc0", now_ms(desk)))
        pipe = desk.redis.pipeline(transaction=True)
        pipe.xadd(desk.keys.stream, {"d": body, "n": "n"})
        pipe.hincrby(desk.keys.spec("bill"), "fired", 1)
        pipe.zadd(desk.keys.repeat, {"bill": first_ms + MINUTE})
        pipe.execute()
        await first.go_on()
        assert fired(desk) == ["theirs"]
        await first.tick()
    left = CASES[[(it.missed, it.due) for it in CASES].index((case.missed, 6))].fires
    left = min(left, case.due - 1)  # windows that are still due, as far as the policy wants them
    assert fired(desk) == ["theirs", *windows(first_ms + MINUTE, left)]
    assert score(desk) == first_ms + case.due * MINUTE


# -- many steps -----------------------------------------------------------------------------------


async def test_a_long_catch_up_goes_on_in_other_hands_within_its_allowance(desk: Desk) -> None:
    """More windows than one call fires: each is prepared by both, and made by another."""
    allowed = 2 * MOST + 300
    case = Case({"kind": "fire-all", "max_catchup": allowed}, allowed + 200, allowed)
    first_ms = await arm(desk, case)
    async with rivals(desk, "one", "two") as (first, second):
        for so_far in (MOST, 2 * MOST, allowed):
            await first.see()
            lock_expires(desk)
            await second.see()
            await second.go_on()
            await first.go_on()
            assert len(fired(desk)) == so_far
            lock_expires(desk)
            first, second = second, first
        await first.tick()
    fired_once(desk, case, first_ms)


@pytest.mark.parametrize("limit", [1, 4, 6, 9])
async def test_a_limit_is_kept_whoever_fires(desk: Desk, limit: int) -> None:
    """Six windows are due, and each scheduler has seen them all."""
    first_ms = await arm(desk, Case(ALL, 6, 6), limit=limit)
    async with rivals(desk, "same", "same") as (first, second):
        await first.see()
        await second.see()
        await asyncio.gather(first.go_on(), second.go_on())
        assert (score(desk) is None) == (limit <= 6)
        assert bool(desk.redis.exists(desk.keys.spec("bill"))) == (limit > 6)
        told = [it.job_id for one in (first, second) for it in one.told if isinstance(it, Fired)]
        await first.tick()
    assert fired(desk) == told == windows(first_ms, min(limit, 6))


STEPS = st.lists(st.sampled_from(["first", "second", "expire"]), max_size=20)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, same=st.booleans(), dues=st.lists(st.integers(1, 6), min_size=1, max_size=4))
async def test_in_whatever_order_two_take_their_steps(
    desk: Desk, steps: list[str], same: bool, dues: list[int]
) -> None:
    """Each step is half a tick of one of them, or the end of the lock, at any time."""
    for key in desk.redis.scan_iter(match=desk.keys.tag + b"*", count=10_000):
        desk.redis.delete(key)
    cases = {f"spec-{n}": Case(ALL, due, due) for n, due in enumerate(dues)}
    firsts = {key: await arm(desk, case, key) for key, case in cases.items()}
    async with rivals(desk, "one", "one" if same else "two") as (first, second):
        for step in steps:
            if step == "expire":
                lock_expires(desk)
                continue
            rival = first if step == "first" else second
            await (rival.go_on() if rival.halfway else rival.see())
        for rival in (first, second):
            if rival.halfway:
                await rival.go_on()
        lock_expires(desk)
        await second.tick()
    for key, case in cases.items():
        fired_once(desk, case, firsts[key], key)


async def test_attempts_that_are_changed_meanwhile_are_those_of_the_job(desk: Desk) -> None:
    """The spec's bytes are the same then: the override lies beside them."""
    case = CASES[0]
    first_ms = await arm(desk, case)
    async with rivals(desk, "one") as (first,), desk.queue() as queue:
        await first.see()
        again = {"kind": "every", "interval_ms": MINUTE}
        await queue.upsert_repeatable_job("n", "old", repeat=again, key=KEY, attempts=7)
        await first.go_on()
        await first.tick()
    fired_once(desk, case, first_ms)
    assert [each.retry and each.retry.max_attempts for each in desk.envelopes()] == [7]


async def fire(desk: Desk, rival: Rival, count: int) -> None:
    """Tick until so many have fired, and not a moment longer."""
    wait_s = 0.0
    while desk.waiting() < count:
        await asyncio.sleep(wait_s)
        wait_s = await rival.tick()


async def test_a_slow_writer_arms_no_window_that_has_fired_meanwhile(desk: Desk) -> None:
    """Two patterns may have a window in common: that which the writer planned, and which the spec
    fired before it was written."""
    each_second, the_same = (
        {"kind": "cron", "expression": expression}
        for expression in ("* * * * * *", "*/1 * * * * *")
    )
    async with rivals(desk, "one") as (first,), desk.queue() as queue:
        await queue.upsert_repeatable_job("n", 1, repeat=each_second, key=KEY)
        specs = (await queue._here().store()).specs
        put = specs.put

        async def late(*args: Any, **options: Any) -> bool:
            setattr(specs, "put", put)  # noqa: B010
            await fire(desk, first, 1)
            return await put(*args, **options)

        setattr(specs, "put", late)  # noqa: B010
        await queue.upsert_repeatable_job("n", 2, repeat=the_same, key=KEY)
        await fire(desk, first, 3)
    assert len(set(fired(desk))) == len(fired(desk)) == 3


async def test_a_slow_resume_arms_no_window_that_has_fired_meanwhile(desk: Desk) -> None:
    async with rivals(desk, "one") as (first,), desk.queue() as queue:
        await queue.upsert_repeatable_job(
            "n", 1, repeat={"kind": "every", "interval_ms": 40}, key=KEY
        )
        await queue.pause_repeatable(KEY)
        specs = (await queue._here().store()).specs
        move = specs.move

        async def late(*args: Any) -> bool:
            setattr(specs, "move", move)  # noqa: B010
            await queue.resume_repeatable(KEY)
            await fire(desk, first, 1)
            await queue.pause_repeatable(KEY)
            return await move(*args)

        setattr(specs, "move", late)  # noqa: B010
        await queue.resume_repeatable(KEY)
        await fire(desk, first, 3)
    assert len(set(fired(desk))) == len(fired(desk))
