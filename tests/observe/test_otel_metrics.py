"""What OpenTelemetry's meters count of workers and producers."""

from __future__ import annotations

import gc
import re
from typing import Any

import pytest

from chasquimq import BackoffSpec, Job, QueueFullError, UnrecoverableError
from chasquimq.health import Health
from chasquimq.observe.metrics import (
    JobOutcome,
    LockOutcome,
    MetricsSink,
    PromoterTick,
    SchedulerTick,
    listening,
)
from chasquimq.observe.otel_metrics import COUNTERS, GAUGES, HISTOGRAMS, OpenTelemetrySink
from tests.engine.desk import Desk, eventually
from tests.house.tree import ROOT
from tests.observe.spans import Telescope

PAGE = (ROOT / "docs/reference/metrics.md").read_text()
OF_PROMETHEUS = set(re.findall(r"^\| `(chasquimq_\w+)` \|", PAGE, re.MULTILINE))
IN_MS = {"chasquimq_promoter_oldest_pending_lag_seconds"}  # the reference's is `..._ms`


def in_prometheus(name: str, unit: str, *, counter: bool = False) -> str:
    """What an exporter to Prometheus makes of an instrument."""
    suffix = "_total" if counter else "_seconds" if unit == "s" else ""
    return f"chasquimq_{name.replace('.', '_')}{suffix}"


def test_exported_to_prometheus_the_names_are_those_of_our_own_exposition() -> None:
    ours = {in_prometheus(name, "", counter=True) for name in COUNTERS}
    ours |= {in_prometheus(name, unit) for name, (unit, *_) in (HISTOGRAMS | GAUGES).items()}
    assert ours - OF_PROMETHEUS == IN_MS
    # What a queue holds is asked of Redis by whoever shows it, and never told to a sink.
    asked = {name for name in OF_PROMETHEUS if name.startswith("chasquimq_queue_")}
    assert OF_PROMETHEUS - ours - asked == {"chasquimq_promoter_oldest_pending_lag_ms"}


def test_every_callback_is_counted() -> None:
    callbacks = {name for name in vars(MetricsSink) if not name.startswith("_")}
    assert callbacks <= set(vars(OpenTelemetrySink))


async def test_what_becomes_of_jobs_is_counted_by_name(desk: Desk) -> None:
    sky = Telescope()

    async def handler(job: Job) -> None:
        if job.name == "wrong":
            raise UnrecoverableError("never")
        if job.name == "flaky" and job.attempt == 0:
            raise ValueError("not yet")

    desk.put_raw(b"\xc1", b"broken")
    sink = sky.tracing.sink(desk.name)
    async with desk.queue(metrics=sink, max_stream_len=6) as queue:
        for name in ("fine", "fine", "flaky", "wrong"):
            await queue.add(name, 1)
        await queue.add("fine", 1, delay_ms=1)
        with pytest.raises(QueueFullError):
            await queue.add_bulk([{"name": "x", "data": 1}] * 4)
    backoff = BackoffSpec.fixed(20, jitter_ms=0)
    await desk.worker(handler, metrics=sink, burst=True, backoff=backoff).run()
    seen = sky.metrics()
    assert seen["chasquimq.jobs.added"] == {
        "delayed=no name=fine": 2,
        "delayed=no name=flaky": 1,
        "delayed=no name=wrong": 1,
        "delayed=yes name=fine": 1,
    }
    assert seen["chasquimq.adds.refused"] == {"": 4}
    assert seen["chasquimq.jobs.completed"] == {"name=fine": 3, "name=flaky": 1}
    assert seen["chasquimq.jobs.failed"] == {
        "kind=error name=flaky": 1,
        "kind=error name=wrong": 1,
    }
    assert seen["chasquimq.retries.scheduled"] == {"name=flaky": 1}
    assert seen["chasquimq.retry.backoff"] == {"": (1, 0.02)}
    assert seen["chasquimq.dlq.routed"] == {
        "name=broken reason=decode_failed": 1,
        "name=wrong reason=unrecoverable": 1,
    }
    assert {name: count for name, (count, _) in seen["chasquimq.handler.duration"].items()} == {
        "name=fine": 3,
        "name=flaky": 2,
        "name=wrong": 1,
    }
    assert seen["chasquimq.consumer.read"] == {"": 7}
    assert seen["chasquimq.promoter.promoted"] == {"": 2}


