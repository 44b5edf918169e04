"""A driver that runs handlers on a cluster with two executors, which are processes of their own.

`python -m tests.pipelines.work_driver <home>`; a line in is an order, a line out its rows, or why
there are none:

    {"url": ..., "queue": ..., "options": {...}}

A job named `held` pushes its number, its earlier runs and its pid onto the list `gate:<queue>` and
goes on when there is a key `gate:<queue>:open`. So whoever gave the order can hurt a task in the
middle of a handler, at leisure. End of input ends the driver.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import redis
from pyspark import SparkContext

from chasquimq import Job
from chasquimq.spark.work import SparkWorker
from tests.spark.cluster import PATIENCE_S, start


def handle(job: Job) -> int:
    with redis.Redis.from_url(job.data["url"]) as client:
        gate = f"gate:{job.data['queue']}"
        told = [job.data["n"], job.attempts_made, os.getpid()]
        client.rpush(f"{gate}:seen", json.dumps(told))
        if job.name == "held":
            client.rpush(gate, json.dumps(told))
            deadline = time.monotonic() + PATIENCE_S
            while not client.exists(f"{gate}:open"):
                assert time.monotonic() < deadline, "nobody opened the gate"
                time.sleep(0.01)
    return int(job.data["n"])


def main(home: Path) -> None:
    spark = start(home)
    spark.sparkContext.setLogLevel("OFF")
    print("ready", flush=True)
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        try:
            work = SparkWorker(order["queue"], handle, url=order["url"], **order["options"])
            rows = [row.asDict() for row in work.run(spark).collect()]
            print(json.dumps(rows, default=str), flush=True)
        except Exception as error:
            print("failed:", json.dumps(str(error)), flush=True)
    process = SparkContext._gateway.proc
    spark.stop()
    SparkContext._gateway.shutdown()
    process.stdin.close()
    process.wait(30)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
