"""What is served beside workers: the rules of health, and all of it in a program."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from chasquimq import InMemorySink, Job, MetricsSink, run_workers
from chasquimq.errors import ConfigError
from chasquimq.health import Health
from chasquimq.observe import endpoint, record
from chasquimq.observe.endpoint import live, ready, serve
from chasquimq.observe.record import Seen
from tests.engine.desk import Desk, eventually
from tests.observe.kit import Page, Samples, fetch, get


async def nothing(job: Job) -> None:
    pass


# -- the rules -------------------------------------------------------------------------------------

WELL = Seen("mail", "c-1", 0.2, Health(state="running", tasks={"reader": "running"}))


def seen(age_s: float = 0.0, **health: Any) -> Seen:
    return Seen("mail", "c-2", age_s, Health(**{"state": "running", **health}))


@pytest.mark.parametrize(
    ("worker", "alive", "is_ready", "words"),
    [
        (WELL, True, True, None),
        (seen(state="starting"), True, False, "the worker of mail is starting"),
        (seen(state="stopping"), True, False, "the worker of mail is stopping"),
        (seen(state="stopped"), True, False, "the worker of mail is stopped"),
        (seen(state="failed", problems=("no",)), False, False, "has failed: no"),
        (seen(problems=("Redis is away",)), True, False, "the worker of mail: Redis is away"),
        (seen(tasks={"reader": "ended"}, problems=("x",)), False, False, "reader has ended"),
        (seen(3.0), True, True, None),
        (seen(5.0), True, False, "the event loop is blocked for 5.0 s"),
        (seen(61.0), False, False, "has been blocked for 61 s: is a handler"),
        (seen(paused=True), True, True, None),
        (seen(stalled="its slots are dead"), False, False, "mail is stalled: its slots are dead"),
    ],
)
def test_who_lives_and_who_is_ready(
    worker: Seen, alive: bool, is_ready: bool, words: str | None
) -> None:
    workers = [WELL, worker]
    assert (live(workers).ok, ready(workers).ok) == (alive, is_ready)
    said = " ".join(live(workers).details["problems"] + ready(workers).details["problems"])
    assert said == "" if words is None else words in said


def test_without_workers_nothing_is_ready_and_nothing_is_dead() -> None:
    assert (live([]).ok, ready([]).ok) == (True, False)
    assert ready([]).details["problems"] == ["there are no workers"]


# -- beside workers --------------------------------------------------------------------------------


async def test_a_program_serves_the_health_and_the_metrics_of_its_workers(desk: Desk) -> None:
    worker = desk.worker(nothing)
    with serve(worker, "0") as here:
        assert "is new" in fetch(here.port, "/readyz").json["problems"][0]
        assert fetch(here.port, "/livez").status == 200
        async with desk.queue() as queue, asyncio.TaskGroup() as group:
            group.create_task(run_workers(worker, signals=False))
            await queue.add("welcome", 1)
            while (page := await get(here.port, "/health")).status != 200:
                await asyncio.sleep(0.02)
            assert (page.json["ok"], page.json["live"], page.json["ready"]) == (True, True, True)
            [row] = page.json["workers"]
            assert (row["queue"], row["state"], row["problems"]) == (desk.name, "running", [])
            await desk.settled()
            metrics = Samples((await get(here.port, "/metrics")).body)
            named = {"queue": desk.name, "name": "welcome"}
            assert metrics.of("jobs_completed_total", **named) == 1
            assert metrics.of("workers_healthy", queue=desk.name) == 1
            assert metrics.of("queue_waiting", queue=desk.name, group="default") == 0
            await worker.close()
        page = fetch(here.port, "/readyz")
        assert (page.status, "is stopped" in page.json["problems"][0]) == (503, True)
    with pytest.raises(OSError):
        fetch(here.port, "/livez")


async def test_handlers_have_their_series_however_many_other_names_come_first(desk: Desk) -> None:
    sink = InMemorySink()
    worker = desk.worker({"welcome": nothing}, burst=True, metrics=sink)  # type: ignore[arg-type]
    async with desk.queue() as queue:
        await queue.add_bulk([{"name": f"stranger-{n}", "data": n} for n in range(220)])
        await queue.add_bulk([{"name": "welcome", "data": n} for n in range(3)])
    with serve(worker, "0") as here:
        await worker.run()
        samples = Samples((await get(here.port, "/metrics")).body)
    assert samples.of("jobs_completed_total", queue=desk.name, name="welcome") == 3
    dead = {"queue": desk.name, "reason": "unrecoverable"}
    assert samples.of("dlq_routed_total", name="stranger-0", **dead) == 1
    assert samples.of("dlq_routed_total", name="__other__", **dead) == 21
    assert sink.rollup().names["welcome"].completed == 3


async def test_a_sink_that_fails_on_the_names_of_handlers_is_logged(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    class Fails(MetricsSink):
        def handler_names(self, names: list[str]) -> None:
            raise ValueError(names)

    await desk.worker(nothing, burst=True, metrics=Fails()).run()
    assert "a sink failed on handler_names" in caplog.text


async def test_while_the_event_loop_is_blocked_the_thread_says_so(
    lone_desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "PATIENCE_S", 0.3)
    monkeypatch.setattr(record, "PATIENCE_S", 0.3)
    go = threading.Event()

    async def blocks(job: Job) -> None:
        go.wait(20)

    worker = lone_desk.worker(blocks)
    pages: list[Page] = []

    def watch(port: int) -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and not go.is_set():
            page = fetch(port, "/health")
            if any("is blocked for" in problem for problem in page.json["problems"]):
                pages.extend((page, fetch(port, "/metrics"), fetch(port, "/livez")))
                go.set()

    with serve([worker], "0", metrics=True) as here:
        async with lone_desk.queue() as queue, asyncio.TaskGroup() as group:
            group.create_task(worker.run())
            while (await get(here.port, "/readyz")).status != 200:
                await asyncio.sleep(0.02)
            watching = threading.Thread(target=watch, args=(here.port,))
            watching.start()
            await queue.add("", None)
            await asyncio.to_thread(watching.join)
            go.set()
            await worker.close()
    blocked, metrics, living = pages
    assert (blocked.status, living.status) == (503, 200)
    samples = Samples(metrics.body)
    lag = samples.of("event_loop_lag_seconds", queue=lone_desk.name)
    assert lag is not None and lag > 0.3
    assert samples.of("workers_healthy", queue=lone_desk.name) == 0


async def test_a_server_that_is_away_makes_it_not_ready_and_kills_nothing(
    lone_desk: Desk,
) -> None:
    worker = lone_desk.worker(nothing)
    with serve(worker, "0") as here:
        async with asyncio.TaskGroup() as group:
            group.create_task(worker.run())
            while (await get(here.port, "/readyz")).status != 200:
                await asyncio.sleep(0.02)
            lone_desk.server.server.kill()
            while (page := await get(here.port, "/readyz")).status == 200:
                await asyncio.sleep(0.02)
            assert any("connection of" in problem for problem in page.json["problems"])
            assert (await get(here.port, "/livez")).status == 200
            gone = Samples((await get(here.port, "/metrics")).body)
            assert gone.of("queue_waiting", queue=lone_desk.name, group="default") is None
            assert gone.of("workers", queue=lone_desk.name) == 1
            lone_desk.server.server.start()
            while (await get(here.port, "/readyz")).status != 200:
                await asyncio.sleep(0.02)
            await worker.close()


async def test_a_worker_that_cannot_start_is_not_ready_and_not_alive(desk: Desk) -> None:
    worker = desk.worker(nothing, redis_url="redis://127.0.0.1:1")
    with serve(worker, "0", metrics=False) as here:
        with pytest.raises(RuntimeError):
            await worker.run()
        page = fetch(here.port, "/livez")
        assert (page.status, "127.0.0.1:1" in page.json["problems"][0]) == (503, True)
        assert fetch(here.port, "/metrics").status == 404


async def test_a_worker_that_runs_already_cannot_be_served(desk: Desk) -> None:
    async with desk.working(nothing) as worker:
        await eventually(lambda: worker.is_running)
        with pytest.raises(ConfigError, match="adjust it before"), serve(worker, "0"):
            pass
