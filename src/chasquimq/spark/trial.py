"""A session that is started for a moment, and a queue that is written and read with it.

`run` does it in a process of its own, so that it can be ended, and Spark's words do not stand
between those of `chasqui spark doctor`. What it writes expires; `clear` removes it at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any, NamedTuple

from chasquimq.spark.client import Client
from chasquimq.text import discreet
from chasquimq.wire import Keys

ROWS = 100
RUN, TTL_MS = "doctor", 60_000
URL = "CHASQUI_REDIS_URL"


class Ended(NamedTuple):
    """`told`: what it says of itself; None: it failed, and `trouble` says why."""

    told: dict[str, Any] | None
    trouble: str = ""


def run(queue: str, url: str, limit_s: float) -> Ended:
    try:
        ran = subprocess.run(
            [sys.executable, "-m", __name__, queue],
            env=os.environ | {URL: url},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired:
        return Ended(None, f"it had not ended after {limit_s:.0f} s")
    if ran.returncode == 0:
        return Ended(json.loads(ran.stdout.splitlines()[-1]))
    return Ended(None, discreet(_cause(ran.stderr)) or f"it ended with code {ran.returncode}")


def _cause(stderr: str) -> str:
    """Our own error, if it is one: Spark wraps it in many lines of Java's."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("chasquimq.errors.")]
    return (ours or lines or [""])[-1]


def clear(client: Client, queue: str) -> list[str]:
    """Remove what it wrote; answers with the keys that are there all the same."""
    keys = Keys(queue)
    own = keys.tag + f"spark:{RUN}".encode()
    written = [keys.stream, own, *(b"%b:%d" % (own, part) for part in range(ROWS))]
    client.ask_each([("UNLINK", *written)])
    [there] = client.ask_each([("EXISTS", keys.stream)])
    return [] if there == 0 else [keys.stream.decode()]


def main(queue: str) -> dict[str, Any]:
    from chasquimq.spark.session import session

    began = time.monotonic()
    conf = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # it is short
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    spark = session("chasqui doctor", master="local[2]", conf=conf)
    started = time.monotonic()
    said = {"urlEnv": URL, "queue": queue}
    rows = spark.range(ROWS).selectExpr("'doctor' AS name", "struct(id) AS payload")
    written = rows.write.format("chasqui").options(**said, runId=RUN, markerTtlMs=TTL_MS)
    written.mode("append").save()
    typed = spark.read.format("chasqui").options(**said, payloadSchema="id BIGINT").load()
    found = sorted(row[0] for row in typed.select("payload.id").collect())
    return {
        "whole": found == list(range(ROWS)),
        "rows": len(found),
        "spark": spark.version,
        "start_s": round(started - began, 1),
        "rows_s": round(time.monotonic() - started, 1),
    }


if __name__ == "__main__":
    sys.stdout.write(f"\n{json.dumps(main(sys.argv[1]))}\n")
