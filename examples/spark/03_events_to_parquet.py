# %% [markdown]
# # Events of a queue, kept as Parquet
#
# A queue keeps its last 100,000 events or so. A streaming query brings them into files that are
# kept for as long as you like: each event once, and one that was gone before it was read is
# noticed.
#
#     python examples/spark/03_events_to_parquet.py

# %%
import asyncio
import tempfile
import uuid

from place import redis_url
from pyspark.sql.streaming.query import StreamingQuery

from chasquimq import Job, RetryError, Worker
from chasquimq.spark.session import session
from chasquimq.sync import Queue

url, name = redis_url(), f"thumbnails-{uuid.uuid4().hex[:6]}"
spark = session("events-to-parquet", master="local[2]")
work = tempfile.mkdtemp()
queue = Queue(name, redis_url=url)

# %% [markdown]
# Something that happens: jobs of two names, and every tenth fails at first. (In a notebook it is
# `await worker.run()`.)


# %%
async def handle(job: Job) -> None:
    if job.data["image"] % 10 == 0 and job.attempt == 0:
        raise RetryError("no memory", delay=1)
    await asyncio.sleep(0.001)


def happen(jobs: range) -> None:
    queue.add_bulk([{"name": ("small", "large")[n % 2], "data": {"image": n}} for n in jobs])
    asyncio.run(Worker(name, handle, redis_url=url, burst=True).run())


happen(range(200))

# %% [markdown]
# ## Follow
#
# `availableNow` reads what is there and ends: this is for cron. With
# `.trigger(processingTime="10 seconds")` it goes on.

# %%
events = (
    spark.readStream.format("chasqui")
    .option("url", url)
    .option("queue", name)
    .option("view", "events")
    .load()
)


def follow() -> StreamingQuery:
    query = (
        events.drop("_corrupt_record")
        .writeStream.format("parquet")
        .option("path", f"{work}/lake")
        .option("checkpointLocation", f"{work}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    if not query.awaitTermination(120):
        query.stop()
        raise TimeoutError("the query has not ended")
    return query


def completed() -> int:
    return spark.read.parquet(f"{work}/lake").where("event = 'completed'").count()


follow()
print(f"in the lake: {completed()} jobs that were completed")

# %% [markdown]
# The checkpoint knows how far it came. Started again, it goes on from there.

# %%
happen(range(200, 250))
follow()
print(f"and then: {completed()}")
follow()
print(f"nothing new, nothing twice: {completed()}")

# %% [markdown]
# ## What the lake tells

# %%
spark.read.parquet(f"{work}/lake").createOrReplaceTempView("events")
spark.sql(
    """
    SELECT name,
           count_if(event = 'completed') AS completed,
           count_if(event = 'failed') AS failed,
           round(percentile(duration_us, 0.95) / 1000, 1) AS p95_ms
    FROM events WHERE event IN ('completed', 'failed') GROUP BY name ORDER BY name
    """
).show()

# %%
queue.close()
