"""Ours or the reference, by the interpreter that runs this: they have one API.

    python bench/peers/chasqui_child.py '<orders as JSON>'

Besides what every child can do (see kit.py) there is

backlog     as worker, but the queue holds more than `jobs` of them and the clock stops at the
            handler's start on the last of `jobs`: what a job costs while many wait behind it
queues      as worker, with `size` queues and a worker for each, all in this process
schedules   `jobs` specs of an hour each are due at one moment; from then until their jobs are done
idle        a worker without jobs for `spread_ms`; answers how many commands a second it sends
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import redis.asyncio
from kit import GAP_S, CannotError, Clock, Orders, Tally, added, calls_of, now_ms, ready_soon, serve

import chasquimq
from chasquimq import BackoffSpec, Queue, RepeatPattern, Worker

OURS = hasattr(chasquimq, "run_workers")
PACKAGES = ("chasquimq", "chasquimq-py", "redis", "hiredis", "msgspec", "msgpack", "uvloop")
BULK = 1000
AT_ONCE = {"backoff": BackoffSpec.fixed(0, jitter_ms=0)}
LEAD_S = 1.0  # before the first job that was added for a moment to come
SETTLE_S = 1.5  # until an idle worker has connected, and looked around
WARM_UP = 20
LEFT = Path(__file__).with_name("left.lua").read_text()
Handle = Callable[[Any], Any]


class Bench:
    """One run: its queue, its worker, and what Redis says about them."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.client = redis.asyncio.Redis.from_url(orders.url)
        self.running: list[asyncio.Future[None]] = []

    def start(self, handle: Handle, queue: str = "") -> None:
        orders = self.orders
        options: dict[str, Any] = {"concurrency": orders.concurrency} | orders.options
        if orders.handler == "result":
            options["store_results"] = True
        if options.get("metrics") == "record":
            from chasquimq.observe.record import Recorder

            options["metrics"] = Recorder(orders.queue)
        worker = Worker(queue or orders.queue, handle, redis_url=orders.url, **options)
        self.running.append(asyncio.ensure_future(worker.run()))

    async def until(self, event: Awaitable[None]) -> None:
        """Wait for it, unless a worker ends before."""
        waiting = asyncio.ensure_future(event)
        await asyncio.wait([*self.running, waiting], return_when=asyncio.FIRST_COMPLETED)
        for one in self.running:
            if one.done():
                await one
                raise RuntimeError("a worker ended before its queue was empty")
        await waiting

    async def left(self, *queues: str) -> int:
        """0 when nothing waits, runs or is unacked. One script: a thousand queues are asked often,
        and asking must not cost this process what it is measured for."""
        keys = [f"{{chasqui:{queue}}}" for queue in queues or (self.orders.queue,)]
        return int(await self.client.eval(LEFT, len(keys), *keys))

    async def fill(self, **options: Any) -> None:
        """Add what is missing; a queue that was filled by others before is as good."""
        missing = self.orders.jobs - await self.client.xlen(
            f"{{chasqui:{self.orders.queue}}}:stream"
        )
        job = {"name": "job", "data": self.orders.payload, **options}
        queue = Queue(self.orders.queue, redis_url=self.orders.url)
        for first in range(0, missing, BULK):
            await queue.add_bulk([job] * min(BULK, missing - first))
        await queue.close()


def handler_of(kind: str, hit: Callable[[], None]) -> Handle:
    async def noop(job: Any) -> None:
        hit()

    async def sleep(job: Any) -> None:
        hit()
        await asyncio.sleep(0.001)

    async def result(job: Any) -> dict[str, Any]:
        hit()
        return {"sent": True, "to": "some@example.com"}

    def plain(job: Any) -> None:
        hit()

    async def in_thread(job: Any) -> None:  # the reference takes coroutines only
        await asyncio.get_running_loop().run_in_executor(None, plain, job)

    return {
        "noop": noop,
        "sleep": sleep,
        "result": result,
        "def": plain if OURS else in_thread,
    }[kind]


async def work(bench: Bench) -> dict[str, Any]:
    tally = Tally(bench.orders.jobs)
    await bench.fill()
    await ready_soon()
    bench.start(handler_of(bench.orders.handler, tally.hit))
    await bench.until(tally.wait_soon())
    return await tally.result_soon(bench.left)


