# %% [markdown]
# # A queue as a DataFrame
#
# What waits, since when, with which data; and why jobs died. Nothing is taken from the queue by
# reading it. Run it as a program, or cell by cell in an editor that knows `# %%`:
#
#     python examples/spark/01_queue_as_dataframe.py

# %%
import asyncio
import uuid

from place import redis_url
from pyspark.sql.functions import col, count, lit, min, min_by, split_part, struct

from chasquimq import Job, RetryError, UnrecoverableError, Worker
from chasquimq.spark.session import session
from chasquimq.sync import Queue

url, name = redis_url(), f"shop-{uuid.uuid4().hex[:6]}"
spark = session("queue-as-dataframe", master="local[2]")

# %% [markdown]
# First something to look at: a worker that fails at some of its jobs, and then a queue that nobody
# works on. (In a notebook it is `await worker.run()`.)

# %%
queue = Queue(name, redis_url=url)
for number in range(6):
    queue.add("import", {"file": f"{number}.csv"}, attempts=2)


async def handle(job: Job) -> None:
    if job.data["file"] < "4.csv":
        raise UnrecoverableError(f"{job.data['file']} has no header")
    raise RetryError("the disk is full", delay=1)


asyncio.run(Worker(name, handle, redis_url=url, burst=True).run())

queue.add_bulk([{"name": "charge", "data": {"order": n, "total": 10.5 * n}} for n in range(100)])
queue.add_bulk([{"name": "ship", "data": {"order": n, "express": n % 4 == 0}} for n in range(40)])

# %% [markdown]
# ## What waits, by name, and the oldest of each
#
# Where the address holds a password, say `.option("urlEnv", "REDIS_URL")`: the *name* of an
# environment variable, which is read on each node. Then no plan and no log ever sees it.

# %%
jobs = spark.read.format("chasqui").option("url", url).option("queue", name).load()
# As text "...-10" comes before "...-9": jobs of one millisecond are in the order of this number.
place = struct("enqueued_at", split_part("entry_id", lit("-"), lit(2)).cast("bigint"))
by_name = jobs.groupBy("name").agg(
    count(lit(1)).alias("jobs"),
    min("enqueued_at").alias("oldest"),
    min_by("payload", place).alias("its data"),
)
by_name.orderBy("name").show(truncate=False)

# %% [markdown]
# ## Fields of payloads, with types
#
# `payloadSchema` makes a struct of the payload. Fields that a job has not got are null.

# %%
orders = (
    spark.read.format("chasqui")
    .option("url", url)
    .option("queue", name)
    .option("payloadSchema", "order BIGINT, total DOUBLE, express BOOLEAN")
    .load()
    .select("name", "payload.*")
)
orders.createOrReplaceTempView("orders")
spark.sql(
    """
    SELECT name, count(*) AS jobs, sum(total) AS total, count_if(express) AS express
    FROM orders GROUP BY name ORDER BY name
    """
).show()

# %% [markdown]
# ## Why jobs died

# %%
dead = (
    spark.read.format("chasqui")
    .option("url", url)
    .option("queue", name)
    .option("view", "dlq")
    .load()
)
why = dead.groupBy("reason", "error_type").agg(
    count(lit(1)).alias("jobs"), min_by("error", col("failed_at")).alias("the first of them said")
)
why.orderBy(col("jobs").desc()).show(truncate=False)

# %% [markdown]
# Whoever repaired the cause brings them back by `queue.replay_dlq()`, or on the command line by
# `chasqui dlq replay`.

# %%
print(f"{jobs.count()} jobs still wait: reading took none of them")
queue.close()
