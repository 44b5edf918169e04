"""What the released program accepts and refuses, case by recorded case, a worker does too."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from chasquimq import Job
from tests.engine.desk import Desk

VECTORS = Path(__file__).parents[1] / "vectors" / "vectors.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text())["decode_acceptance"]["cases"]

# By the number of the deliberate difference: dead letters keep their name (6), and data that
# is no MessagePack is buried by a Worker, which decodes it, at once (14).
KEEPS_ITS_NAME = 6
NOT_DATA = {"size_eq_limit(200)": 14}


async def test_every_recorded_case(desk: Desk) -> None:
    seen: asyncio.Queue[Job] = asyncio.Queue()
    wrong: list[str] = []
    async with desk.working(seen.put, max_payload_bytes=200):
        for case in CASES:
            fields = [
                part for name, value in case["fields"] for part in (name, bytes.fromhex(value))
            ]
            desk.redis.execute_command("XADD", desk.keys.stream, "*", *fields)
            await desk.settled()
            outcome = await observed(desk, seen)
            expected = case["outcome"]
            if case["name"] in NOT_DATA:
                expected = "dlq:decode_failed"
            if outcome != expected:
                wrong.append(f"{case['name']}: {outcome}, recorded {expected}")
    assert wrong == []


async def observed(desk: Desk, seen: asyncio.Queue[Job]) -> str:
    """What became of the one job there was; both places are empty afterwards."""
    dead = desk.dead()
    desk.redis.delete(desk.keys.dlq)
    if dead:
        assert len(dead) == 1
        assert seen.empty()
        return f"dlq:{dead[0][b'reason'].decode()}"
    assert seen.qsize() == 1
    await seen.get()
    return "dispatched"