async def retry(bench: Bench) -> dict[str, Any]:
    tally = Tally(bench.orders.jobs, runs=2)

    async def fail_first(job: Any) -> None:
        tally.hit()
        if not job.attempt:
            raise ValueError("the first run fails")

    await bench.fill(**AT_ONCE)
    await ready_soon()
    bench.start(fail_first)
    await bench.until(tally.wait_soon())
    return await tally.result_soon(bench.left)


async def backlog(bench: Bench) -> dict[str, Any]:
    tally = Tally(bench.orders.jobs)
    results: list[dict[str, Any]] = []

    async def handle(job: Any) -> None:
        tally.hit()
        if tally.handled == tally.jobs:
            assert tally.clock is not None
            results.append(tally.clock.result(tally.jobs - tally.first))

    await ready_soon()
    bench.start(handle)
    await bench.until(tally.wait_soon())
    return {**results[0], "handled": tally.jobs}


async def queues(bench: Bench) -> dict[str, Any]:
    """The clock starts when every worker has a job: how long they take to connect is not asked."""
    tally = Tally(bench.orders.jobs)
    names = [f"{bench.orders.queue}-{number}" for number in range(bench.orders.size)]
    without, gate = set(names), asyncio.Event()

    def handler(name: str) -> Handle:
        async def handle(job: Any) -> None:
            if not gate.is_set():
                without.discard(name)
                if not without:
                    gate.set()
                    tally.begin()
                await gate.wait()
            tally.hit()

        return handle

    await ready_soon()
    for name in names:
        bench.start(handler(name), name)
    await bench.until(tally.wait_soon())
    return await tally.result_soon(lambda: bench.left(*names))


async def produce(bench: Bench) -> dict[str, Any]:
    orders = bench.orders
    queue = Queue(orders.queue, redis_url=orders.url)
    payload, size = orders.payload, orders.size
    many = [{"name": "job", "data": payload} for _ in range(size)]

    async def call(times: int) -> None:
        if orders.what == "bulk":
            for _ in range(times):
                await queue.add_bulk(many)
        elif orders.what == "concurrent":
            for _ in range(times):
                await asyncio.gather(*[queue.add("job", payload) for _ in range(size)])
        elif orders.what == "callers":
            await asyncio.gather(*[add(times) for _ in range(size)])
        else:
            await add(times)

    async def add(times: int) -> None:
        for _ in range(times):
            await queue.add("job", payload)

    calls, warm_up = calls_of(orders)
    await call(warm_up)
    await ready_soon()
    clock = Clock()
    await call(calls)
    return added(clock, orders)


async def latency(bench: Bench) -> dict[str, Any]:
    queue = Queue(bench.orders.queue, redis_url=bench.orders.url)
    tally, found = Tally(WARM_UP), []

    async def handle(job: Any) -> None:
        found.append(now_ms() - job.data["at"])
        tally.hit()

    async def send() -> None:
        for _ in range(tally.jobs):
            await queue.add("job", {"at": now_ms()})
            await asyncio.sleep(GAP_S)
        await bench.until(tally.wait_soon())

    bench.start(handle)
    await send()
    tally = Tally(bench.orders.jobs)
    found.clear()
    await ready_soon()
    await send()
    return {"ms": found, "handled": tally.handled}


async def add_for(bench: Bench, moments: list[datetime]) -> None:
    """Jobs for moments to come; each knows its own."""
    queue = Queue(bench.orders.queue, redis_url=bench.orders.url)
    jobs = [
        {"name": "job", "data": {"due": 1000 * due.timestamp()}, "delay_ms": due} for due in moments
    ]
    if OURS:
        for first in range(0, len(jobs), BULK):
            await queue.add_bulk(jobs[first : first + BULK])
    else:  # it would add a bulk with options one by one
        for first in range(0, len(jobs), 100):
            await asyncio.gather(*[queue.add(**job) for job in jobs[first : first + 100]])
    await queue.close()
    if time.time() > moments[0].timestamp():
        raise RuntimeError("adding took longer than the jobs were to wait")


