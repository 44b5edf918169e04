"""Spans of adds and of runs, as an OpenTelemetry SDK sees them, on real servers."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanKind, StatusCode

from chasquimq import BackoffSpec, Job, QueueFullError, UnrecoverableError, sync
from chasquimq.observe.otel import OpenTelemetry
from chasquimq.trace import Origin, Run, unpack_carrier
from tests.engine.desk import Desk, eventually
from tests.observe.spans import Telescope, facts
from tests.servers import DIALECTS, Servers


async def nothing(job: Job) -> None:
    pass


async def work(desk: Desk, sky: Telescope, handler: Any = nothing, **options: Any) -> None:
    await desk.worker(handler, tracing=sky.tracing, burst=True, **options).run()


@pytest.fixture
def any_desk(servers: Servers, queue_name: str) -> Desk:
    """A queue of one's own where dialects make no difference."""
    return Desk(servers.shared(DIALECTS[0]), queue_name)


def origin(span: ReadableSpan) -> Origin:
    return Origin(span.context.trace_id, span.context.span_id, int(span.context.trace_flags))


def carriers(desk: Desk) -> list[Origin | None]:
    return [unpack_carrier(row[b"t"]) for _, row in desk.redis.xrange(desk.keys.stream)]


# -- spans of adds ---------------------------------------------------------------------------------


async def test_an_add_is_a_producer_s_span_under_the_caller_s(desk: Desk) -> None:
    sky = Telescope()
    tracer = sky.tracers.get_tracer("test")
    async with desk.queue(tracing=sky.tracing) as queue:
        with tracer.start_as_current_span("request") as request:
            job = await queue.add("mail", {"to": "x"})
            assert trace.get_current_span() is request
    add = sky.span("add")
    assert (add.name, add.kind) == (f"add {desk.name}", SpanKind.PRODUCER)
    assert add.parent == request.get_span_context()
    assert facts(add) == {
        "messaging.system": "chasquimq",
        "messaging.destination.name": desk.name,
        "messaging.operation.name": "add",
        "messaging.operation.type": "send",
        "messaging.message.id": job.id,
        "messaging.message.body.size": 6,
        "chasquimq.job.name": "mail",
    }
    assert add.status.status_code is StatusCode.UNSET
    assert carriers(desk) == [origin(add)]


async def test_a_bulk_is_one_span(desk: Desk) -> None:
    sky = Telescope()
    async with desk.queue(tracing=sky.tracing) as queue:
        await queue.add_bulk([{"name": "mail", "data": n} for n in range(3)])
    bulk = sky.span("add_bulk")
    assert facts(bulk)["messaging.batch.message_count"] == 3
    assert facts(bulk)["messaging.operation.name"] == "add_bulk"
    assert "messaging.message.id" not in facts(bulk)
    assert carriers(desk) == [origin(bulk)] * 3


async def test_an_add_that_was_refused_is_an_error(any_desk: Desk) -> None:
    sky = Telescope()
    async with any_desk.queue(tracing=sky.tracing, max_stream_len=1) as queue:
        await queue.add("a", 1)
        with pytest.raises(QueueFullError):
            await queue.add("b", 1)
    _, refused = sky.spans("add")
    assert refused.status.status_code is StatusCode.ERROR
    assert facts(refused)["error.type"] == "QueueFullError"
    assert [event.name for event in refused.events] == ["exception"]


def test_a_sync_queue_s_add_is_under_the_thread_s_span(desk: Desk) -> None:
    sky = Telescope()
    tracer = sky.tracers.get_tracer("test")
    options: dict[str, Any] = {"redis_url": desk.server.url, "dialect": desk.server.forced_dialect}
    with (
        sync.Queue(desk.name, tracing=sky.tracing, metrics=sky.tracing.sink("q"), **options) as q,
        tracer.start_as_current_span("request") as request,
    ):
        q.add("mail", 1)
    add = sky.span("add")
    assert add.parent == request.get_span_context()
    assert carriers(desk) == [origin(add)]
    assert sky.metric("chasquimq.jobs.added") == {"delayed=no name=mail": 1}


# -- spans of runs ---------------------------------------------------------------------------------


async def test_a_run_begins_a_trace_linked_to_the_add(desk: Desk) -> None:
    sky = Telescope()
    with sky.tracers.get_tracer("test").start_as_current_span("around it all"):
        async with desk.queue(tracing=sky.tracing) as queue:
            job = await queue.add("mail", 1)
        await work(desk, sky)
    add, run = sky.span("add"), sky.span("process")
    assert (run.name, run.kind) == (f"process {desk.name}", SpanKind.CONSUMER)
    assert run.parent is None, "not the add, and not what was around the worker's start"
    assert run.context.trace_id != add.context.trace_id
    [link] = run.links
    assert (link.context.trace_id, link.context.span_id) == (
        *(add.context.trace_id, add.context.span_id),
    )
    assert link.context.is_remote
    assert facts(run) == {
        "messaging.system": "chasquimq",
        "messaging.destination.name": desk.name,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": "default",
        "messaging.message.id": job.id,
        "chasquimq.job.name": "mail",
        "chasquimq.job.attempt": 1,
        "chasquimq.job.created_at_ms": job.created_at_ms,
    }
    assert run.status.status_code is StatusCode.UNSET


