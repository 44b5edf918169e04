"""Who listens for results: what it costs, when it begins and ends, and how it fares in trouble."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from chasquimq import Queue, ShutdownError, StoreUnavailableError, wire
from chasquimq.engine import listener
from tests.engine.desk import Desk, eventually
from tests.engine.wait import (
    NEVER,
    calls,
    cancel,
    connections,
    fields,
    finish,
    listeners,
    listening,
    waiting,
    written_down,
)


@pytest.fixture(autouse=True)
def _nobody_is_left() -> Iterator[None]:
    yield
    assert written_down() == 0


# -- what it costs ---------------------------------------------------------------------------------


async def test_many_who_wait_cost_one_connection_and_few_questions(own_desk: Desk) -> None:
    desk, ids = own_desk, [f"job-{n}" for n in range(200)]
    async with desk.queue() as queue:
        assert await queue.get_job_result("open") is None
        before = connections(desk)
        desk.redis.config_resetstat()
        tasks = await waiting(
            *[queue.wait_for_result(job_id, poll_interval=NEVER) for job_id in ids]
        )
        assert connections(desk) == before + 1
        assert len(listening(desk)) == 1
        finish(desk, *ids)
        assert await asyncio.gather(*tasks) == ["done"] * 200
        # One look when they come, one when somebody listens, one when they are done.
        assert calls(desk, "mget") == 3
        assert calls(desk, "get") == 0
        assert calls(desk, "xrevrange") == 1
        assert connections(desk) == before + 1, "it stays a moment for who comes next"
        [again] = await waiting(queue.wait_for_result("next", poll_interval=NEVER))
        finish(desk, "next")
        assert await again == "done"
        assert calls(desk, "xrevrange") == 1
    await eventually(lambda: connections(desk) == before - 1)


async def test_the_poll_is_one_question_for_all(own_desk: Desk) -> None:
    desk, ids = own_desk, [f"job-{n}" for n in range(200)]
    async with desk.queue() as queue:
        waits = [queue.wait_for_result(job_id, poll_interval=0.05) for job_id in ids]
        tasks = await waiting(*waits)
        for key in map(desk.keys.result, ids[:100]):
            desk.redis.set(key, wire.encode("found"))
        assert await asyncio.gather(*tasks[:100]) == ["found"] * 100
        desk.redis.config_resetstat()
        await eventually(lambda: calls(desk, "mget") >= 3)
        asked = desk.redis.info("commandstats")["cmdstat_mget"]
        assert asked["calls"] < 100 <= len([task for task in tasks if not task.done()])
        assert calls(desk, "get") == 0
        await cancel(*tasks)


async def test_queue_objects_share_who_listens(own_desk: Desk) -> None:
    desk = own_desk
    async with desk.queue() as one, desk.queue() as two:
        for queue in (one, two):
            await queue.get_job_result("open")
        before = connections(desk)
        tasks = await waiting(one.wait_for_result("a", poll_interval=NEVER))
        tasks += await waiting(two.wait_for_result("b", poll_interval=NEVER))
        assert (connections(desk), len(listening(desk))) == (before + 1, 1)
        finish(desk, "a", "b")
        assert await asyncio.gather(*tasks) == ["done", "done"]


async def test_another_queue_or_another_user_shares_nothing(own_desk: Desk) -> None:
    desk = own_desk
    elsewhere = Queue(f"{desk.name}-2", redis_url=desk.server.url)
    as_other = desk.queue(credential_provider=lambda host: (None, None))
    async with desk.queue() as queue, elsewhere, as_other:
        waits = [q.wait_for_result("a", poll_interval=NEVER) for q in (queue, elsewhere, as_other)]
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        await eventually(lambda: len(listening(desk)) == 3)
        finish(desk, "a")
        assert await tasks[0] == await tasks[2] == "done"
        assert not tasks[1].done()
        await cancel(tasks[1])


async def test_who_comes_without_end_does_not_keep_it_from_listening(own_desk: Desk) -> None:
    async with own_desk.queue() as queue:
        await queue.get_job_result("open")
        coming: deque[asyncio.Task[Any]] = deque()
        async with asyncio.timeout(20):
            while not any(it._ear.listens for it in listeners()):
                # One in every turn of the event loop, so that one is always due.
                wait = queue.wait_for_result(f"job-{len(coming)}", poll_interval=NEVER)
                coming.append(asyncio.ensure_future(wait))
                await asyncio.sleep(0)
                if len(coming) > 50:
                    coming.popleft().cancel()
        await eventually(lambda: listening(own_desk))
        await cancel(*coming)


async def test_a_result_that_is_there_needs_nobody_to_listen(own_desk: Desk) -> None:
    finish(own_desk, "old")
    async with own_desk.queue() as queue:
        assert await queue.wait_for_result("old") == "done"
        assert calls(own_desk, "xread") == calls(own_desk, "xrevrange") == 0
        assert listeners() == []


# -- who leaves ------------------------------------------------------------------------------------


async def test_closing_a_queue_sends_its_waiters_away_and_no_others(own_desk: Desk) -> None:
    desk = own_desk
    async with desk.queue() as stays:
        leaves = desk.queue()
        waits = [leaves.wait_for_result(job_id, poll_interval=NEVER) for job_id in ("a", "b")]
        tasks = await waiting(*waits, stays.wait_for_result("a", poll_interval=NEVER))
        await leaves.close()
        for task in tasks[:2]:
            with pytest.raises(ShutdownError, match="closed"):
                await task
        finish(desk, "a")
        assert await tasks[2] == "done"
    assert listeners() == []
    await eventually(lambda: connections(desk) == 1)


async def test_a_closed_queue_can_wait_again(desk: Desk) -> None:
    queue = desk.queue()
    finish(desk, "a")
    for _ in range(2):
        assert await queue.wait_for_result("a") == "done"
        await queue.close()


async def test_a_queue_that_is_closed_while_it_opens_has_no_waiters(desk: Desk) -> None:
    queue = desk.queue()
    task = asyncio.ensure_future(queue.wait_for_result("a", poll_interval=NEVER))
    await asyncio.sleep(0)
    await queue.close()
    with pytest.raises(ShutdownError):
        await task


async def test_a_cancelled_wait_leaves_nothing_behind(
    own_desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "LINGER_S", 0.05)
    desk = own_desk
    async with desk.queue() as queue:
        await queue.get_job_result("open")
        before, alone = connections(desk), asyncio.all_tasks()
        tasks = await waiting(*[queue.wait_for_result("a", poll_interval=NEVER) for _ in range(3)])
        await cancel(*tasks[:2])
        finish(desk, "a")
        assert await tasks[2] == "done", "the others wait on"
        [task] = await waiting(queue.wait_for_result("b", poll_interval=NEVER))
        await cancel(task)
        assert asyncio.all_tasks() == alone
        await eventually(lambda: connections(desk) == before)
        assert listeners() == []


PROGRAM = """
import asyncio, sys
from chasquimq import Queue

