"""A client of Spark Connect that has nothing of ours, beside a server that has.

`app_connect.py FOLDER QUEUE CONF`; $QUEUES names the server, for whoever reads it.
"""

import json
import sys
from pathlib import Path

sys.modules["chasquimq"] = sys.modules["pyspark_chasqui"] = None  # type: ignore[assignment]

from pyspark.sql import SparkSession  # noqa: E402


def main(folder: Path, queue: str, conf: dict[str, str]) -> None:
    builder = SparkSession.builder.remote("local[2]")
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    named = {"urlEnv": "QUEUES", "queue": queue}
    rows = spark.range(20).selectExpr("'mail' AS name", "struct(id AS user) AS payload")
    rows.write.format("chasqui").options(**named).mode("append").save()
    jobs = spark.read.format("chasqui").options(**named, payloadSchema="user BIGINT").load()
    users = sorted(row.payload.user for row in jobs.collect())

    events = spark.readStream.format("chasqui").options(**named, view="events").load()
    query = (
        events.writeStream.format("parquet")
        .option("path", str(folder / "lake"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    ended = query.awaitTermination(60)
    seen = sorted(row.job_id for row in spark.read.parquet(str(folder / "lake")).collect())

    try:
        spark.read.format("chasqui").options(**named, fetchSise="1").load().count()
    except Exception as error:
        refused = str(error)
    told = {"kind": type(spark).__module__, "users": users, "ended": ended, "seen": seen}
    print(json.dumps({**told, "refused": refused}))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))
