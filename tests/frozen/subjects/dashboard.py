"""Plan: "the Grafana board": its address, variables, rows, panels and what they show.

That each metric and label of a panel exists on a running worker: tests/observe/test_dashboard.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

BOARD = Path(__file__).parents[3] / "docs/grafana/chasquimq.json"


def lines() -> Iterator[str]:
    board = json.loads(BOARD.read_text())
    yield f"board {board['title']!r} at {board['uid']!r}"
    for variable in board["templating"]["list"]:
        yield f"variable {variable['name']!r}, shown as {variable['label']!r}"
    row = ""
    for panel in board["panels"]:
        if panel["type"] == "row":
            row = panel["title"]
            yield f"row {row!r}"
            continue
        title = f"panel {panel['title']!r} in {row!r}"
        yield f"{title}: a {panel['type']} in {panel['fieldConfig']['defaults'].get('unit')!r}"
        for metric in {
            metric
            for target in panel["targets"]
            for metric in re.findall(r"\bchasquimq_\w+", target["expr"])
        }:
            yield f"{title}: shows {metric}"
