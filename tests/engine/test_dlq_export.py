"""Dead jobs carried off into files, and brought in again."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import tempfile
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chasquimq import ConfigError, Job, StoreUnavailableError
from chasquimq.engine import archive
from chasquimq.errors import ArgumentError
from chasquimq.store.dead import PAGE
from tests.engine.desk import Desk, eventually
from tests.engine.graves import between_pages, bury, bury_all, fields_of, garbage, put

MANY = 2 * PAGE + 50
FORMATS = pytest.mark.parametrize("suffix", ["jsonl", "msgpack"])


def odd_rows(desk: Desk) -> None:
    """Everything that may lie in a DLQ."""
    bury(desk, "plain", name="send", data={"n": [1, b"\x00"]}, error="é" * 99, attempt=2)
    bury(desk, "unique", unique=b"60", failed_at_ms=1_700_000_000_000)
    bury(desk, "reference", own_id=False)
    bury(desk, "large", data="x" * 300_000)
    garbage(desk, 2)
    put(desk, [b"no", b"body"])
    put(desk, [b"", b"", b"d", b"\xff\x00", b"d", b"twice", b"n", b"\xff"])


# -- there and back --------------------------------------------------------------------------------


@FORMATS
async def test_what_was_exported_comes_back_to_the_byte(
    desk: Desk, tmp_path: Path, suffix: str
) -> None:
    odd_rows(desk)
    bury_all(desk, MANY)
    before, path = fields_of(desk), tmp_path / f"dead.{suffix}"
    async with desk.queue() as queue:
        assert await queue.export_dlq(path) == len(before)
        assert await queue.import_dlq(path) == 0  # all of it is still there
        assert await queue.purge_dlq(everything=True) == len(before)
        assert await queue.import_dlq(str(path), dry_run=True) == len(before)
        assert fields_of(desk) == []
        assert await queue.import_dlq(str(path)) == len(before)
        assert fields_of(desk) == before
        assert await queue.import_dlq(path) == 0
        assert await queue.import_dlq(path, dry_run=True) == 0
    assert fields_of(desk) == before


@FORMATS
async def test_an_export_goes_to_another_queue_and_its_jobs_run_there(
    desk: Desk, tmp_path: Path, suffix: str
) -> None:
    bury(desk, "a", name="send", data={"n": 1})
    path, there = tmp_path / f"x.{suffix}", Desk(desk.server, f"{desk.name}-2")
    async with desk.queue() as queue:
        await queue.export_dlq(path)
    seen: list[Any] = []

    async def handler(job: Job) -> None:
        seen.append((job.id, job.name, job.data, job.attempt))

    async with there.queue() as queue, there.working(handler):
        assert await queue.import_dlq(path) == 1
        assert await queue.replay_dlq(name="send") == 1
        assert await queue.import_dlq(path) == 0
        await there.settled()
    assert seen == [("a", "send", {"n": 1}, 0)]


async def test_an_export_takes_what_is_meant_as_of_its_start(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury_all(desk, MANY, name="send")
    bury_all(desk, 3, name="other")
    path = tmp_path / "x.jsonl"
    between_pages(monkeypatch, lambda page: bury(desk, "late", name="send"))  # type: ignore[arg-type, return-value]
    async with desk.queue() as queue:
        assert await queue.export_dlq(path, name="send") == MANY
        assert await queue.export_dlq(path, ids=[]) == 0
    assert path.read_bytes() == b""


async def test_an_empty_file_is_an_export_of_nothing(desk: Desk, tmp_path: Path) -> None:
    async with desk.queue() as queue:
        for name in ("x.jsonl", "x.msgpack"):
            assert await queue.export_dlq(tmp_path / name) == 0
            assert await queue.import_dlq(tmp_path / name) == 0


async def test_a_line_can_be_read_by_anybody(desk: Desk, tmp_path: Path) -> None:
    bury(desk, "a", name="send", data={"to": "me"}, error_type="ValueError", error="no")
    async with desk.queue() as queue:
        await queue.export_dlq(tmp_path / "x.jsonl")
        await queue.export_dlq(tmp_path / "x.msgpack")
    told = json.loads((tmp_path / "x.jsonl").read_text())
    assert (told["job_id"], told["name"], told["data"]) == ("a", "send", {"to": "me"})
    assert (told["error_type"], told["error"]) == ("ValueError", "no")
    same = msgspec.msgpack.decode((tmp_path / "x.msgpack").read_bytes())
    assert same.pop("fields") == fields_of(desk)[0]
    del told["fields"]
    assert same == told


# -- files -----------------------------------------------------------------------------------------


class Stingy(io.RawIOBase):
    """A file without a buffer, which takes a few bytes at a time."""

    def __init__(self) -> None:
        self.data = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.data += bytes(data[:999])
        return min(999, len(data))


async def test_any_open_file_will_do(desk: Desk, tmp_path: Path) -> None:
    odd_rows(desk)
    async with desk.queue() as queue:
        count = len(fields_of(desk))
        text, data = io.StringIO(), io.BytesIO()
        assert await queue.export_dlq(text, format="jsonl") == count
        assert await queue.export_dlq(data, format="jsonl") == count
        assert text.getvalue().encode() == data.getvalue()
        packed = io.BytesIO()
        assert await queue.export_dlq(packed, format="msgpack") == count
        with open(tmp_path / "a.jsonl", "w") as opened:  # its name says the format
            assert await queue.export_dlq(opened) == count
        with open(tmp_path / "b.msgpack", "wb", buffering=0) as raw:
            assert await queue.export_dlq(raw) == count
        with gzip.open(tmp_path / "c.gz", "wb") as zipped:
            assert await queue.export_dlq(zipped, format="jsonl") == count
        with tempfile.NamedTemporaryFile("w+", suffix=".jsonl") as wrapped:
            assert await queue.export_dlq(wrapped) == count
            wrapped.seek(0)
            assert wrapped.read() == text.getvalue()
        stingy = Stingy()
        assert await queue.export_dlq(stingy, format="msgpack") == count  # type: ignore[arg-type]
        assert stingy.data == packed.getvalue()
        assert (tmp_path / "a.jsonl").read_bytes() == data.getvalue()
        assert (tmp_path / "b.msgpack").read_bytes() == packed.getvalue()

        await queue.purge_dlq(everything=True)
        with (
            open(tmp_path / "a.jsonl") as opened,
            open(tmp_path / "b.msgpack", "rb", buffering=0) as raw,
            gzip.open(tmp_path / "c.gz") as zipped,
        ):
            sources: list[tuple[Any, Any]] = [
                (io.StringIO(text.getvalue()), "jsonl"),
                (io.BytesIO(data.getvalue()), "jsonl"),
                (io.BytesIO(packed.getvalue()), "msgpack"),
                (opened, None),
                (raw, None),
                (zipped, "jsonl"),
            ]
            for source, format in sources:
                assert await queue.import_dlq(source, format=format, dry_run=True) == count
                assert not source.closed


@pytest.mark.parametrize(
    ("name", "format"),
    [("x.jsonl", "jsonl"), ("x.ndjson", "jsonl"), ("x.JSON", "jsonl"), ("x.msgpack", "msgpack"),
     ("x.mpk", "msgpack")],
)  # fmt: skip
def test_a_name_says_the_format(name: str, format: str) -> None:
    assert archive.read_format(name, None) == format
    assert archive.read_format(Path("a.b") / name, None) == format
    assert archive.read_format("x.txt", format) == format  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("file", "format", "words"),
    [
        ("x.txt", None, "no format is known by the name"),
        ("x", None, "no format is known by the name"),
        ("x.jsonl.gz", None, "no format is known by the name"),
        (io.BytesIO(), None, "no format is known by the name None"),
        ("x.jsonl", "csv", "format must be one of jsonl, msgpack"),
        (io.StringIO(), "msgpack", "msgpack is no text"),
        (5, "jsonl", "a path or a file that is open"),
        (b"x.jsonl", "jsonl", "a path or a file that is open"),
        (None, "jsonl", "a path or a file that is open"),
    ],
)
async def test_files_that_make_no_sense_are_refused(
    desk: Desk, file: Any, format: Any, words: str
) -> None:
    async with desk.queue() as queue:
        for verb in (queue.export_dlq, queue.import_dlq):
            with pytest.raises(ConfigError, match=words) as caught:
                await verb(file, format=format)
            assert isinstance(caught.value, ArgumentError) == ("a path or" in words)


async def test_a_file_that_is_open_for_the_other_thing_is_refused(
    desk: Desk, tmp_path: Path
) -> None:
    (tmp_path / "x.jsonl").touch()
    async with desk.queue() as queue:
        with (
            open(tmp_path / "x.jsonl") as source,
            pytest.raises(ConfigError, match="not open to write"),
        ):
            await queue.export_dlq(source)
        with (
            open(tmp_path / "x.jsonl", "w") as out,
            pytest.raises(ConfigError, match="not open to read"),
        ):
            await queue.import_dlq(out)


async def test_a_file_is_for_its_owner_and_a_link_stays_one(desk: Desk, tmp_path: Path) -> None:
    bury_all(desk, 3)
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "real.jsonl", tmp_path / "link.jsonl"
    target.write_text("old")
    target.chmod(0o644)
    link.symlink_to(target)
    async with desk.queue() as queue:
        assert await queue.export_dlq(link) == 3
    assert link.is_symlink() and len(target.read_text().splitlines()) == 3
    assert target.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path / "there") == ["real.jsonl"]


async def test_what_is_no_ordinary_file_is_not_replaced(desk: Desk, tmp_path: Path) -> None:
    pipe, folder = tmp_path / "pipe.jsonl", tmp_path / "folder.jsonl"
    os.mkfifo(pipe)
    folder.mkdir()
    async with desk.queue() as queue:
        for place in (pipe, folder):
            with pytest.raises(ConfigError, match="no ordinary file"):
                await queue.export_dlq(place)
        with pytest.raises(FileNotFoundError):
            await queue.export_dlq(tmp_path / "nowhere" / "x.jsonl")
        with pytest.raises(FileNotFoundError):
            await queue.import_dlq(tmp_path / "nowhere.jsonl")
    assert sorted(os.listdir(tmp_path)) == ["folder.jsonl", "pipe.jsonl"]


async def test_an_export_that_fails_leaves_the_old_file(
    own_desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury_all(own_desk, MANY)
    path = tmp_path / "x.jsonl"
    path.write_text("old")

    def die(page: int) -> None:
        if page:
            assert len(os.listdir(tmp_path)) == 2  # half of it is there, under another name
            own_desk.server.server.kill()

    between_pages(monkeypatch, die)
    async with own_desk.queue(reconnect_max_attempts=1) as queue:
        with pytest.raises(StoreUnavailableError):
            await queue.export_dlq(path)
    assert (os.listdir(tmp_path), path.read_text()) == (["x.jsonl"], "old")


class Slow(io.BytesIO):
    """A file that takes its time: a write lasts until it is let go on."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.threads: set[int] = set()
        self.tidied: list[str] = []

    def write(self, data: Any) -> int:
        if not data:  # somebody asks which kind of file this is
            return 0
        self.threads.add(threading.get_ident())
        self.entered.set()
        self.go_on.wait(30)
        self.tidied.append("written")
        return super().write(data)


