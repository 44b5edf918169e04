"""Every snippet of the pages about Spark runs, in one session, against a real server."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.sql import SparkSession

from chasquimq import Queue
from tests.examples.page import PAGES, Block, blocks, name
from tests.examples.run import defaults, matches, run_block
from tests.examples.shell import run_lines


def runs(page: Path, block: Block) -> bool:
    if page.parent.name == "spark":
        return block.kind in ("python", "sh")
    return block.kind == "python spark"


BLOCK_S = 120.0  # Spark takes its time on a busy machine
RUN = [page for page in PAGES if any(runs(page, block) for block in blocks(page))]


@pytest.fixture
def place(spark: SparkSession) -> Iterator[dict[str, Any]]:
    url = os.environ["REDIS_URL"]
    with redis.Redis.from_url(url, protocol=2) as client:
        client.flushdb()
        yield {"redis_url": url, "dialect": None}
        client.flushdb()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", RUN, ids=name)
async def test_a_page_runs(page: Path, place: dict[str, Any], tmp_path: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "page"}
    with (
        defaults(**place),
        contextlib.chdir(tmp_path),
        redis.Redis.from_url(place["redis_url"], protocol=2) as client,
    ):
        for block in blocks(page):
            if not runs(page, block):
                continue
            if block.kind == "sh":
                printed = await asyncio.to_thread(run_lines, block, client, place, tmp_path)
            else:
                printed = await run_block(name(page), block, namespace, BLOCK_S)
            if block.prints is not None:
                where = f"{name(page)}:{block.line}"
                assert matches(block.prints, printed), f"{where} printed\n{printed}"
        for value in namespace.values():
            if isinstance(value, Queue):
                await value.close()


def test_there_is_something_to_run() -> None:
    assert len(RUN) >= 3
