"""The user with few rights that the page on connecting shows: enough for a queue, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from chasquimq import AccessError, Job, Queue, UnrecoverableError, Worker
from tests.examples.page import ROOT, blocks
from tests.examples.shell import run_lines
from tests.servers import DialectServer

PAGE = ROOT / "docs/how-to/connect.md"
DB = 11  # the page names the queue, so the queue needs a database of its own


@pytest.fixture
def login(dialect_server: DialectServer, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """User and password as the page sets them up; gone afterwards."""
    client = dialect_server.client(db=DB)
    client.flushdb()
    [block] = [block for block in blocks(PAGE) if "ACL SETUSER" in block.text]
    run_lines(block, client, {}, tmp_path)
    yield "mail-app", "a-long-password"
    client.execute_command("ACL", "DELUSER", "mail-app")
    client.flushdb()


async def test_the_user_of_the_page_can_do_what_a_queue_needs(
    dialect_server: DialectServer, login: tuple[str, str]
) -> None:
    asked: list[str | None] = []

    async def provider(host: str | None) -> tuple[str | None, str | None]:
        asked.append(host)
        return login

    async def handle(job: Job) -> None:
        runs.append(job.name)
        if len(runs) == 7:
            await worker.close()
        if job.name == "fails":
            raise ValueError("no")
        if job.name == "dies":
            raise UnrecoverableError("never")

    runs: list[str] = []
    url, dialect = f"{dialect_server.url}/{DB}", dialect_server.forced_dialect
    worker = Worker("mail", handle, redis_url=url, credential_provider=provider, dialect=dialect)
    async with Queue("mail", redis_url=url, credential_provider=provider, dialect=dialect) as queue:
        await queue.add("plain", None)
        await queue.add("unique", None, job_id="u")
        await queue.add("fails", None, attempts=2, backoff=10)
        await queue.add("dies", None)
        await queue.add("later", None, delay_ms=100)
        await queue.add("later", None, delay_ms=200, job_id="later")
        await queue.add("never", None, delay_ms=60_000, job_id="never")
        assert await queue.cancel_delayed("never")
        async with asyncio.timeout(20):
            await worker.run()
        assert len(await queue.peek_dlq()) == 2
        assert await queue.replay_dlq() == 2
    assert sorted(runs) == ["dies", "fails", "fails", "later", "later", "plain", "unique"]
    assert dialect_server.url.endswith(str(asked[0]))


async def test_and_nothing_else(dialect_server: DialectServer, login: tuple[str, str]) -> None:
    url, dialect = f"{dialect_server.url}/{DB}", dialect_server.forced_dialect
    other = Queue("other", redis_url=url, credential_provider=lambda _: login, dialect=dialect)
    with pytest.raises(AccessError):
        await other.add("plain", None)
    await other.close()
    client = dialect_server.client(db=DB, username=login[0], password=login[1])
    for command in (["FLUSHALL"], ["CONFIG", "GET", "*"], ["KEYS", "*"], ["GET", "elsewhere"]):
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.execute_command(*command)
