"""The reference pages about Spark name exactly what the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chasquimq.spark.options import CORRUPT, SINK, SOURCE
from chasquimq.spark.schema import COLUMNS
from tests.house.tree import ROOT

PAGES = ROOT / "docs/reference/spark"
CONNECT = {"queue", "url", "urlEnv", "secretFile"}


def first_cells(page: Path, heading: str) -> list[str]:
    """The names in the first cells of the first table behind a heading."""
    text = page.read_text()
    rows = text[text.index(heading) :].split("\n|---", 1)[1].splitlines()[1:]
    table = rows[: next((at for at, row in enumerate(rows) if not row.startswith("|")), len(rows))]
    return [name for row in table for name in re.findall(r"`(\w+)`", row.split("|")[1])]


@pytest.mark.parametrize("view", COLUMNS)
def test_a_view_has_a_page_with_its_columns(view: str) -> None:
    found = first_cells(PAGES / f"{view}.md", "# View")
    assert found == [*COLUMNS[view], CORRUPT]  # type: ignore[index]


def test_every_source_option_is_explained() -> None:
    found = first_cells(PAGES / "source.md", "# Source options")
    assert set(found) == CONNECT | set(SOURCE)
    headings = re.findall(r"^### (\w+)$", (PAGES / "source.md").read_text(), re.MULTILINE)
    assert set(headings) == set(found)


def test_every_sink_option_is_explained() -> None:
    assert set(first_cells(PAGES / "sink.md", "## Options")) == CONNECT | set(SINK)
