"""The lake, submitted to Spark as an application."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chasquimq.spark.lake.table import read
from pyspark_chasqui import submit
from tests.pipelines.test_lake import ids
from tests.servers import DIALECTS, Servers
from tests.spark.launch import BIN, PATIENCE_S, QUICK
from tests.spark_redis.events import Events


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_submitted_it_brings_events_into_the_lake(
    spark: SparkSession, servers: Servers, queue_name: str, tmp_path: Path
) -> None:
    server = servers.shared(DIALECTS[0])
    events = Events(server, queue_name)
    rows = events.add(20)
    conf = [word for key, value in QUICK.items() for word in ("--conf", f"{key}={value}")]
    words = ["lake", queue_name, "--lake", str(tmp_path / "lake"), "--available-now"]
    ended = subprocess.run(
        [BIN / "spark-submit", "--master", "local[2]", *conf, submit.__file__, *words,
         "--redis-url", server.url],
        capture_output=True, text=True, timeout=PATIENCE_S, cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"brought {len(rows)} events" in ended.stdout
    assert ids(read(spark, str(tmp_path / "lake"))) == rows
    events.redis.delete(events.key)
