"""Selecting among rows that the reference wrote, and the reference on rows that we imported."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pytest

from chasquimq import Queue
from tests.interop.conftest import MakeSide
from tests.interop.keys import Keys
from tests.servers import DialectServer

T = TypeVar("T")
WORK = {"concurrency": 4}


@pytest.fixture
def operate(native_server: DialectServer, queue_name: str) -> Callable[..., object]:
    """Do something with our Queue, and answer what it answers."""

    def run(act: Callable[[Queue], Awaitable[T]]) -> T:
        async def main() -> T:
            async with Queue(queue_name, redis_url=native_server.url) as queue:
                return await act(queue)

        return asyncio.run(main())

    return run


@pytest.mark.parametrize("suffix", ["jsonl", "msgpack"])
def test_rows_of_the_reference_are_selected_and_go_through_a_file(
    side: MakeSide,
    keys: Keys,
    operate: Callable[..., object],
    tmp_path: Path,
    suffix: str,
) -> None:
    reference, path = side("reference"), tmp_path / f"x.{suffix}"
    wanted, *_ = [reference.add(f"n{n}", {"n": n}) for n in range(3)]
    reference.work(unrecoverable=True, **WORK)
    keys.wait_dead(3)
    reference.stop()
    (before,) = [row for row in keys.client.xrange(keys.dlq) if row[1][b"n"] == b"n0"]
    assert list(before[1]) == [b"d", b"n", b"source_id", b"reason"]

    hour = timedelta(hours=1)
    assert operate(lambda queue: queue.peek_dlq(error_type="UnrecoverableError")) == []
    assert operate(lambda queue: queue.purge_dlq(older_than=hour)) == 0
    assert operate(lambda queue: queue.export_dlq(path, ids=[wanted.id], newer_than=hour)) == 1
    assert operate(lambda queue: queue.purge_dlq(reason="unrecoverable")) == 3
    assert operate(lambda queue: queue.import_dlq(path)) == 1
    ((_, after),) = keys.client.xrange(keys.dlq)
    assert list(after.items()) == list(before[1].items())

    again = side("reference")
    (shown,) = again.peek_dlq()
    assert (shown["name"], shown["payload"]) == ("n0", before[1][b"d"])
    assert again.replay_dlq() == 1
    again.work(**WORK)
    (run,) = again.wait_seen(1)
    assert (run.id, run.data, run.attempt) == (wanted.id, {"n": 0}, 0)
    keys.wait_drained()
