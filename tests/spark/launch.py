"""Programs of their own, each with a Spark of a kind that a process can have but once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

PATIENCE_S = 280.0  # on a busy machine; a test that launches something may take 300
BIN = Path(sys.executable).parent
# These JVMs live for seconds, on machines that have better things to do.
QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}


class Ended(NamedTuple):
    told: Any  # the last line of its output, which is JSON
    out: str
    err: str


def launch(program: list[str], folder: Path, **environment: str) -> Ended:
    """Run it in this folder, and have it end well."""
    ran = subprocess.run(
        program,
        cwd=folder,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PATIENCE_S,
    )
    assert ran.returncode == 0, ran.stdout[-5_000:] + ran.stderr[-5_000:]
    return Ended(json.loads(ran.stdout.splitlines()[-1]), ran.stdout, ran.stderr)
