"""An application as people submit it: nothing of ours is imported, nothing is registered.

`spark-submit app_submit.py QUEUE`; $QUEUES names the server.
"""

import json
import sys

from pyspark.sql import SparkSession


def main(queue: str) -> None:
    spark = SparkSession.builder.appName("submitted").getOrCreate()
    rows = spark.range(20).selectExpr("'mail' AS name", "struct(id AS user) AS payload")
    named = {"urlEnv": "QUEUES", "queue": queue}
    rows.write.format("chasqui").options(**named).mode("append").save()
    jobs = spark.read.format("chasqui").options(**named).load()
    payloads = [json.loads(row.payload)["user"] for row in jobs.collect()]
    java = spark.sparkContext._jvm.java.lang.System.getProperty("java.version")
    imported = sorted(name for name in sys.modules if name.startswith(("chasqui", "pyspark_ch")))
    print(json.dumps({"users": payloads, "java": java, "imported": imported}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
