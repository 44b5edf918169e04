"""Repeatable jobs: intervals, the calendar of a zone, a limit, a preview, a pause.

python examples/schedules.py
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from place import redis_url

from chasquimq import Job, Queue, RepeatPattern, Worker

KATHMANDU = ZoneInfo("Asia/Kathmandu")
OFFICES = ("Europe/Berlin", "America/New_York")


def meant_for(job: Job) -> datetime | None:
    """The moment that a job was made for, which is in its id: `<key>@<ms>`; None: by hand."""
    moment = job.id.rpartition("@")[2]
    return datetime.fromtimestamp(int(moment) / 1000, UTC) if moment.isdecimal() else None


async def preview(queue: Queue) -> None:
    """When patterns would fire; nothing is written."""
    print("the next working days at nine:")
    for tz in OFFICES:
        nine = RepeatPattern.cron("0 9 * * MON-FRI", tz=tz)
        for fire in await queue.next_fires(nine, 2):
            print(f"  {tz:<17} {fire:%a %Y-%m-%d %H:%M %z}   {fire.astimezone(UTC):%H:%M} UTC")


async def main(url: str) -> None:
    begin = time.monotonic()
    ran: Counter[str] = Counter()
    changed = asyncio.Condition()

    async def handle(job: Job) -> None:
        moment = meant_for(job)
        when = f"of {moment.astimezone(KATHMANDU):%H:%M:%S.%f}"[:-3] if moment else "by hand"
        print(f"  {time.monotonic() - begin:.1f} s  {job.name:<9} {when}", flush=True)
        async with changed:
            ran[job.name] += 1
            changed.notify_all()

    async def until(name: str, count: int) -> None:
        async with changed:
            await changed.wait_for(lambda: ran[name] >= count)

    worker = Worker("schedules", handle, redis_url=url)  # it has a scheduler in it
    async with Queue("schedules", redis_url=url) as queue, asyncio.TaskGroup() as group:
        await preview(queue)

        heartbeat = await queue.add("heartbeat", None, repeat=RepeatPattern.every(200))
        each_second = RepeatPattern.cron("* * * * * *", tz=KATHMANDU.key)
        await queue.add("clock", None, repeat=each_second)
        await queue.add("warm-up", None, repeat=RepeatPattern.every(300), limit=3)
        for spec in sorted(await queue.get_repeatable_jobs(), key=lambda spec: spec.key):
            print(f"written: {spec.key}")

        group.create_task(worker.run())
        await until("warm-up", 3)
        print(f"paused: {await queue.pause_repeatable(heartbeat.id)}")
        await queue.run_repeatable_now(heartbeat.id)  # paused or not
        await until("clock", ran["clock"] + 2)
        print(f"resumed: {await queue.resume_repeatable(heartbeat.id)}")
        await until("heartbeat", ran["heartbeat"] + 3)

        for spec in sorted(await queue.get_repeatable_jobs(), key=lambda spec: spec.key):
            removed = await queue.remove_repeatable_by_key(spec.key)
            print(f"{spec.key} fired {spec.fired} times; removed: {removed}")
        await worker.close()
    print(f"{ran['warm-up']} warm-ups: that was its limit")


with redis_url() as url:
    asyncio.run(main(url))
