"""What earlier versions left on disk, kept as fixtures: how it is made, and how it is used.

`python -m tests.spark.kept <folder>` records checkpoints and a lake with today's code. What lies in
`tests/spark/fixtures/` was recorded once and is never recorded anew: a query that stood still while
the package was upgraded has just that on its disk.

Queues, entries and their ids are fixed, so the streams can be made again, entry by entry.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import redis
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from chasquimq import wire
from chasquimq.job import Envelope
from chasquimq.spark.lake.compact import CompactOptions, compact
from chasquimq.spark.lake.keep import keep
from chasquimq.spark.lake.table import read
from chasquimq.spark.pipelines import names

FIXTURES = Path(__file__).parent / "fixtures"
PATIENCE_S = 100
QUEUES = ("kept-mail", "kept-a=b")
SOURCE, TARGET = "kept-source", "kept-target"
WAYS: dict[str, dict[str, str]] = {
    "staged": {},
    "by-id": {"idColumn": "id"},
    "direct": {"commitMode": "direct"},
}
BATCHES = ((1, 5), (6, 9), (10, 12))  # the entries that were there for each batch
BEGIN_MS, EACH_MS = 1_700_000_000_000, 600_000  # from number 11 on it is the next day

Row = tuple[str, str]  # queue and entry id


# -- entries ---------------------------------------------------------------------------------------


def rows(first: int, last: int, *queues: str) -> list[Row]:
    """Of entries of these numbers, counted from 1."""
    found = [(queue, _entry_id(number)) for queue in queues for number in range(first, last + 1)]
    return sorted(found)


def add(client: redis.Redis, view: str, first: int, last: int, *queues: str) -> None:
    for queue in queues:
        for number in range(first, last + 1):
            fields = _event(number) if view == "events" else _dead(number)
            client.xadd(f"{{chasqui:{queue}}}:{view}", fields, id=_entry_id(number))


def forget(client: redis.Redis, *queues: str) -> None:
    for queue in queues:
        for key in client.scan_iter(match=f"{{chasqui:{queue}}}:*", count=10_000):
            client.delete(key)


def _entry_id(number: int) -> str:
    return f"{_ms(number)}-{number % 3}"


def _ms(number: int) -> int:
    return BEGIN_MS + number * EACH_MS


def _event(number: int) -> dict[Any, Any]:
    job, step = divmod(number - 1, 3)
    told: dict[Any, Any] = {"id": f"job-{job}", "ts": _ms(number) - 5, "n": "mail", "attempt": 1}
    if step == 0:
        return {"e": "active", **told, "created_ms": _ms(number) - 700}
    if step == 2 and job % 2:
        return {"e": "dlq", **told, "reason": "unrecoverable"}
    if step == 2:
        ts = "soon" if job == 2 else told["ts"]  # what cannot be read is kept, too
        return {"e": "retry-scheduled", **told, "ts": ts, "backoff_ms": 1_000}
    if job % 2:
        return {"e": "failed", **told, "reason": "no", "duration_us": 2_000}
    return {"e": "completed", **told, "duration_us": 1_000 * number}


def _dead(number: int) -> dict[Any, Any]:
    envelope = Envelope(f"job-{number}", wire.encode({"n": number}), _ms(number) - 700)
    fields = wire.pack_dead(
        wire.pack_envelope(envelope),
        b"mail",
        b"7-7",
        "retries_exhausted",
        attempt=number,
        error_type="ValueError",
        error="no",
        failed_at_ms=_ms(number),
    )
    return dict(zip(fields[::2], fields[1::2], strict=True))


# -- queries ---------------------------------------------------------------------------------------


def follow(spark: SparkSession, url: str, view: str, checkpoint: Path) -> list[list[Row]]:
    """Run a query to the end of what is there; the rows of each batch."""
    batches: list[list[Row]] = []

    def note(batch: DataFrame, number: int) -> None:
        found = batch.select("queue", "entry_id").collect()
        batches.append(sorted((row.queue, row.entry_id) for row in found))

    options = {"url": url, "queue": ",".join(QUEUES), "view": view}
    stream = spark.readStream.format("chasqui").options(**options).load()
    writer = stream.writeStream.foreachBatch(note)
    _to_the_end(writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True))
    return batches


def carry_over(spark: SparkSession, url: str, checkpoint: Path, way: str) -> None:
    """Write the ids of a queue's events into another queue, as a stream."""
    read = {"url": url, "queue": SOURCE, "view": "events"}
    stream = spark.readStream.format("chasqui").options(**read).load()
    jobs = stream.selectExpr("struct(entry_id) AS payload", "entry_id AS id")
    jobs = jobs if way == "by-id" else jobs.drop("id")
    writer = jobs.writeStream.format("chasqui").options(url=url, queue=TARGET, **WAYS[way])
    _to_the_end(writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True))


