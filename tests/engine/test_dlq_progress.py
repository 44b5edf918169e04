"""Whoever works through a DLQ is told after each batch how far he is, and may stop there."""

from __future__ import annotations

from pathlib import Path

import pytest

from chasquimq import Queue, wire
from chasquimq.job import Envelope
from tests.servers import DialectServer

ROWS = 250
AFTER_EACH = [100, 200, 250]


async def filled(server: DialectServer, name: str) -> Queue:
    pipe = server.client().pipeline(transaction=False)
    for number in range(ROWS):
        envelope = wire.pack_envelope(Envelope(f"job-{number}", wire.encode(number), 1, 0))
        fields = wire.pack_dead(envelope, b"n", b"1-1", "unrecoverable")
        pipe.execute_command("XADD", wire.Keys(name).dlq, "*", *fields)
    pipe.execute()
    return Queue(name, redis_url=server.url, dialect=server.forced_dialect)


async def test_each_verb_tells_after_each_batch(
    dialect_server: DialectServer, queue_name: str, tmp_path: Path
) -> None:
    async with await filled(dialect_server, queue_name) as queue:
        file, told = tmp_path / "dead.jsonl", list[int]()
        assert await queue.export_dlq(file, progress=told.append) == ROWS
        assert await queue.replay_dlq(None, dry_run=True, progress=told.append) == ROWS
        assert await queue.purge_dlq(everything=True, progress=told.append) == ROWS
        assert await queue.import_dlq(file, progress=told.append) == ROWS
        assert await queue.replay_dlq(None, progress=told.append) == ROWS
        assert told == AFTER_EACH * 5


async def test_who_raises_ends_the_call_between_two_batches(
    dialect_server: DialectServer, queue_name: str
) -> None:
    class Enough(Exception):
        pass

    def stop(done: int) -> None:
        if done == 200:
            raise Enough

    keys, client = wire.Keys(queue_name), dialect_server.client()
    async with await filled(dialect_server, queue_name) as queue:
        with pytest.raises(Enough) as raised:
            await queue.replay_dlq(None, progress=stop)
        assert (client.xlen(keys.stream), client.xlen(keys.dlq)) == (200, 50)
        assert "200 rows were done before this" in raised.value.__notes__[0]
