"""Reports to look at: one as an operator meets it, and what is at the edges of it."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta
from typing import Any

from chasquimq.spark.report import ReportData

BEGIN = datetime(2026, 11, 16, tzinfo=UTC)
COUNTS = ("started", "completed", "failed", "retried", "buried")
QUEUES = ("emails", "thumbnails", "billing")
NAMES = ("send-welcome", "send-invoice", "render", "resize", "charge", "refund", "sync-customer")
ERRORS = (
    ("TimeoutError", "no answer from <host> after <n> s"),
    ("KeyError", "'customer_id'"),
    ("SMTPRecipientsRefused", "550 mailbox unavailable: <address>"),
    ("", ""),
)


def usual(
    queues: tuple[str, ...] = QUEUES,
    windows: int = 288,
    every_ms: int = 300_000,
    names: tuple[str, ...] = NAMES,
    **more: Any,
) -> ReportData:
    """A day of several queues, with a bad hour in the afternoon."""
    dice = random.Random(7)
    end = BEGIN + timedelta(milliseconds=every_ms * windows)
    rows = tuple(
        window(queue, place, windows, every_ms, dice, 1 / (rank + 1))
        for rank, queue in enumerate(queues)
        for place in range(windows)
    )
    tables: dict[str, Any] = {
        "windows": rows,
        "totals": totals(rows),
        "names": tuple(name_row(queue, name, dice) for queue in queues for name in names),
        "heat": tuple(
            heat_row(day, hour, dice)
            for day in range(1, 8)
            for hour in range(24)
            if dice.random() > 0.1
        ),
        "depth": tuple(
            depth_row(queue, BEGIN + (end - BEGIN) * step / 96, step, dice)
            for queue in queues
            for step in range(96)
        ),
        "clusters": tuple(
            cluster_row(queue, error, place, dice)
            for queue in queues
            for place, error in enumerate(ERRORS)
        ),
        "schedules": tuple(
            schedule_row(queue, key, dice)
            for queue in queues
            for key in ("nightly", "every-minute")
        ),
        "stuck": tuple(
            {
                "queue": queue,
                "job_id": f"01JD{number:022}",
                "name": dice.choice(names),
                "state": dice.choice(("active", "waiting")),
                "since": end - timedelta(minutes=dice.randint(10, 900)),
            }
            for number, queue in enumerate(queues * 2)
        ),
        "deploy": tuple(deploy_row(queue, name, dice) for queue in queues for name in names[:4]),
        "warnings": ("The lake ends 4 min before the report: events were still on their way.",),
    }
    return report(queues, every_ms, end, **{**tables, **more})


def report(
    queues: tuple[str, ...], every_ms: int = 300_000, end: datetime | None = None, **more: Any
) -> ReportData:
    return ReportData(
        title=more.pop("title", "Queues on Monday"),
        made_at=BEGIN + timedelta(days=2),
        begin=BEGIN,
        end=end or BEGIN + timedelta(days=1),
        every_ms=every_ms,
        queues=queues,
        facts={"command": "chasqui spark report ./lake", "rows read": 12345, "Spark": "4.3.0"},
        **more,
    )


def window(
    queue: str, place: int, of: int, every_ms: int, dice: random.Random, size: float
) -> dict[str, Any]:
    wave = 1.2 + math.sin(place / of * 2 * math.pi - 2)
    bad = 0.62 < place / of < 0.68
    completed = int(400 * size * wave * dice.uniform(0.8, 1.2))
    failed = int(completed * (0.2 if bad else 0.01) * dice.uniform(0.5, 2))
    buried = failed // 5
    wait = (8_000 if bad else 40) * dice.uniform(0.7, 1.6)
    run = 120 / size * dice.uniform(0.8, 1.3)
    quiet = not completed and not failed
    return {
        "queue": queue,
        "window_start": BEGIN + timedelta(milliseconds=place * every_ms),
        "started": completed + failed,
        "completed": completed,
        "failed": failed,
        "retried": failed - buried,
        "buried": buried,
        "per_second": completed * 1000 / every_ms,
        "failure_rate": None if quiet else failed / (completed + failed),
        "retry_rate": None if quiet else (failed - buried) / (completed + failed),
        **spread("run", None if quiet else run),
        **spread("wait", None if quiet else wait),
    }


def spread(what: str, middle: float | None) -> dict[str, float | None]:
    return {
        f"{what}_p{rank}_ms": None if middle is None else middle * times
        for rank, times in ((50, 1.0), (95, 3.4), (99, 8.1))
    }


def totals(rows: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        one = found.setdefault(
            row["queue"], {"queue": row["queue"], **dict.fromkeys(("jobs", "events", *COUNTS), 0)}
        )
        for key in COUNTS:
            one[key] += row[key]
        one["jobs"] += row["completed"] + row["buried"]
        one["events"] += 2 * row["started"]
    return tuple(found.values())


def name_row(queue: str, name: str, dice: random.Random) -> dict[str, Any]:
    completed = dice.randint(200, 9000)
    failed = dice.choice((0, 3, 40, 300))
    return {
        "queue": queue,
        "name": name,
        "started": completed + failed,
        "completed": completed,
        "failed": failed,
        "retried": failed - failed // 5,
        "buried": failed // 5,
        "failure_rate": failed / (completed + failed),
        **spread("run", 10 ** dice.uniform(0.5, 4)),
        **spread("wait", 10 ** dice.uniform(0.5, 3)),
    }


def heat_row(day: int, hour: int, dice: random.Random) -> dict[str, Any]:
    busy = 40 * dice.uniform(0.5, 2) * (30 if day < 6 and 8 <= hour < 18 else 1)
    return {
        "weekday": day,
        "hour": hour,
        "started": dice.randint(1, 900),
        "wait_p95_ms": busy,
        "wait_p50_ms": busy / 3,
    }


def depth_row(queue: str, at: datetime, step: int, dice: random.Random) -> dict[str, Any]:
    waiting = int(60 + 50 * math.sin(step / 9) + dice.randint(0, 30))
    return {"queue": queue, "at": at, "waiting": waiting, "running": dice.randint(4, 16)}


def cluster_row(
    queue: str, error: tuple[str, str], place: int, dice: random.Random
) -> dict[str, Any]:
    return {
        "queue": queue,
        "cluster": f"c{place}{queue[:3]}",
        "reason": "retries_exhausted" if error[0] else "malformed",
        "error_type": error[0],
        "message": error[1],
        "jobs": dice.randint(1, 400),
        "first_seen": BEGIN + timedelta(hours=3),
        "last_seen": BEGIN + timedelta(hours=15, minutes=20),
        "example_payload": '{"to": "***", "template": "welcome"}' if error[0] else None,
    }


def schedule_row(queue: str, key: str, dice: random.Random) -> dict[str, Any]:
    late = 10 ** dice.uniform(0.5, 3)
    return {
        "queue": queue,
        "key": key,
        "fires": dice.choice((1, 1440)),
        "late_p50_ms": late,
        "late_p95_ms": late * 4,
        "late_max_ms": late * 20,
    }


def deploy_row(queue: str, name: str, dice: random.Random) -> dict[str, Any]:
    sides = {
        "completed": lambda: dice.randint(100, 900),
        "failure_rate": lambda: dice.uniform(0, 0.1),
        "run_p95_ms": lambda: 10 ** dice.uniform(1.5, 3),
        "wait_p95_ms": lambda: 10 ** dice.uniform(1, 3),
    }
    return {
        "queue": queue,
        "name": name,
        **{f"{side}_{key}": make() for side in ("before", "after") for key, make in sides.items()},
    }
