# %% [markdown]
# # A file becomes jobs, each row exactly once
#
# However often tasks fail and are run again, and however often somebody starts the program again.
#
#     python examples/spark/02_bulk_enqueue.py

# %%
import csv
import tempfile
import uuid
from pathlib import Path

from place import redis_url
from pyspark.sql import DataFrame

from chasquimq.spark.session import session
from chasquimq.sync import Queue

url, name = redis_url(), f"invoices-{uuid.uuid4().hex[:6]}"
spark = session("bulk-enqueue", master="local[2]")
work = Path(tempfile.mkdtemp())

# %% [markdown]
# A CSV file, as somebody's export leaves it: 1,000 customers; every tenth wants to be reminded, but
# not before tomorrow.

# %%
with (work / "customers.csv").open("w", newline="") as file:
    rows = csv.writer(file)
    rows.writerow(["id", "email", "total", "remind"])
    rows.writerows([n, f"user{n}@example.org", n * 1.5, n % 10 == 0] for n in range(1_000))

customers = spark.read.csv(
    str(work / "customers.csv"),
    header=True,
    schema="id INT, email STRING, total DOUBLE, remind BOOLEAN",
)

# %% [markdown]
# The columns of a job: `payload` is its data, `name` and `delay_ms` are optional, and a null is as
# good as no value. A column with another name is refused, before anything is written.

# %%
DAY_MS = 24 * 3_600_000
invoices = customers.selectExpr(
    "struct(id, email, total) AS payload",
    "if(remind, 'remind', 'invoice') AS name",
    f"if(remind, {DAY_MS}L, NULL) AS delay_ms",
)


def enqueue(rows: DataFrame, run: str) -> None:
    (
        rows.write.format("chasqui")
        .option("url", url)
        .option("queue", name)
        .option("runId", run)
        .mode("append")
        .save()
    )


queue = Queue(name, redis_url=url)


def show(what: str) -> None:
    counts = queue.counts()
    print(f"{what}: {counts.waiting} jobs wait, {counts.delayed} are delayed")


enqueue(invoices, "invoices-of-november")
show("after the first run")

# %% [markdown]
# `runId` names the write. Run again under its name, it adds what is missing; here that is nothing.

# %%
enqueue(invoices, "invoices-of-november")
show("after the second")

# %% [markdown]
# The same from Parquet, or whatever else Spark reads.

# %%
customers.where("id < 500").write.parquet(str(work / "late.parquet"))
late = spark.read.parquet(str(work / "late.parquet"))
enqueue(late.selectExpr("struct(id, email) AS payload", "'survey' AS name"), "survey-1")
show("with those from Parquet")

# %%
queue.close()
