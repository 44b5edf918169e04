"""A driver of its own, to be killed: it writes the files of a folder into a queue, as a stream."""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

from chasquimq.spark.session import session


def run(spark: SparkSession, folder: str, checkpoint: str, options: dict[str, str]) -> Any:
    """All there is, two files a batch."""
    files = spark.readStream.schema("n LONG").option("maxFilesPerTrigger", 2).json(folder)
    rows = files.selectExpr("struct(n) AS payload", "string(n) AS id")
    if "idColumn" not in options:
        rows = rows.drop("id")
    writer = rows.writeStream.format("chasqui").options(**options)
    return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()


if __name__ == "__main__":
    given: dict[str, Any] = json.loads(sys.argv[1])
    made = session(
        "to-be-killed",
        master="local[1]",
        conf={
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            # It lives for seconds: what makes a JVM fast in the long run is lost on it.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )
    run(made, given["folder"], given["checkpoint"], given["options"]).awaitTermination()
