"""The pulse of a worker: how late its event loop is, and what its sinks are told of its health."""

from __future__ import annotations

import asyncio
import time

import pytest

from chasquimq import Health, InMemorySink, Job, MetricsSink
from chasquimq import health as health_module
from chasquimq.engine import checkup
from chasquimq.engine import pulse as pulse_module
from chasquimq.engine.pulse import BEAT_S, MEMORY_S, Pulse
from chasquimq.happening import Happening, Pulsed
from tests.engine.desk import Desk, eventually


async def nothing(job: Job) -> None:
    pass


class Clock:
    now = 0.0

    def time(self) -> float:
        return self.now


class Doctor(MetricsSink):
    def __init__(self) -> None:
        self.told: list[tuple[str, Health]] = []

    def pulse(self, worker: str, health: Health) -> None:
        self.told.append((worker, health))


async def test_a_loop_that_is_blocked_is_late_and_that_is_remembered_for_a_while() -> None:
    pulse, clock = Pulse("c", lambda happening: None, Health), Clock()
    pulse._loop = clock  # type: ignore[assignment]
    pulse._due = 0.0

    def beat(due: float, at: float) -> float:
        pulse._due, clock.now = due, at
        pulse.beat(at)
        pulse._due = at + BEAT_S
        return pulse.lag_s()

    assert beat(1.0, 1.0) == 0.0
    assert beat(2.0, 6.2) == pytest.approx(4.2)
    assert beat(7.0, 7.1) == pytest.approx(4.2)  # the worst, not the last
    assert beat(8.0, 8.5) == pytest.approx(4.2)
    clock.now = pulse._due = 6.3 + MEMORY_S
    assert pulse.lag_s() == pytest.approx(0.5)  # the worst of what is left
    clock.now = pulse._due = 9.0 + MEMORY_S
    assert pulse.lag_s() == 0.0
    clock.now += 7.0  # it has not come round to measuring yet
    assert pulse.lag_s() == pytest.approx(7.0)
    assert len(pulse._lags) < 5


async def test_it_is_told_at_every_beat_while_a_worker_is_ill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pulse_module, "PULSE_S", 3_600.0)
    told: list[Happening] = []
    well, ill = Health(state="running"), Health(state="starting")
    healths = iter([ill, ill, well, ill])
    pulse = Pulse("c", told.append, lambda: next(healths))
    async with asyncio.TaskGroup() as group:
        group.create_task(pulse.run())
        await eventually(lambda: len(told) == 3)
        pulse.stop()
    assert told == [Pulsed("c", one) for one in (ill, ill, well)]


async def test_it_is_told_again_and_again_while_a_worker_is_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pulse_module, "PULSE_S", BEAT_S)
    told: list[Happening] = []
    pulse = Pulse("c", told.append, lambda: Health(state="running"))
    async with asyncio.TaskGroup() as group:
        group.create_task(pulse.run())
        await eventually(lambda: len(told) == 3)
        pulse.stop()


async def test_a_handler_that_blocks_the_loop_is_a_problem_in_words(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_module, "PATIENCE_S", 0.2)

    async def blocks(job: Job) -> None:
        time.sleep(0.6)

    async with desk.queue() as queue, desk.working(blocks) as worker:
        await eventually(lambda: worker.health().healthy)
        await queue.add("", None)
        await eventually(lambda: worker.health().loop_lag_s > 0.2)
        health = worker.health()
        assert not health.healthy
        assert any("is a handler blocking it?" in problem for problem in health.problems)


async def test_sinks_are_told_how_a_worker_is_until_it_has_ended(desk: Desk) -> None:
    doctor = Doctor()
    async with desk.working(nothing, metrics=doctor, consumer_id="c-7"):
        await eventually(lambda: doctor.told and doctor.told[-1][1].healthy)
        assert doctor.told[-1][1].tasks["pulse"] == "running"
    assert {worker for worker, _ in doctor.told} == {"c-7"}
    assert doctor.told[-1][1] == Health(state="stopped")


async def test_the_last_word_of_one_that_fails_says_why(desk: Desk) -> None:
    doctor = Doctor()
    worker = desk.worker(nothing, metrics=doctor)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(_failing(worker.run()))
        await eventually(lambda: doctor.told)
        desk.redis.delete(desk.keys.stream)
        desk.redis.set(desk.keys.stream, "no stream")
        await running
    state, [problem] = doctor.told[-1][1].state, doctor.told[-1][1].problems
    assert (state, "WRONGTYPE" in problem or "no stream" in problem) == ("failed", True)


async def _failing(run: object) -> None:
    with pytest.raises(RuntimeError):
        await run  # type: ignore[misc]


async def test_a_stop_does_not_wait_for_a_pulse(desk: Desk) -> None:
    """Its sleep ends with it."""
    pulse = Pulse("c", lambda happening: None, lambda: Health(state="running"))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(pulse.run())
        await asyncio.sleep(0)
        pulse.stop()
        for _ in range(5):
            await asyncio.sleep(0)
        assert task.done()


async def test_a_reader_that_gets_only_errors_is_a_problem_and_one_that_is_full_is_not(
    own_desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkup, "PATIENCE_S", 0.2)
    go = asyncio.Event()

    async def waits(job: Job) -> None:
        await go.wait()

    options = {"read_block_ms": 50, "concurrency": 1}
    async with own_desk.queue() as queue, own_desk.working(waits, **options) as worker:
        await eventually(lambda: worker.health().healthy and worker.health().last_read_s)
        own_desk.redis.execute_command("ACL", "SETUSER", "default", "-xreadgroup")
        await eventually(lambda: any("no answer" in one for one in worker.health().problems))
        read_s = worker.health().last_read_s
        assert read_s is not None and read_s > worker.health().reading_limit_s
        own_desk.redis.execute_command("ACL", "SETUSER", "default", "+xreadgroup")
        await eventually(lambda: worker.health().healthy)
        await queue.add("", None)
        await eventually(lambda: worker.health().running == 1 and worker.health().reading_s is None)
        await eventually(lambda: (worker.health().last_read_s or 0) > 0.5)
        assert worker.health().healthy  # it does not ask, having its hands full
        go.set()


async def test_a_group_that_is_gone_is_told(desk: Desk) -> None:
    sink = InMemorySink()
    async with desk.working(nothing, metrics=sink, read_block_ms=50) as worker:
        await eventually(lambda: worker.health().healthy)
        desk.redis.xgroup_destroy(desk.keys.stream, "default")
        await eventually(lambda: sink.heard("group_recreated"))
        await eventually(lambda: worker.health().healthy)
        assert worker.health().counters.groups_recreated == len(sink.heard("group_recreated"))
        assert sink.rollup().worker.groups_recreated == len(sink.heard("group_recreated"))
        await eventually(lambda: [one.state for one in sink.healths.values()] == ["running"])
