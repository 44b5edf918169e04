"""Selecting among the dead: looking, bringing back at a pace, throwing away."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chasquimq import (
    ConfigError,
    Job,
    Queue,
    StoreUnavailableError,
    UnrecoverableError,
    wire,
)
from chasquimq.errors import ArgumentError
from chasquimq.store.dead import PAGE
from tests.engine.desk import Desk, eventually
from tests.engine.graves import back, between_pages, bury, bury_all, garbage, left, rows

MANY = 2 * PAGE + 50


def mixed(desk: Desk) -> None:
    """One dead job for each filter to find."""
    bury(desk, "plain")
    bury(desk, "named", name="send")
    bury(desk, "exhausted", reason="retries_exhausted")
    bury(desk, "typed", error_type="ValueError", error="boom")
    bury(desk, "reference", own_id=False)


FOUND: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["plain", "named", "exhausted", "typed", "reference"]),
    ({"ids": ["typed", "plain", "nobody"]}, ["plain", "typed"]),
    ({"ids": ["reference"]}, ["reference"]),
    ({"ids": []}, []),
    ({"name": "send"}, ["named"]),
    ({"reason": "retries_exhausted"}, ["exhausted"]),
    ({"error_type": "ValueError"}, ["typed"]),
    ({"error_type": "ValueError", "name": "send"}, []),
    ({"newer_than": timedelta(hours=1)}, ["plain", "named", "exhausted", "typed", "reference"]),
    ({"older_than": timedelta(hours=1)}, []),
]


@pytest.mark.parametrize(("which", "expected"), FOUND)
async def test_all_verbs_mean_the_same_jobs(
    desk: Desk, which: dict[str, Any], expected: list[str]
) -> None:
    mixed(desk)
    before = rows(desk)
    others = [job_id for job_id in left(desk) if job_id not in expected]
    async with desk.queue() as queue:
        shown = await queue.peek_dlq(**which)
        assert [wire_id(row) for row in shown] == expected
        assert await queue.replay_dlq(dry_run=True, **which) == len(expected)
        everything = {"everything": True} if not which else {}
        assert await queue.purge_dlq(dry_run=True, **everything, **which) == len(expected)
        assert (rows(desk), back(desk)) == (before, [])

        assert await queue.replay_dlq(**which) == len(expected)
        assert (left(desk), back(desk)) == (others, expected)

        desk.redis.delete(desk.keys.dlq)
        mixed(desk)
        assert await queue.purge_dlq(**everything, **which) == len(expected)
        assert (left(desk), back(desk)) == (others, expected)


def wire_id(row: dict[str, Any]) -> str:
    return wire.unpack_envelope(row["payload"]).id


async def test_a_row_is_found_by_its_own_id_whatever_is_in_it(desk: Desk) -> None:
    bury_all(desk, PAGE + 10)
    (odd,) = garbage(desk, 1)
    (fine,) = bury_all(desk, 1)
    async with desk.queue() as queue:
        assert [row["dlq_id"] for row in await queue.peek_dlq(ids={odd, fine})] == [odd, fine]
        assert await queue.replay_dlq(ids=[odd, fine]) == 1
        assert await queue.purge_dlq(ids=[odd, fine]) == 1
    assert len(rows(desk)) == PAGE + 10


# -- time ----------------------------------------------------------------------------------------


async def test_an_age_is_measured_by_the_server_s_clock(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds, _ = desk.redis.time()
    bury(desk, "old", dlq_id=f"{(seconds - 3_600) * 1000}-0")
    bury(desk, "moved", failed_at_ms=(seconds - 3_600) * 1000)  # as an import leaves it
    bury(desk, "new", failed_at_ms=(seconds - 60) * 1000)
    async with desk.queue() as queue:
        await queue.peek_dlq()
        monkeypatch.setattr(time, "time", lambda: 0.0)
        monkeypatch.setattr(time, "time_ns", lambda: 0)
        age = timedelta(minutes=30)
        assert await queue.replay_dlq(dry_run=True, newer_than=age) == 1
        assert await queue.replay_dlq(older_than=age) == 2
    assert (left(desk), back(desk)) == (["new"], ["old", "moved"])


async def test_a_moment_is_a_moment_in_utc_if_it_says_nothing_else(desk: Desk) -> None:
    at = datetime(2024, 5, 1, 12, tzinfo=UTC)
    for minutes in (-1, 0, 1):
        ms = int((at + timedelta(minutes=minutes)).timestamp() * 1000)
        bury(desk, f"{minutes}", failed_at_ms=ms)
    async with desk.queue() as queue:
        assert await queue.purge_dlq(older_than=at, dry_run=True) == 1
        assert await queue.purge_dlq(newer_than=at.replace(tzinfo=None)) == 2
    assert left(desk) == ["-1"]


# -- peek ----------------------------------------------------------------------------------------


async def test_a_peek_goes_on_behind_a_row(desk: Desk) -> None:
    ids = bury_all(desk, MANY)
    seen: list[str] = []
    async with desk.queue() as queue:
        after = None
        while page := await queue.peek_dlq(70, after=after):
            seen += [row["dlq_id"] for row in page]
            after = seen[-1]
        assert await queue.peek_dlq(0) == await queue.peek_dlq(-1) == []
        assert len(await queue.peek_dlq(1_000)) == MANY
    assert seen == ids


async def test_a_peek_finds_what_lies_far_behind_and_shows_what_cannot_be_read(desk: Desk) -> None:
    garbage(desk, MANY)
    bury(desk, "far", name="send")
    async with desk.queue() as queue:
        assert [row["name"] for row in await queue.peek_dlq(1, name="send")] == ["send"]
        (odd,) = await queue.peek_dlq(1, reason="decode_failed")
    assert odd["payload"] == b"\xc1"


@pytest.mark.parametrize("after", ["x", "1-", "(1-0", "-", 5, ""])
async def test_a_place_that_is_none_is_refused(desk: Desk, after: Any) -> None:
    async with desk.queue() as queue:
        with pytest.raises(ConfigError, match="after is a dlq_id"):
            await queue.peek_dlq(after=after)


@pytest.mark.parametrize("limit", ["5", 1.5])
async def test_a_limit_is_a_whole_number(desk: Desk, limit: Any) -> None:
    async with desk.queue() as queue:
        for verb in (queue.peek_dlq, queue.replay_dlq):
            with pytest.raises(ArgumentError, match="limit is a whole number"):
                await verb(limit)
        with pytest.raises(ArgumentError, match="limit is a whole number"):
            await queue.purge_dlq(limit, everything=True)


# -- replay --------------------------------------------------------------------------------------


async def test_replay_and_purge_go_to_their_limit_or_to_the_end(desk: Desk) -> None:
    bury_all(desk, MANY)
    async with desk.queue() as queue:
        assert await queue.replay_dlq(0) == await queue.replay_dlq(-1) == 0
        assert await queue.replay_dlq(dry_run=True) == 100
        assert await queue.replay_dlq(PAGE + 1) == PAGE + 1
        assert await queue.purge_dlq(3, everything=True) == 3
        assert await queue.replay_dlq(limit=None) == MANY - PAGE - 4
        assert await queue.replay_dlq(limit=None) == 0
    gone = {f"{PAGE + n}" for n in (1, 2, 3)}
    assert back(desk) == [f"{n}" for n in range(MANY) if f"{n}" not in gone]


async def test_a_limit_is_reached_though_others_take_rows_out_of_the_page(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = bury_all(desk, 60)

    def take(page: int) -> None:
        desk.redis.xdel(desk.keys.dlq, *ids[:20])

    between_pages(monkeypatch, take)
    async with desk.queue() as queue:
        assert await queue.replay_dlq(30) == 30
    assert back(desk) == [f"{n}" for n in range(20, 50)]


@pytest.mark.parametrize("verb", ["replay", "purge"])
async def test_what_dies_meanwhile_is_not_chased(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    bury_all(desk, PAGE)
    between_pages(monkeypatch, lambda page: [bury(desk, f"late {page}") for _ in range(PAGE)])
    async with desk.queue() as queue:
        if verb == "replay":
            assert await queue.replay_dlq(3 * PAGE) == PAGE
        else:
            assert await queue.purge_dlq(3 * PAGE, everything=True) == PAGE
    assert left(desk) == ["late 0"] * PAGE + ["late 1"] * PAGE


async def test_jobs_that_die_again_do_not_keep_a_replay_going(desk: Desk) -> None:
    async def handler(job: Job) -> None:
        raise UnrecoverableError("still no")

    bury_all(desk, 30)
    async with desk.queue() as queue, desk.working(handler):
        assert await queue.replay_dlq(200, rate=200) == 30
        await desk.settled()
    assert len(left(desk)) == 30


async def test_a_rate_spreads_jobs_and_a_cut_leaves_each_in_one_place(desk: Desk) -> None:
    bury_all(desk, 5)
    async with desk.queue() as queue:
        slow = asyncio.create_task(queue.replay_dlq(rate=0.01))
        await eventually(lambda: back(desk) == ["0"])
        assert left(desk) == ["1", "2", "3", "4"]
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        assert (back(desk), left(desk)) == (["0"], ["1", "2", "3", "4"])
        assert await queue.replay_dlq(rate=10_000) == 4
        assert await queue.replay_dlq(rate=0.01, dry_run=True) == 0
    assert back(desk) == ["0", "1", "2", "3", "4"]


async def test_a_dry_run_does_not_wait_for_its_rate(desk: Desk) -> None:
    bury_all(desk, 5)
    async with desk.queue() as queue, asyncio.timeout(30):
        assert await queue.replay_dlq(rate=0.001, dry_run=True) == 5
    assert len(left(desk)) == 5


async def test_unreadable_rows_are_passed_and_told_of_once(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    garbage(desk, MANY)
    bury(desk, "a")
    garbage(desk, 3)
    async with desk.queue() as queue:
        assert await queue.replay_dlq(limit=None, dry_run=True) == 1
        caplog.clear()
        assert await queue.replay_dlq(limit=None) == 1
    assert [r.message for r in caplog.records if "stay there" in r.message] == [
        f"{MANY + 3} rows of the dlq stay there: no job can be read in them"
    ]
    assert len(rows(desk)) == MANY + 3


async def test_an_error_half_way_says_how_far_it_came(
    own_desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury_all(own_desk, 2 * PAGE)

    def kill(page: int) -> None:
        if page:
            own_desk.redis.client_kill_filter(_type="normal", skipme=True)

    between_pages(monkeypatch, kill)
    async with own_desk.queue() as queue:
        with pytest.raises(StoreUnavailableError) as caught:
            await queue.replay_dlq(None)
        assert caught.value.__notes__ == [
            f"{PAGE} rows were done before this; to go on, call it again"
        ]
        monkeypatch.undo()
        await queue.replay_dlq(None)
    assert sorted(back(own_desk)) == sorted(f"{n}" for n in range(2 * PAGE))


# -- purge ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"limit": 5}, {"dry_run": True}, {"name": None}, {"everything": True, "name": "send"}],
)
async def test_a_purge_wants_a_filter_or_everything(desk: Desk, options: dict[str, Any]) -> None:
    bury_all(desk, 3, name="send")
    async with desk.queue() as queue:
        with pytest.raises(ConfigError, match=r"give a filter .* or everything=True"):
            await queue.purge_dlq(**options)
    assert len(left(desk)) == 3


async def test_rows_that_cannot_be_read_can_be_purged(desk: Desk) -> None:
    one, _ = garbage(desk, 2)
    garbage(desk, 3, reason="malformed")
    garbage(desk, 1, reason="words of a newer program")
    bury(desk, "fine")
    async with desk.queue() as queue:
        assert await queue.purge_dlq(ids=[one]) == 1
        assert await queue.purge_dlq(reason="malformed") == 3
        assert await queue.purge_dlq(older_than=timedelta(hours=1)) == 0
        assert await queue.purge_dlq(2, newer_than=timedelta(hours=1)) == 2
    assert left(desk) == ["fine"] and len(rows(desk)) == 1


# -- several operators ---------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [None, 5_000])
async def test_operators_at_once_count_each_job_once(desk: Desk, rate: float | None) -> None:
    bury_all(desk, MANY, name="back")
    bury_all(desk, MANY, name="away")
    async with desk.queue() as one, desk.queue() as two, asyncio.TaskGroup() as group:
        replays = [
            group.create_task(queue.replay_dlq(None, name="back", rate=rate))
            for queue in (one, two)
        ]
        purges = [group.create_task(queue.purge_dlq(name="away")) for queue in (one, two)]
        await asyncio.wait([*replays, *purges])
    assert sum(task.result() for task in replays) == MANY
    assert sum(task.result() for task in purges) == MANY
    assert sorted(back(desk)) == sorted(f"{n}" for n in range(MANY))
    assert left(desk) == []


OPERATOR = """
import asyncio, sys
from chasquimq import Queue