async def test_a_worker_s_gauges_are_there_while_it_runs(desk: Desk) -> None:
    sky = Telescope()
    sink = sky.tracing.sink(desk.name)
    async with desk.queue() as queue:
        await queue.add("later", 1, delay_ms=60_000)

    async def nothing(job: Job) -> None:
        pass

    async with desk.working(nothing, metrics=sink):
        await eventually(lambda: sky.metric("chasquimq.workers.healthy") == {"": 1})
        await eventually(lambda: sky.metric("chasquimq.delayed.zset.depth") == {"": 1})
        assert sky.metric("chasquimq.lock.held") == {"role=promoter": 1, "role=scheduler": 1}
        assert sky.metric("chasquimq.workers") == {"": 1}
        assert sky.metric("chasquimq.handlers.running") == {"": 0}
    seen = sky.metrics()
    gauges = {f"chasquimq.{name}" for name in GAUGES} - {"chasquimq.lock.held"}
    assert {name: seen[name] for name in gauges & set(seen) if seen[name]} == {}
    assert sky.metric("chasquimq.lock.held") == {"role=promoter": 0, "role=scheduler": 0}


# -- the sink alone ------------------------------------------------------------------------------


def test_times_are_in_seconds_with_bounds_to_match() -> None:
    sky = Telescope()
    sink = sky.tracing.sink("q")
    sink.job_outcome(JobOutcome("ok", 1, 2_500, "n"))
    sink.job_outcome(JobOutcome("timeout", 1, 2_500, "n"))
    described = sky.described()
    duration = described["chasquimq.handler.duration"]
    [point] = duration.data.data_points
    assert (duration.unit, point.sum) == ("s", 0.005)
    assert point.explicit_bounds == HISTOGRAMS["handler.duration"][2]
    assert sky.metric("chasquimq.jobs.failed") == {"kind=timeout name=n": 1}


def test_names_are_bounded_and_fit_to_be_shown() -> None:
    sky = Telescope()
    sink = sky.tracing.sink("q")
    sink.job_outcome(JobOutcome("ok", 1, 1, "\x1b[31m"))
    for number in range(3_000):
        sink.job_outcome(JobOutcome("ok", 1, 1, f"name-{number}"))
    counted = sky.metric("chasquimq.jobs.completed")
    assert len(counted) == 201
    assert counted["name=\\x1b[31m"] == 1
    assert counted["name=__other__"] == 3_000 - 199
    assert sum(counted.values()) == 3_001


def test_names_of_handlers_have_attributes_of_their_own() -> None:
    sky = Telescope()
    sink = sky.tracing.sink("q")
    for number in range(300):
        sink.job_outcome(JobOutcome("ok", 1, 1, f"name-{number}"))
    sink.job_outcome(JobOutcome("ok", 1, 1, "welcome"))  # a producer's, before the worker begins
    sink.handler_names(["welcome"])
    sink.job_outcome(JobOutcome("ok", 1, 1, "welcome"))
    counted = sky.metric("chasquimq.jobs.completed")
    assert (counted["name=welcome"], counted["name=__other__"]) == (1, 101)


