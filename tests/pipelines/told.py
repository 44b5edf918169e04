"""Events as workers tell them, made by hand, and what they mean, worked out one by one."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

BEGIN = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)  # a Monday
SCHEMA = (
    "queue STRING, entry_id STRING, event STRING, job_id STRING, name STRING, attempt BIGINT, "
    "created_at TIMESTAMP, backoff_ms BIGINT, delay_ms BIGINT, duration_us BIGINT, reason STRING, "
    "ts TIMESTAMP"
)


def at(ms: float) -> datetime:
    return BEGIN + timedelta(milliseconds=ms)


def shown(ms: float) -> datetime:
    """The same as rows have it that were collected: in this machine's zone, and without a word."""
    return at(ms).astimezone().replace(tzinfo=None)


@dataclass
class Told:
    """A stream of events; `say` adds one that happens so many ms after the beginning."""

    queue: str = "mail"
    rows: list[dict[str, Any]] = field(default_factory=list)

    def say(
        self, ms: int, event: str, job: str | None, name: str | None = "a", **more: Any
    ) -> None:
        if "created" in more:
            more["created_at"] = at(more.pop("created"))
        entry_id = f"{at(ms).timestamp() * 1000:.0f}-{len(self.rows)}"
        fixed = {"queue": self.queue, "entry_id": entry_id, "event": event, "job_id": job}
        self.rows.append({**fixed, "name": name, "ts": at(ms), **more})

    def run(self, ms: int, job: str, attempt: int, took: int, *, created: int, **more: Any) -> None:
        """A run from its start to its end; with a `reason` it fails."""
        name = more.pop("name", "a")
        self.say(ms, "active", job, name, attempt=attempt, created=created)
        end = "failed" if "reason" in more else "completed"
        self.say(ms + took, end, job, name, attempt=attempt, duration_us=took * 1000, **more)

    def frame(self, spark: SparkSession, shuffled: int | None = 1) -> DataFrame:
        """In any order: who reads a lake gets rows as files have them."""
        names = [one.split()[0] for one in SCHEMA.split(", ")]
        rows = [tuple(row.get(name) for name in names) for row in self.rows]
        if shuffled is not None:
            random.Random(shuffled).shuffle(rows)
        return spark.createDataFrame(rows, SCHEMA)
