"""How far a write is, as Redis tells. Needs neither Spark nor Java."""

from __future__ import annotations

from typing import NamedTuple

from chasquimq.spark.client import Client
from chasquimq.spark.write import run as runs
from chasquimq.spark.write.run import Run


class Progress(NamedTuple):
    """`rows` are in the queue; `staged` wait beside it, those of attempts that failed with them."""

    state: str  # '' while nothing has begun
    rows: int = 0
    skipped: int = 0
    staged: int = 0


def look(client: Client, run: Run) -> Progress:
    state, mode, rows, skipped = (
        told.decode() if told else ""
        for told in client.ask("HMGET", run.key, "state", "mode", "rows", "skipped")
    )
    staged = 0
    if mode == "staged" and state == runs.OPEN:
        [stages] = client.ask_each([("SMEMBERS", run.stages)])
        if isinstance(stages, list):  # else an ACL keeps it from us: writing needs it not
            lengths = client.ask_each([("XLEN", stage) for stage in stages])
            staged = sum(length for length in lengths if isinstance(length, int))
    return Progress(state, int(rows or 0), int(skipped or 0), staged)
