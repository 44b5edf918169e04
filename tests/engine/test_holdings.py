"""What a worker holds, and what it must not take up twice."""

from __future__ import annotations

from typing import Any

from chasquimq.address import read_url
from chasquimq.config import ReadOptions, StreamOptions, UntilOptions
from chasquimq.engine.holdings import Holdings
from chasquimq.engine.reader import Reader
from chasquimq.store import Dialer, Jobs, Row, Store, build
from tests.engine.desk import Desk, eventually


async def test_an_entry_acked_while_redis_answers_is_not_taken_up_again(desk: Desk) -> None:
    """After a lost reply the reader asks what is pending. The answer is old when it comes: an
    entry that it names may have been acked, and released, by then."""
    desk.put("acked meanwhile")
    desk.put("reply was lost")
    acked, lost = desk.abandon(2, "us")
    store = Store(desk.keys, Dialer(read_url(desk.server.url)), desk.server.forced_dialect)
    await store.open()
    jobs = Jobs(desk.keys, build(store.dialect_name, desk.keys), store.link, "default", "us")
    holdings = Holdings(concurrency=2)
    reader = Reader(
        store,
        jobs,
        holdings,
        lambda happening: None,
        ReadOptions(),
        StreamOptions(),
        UntilOptions(),
    )
    await reader.link.open()
    holdings.take([[acked, []]])
    ask = jobs.adopt

    async def slow_answer(count: int) -> list[Row]:
        rows = await ask(count)
        desk.redis.xack(desk.keys.stream, "default", acked)
        holdings.release([acked])
        return rows

    jobs.adopt = slow_answer  # type: ignore[method-assign]
    holdings.queue.clear()
    await reader._rejoin()
    assert [row[0] for row in holdings.queue] == [lost]
    await reader.link.close()
    await store.close()


async def test_what_is_held_is_refused(desk: Desk) -> None:
    holdings = Holdings(concurrency=2)
    row: list[Any] = [b"1-1", []]
    holdings.take([row])
    holdings.take([row, [b"1-2", []]])
    assert [entry_id for entry_id, _ in holdings.queue] == [b"1-1", b"1-2"]
    assert holdings.refused == 1
    holdings.release([b"1-1"])
    assert holdings.ids == {b"1-2"}


async def test_a_suspect_claimed_while_stopping_is_not_held() -> None:
    holdings = Holdings(concurrency=2)
    holdings.close()
    assert holdings.take_suspects([[b"1-1", [], 0, 1]]) == []
    assert not holdings.ids


async def test_what_was_left_to_others_does_not_count_as_started() -> None:
    """Or a worker whose slots are all busy would claim as many suspects."""
    holdings = Holdings(concurrency=2)
    holdings.take([[b"%d-0" % number, []] for number in range(10)])
    for _ in range(2):
        holdings.queue.popleft()
    assert [holdings.places(), holdings.places()] == [2, 0]
    await eventually(lambda: holdings.nudge.is_set())
    left = holdings.surrender()
    assert (len(left), holdings.places()) == (8, 0)
    holdings.put_back(left)
    assert (len(holdings.queue), holdings.places()) == (8, 0)
    holdings.close()


async def test_suspects_are_started_in_the_order_in_which_they_were_claimed() -> None:
    holdings = Holdings(concurrency=1)
    holdings.take([[b"9-0", []]])
    for entry_id in (b"2-0", b"1-0"):
        holdings.take_suspects([[entry_id, [], 0, 1]])
    assert holdings.queued_suspects() == [b"2-0", b"1-0"]
    assert [row[0] for row in holdings.queue] == [b"2-0", b"1-0", b"9-0"]
    holdings.close()
