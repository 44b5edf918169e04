"""What a report shows: one frozen struct of plain rows. It checks itself when it is built."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from chasquimq.config import check_least
from chasquimq.errors import ConfigError

Row = dict[str, Any]
Rows = tuple[Row, ...]

COUNTS = ("started", "completed", "failed", "retried", "buried")
TIMES = tuple(f"{what}_p{rank}_ms" for what in ("run", "wait") for rank in (50, 95, 99))
_COMPARED = ("completed", "failure_rate", "run_p95_ms", "wait_p95_ms")

KEYS: dict[str, tuple[str, ...]] = {
    "windows": (
        *("queue", "window_start", *COUNTS, "per_second", "failure_rate", "retry_rate"),
        *TIMES,
    ),
    "names": ("queue", "name", *COUNTS, "failure_rate", *TIMES),
    "heat": ("weekday", "hour", "started", "wait_p95_ms", "wait_p50_ms"),
    "depth": ("queue", "at", "waiting", "running"),
    "clusters": (
        *("queue", "cluster", "reason", "error_type", "message", "jobs", "first_seen"),
        *("last_seen", "example_payload"),
    ),
    "schedules": ("queue", "key", "fires", "late_p50_ms", "late_p95_ms", "late_max_ms"),
    "stuck": ("queue", "job_id", "name", "state", "since"),
    "deploy": (
        *("queue", "name", *(f"before_{key}" for key in _COMPARED)),
        *(f"after_{key}" for key in _COMPARED),
    ),
    "totals": ("queue", "jobs", *COUNTS, "events"),
}


class ReportData(msgspec.Struct, frozen=True, kw_only=True):
    """All that is on a page. Moments are aware datetimes; a naive one is refused, because what
    Spark collects is in the zone of the process, and nobody would see the difference."""

    title: str
    made_at: datetime
    begin: datetime
    end: datetime
    every_ms: int
    queues: tuple[str, ...]
    facts: dict[str, str | int | float] = {}
    windows: Rows = ()
    names: Rows = ()
    heat: Rows = ()
    depth: Rows = ()
    clusters: Rows = ()
    schedules: Rows = ()
    stuck: Rows = ()
    deploy: Rows = ()
    totals: Rows = ()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_least("every_ms", self.every_ms, 1)
        for name in ("made_at", "begin", "end"):
            _check_aware(name, getattr(self, name))
        if self.end < self.begin:
            raise ConfigError("a report ends after it begins: change `begin` or `end`")
        for table, keys in KEYS.items():
            for row in getattr(self, table):
                _check_row(table, row, keys)


def _check_row(table: str, row: Row, keys: tuple[str, ...]) -> None:
    missing = [key for key in keys if key not in row]
    if missing:
        raise ConfigError(f"a row of `{table}` lacks {', '.join(missing)}")
    for key, value in row.items():
        if isinstance(value, datetime):
            _check_aware(f"{table}.{key}", value)


def _check_aware(name: str, moment: datetime) -> None:
    if moment.tzinfo is None:
        raise ConfigError(f"{name} has no zone: give a datetime in UTC")