async def test_a_run_may_be_a_child_of_the_add(desk: Desk) -> None:
    sky = Telescope(parent=True)
    async with desk.queue(tracing=sky.tracing) as queue:
        await queue.add("mail", 1)
        await queue.add("later", 1, delay_ms=1)
    await work(desk, sky)
    add, later = sky.spans("add")
    runs = {facts(one)["chasquimq.job.name"]: one for one in sky.spans("process")}
    assert runs["mail"].parent is not None
    assert runs["mail"].parent.span_id == add.context.span_id
    assert runs["mail"].context.trace_id == add.context.trace_id
    assert len(runs["mail"].links) == 1
    assert (runs["later"].parent, list(runs["later"].links)) == (None, [])
    assert runs["later"].context.trace_id != later.context.trace_id


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_what_a_handler_does_is_under_its_run(desk: Desk, kind: str) -> None:
    """Ten jobs on one worker's place, each with a span of its own inside."""
    sky = Telescope()
    tracer = sky.tracers.get_tracer("library")

    async def handler(job: Job) -> None:
        with tracer.start_as_current_span(f"query {job.id}"):
            await asyncio.sleep(0)

    def plain(job: Job) -> None:
        with tracer.start_as_current_span(f"query {job.id}"):
            pass

    async with desk.queue() as queue:
        jobs = await queue.add_bulk([{"name": "n", "data": n} for n in range(10)])
    await work(desk, sky, handler if kind == "async" else plain, concurrency=1)
    runs, queries = sky.runs(), {one.name: one for one in sky.spans("query")}
    for job in jobs:
        inner, outer = queries[f"query {job.id}"], runs[job.id]
        assert inner.parent == outer.context
    assert not trace.get_current_span().get_span_context().is_valid


async def test_a_context_that_a_handler_leaves_behind_is_not_the_next_one_s(any_desk: Desk) -> None:
    sky = Telescope()
    tracer = sky.tracers.get_tracer("library")

    async def handler(job: Job) -> None:
        context.attach(trace.set_span_in_context(tracer.start_span("left open")))

    async with any_desk.queue() as queue:
        await queue.add_bulk([{"name": "n", "data": n} for n in range(5)])
    await work(any_desk, sky, handler, concurrency=1)
    assert [one.parent for one in sky.spans("process")] == [None] * 5
    assert len({one.context.trace_id for one in sky.spans("process")}) == 5


async def test_failures_say_what_follows_from_them(desk: Desk) -> None:
    sky = Telescope()

    async def handler(job: Job) -> None:
        if job.name == "wrong":
            raise UnrecoverableError("never")
        if job.attempt == 0:
            raise KeyError("secret")

    async with desk.queue() as queue:
        await queue.add("wrong", 1, job_id="wrong")
        await queue.add("flaky", 1, job_id="flaky")
    await work(desk, sky, handler, backoff=BackoffSpec.fixed(3, jitter_ms=0))
    spans = {
        (one["messaging.message.id"], one["chasquimq.job.attempt"]): span
        for span in sky.spans("process")
        for one in [facts(span)]
    }
    dead, failed, fine = (spans[key] for key in (("wrong", 1), ("flaky", 1), ("flaky", 2)))
    assert (dead.status.status_code, dead.status.description) == (
        *(StatusCode.ERROR, "UnrecoverableError"),
    )
    assert [event.name for event in dead.events] == ["exception", "dead"]
    assert dict(dead.events[1].attributes or {}) == {"chasquimq.dlq.reason": "unrecoverable"}
    assert facts(failed)["error.type"] == "KeyError"
    assert [event.name for event in failed.events] == ["exception", "retry"]
    assert dict(failed.events[1].attributes or {}) == {"chasquimq.retry.delay_ms": 3}
    assert (fine.status.status_code, list(fine.events)) == (StatusCode.UNSET, [])


async def test_messages_of_errors_can_be_kept_out(any_desk: Desk) -> None:
    sky = Telescope(record_exceptions=False)

    async def handler(job: Job) -> None:
        raise UnrecoverableError("card 4111 1111 1111 1111")

    async with any_desk.queue() as queue:
        await queue.add("n", 1)
    await work(any_desk, sky, handler)
    run = sky.span("process")
    assert [event.name for event in run.events] == ["dead"]
    assert run.status.description == "UnrecoverableError"
    assert "4111" not in run.to_json()


