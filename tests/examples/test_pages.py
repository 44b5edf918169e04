"""Every snippet of the README and the docs runs, on every dialect; every link leads somewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from chasquimq import Queue, sync
from tests.examples.page import PAGES, ROOT, anchors, blocks, links, name
from tests.examples.run import defaults, matches, run_block, run_program
from tests.examples.shell import run_lines
from tests.house.tree import none_of
from tests.servers import DialectServer

RUN = [
    page
    for page in PAGES
    if any(block.kind in ("python", "sh") for block in blocks(page))
    and page.parent.name != "spark"  # they have a session of their own: tests/spark/test_pages.py
]
MAY_NOT_RUN = 3  # blocks marked `no-run`, on all pages together
DB = 9  # a database of its own on the shared server: pages choose their queue names freely


@pytest.fixture
def place(dialect_server: DialectServer) -> Iterator[dict[str, Any]]:
    """Where a page's code connects when it does not say where."""
    client = dialect_server.client(db=DB)
    client.flushdb()
    yield {"redis_url": f"{dialect_server.url}/{DB}", "dialect": dialect_server.forced_dialect}
    client.execute_command("ACL", "DELUSER", "mail-app")  # whom the page on connecting sets up
    client.flushdb()


@pytest.mark.parametrize("page", RUN, ids=name)
async def test_a_page_runs(page: Path, place: dict[str, Any], tmp_path: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "page", "REDIS_URL": place["redis_url"]}
    with defaults(**place), redis.Redis.from_url(place["redis_url"], protocol=2) as client:
        for block in blocks(page):
            if block.kind == "sh":
                printed = await asyncio.to_thread(run_lines, block, client, place, tmp_path)
            elif block.kind != "python":
                continue
            elif block.is_program:
                printed = run_program(block, place, tmp_path)
            else:
                printed = await run_block(name(page), block, namespace)
            if block.prints is not None:
                where = f"{name(page)}:{block.line}"
                assert matches(block.prints, printed), f"{where} printed\n{printed}"
        for value in namespace.values():
            if isinstance(value, Queue):  # pages need not show that they tidy up
                await value.close()
            elif isinstance(value, sync.Queue):
                value.close()


def test_there_is_something_to_run() -> None:
    assert ROOT / "README.md" in RUN
    assert len(RUN) > 5


def test_few_blocks_do_not_run() -> None:
    kinds = {block.kind for page in PAGES for block in blocks(page)}
    runs = {"python", "python spark", "sh"}
    assert kinds <= {*runs, "python no-run", "sh no-run", "text", "yaml", "ini", ""}
    idle = [block for page in PAGES for block in blocks(page) if block.kind == "python no-run"]
    assert len(idle) <= MAY_NOT_RUN


def test_recipes_can_be_read() -> None:
    found = [block for page in PAGES for block in blocks(page) if block.kind == "yaml"]
    assert found and all(yaml.safe_load(block.text) for block in found)


def leads_somewhere(link: str, page: Path) -> bool:
    target, _, anchor = link.partition("#")
    file = (page.parent / target).resolve() if target else page
    return file.exists() and (not anchor or anchor in anchors(file))


def line_of(link: str, page: Path) -> int:
    return page.read_text().partition(f"]({link})")[0].count("\n") + 1


def test_links_lead_to_a_page_and_a_heading() -> None:
    local = [(page, link) for page in PAGES for link in links(page) if "://" not in link]
    astray = [(page, link) for page, link in local if not leads_somewhere(link, page)]
    none_of([f"{name(page)}:{line_of(link, page)}: {link}" for page, link in astray], len(local))


def test_every_page_can_be_reached() -> None:
    """From the README, by links alone."""
    seen = {ROOT / "README.md"}
    ahead = list(seen)
    while ahead:
        here = ahead.pop()
        for link in links(here):
            file = (here.parent / link.partition("#")[0]).resolve()
            if file.suffix == ".md" and file.is_file() and file not in seen:
                seen.add(file)
                ahead.append(file)
    none_of([name(page) for page in PAGES if page not in seen], len(PAGES))


def test_a_page_is_short_enough_to_read() -> None:
    lines = {name(page): len(page.read_text().splitlines()) for page in PAGES}
    none_of(
        [f"{page}:{count}: 400 lines or more" for page, count in lines.items() if count >= 400],
        len(PAGES),
    )