async def test_writes_do_not_stop_the_event_loop(desk: Desk) -> None:
    bury_all(desk, 3)
    slow = Slow()
    async with desk.queue() as queue, asyncio.timeout(30):
        export = asyncio.create_task(queue.export_dlq(slow, format="msgpack"))
        await eventually(slow.entered.is_set)
        await queue.add("meanwhile", 1)
        slow.go_on.set()
        assert await export == 3
    assert threading.get_ident() not in slow.threads


async def test_a_cancelled_export_tidies_up_behind_its_last_write(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury_all(desk, MANY)
    entered, go_on, order = threading.Event(), threading.Event(), []
    write, end = archive.Sheet.write, archive.Sheet.end

    def slow_write(self: archive.Sheet, page: Any) -> None:
        entered.set()
        go_on.wait(30)
        write(self, page)
        order.append("written")

    def told_end(self: archive.Sheet, whole: bool) -> None:
        order.append(f"end {whole}")
        end(self, whole)

    monkeypatch.setattr(archive.Sheet, "write", slow_write)
    monkeypatch.setattr(archive.Sheet, "end", told_end)
    async with desk.queue() as queue:
        export = asyncio.create_task(queue.export_dlq(tmp_path / "x.jsonl"))
        await eventually(entered.is_set)
        export.cancel()
        await asyncio.sleep(0)
        export.cancel()  # somebody is in a hurry
        with pytest.raises(asyncio.CancelledError):
            await export
        go_on.set()
        await eventually(lambda: order == ["written", "end False"] and not os.listdir(tmp_path))


async def test_rows_are_written_while_others_are_still_to_be_read(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury_all(desk, MANY)
    out, written = io.BytesIO(), []
    between_pages(monkeypatch, lambda page: written.append(out.getvalue().count(b"\n")))
    async with desk.queue() as queue:
        assert await queue.export_dlq(out, format="jsonl") == MANY
    assert written == [0, PAGE, 2 * PAGE]
