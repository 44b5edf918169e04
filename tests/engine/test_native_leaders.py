"""What the standalone Promoter and Scheduler have in common: one leads, another takes over."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chasquimq import InMemorySink, StoreUnavailableError
from tests.chaos.kit.fleet import Process, environment
from tests.chaos.kit.wait import eventually as wait_until
from tests.engine.desk import Desk, eventually
from tests.engine.roles import Promoting, Role, Scheduling

PROGRAM = """
import asyncio, json, sys
from chasquimq import native
from tests.chaos.kit.fleet import obey_parent

obey_parent()
print("ready", flush=True)
asyncio.run(getattr(native, sys.argv[1])(**json.loads(sys.argv[2])).run())
"""


BOTH = pytest.mark.parametrize("kind", [Promoting, Scheduling], ids=["promoter", "scheduler"])


@pytest.fixture
def role(desk: Desk, kind: type[Role]) -> Role:
    return kind(desk)


@pytest.fixture
def own_role(own_desk: Desk, kind: type[Role]) -> Role:
    """On a server that the test may kill."""
    return kind(own_desk)


pytestmark = BOTH


async def test_one_leads_and_lets_go_when_it_is_told_to_stop(role: Role) -> None:
    desk = role.desk
    async with role.leading() as first:
        await eventually(role.holder)
        name = role.holder()
        assert name is not None and name.startswith(role.letter + b"-") and len(name) == 38
        async with role.leading(holder_id="other", often_ms=20):
            role.due("due")
            await eventually(lambda: desk.waiting() == 1)
            assert role.holder() == name
            first.shutdown()
            await eventually(lambda: role.holder() == b"other")
            role.due("due-2")
            await eventually(lambda: desk.waiting() == 2)
    assert role.holder() is None


async def test_another_takes_over_from_one_that_was_killed(role: Role, tmp_path: Path) -> None:
    desk = role.desk
    orders = {"redis_url": desk.server.url, "queue_name": desk.name, "holder_id": "victim"}
    orders |= {"dialect": desk.server.forced_dialect, "lock_ttl_secs": 1}
    command = [sys.executable, "-c", PROGRAM, role.door.__name__, json.dumps(orders)]
    victim = Process(command, tmp_path / "stderr", environment(ours=True))
    try:
        victim.wait_ready()
        await eventually(lambda: role.holder() == b"victim")
        async with role.leading(holder_id="heir", lock_ttl_secs=1, often_ms=50):
            victim.kill()
            job_id = role.due("orphan")
            await eventually(lambda: role.holder() == b"heir")
            await eventually(lambda: desk.waiting() == 1)
    finally:
        victim.kill()
    assert [envelope.id for envelope in desk.envelopes()] == [job_id]


async def test_a_stream_that_it_makes_has_our_settings(role: Role) -> None:
    """All that is due may be another program's, which makes no stream before it adds to it."""
    desk = role.desk
    async with role.leading():
        await eventually(role.holder)
    assert desk.redis.type(desk.keys.stream) == b"stream"
    if desk.server.name == "redis-native":
        assert desk.redis.xinfo_stream(desk.keys.stream)["idmp-maxsize"] == 10_000


async def test_a_restart_of_the_server_is_waited_out(own_role: Role) -> None:
    role, desk, sink = own_role, own_role.desk, InMemorySink()
    async with role.leading(lock_ttl_secs=1, often_ms=50, metrics=sink):
        await eventually(role.holder)
        desk.server.server.kill()
        desk.server.server.start()
        job_id = role.due("after")
        await eventually(lambda: desk.waiting() == 1)
        await eventually(lambda: [e.job_id for e in desk.events()] == [job_id])
    assert sink.rollup().worker.reconnects >= 1


async def test_it_gives_up_when_it_was_told_when(own_role: Role) -> None:
    role, server = own_role, own_role.desk.server.server
    door = role.make(reconnect_max_attempts=2, often_ms=50)
    running = asyncio.ensure_future(door.run())
    await eventually(role.holder)
    server.kill()
    with pytest.raises(StoreUnavailableError, match=r"gave up on .* after 2 tries"):
        await asyncio.wait_for(running, 20)
    server.start()
    running = asyncio.ensure_future(door.run())  # and may be asked again
    await eventually(role.holder)
    door.shutdown()
    await running


async def test_the_first_connection_must_succeed(kind: type[Role]) -> None:
    with pytest.raises(StoreUnavailableError, match="cannot reach Redis"):
        await kind.door("redis://127.0.0.1:1", "q").run()


async def test_its_life(role: Role) -> None:
    door = role.make()
    running = [asyncio.ensure_future(door.run()) for _ in range(2)]  # the second one waits, too
    await eventually(role.holder)
    door.shutdown()
    async with asyncio.timeout(20):
        for run in running:
            await run
        await door.run()  # after shutdown: nothing
    assert role.holder() is None
    never = role.make()
    never.shutdown()
    await never.run()
    assert role.holder() is None


def test_it_can_be_stopped_from_another_thread(role: Role) -> None:
    door = role.make()
    # A loop in debug mode refuses what is not safe from outside.
    run = partial(asyncio.run, door.run(), debug=True)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    wait_until(role.holder)
    door.shutdown()
    thread.join(20)
    assert not thread.is_alive()
    assert role.holder() is None


async def test_a_cancelled_one_lets_go_too(role: Role) -> None:
    running = asyncio.ensure_future(role.make().run())
    await eventually(role.holder)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert role.holder() is None


async def test_who_may_not_subscribe_leads_all_the_same(own_role: Role) -> None:
    """A user of the server without the right to channels hears no wake-ups."""
    role, desk = own_role, own_role.desk
    rules = ("on", "nopass", "~*", "resetchannels", "+@all")
    desk.redis.execute_command("ACL", "SETUSER", "deaf", *rules)
    url = desk.server.url.replace("redis://", "redis://deaf:x@")  # not a secret
    often: dict[str, Any] = {role.interval: 20}
    door = role.door(url, desk.name, dialect=desk.server.forced_dialect, **often)
    running = asyncio.ensure_future(door.run())
    await eventually(role.holder)
    role.due("one")
    await eventually(lambda: desk.waiting() == 1)
    door.shutdown()
    await running
    assert "deaf:x" not in repr(door)
