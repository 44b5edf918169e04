"""Who may not do all that is needed is told before anything is moved: a command that is refused in
the middle of a script leaves what was written before it, with every try once more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from chasquimq import Promoter, Scheduler, lua
from chasquimq.errors import AccessError
from chasquimq.wire.right import FIRING, PROMOTING, RUNNING, Calls, of_worker
from tests.engine.desk import Desk
from tests.security.users import commands

PASSWORD = "a-word"  # not a secret
SETTLING = (
    *("ack", "ack_held", "finish", "free", "retry", "bury", "renew", "claim"),
    *("abandoned", "started_upto", "requeue", "adopt", "give_back", "restore"),
)
RECORDS = {"hset", "hmget"}  # of what was started; a worker goes on without
HINTS = {"publish"}  # of what others would hear of later in any case


def of(*scripts: str) -> set[str]:
    return {name for script in scripts for name in commands(lua.SOURCES[script])} - HINTS


def test_it_is_asked_for_what_scripts_come_to() -> None:
    run, promote, fire = (
        {name.lower() for name in calls} for calls in (RUNNING, PROMOTING, FIRING)
    )
    assert run - {"xreadgroup"} == of(*SETTLING) - RECORDS
    assert promote == of("promote", "release")
    assert fire == of("due", "fire", "release")
    assert of_worker(delayed=False, scheduler=False) == RUNNING


async def work(desk: Desk, url: str) -> None:
    def handle(job: object) -> None:
        raise AssertionError("no job is to run")

    await desk.worker(handle, redis_url=url).run()


async def promote(desk: Desk, url: str) -> None:
    await Promoter(url, desk.name, dialect=desk.server.forced_dialect).run()


async def fire(desk: Desk, url: str) -> None:
    await Scheduler(url, desk.name, dialect=desk.server.forced_dialect).run()


@pytest.mark.parametrize(
    ("begin", "calls"),
    [(work, of_worker(delayed=True, scheduler=True)), (promote, PROMOTING), (fire, FIRING)],
    ids=["worker", "promoter", "scheduler"],
)
async def test_whoever_lacks_a_right_is_told_and_moves_nothing(
    own_desk: Desk, begin: Callable[[Desk, str], Awaitable[None]], calls: Calls
) -> None:
    desk, command = own_desk, own_desk.redis.execute_command
    url = desk.server.url.replace("//", f"//app:{PASSWORD}@")
    desk.put("waits")
    async with desk.queue() as queue:
        await queue.add("is due", 1, delay=1)
        await queue.add("is dead", 1, attempts=0)
    before = desk.waiting(), desk.delayed(), desk.dead()
    for name in calls:
        lacking = name.lower()
        command("ACL", "SETUSER", "app", "reset", "on", f">{PASSWORD}", "~*", "&*", "+@all")
        command("ACL", "SETUSER", "app", f"-{lacking}")
        with pytest.raises(AccessError, match="Missing in its ACL rules") as caught:
            await begin(desk, url)
        assert f"+{lacking} on ~{{chasqui:{desk.name}}}:*" in str(caught.value)
        assert PASSWORD not in str(caught.value)
    assert (desk.waiting(), desk.delayed(), desk.dead()) == before