async def test_a_redelivered_run_says_so(desk: Desk) -> None:
    sky = Telescope()
    async with desk.queue(tracing=sky.tracing) as queue:
        await queue.add("n", 1)
    desk.abandon(1, deliveries=2)
    async with desk.working(nothing, tracing=sky.tracing, claim_min_idle_ms=200):
        await eventually(lambda: sky.spans("process"))
    run = facts(sky.span("process"))
    assert (run["chasquimq.job.attempt"], run["chasquimq.job.deliveries"]) == (3, 3)


# -- strangers -------------------------------------------------------------------------------------

PARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


STRANGE = [
    *(b"", b"junk", PARENT[:-2], b"ff" + PARENT[2:], b"\xff\x00" * 30, PARENT * 20, b"\r\n" * 9),
]


@pytest.mark.parametrize("parent", [False, True])
async def test_a_strange_field_is_as_good_as_none(
    desk: Desk, parent: bool, caplog: pytest.LogCaptureFixture
) -> None:
    sky = Telescope(parent=parent)
    for number, strange in enumerate(STRANGE):
        entry = desk.put(f"odd-{number}", 1, "n")
        [(_, row)] = desk.redis.xrange(desk.keys.stream, entry, entry)
        desk.redis.xdel(desk.keys.stream, entry)
        desk.redis.xadd(desk.keys.stream, {**row, b"t": strange})
    await work(desk, sky)
    runs = sky.runs()
    assert len(runs) == len(STRANGE)
    assert [(run.parent, list(run.links)) for run in runs.values()] == [(None, [])] * len(runs)
    assert (desk.dead(), desk.waiting()) == ([], 0)
    assert caplog.records == []


def test_strange_members_are_left_out_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    sky = Telescope()
    run = Run("q", "g", "\x1b[31mid", "n" * 5_000, 1, 0, 1, PARENT + b";\x1b[31m=1,,,")
    sky.tracing.running(run).completed()
    span = sky.span("process")
    [link] = span.links
    assert not link.context.trace_state
    assert facts(span)["messaging.message.id"] == "\\x1b[31mid"
    assert len(str(facts(span)["chasquimq.job.name"])) == 1024
    assert caplog.records == []


def test_a_state_goes_along() -> None:
    sky = Telescope()
    run = Run("q", "g", "id", "n", 1, 0, 1, PARENT + b";vendor=a,other@x=b")
    sky.tracing.running(run).completed()
    [link] = sky.span("process").links
    assert dict(link.context.trace_state) == {"vendor": "a", "other@x": "b"}


# -- without ---------------------------------------------------------------------------------------


async def test_what_is_not_sampled_is_carried_and_not_seen(any_desk: Desk) -> None:
    quiet = OpenTelemetry(TracerProvider(ParentBased(ALWAYS_OFF), shutdown_on_exit=False))
    async with any_desk.queue(tracing=quiet) as queue:
        await queue.add("n", 1)
    [found] = carriers(any_desk)
    assert found is not None
    assert found.flags & 1 == 0
    sky = Telescope()
    await work(any_desk, sky)
    assert len(sky.span("process").links) == 1


async def test_without_an_sdk_nothing_is_carried_and_jobs_run(any_desk: Desk) -> None:
    bare = OpenTelemetry()
    ran: list[str] = []

    async def handler(job: Job) -> None:
        ran.append(job.id)

    async with any_desk.queue(tracing=bare) as queue:
        job = await queue.add("n", 1)
    [(_, row)] = any_desk.redis.xrange(any_desk.keys.stream)
    assert set(row) == {b"d", b"n"}
    await any_desk.worker(handler, tracing=bare, metrics=bare.sink("q"), burst=True).run()
    assert ran == [job.id]


def test_it_can_be_sent_to_a_process_that_is_spawned() -> None:
    given = pickle.loads(pickle.dumps(OpenTelemetry(parent=True, record_exceptions=False)))
    assert repr(given) == "OpenTelemetry(parent=True, record_exceptions=False)"
    assert pickle.loads(pickle.dumps(given.sink("q"))) is not None


def test_without_the_extra_it_says_what_to_install() -> None:
    program = (
        "import sys, chasquimq; assert 'opentelemetry' not in sys.modules\n"
        "sys.modules['opentelemetry'] = None\n"
        "for name in ('otel', 'otel_metrics'):\n"
        "    try:\n        __import__(f'chasquimq.observe.{name}')\n"
        "    except chasquimq.ConfigError as error:\n        print(error)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert said.stdout.count("pip install 'chasquimq-py[otel]'") == 2