async def main():
    queue = Queue(sys.argv[1], redis_url=sys.argv[2])
    print(await queue.wait_for_result("a", poll_interval=3600))
    try:
        await queue.wait_for_result("b", timeout=0.05)
    except TimeoutError:
        print("late")

{run}
"""
ENDINGS = {
    "asyncio.run": "asyncio.run(main())",
    "a loop by hand": "loop = asyncio.new_event_loop(); "
    "loop.run_until_complete(main()); loop.close()",
}


@pytest.mark.parametrize("run", ENDINGS.values(), ids=ENDINGS)
async def test_a_program_that_closes_nothing_ends_in_silence(desk: Desk, run: str) -> None:
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM.format(run=run), desk.name, desk.server.url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(20):
            await eventually(lambda: listening(desk))
            finish(desk, "a")
            out, errors = await program.communicate()
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    assert (out, errors, program.returncode) == (b"done\nlate\n", b"", 0)


# -- when Redis is away ----------------------------------------------------------------------------


async def test_who_waits_waits_out_a_restart(own_desk: Desk) -> None:
    desk = own_desk
    async with desk.queue() as queue:
        tasks = await waiting(queue.wait_for_result("a", poll_interval=NEVER))
        desk.server.server.kill()
        tasks.append(asyncio.ensure_future(queue.wait_for_result("b", poll_interval=NEVER)))
        await asyncio.to_thread(desk.server.server.start)
        await eventually(lambda: listening(desk))
        finish(desk, "a", "b")
        assert await asyncio.gather(*tasks) == ["done", "done"]


async def test_who_comes_while_redis_is_away_waits(own_desk: Desk) -> None:
    desk = own_desk
    async with desk.queue() as queue:
        await queue.get_job_result("open")
        desk.server.server.kill()
        task = asyncio.ensure_future(queue.wait_for_result("a", poll_interval=NEVER))
        await asyncio.to_thread(desk.server.server.start)
        await eventually(lambda: listening(desk))
        finish(desk, "a")
        assert await task == "done"


async def test_a_connection_that_was_cut_hears_what_it_missed(
    own_desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "AGAIN_S", NEVER)  # the new connection itself wakes it
    desk = own_desk
    async with desk.queue() as queue:
        [task] = await waiting(queue.wait_for_result("a", poll_interval=NEVER))
        [ear] = listening(desk)
        pipe = desk.redis.pipeline(transaction=True)
        pipe.execute_command("CLIENT", "KILL", "ID", ear)
        pipe.set(desk.keys.result("a"), wire.encode(1))
        pipe.xadd(desk.keys.events, fields("completed", "a", attempt=1, duration_us=5))
        pipe.execute()
        assert await task == 1


async def test_where_no_connection_is_to_be_had_polling_goes_on(own_desk: Desk) -> None:
    desk = own_desk
    async with desk.queue() as queue:
        await queue.get_job_result("open")
        desk.redis.config_set("maxclients", connections(desk))
        waits = [queue.wait_for_result(job_id, poll_interval=0.05) for job_id in ("a", "b")]
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        await eventually(lambda: written_down() == 2)
        finish(desk, "a")
        assert await tasks[0] == "done"
        assert listening(desk) == []
        desk.redis.config_set("maxclients", 1000)
        await eventually(lambda: listening(desk))
        finish(desk, "b")
        assert await tasks[1] == "done"


async def test_a_queue_that_gives_up_tells_who_waits(own_desk: Desk) -> None:
    desk = own_desk
    async with desk.queue(reconnect_max_attempts=1) as queue:
        [task] = await waiting(queue.wait_for_result("a", poll_interval=NEVER))
        desk.server.server.kill()
        with pytest.raises(StoreUnavailableError, match="gave up"):
            await task


async def test_who_may_not_read_events_finds_results_by_polling(desk: Desk) -> None:
    user = f"deaf-{desk.name[-12:]}"
    rules = ("on", ">pw", f"~{desk.keys.result('').decode()}*", "+mget", "+ping", "+command")
    desk.redis.execute_command("ACL", "SETUSER", user, *rules, "+info", "+config|get", "+select")
    try:
        url = desk.server.url.replace("redis://", f"redis://{user}:pw@")
        async with desk.queue(redis_url=url) as queue:
            task = asyncio.ensure_future(queue.wait_for_result("a", poll_interval=0.05))
            await eventually(lambda: desk.redis.acl_log())
            finish(desk, "a")
            assert await task == "done"
    finally:
        desk.redis.execute_command("ACL", "DELUSER", user)
