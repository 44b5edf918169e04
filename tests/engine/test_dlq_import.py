"""Exported rows brought in again: from files that are not whole, by operators at once."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chasquimq import WireError, wire
from chasquimq.engine import archive
from chasquimq.store.dead import PAGE
from tests.engine.desk import Desk, eventually
from tests.engine.graves import back, bury, bury_all, fields_of, left

MANY = 2 * PAGE + 50
FORMATS = pytest.mark.parametrize("suffix", ["jsonl", "msgpack"])


# -- files that are not whole ----------------------------------------------------------------------


async def exported(desk: Desk, count: int, suffix: str) -> bytes:
    bury_all(desk, count)
    out = io.BytesIO()
    async with desk.queue() as queue:
        await queue.export_dlq(out, format=suffix)  # type: ignore[arg-type]
        await queue.purge_dlq(everything=True)
    return out.getvalue()


async def test_a_bad_line_is_named_and_what_stands_before_it_is_in(
    desk: Desk, tmp_path: Path
) -> None:
    lines = (await exported(desk, MANY, "jsonl")).splitlines(keepends=True)
    bad, path = PAGE + 17, tmp_path / "x.jsonl"
    path.write_bytes(b"".join([*lines[:bad], b'{"dlq_id": 5}\n', *lines[bad + 1 :]]))
    async with desk.queue() as queue:
        with pytest.raises(WireError) as caught:
            await queue.import_dlq(path)
        assert f"line {bad + 1}: no exported row" in str(caught.value)
        assert f"{bad} rows were added before it" in str(caught.value)
        assert left(desk) == [f"{n}" for n in range(bad)]
        path.write_bytes(b"".join(lines))
        assert await queue.import_dlq(path) == MANY - bad
    assert left(desk) == [f"{n}" for n in range(MANY)]


async def test_a_bad_row_is_named_and_what_stands_before_it_is_in(
    desk: Desk, tmp_path: Path
) -> None:
    data = await exported(desk, 20, "msgpack")
    path = tmp_path / "x.msgpack"
    async with desk.queue() as queue:
        for bad, why in ((b"\x05", "no exported row"), (b"\xc1", "0xc1"), (b"\x81", "the middle")):
            path.write_bytes(data + bad)
            with pytest.raises(WireError, match=rf"row 21: .*{why}.*; \d+ rows were added before"):
                await queue.import_dlq(path)
            assert left(desk) == [f"{n}" for n in range(20)]


@FORMATS
async def test_a_file_that_ends_in_the_middle_of_a_row_says_so(desk: Desk, suffix: str) -> None:
    data = await exported(desk, 3, suffix)
    what = "line" if suffix == "jsonl" else "row"
    async with desk.queue() as queue:
        for cut in (2, 40):
            with pytest.raises(WireError, match=rf"{what} 3: .*2 rows were added before it"):
                await queue.import_dlq(
                    io.BytesIO(data[:-cut]),
                    format=suffix,  # type: ignore[arg-type]
                    dry_run=True,
                )
        with pytest.raises(WireError, match="2 rows"):
            await queue.import_dlq(io.BytesIO(data[:-2]), format=suffix)  # type: ignore[arg-type]
        assert left(desk) == ["0", "1"]
        assert await queue.import_dlq(io.BytesIO(data), format=suffix) == 1  # type: ignore[arg-type]


async def test_blank_lines_and_a_missing_last_newline_are_no_trouble(desk: Desk) -> None:
    lines = (await exported(desk, 2, "jsonl")).splitlines()
    data = b"\n  \r\n" + lines[0] + b"\r\n\n" + lines[1]
    async with desk.queue() as queue:
        assert await queue.import_dlq(io.BytesIO(data), format="jsonl") == 2
        assert await queue.import_dlq(io.StringIO(data.decode()), format="jsonl") == 0


async def test_a_file_that_is_no_text_says_so(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\xff\xff\n")
    async with desk.queue() as queue:
        with open(path) as opened, pytest.raises(WireError, match=r"line 1: .* no text"):
            await queue.import_dlq(opened)
        with pytest.raises(WireError, match="line 1: no exported row"):
            await queue.import_dlq(path)


@FORMATS
async def test_a_row_beyond_the_limit_is_refused_without_being_read_whole(
    desk: Desk, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = await exported(desk, 2, suffix)
    limit = 200_000
    monkeypatch.setattr(archive, "MAX_ROW_BYTES", limit)
    endless = b'{"data": "' if suffix == "jsonl" else b"\x81\xa1a\xc6\xff\xff\xff\xff"
    source = io.BytesIO(data + endless + b"x" * 10_000_000)
    async with desk.queue() as queue:
        with pytest.raises(WireError, match=r"3: it is larger than .*; 2 rows were added"):
            await queue.import_dlq(source, format=suffix)  # type: ignore[arg-type]
    assert source.tell() < 5 * limit


async def test_rows_larger_than_a_read_come_in_whole(desk: Desk, tmp_path: Path) -> None:
    for number in range(12):
        bury(desk, f"{number}", data="x" * (number * 100_000))
    before, path = fields_of(desk), tmp_path / "x.mpk"
    async with desk.queue() as queue:
        await queue.export_dlq(path)
        await queue.purge_dlq(everything=True)
        assert await queue.import_dlq(path) == 12
    assert fields_of(desk) == before


# -- several operators -----------------------------------------------------------------------------


async def test_operators_at_once_bring_each_row_in_once(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(await exported(desk, MANY, "jsonl"))
    async with desk.queue() as one, desk.queue() as two, asyncio.TaskGroup() as group:
        added = [group.create_task(queue.import_dlq(path)) for queue in (one, two)]
        await asyncio.wait(added)
    assert sum(task.result() for task in added) == MANY
    assert sorted(left(desk)) == sorted(f"{n}" for n in range(MANY))


IMPORTER = """
import asyncio, sys
from chasquimq import Queue

async def main(name, url, dialect, path):
    async with Queue(name, redis_url=url, dialect=dialect or None) as queue:
        await queue.import_dlq(path)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_what_a_killed_import_left_out_another_brings_in(desk: Desk, tmp_path: Path) -> None:
    """The killed one reads from a pipe that it is fed half of the file through."""
    data = await exported(desk, MANY, "jsonl")
    lines = data.splitlines(keepends=True)
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    place = [desk.name, desk.server.url, desk.server.forced_dialect or ""]
    with subprocess.Popen([sys.executable, "-c", IMPORTER, *place, str(pipe)]) as child:
        feed = await asyncio.to_thread(open, pipe, "wb", 0)
        await asyncio.to_thread(feed.write, b"".join(lines[: PAGE + 5]))
        await eventually(lambda: len(fields_of(desk)) >= PAGE)
        child.kill()
    feed.close()
    half = len(left(desk))
    assert PAGE <= half < MANY
    async with desk.queue() as queue:
        assert await queue.import_dlq(io.BytesIO(data), format="jsonl") == MANY - half
        assert await queue.replay_dlq(None) == MANY
    assert back(desk) == [f"{n}" for n in range(MANY)]


async def test_an_imported_job_is_still_the_same_job(desk: Desk) -> None:
    """What its envelope says is not touched on the way."""
    data = await exported(desk, 1, "msgpack")
    async with desk.queue() as queue:
        await queue.import_dlq(io.BytesIO(data), format="msgpack")
        (row,) = await queue.peek_dlq()
    assert wire.unpack_envelope(row["payload"]).attempt == 3
