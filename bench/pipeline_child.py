"""One run of the whole pipeline in a process of its own, for `pipeline.py`: prints what it took."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession
from spark_memory import Watch

from chasquimq.spark.lake.compact import CompactOptions, compact
from chasquimq.spark.lake.keep import keep
from chasquimq.spark.lake.table import read
from chasquimq.spark.pipelines import lifecycle, rollup
from chasquimq.spark.pipelines.summary import report
from chasquimq.spark.report import write_page
from chasquimq.spark.session import session

BATCHES = 10


class Steps:
    """All of the pipeline, one after the other."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self._spark = spark
        self._url = url
        self.seconds: dict[str, float] = {}

    def run(self, queue: str, events: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            lake = f"{folder}/lake"
            options = {"url": self._url, "queue": queue}
            options["maxOffsetsPerTrigger"] = str(-(-events // BATCHES))
            with self._timed("lake"):
                query = keep(self._spark, lake, options)
                query.awaitTermination()
                if error := query.exception():
                    raise error
            with self._timed("compact"):
                compact(self._spark, lake, CompactOptions(least=2))
            rows = read(self._spark, lake)
            with self._timed("rollup"):
                rollup(rows).write.format("noop").mode("overwrite").save()
            with self._timed("lifecycle"):
                lifecycle(rows).write.format("noop").mode("overwrite").save()
            with self._timed("report"):
                write_page(report(rows), f"{folder}/report.html")
            assert rows.count() == events, "an event is missing, or there twice"

    @contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.seconds[step] = time.perf_counter() - begin


def main(orders: dict[str, Any]) -> None:
    conf = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
    conf |= {"spark.driver.memory": orders["heap"], "spark.sql.shuffle.partitions": "4"}
    conf |= {"spark.ui.showConsoleProgress": "false"}
    spark = session("bench", master="local[2]", conf=conf)
    spark.sparkContext.setLogLevel("OFF")
    steps = Steps(spark, orders["url"])
    for _ in range(2):  # until Java has compiled what it runs
        steps.run(*orders["warm"])
    with Watch() as watch:
        steps.run(orders["queue"], orders["events"])
    java = Path(f"/proc/{SparkContext._gateway.proc.pid}/status").read_text()
    [peak] = [line.split()[1] for line in java.splitlines() if line.startswith("VmHWM")]
    told = {"events": orders["events"], "seconds": steps.seconds}
    print(json.dumps({**told, "java_mb": int(peak) / 1024, "python_mb": watch.peak_mb}))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
