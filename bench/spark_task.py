"""What a row costs inside a task, without a JVM: the very reader and writer that executors run.

`python bench/spark_task.py '{"what": "read", "url": ..., "queue": ..., "rows": ..., "warm": ...,
"warm_rows": ...}'` does it in a fresh process, and prints time, CPU time and the largest memory of
that process; `warm` is another queue, to begin with. With `"profile": true` it prints where the
time goes as well.
"""

from __future__ import annotations

import cProfile
import json
import pstats
import resource
import sys
import time
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BinaryType, StringType, StructField, StructType
from scenarios import PAYLOAD

from chasquimq.spark.schema import COLUMNS
from chasquimq.spark.source import ChasquiSource

BATCH = 10_000  # rows that Spark hands over at a time
FORMATS = {"json": StringType(), "binary": BinaryType()}


def read(options: dict[str, str], rows: int) -> int:
    payload = FORMATS[options.get("payloadFormat", "json")]
    columns = COLUMNS["jobs"]
    schema = StructType([StructField(name, kind or payload) for name, kind in columns.items()])
    reader: Any = ChasquiSource(CaseInsensitiveDict(options)).reader(schema)
    return sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))


def write(options: dict[str, str], rows: int) -> int:
    batch = _batch()
    schema = from_arrow_schema(batch.schema)
    writer: Any = ChasquiSource(CaseInsensitiveDict(options)).writer(schema, False)
    task = TaskContext._getOrCreate()
    task._partitionId = task._attemptNumber = 0
    sizes = (min(BATCH, rows - first) for first in range(0, rows, BATCH))
    writer.commit([writer.write(batch.slice(0, size) for size in sizes)])
    return rows


@cache
def _batch() -> pa.RecordBatch:
    payloads = pa.array([{**PAYLOAD, "user_id": number} for number in range(BATCH)])
    return pa.record_batch([payloads, pa.repeat("job", BATCH)], ["payload", "name"])


def main(orders: dict[str, Any]) -> None:
    run = read if orders["what"] == "read" else write
    options = {"url": orders["url"], "queue": orders["queue"], **orders.get("options", {})}
    run(options | {"queue": orders["warm"]}, orders["warm_rows"])  # imports, and what is made once
    profile = cProfile.Profile()
    begin, cpu = time.perf_counter(), time.process_time()
    if orders.get("profile"):
        done = profile.runcall(run, options, orders["rows"])
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    else:
        done = run(options, orders["rows"])
    told = {
        "rows": done,
        "seconds": time.perf_counter() - begin,
        "cpu": time.process_time() - cpu,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
