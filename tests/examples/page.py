"""A page of the documentation as the tests read it: its fenced blocks, its links, its headings.

A block's fence says what becomes of it:

    ```python           runs, in one namespace with the page's other blocks; `await` is allowed
    ```python           ... and one that calls `asyncio.run(` is a program: a process of its own
    ```python spark     runs where there is a Spark session, as all blocks of the folders `spark` do
    ```python no-run    does not run: it needs what a test has not got
    ```text             after a block: what that block prints; `...` stands for anything
    ```sh               its lines that start with `redis-cli` or `chasqui` run, one by one
    ```sh no-run        do not: such a command does not end by itself. Its options are checked
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


class Block(NamedTuple):
    line: int
    kind: str
    text: str
    prints: str | None = None  # the ```text block after it

    @property
    def is_program(self) -> bool:
        return "asyncio.run(" in self.text


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found: list[Block] = []
    for match in _FENCE.finditer(text):
        kind, body = match[1].strip(), match[2]
        if kind == "text" and found and found[-1].prints is None:
            found[-1] = found[-1]._replace(prints=body)
        else:
            found.append(Block(text.count("\n", 0, match.start()) + 2, kind, body))
    return found


def links(page: Path) -> list[str]:
    return _LINK.findall(_FENCE.sub("", page.read_text()))


def anchors(page: Path) -> set[str]:
    """The names under which a reader's browser knows the page's headings."""
    headings = _HEADING.findall(_FENCE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
