"""Reads, writes and streams with a password in every way it may be given, and tells what is seen.

`app_canary.py FOLDER QUEUE PLACE SECRET_FILE`; $QUEUES holds the address, $WRONG one with a wrong
password, $WEAK one of a user that may do next to nothing. The last line is JSON: every text that
people may come to see, by where they see it.
"""

import contextlib
import io
import json
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from chasquimq.spark.session import session


def printed(act: Callable[[], object]) -> str:
    """What it prints and returns, or how it fails."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            last = repr(act())
        except Exception as error:
            last = f"refused: {error}"
    return out.getvalue() + last


def command_lines() -> str:
    """Of all processes: anybody on the machine may read them."""
    texts = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            texts.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return "\n".join(texts)


def watched_session(folder: Path) -> SparkSession:
    """One that keeps in this folder all that it keeps anywhere, in plain text."""
    return session(
        "canary",
        master="local[2]",
        conf={
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file://{folder}",
            "spark.eventLog.compress": "false",
            "spark.local.dir": str(folder),
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.port": "0",
            "spark.sql.warehouse.dir": str(folder),
        },
    )


def pages_of(spark: SparkSession) -> dict[str, str]:
    """What Spark's own pages show of it."""
    pages = f"{spark.sparkContext.uiWebUrl}/api/v1/applications/{spark.sparkContext.applicationId}"
    seen = {}
    for page in ("environment", "sql?details=true&planDescription=true"):
        with urllib.request.urlopen(f"{pages}/{page}") as answer:
            seen[f"page {page}"] = answer.read().decode()
    return seen


def main(folder: Path, queue: str, place: str, secret_file: str) -> None:
    spark = watched_session(folder)
    by_name = {"urlEnv": "QUEUES", "queue": queue}
    by_file = {"url": f"redis://{place}", "secretFile": secret_file, "queue": queue}

    def read(options: dict[str, str]) -> DataFrame:
        return spark.read.format("chasqui").options(**options).load()

    def write(options: dict[str, str]) -> None:
        rows = spark.range(20).selectExpr("struct(id) AS payload")
        rows.write.format("chasqui").options(**options).mode("append").save()

    write(by_name)
    frames = {"by name": read(by_name), "by file": read(by_file)}
    seen = {"rows": str(frames["by file"].count())}
    for name, frame in frames.items():
        seen[f"explain {name}"] = printed(lambda frame=frame: frame.explain(True))
        plan = frame._jdf.queryExecution().analyzed()
        seen[f"plan {name}"] = repr(frame) + plan.toString() + plan.toJSON()
    for variable in ("WRONG", "WEAK"):
        options = {"urlEnv": variable, "queue": queue}
        seen[f"read {variable}"] = printed(lambda options=options: read(options).count())
    seen["write WRONG"] = printed(lambda: write({"urlEnv": "WRONG", "queue": queue}))
    query = (
        spark.readStream.format("chasqui").options(**by_file, view="events").load()
        .writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    seen["streamed"] = repr(query.awaitTermination(60)) + repr(query.exception())
    seen["progress"] = repr(query.lastProgress) + printed(lambda: query.explain(True))
    seen |= pages_of(spark)
    seen["command lines"] = command_lines()
    spark.stop()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:5])