def test_what_only_a_leader_knows_is_told_while_it_leads() -> None:
    sky = Telescope()
    sink = sky.tracing.sink("q")
    for role in ("promoter", "scheduler"):
        sink.promoter_lock_outcome(LockOutcome("acquired", role))
    sink.promoter_tick(PromoterTick(0, 7, 1_500))
    sink.scheduler_tick(SchedulerTick(0, 3, 250))
    seen = sky.metrics()
    assert seen["chasquimq.delayed.zset.depth"] == {"": 7}
    assert seen["chasquimq.promoter.oldest_pending_lag"] == {"": 1.5}
    assert seen["chasquimq.scheduler.specs"] == {"": 3}
    assert seen["chasquimq.scheduler.lag"] == {"": 0.25}
    sink.promoter_lock_outcome(LockOutcome("held", "promoter"))
    assert sky.metric("chasquimq.delayed.zset.depth") == {}
    assert sky.metric("chasquimq.scheduler.specs") == {"": 3}


def test_all_sinks_of_a_provider_are_asked_for_their_gauges() -> None:
    sky = Telescope()
    sinks = [OpenTelemetrySink(name, sky.meters) for name in ("a", "b", "c")]
    for depth, sink in enumerate(sinks):
        sink.promoter_tick(PromoterTick(0, depth, 0))
        sink.pulse("w", Health(state="running", running=depth))
    del sinks[1], sink
    gc.collect()
    points = sky.described()["chasquimq.delayed.zset.depth"].data.data_points
    assert {point.attributes["queue"]: point.value for point in points} == {"a": 0, "c": 2}
    points = sky.described()["chasquimq.handlers.running"].data.data_points
    assert {point.attributes["queue"]: point.value for point in points} == {"a": 0, "c": 2}


def test_workers_of_a_queue_are_added_up_and_one_that_ended_is_gone() -> None:
    sky, now = Telescope(), [0.0]
    sink = OpenTelemetrySink("q", sky.meters, lambda: now[0])
    sink.pulse("a", Health(state="running", running=2, held=5, loop_lag_s=0.5, threads_stuck=1))
    sink.pulse("b", Health(state="running", running=3, paused=True, problems=("no",)))
    seen = {name.removeprefix("chasquimq."): row.get("") for name, row in sky.metrics().items()}
    assert seen == {
        "workers": 2,
        "workers.healthy": 1,
        "workers.paused": 1,
        "handlers.running": 5,
        "jobs.queued": 0,
        "jobs.held": 5,
        "threads.busy": 0,
        "threads.stuck": 1,
        "event_loop.lag": 0.5,
    }
    sink.pulse("b", Health(state="stopped"))
    assert sky.metric("chasquimq.workers") == {"": 1}
    now[0] = 60.0  # a loop that is blocked does not say so
    assert sky.metric("chasquimq.event_loop.lag") == {"": 59.0}
    assert sky.metric("chasquimq.workers.healthy") == {"": 0}


@pytest.mark.parametrize(
    ("callback", "args", "name", "seen"),
    [
        ("leases_lost", (3,), "leases.lost", {"": 3}),
        ("given_back", (3,), "jobs.given_back", {"": 3}),
        ("swept", (2, 0), "ghosts.swept", {"": 2}),
        ("swept", (0, 4), "consumers.swept", {"": 4}),
        ("events_dropped", (3,), "events.dropped", {"": 3}),
        ("came_too_late", (3,), "jobs.came_too_late", {"": 3}),
        ("reconnected", ("reader",), "reconnects", {"connection=reader": 1}),
        ("refused", (3,), "adds.refused", {"": 3}),
        ("group_recreated", (), "groups.recreated", {"": 1}),
        ("spec_put_aside", ("k", "p"), "scheduler.put_aside", {"": 1}),
    ],
)
def test_what_is_only_counted_is_counted(
    callback: str, args: Any, name: str, seen: dict[str, int]
) -> None:
    sky = Telescope()
    sink = sky.tracing.sink("q")
    listening(sink)  # it is a sink as doors take one
    getattr(sink, callback)(*args)
    assert sky.metric(f"chasquimq.{name}") == seen