async def main(name, url, dialect, rate):
    async with Queue(name, redis_url=url, dialect=dialect or None) as queue:
        print(await queue.replay_dlq(None, rate=float(rate)), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


def operator(desk: Desk, rate: float) -> subprocess.Popen[str]:
    place = [desk.name, desk.server.url, desk.server.forced_dialect or ""]
    command = [sys.executable, "-c", OPERATOR, *place, str(rate)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


async def test_what_a_killed_operator_left_another_brings_back(desk: Desk) -> None:
    bury_all(desk, MANY)
    with operator(desk, rate=100) as first:
        await eventually(lambda: desk.waiting() >= 25)
        os.kill(first.pid, signal.SIGKILL)
    half = back(desk)
    assert 25 <= len(half) < MANY
    assert sorted(half + left(desk)) == sorted(f"{n}" for n in range(MANY))
    async with desk.queue() as queue:
        assert await queue.replay_dlq(None) == MANY - len(half)
    assert sorted(back(desk)) == sorted(f"{n}" for n in range(MANY))
    assert left(desk) == []


async def test_operators_in_two_processes_bring_each_job_back_once(desk: Desk) -> None:
    bury_all(desk, MANY)
    with operator(desk, rate=500) as one, operator(desk, rate=500) as two:
        moved = [await asyncio.to_thread(it.communicate, timeout=60) for it in (one, two)]
    assert sum(int(out) for out, _ in moved) == MANY
    assert sorted(back(desk)) == sorted(f"{n}" for n in range(MANY))


async def test_a_closed_queue_may_be_asked_again(desk: Desk) -> None:
    bury_all(desk, 3)
    queue: Queue = desk.queue()
    assert await queue.replay_dlq(1) == 1
    await queue.close()
    assert await queue.replay_dlq(1) == 1
    await queue.close()