def bring_in(spark: SparkSession, url: str, lake: Path, table: str) -> None:
    """Into the lake what is new in a table."""
    _end(keep(spark, str(lake), {"url": url, "queue": ",".join(QUEUES)}, table))


def _to_the_end(writer: Any) -> None:
    _end(writer.start())


def _end(query: Any) -> None:
    try:
        assert query.awaitTermination(PATIENCE_S), "it does not end"
    finally:
        query.stop()


# -- what is in a lake -----------------------------------------------------------------------------


def told(spark: SparkSession, lake: Path) -> dict[str, Any]:
    """All that a reader of the lake sees, and figures that are made of it."""
    tables = {table: read(spark, str(lake), table) for table in ("events", "dlq")}
    found = {table: _plain(table_rows.drop("batch")) for table, table_rows in tables.items()}
    return {**found, "names": _plain(names(tables["events"]))}


def _plain(frame: DataFrame) -> list[dict[str, Any]]:
    """As JSON tells it: moments in the session's time zone, which is UTC."""
    lines = frame.select(f.to_json(f.struct("*"))).collect()
    found = (json.loads(line) for (line,) in lines)
    return sorted(found, key=lambda row: (row["queue"], row.get("entry_id", "")))


# -- how it was recorded ---------------------------------------------------------------------------


def record(spark: SparkSession, client: redis.Redis, url: str, folder: Path) -> None:
    for view in ("events", "dlq"):
        forget(client, *QUEUES)
        for first, last in BATCHES:
            add(client, view, first, last, *QUEUES)
            follow(spark, url, view, folder / "checkpoints" / view)
    for way in WAYS:
        forget(client, SOURCE, TARGET)
        for first, last in BATCHES:
            add(client, "events", first, last, SOURCE)
            carry_over(spark, url, folder / "checkpoints" / f"sink-{way}", way)
    _record_lake(spark, client, url, folder / "lake")
    for table, found in told(spark, folder / "lake").items():
        lines = [json.dumps(row, sort_keys=True) for row in found]
        (folder / f"lake-{table}.jsonl").write_text("\n".join(lines) + "\n")
    for crc in folder.rglob(".*.crc"):
        crc.unlink()


def _record_lake(spark: SparkSession, client: redis.Redis, url: str, lake: Path) -> None:
    """Two days. Of the first, three folders are put together, and lie there, superseded. A second
    query, whose checkpoint was lost, has brought in all of it again. One batch is half written."""
    forget(client, *QUEUES)
    for first, last in BATCHES:
        for table in ("events", "dlq"):
            add(client, table, first, last, *QUEUES)
            bring_in(spark, url, lake, table)
    compact(spark, str(lake), CompactOptions(least=3))
    shutil.rmtree(lake / "_checkpoints" / "events")
    bring_in(spark, url, lake, "events")
    half = next((lake / "events").glob("queue=*/date=*/batch=*"))
    shutil.copytree(half, lake / "_staging" / "events-0a1b2c3d-7" / half.parent.parent.name)


def main(folder: Path) -> None:
    from tests.servers import DIALECTS, Servers
    from tests.spark.session import start

    with Servers() as servers:
        server = servers.shared(DIALECTS[0])
        spark = start(folder.parent / f"{folder.name}-spark")
        record(spark, server.client(), server.url, folder)
        spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
