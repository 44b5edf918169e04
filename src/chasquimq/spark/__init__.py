"""Queues as DataFrames: `spark.read.format("chasqui")`, `df.write.format("chasqui")`.

Nothing is imported here: Spark looks for `pyspark_chasqui`, people for `chasquimq.spark.session`.
"""