def moments_of(orders: Orders) -> list[datetime]:
    adding_s = orders.jobs / (20_000 if OURS else 2_500)
    first = time.time() + LEAD_S + adding_s
    spread_s = orders.spread_ms / 1000 if orders.what == "punctual" else 0.0
    return [
        datetime.fromtimestamp(round(first + spread_s * number / orders.jobs, 3), UTC)
        for number in range(orders.jobs)
    ]


async def delayed(bench: Bench) -> dict[str, Any]:
    tally = Tally(bench.orders.jobs)
    moments = moments_of(bench.orders)
    await add_for(bench, moments)
    await ready_soon()
    bench.start(handler_of(bench.orders.handler, tally.hit))
    await asyncio.sleep(moments[0].timestamp() - time.time())
    tally.begin()
    await bench.until(tally.wait_soon())
    return await tally.result_soon(bench.left)


async def punctual(bench: Bench) -> dict[str, Any]:
    tally, late = Tally(bench.orders.jobs), []

    async def handle(job: Any) -> None:
        late.append(1000 * time.time() - job.data["due"])
        tally.hit()

    await add_for(bench, moments_of(bench.orders))
    await ready_soon()
    bench.start(handle)
    await bench.until(tally.wait_soon())
    return {"ms": late, "handled": tally.handled}


async def schedules(bench: Bench) -> dict[str, Any]:
    orders = bench.orders
    tally, hourly = Tally(orders.jobs), RepeatPattern.every(3_600_000)
    async with Queue(orders.queue, redis_url=orders.url) as queue:
        specs = [
            (await queue.upsert_repeatable_job(f"job-{number}", orders.payload, repeat=hourly)).id
            for number in range(orders.jobs)
        ]
    await ready_soon()
    bench.start(handler_of(orders.handler, tally.hit))
    due = time.time() + LEAD_S
    await bench.client.zadd(
        f"{{chasqui:{orders.queue}}}:repeat", dict.fromkeys(specs, int(due * 1000))
    )
    await asyncio.sleep(due - time.time())
    tally.begin()
    await bench.until(tally.wait_soon())
    return await tally.result_soon(bench.left)


async def idle(bench: Bench) -> dict[str, Any]:
    async def handle(job: Any) -> None:
        raise RuntimeError("an idle queue has a job")

    bench.start(handle)
    await asyncio.sleep(SETTLE_S)
    await ready_soon()
    sent: Counter[str] = Counter()
    listening = asyncio.ensure_future(listen(bench.client, sent))
    clock = Clock()
    await bench.until(asyncio.sleep(bench.orders.spread_ms / 1000))
    measured = clock.result(1)
    listening.cancel()
    return {
        "sent_per_s": sent.total() / measured["seconds"],
        "sent": dict(sent),
        "cpu_percent": measured["cpu_per_100k"] / 1e5 / measured["seconds"] * 100,
    }


async def listen(client: Any, sent: Counter[str]) -> None:
    """Count what clients send; what scripts call is theirs."""
    async with client.monitor() as monitor:
        async for command in monitor.listen():
            if command["client_type"] != "lua":
                sent[command["command"].split()[0].upper()] += 1


KINDS: dict[str, Callable[[Bench], Awaitable[dict[str, Any]]]] = {
    "worker": work,
    "retry": retry,
    "backlog": backlog,
    "queues": queues,
    "add": produce,
    "concurrent": produce,
    "callers": produce,
    "bulk": produce,
    "latency": latency,
    "delayed": delayed,
    "punctual": punctual,
    "schedules": schedules,
    "idle": idle,
}


async def measured(orders: Orders) -> dict[str, Any]:
    if orders.what not in KINDS:
        raise CannotError(f"no such kind: {orders.what}")
    result = await KINDS[orders.what](Bench(orders))
    result["loop"] = type(asyncio.get_running_loop()).__module__.partition(".")[0]
    return result


def run(orders: Orders) -> dict[str, Any]:
    if orders.uvloop:
        import uvloop

        loop = uvloop.new_event_loop()
    else:
        loop = asyncio.new_event_loop()
    # Not asyncio.run: it would wait until the workers have said goodbye.
    return loop.run_until_complete(measured(orders))


if __name__ == "__main__":
    serve(run, PACKAGES)
