# %% [markdown]
# # What do jobs die of? Triage, replay, purge
#
# A DLQ of many rows has few causes. Find them, bring the jobs of one cause back when it is mended,
# delete those that nobody wants. Run it as a program, or cell by cell in an editor that knows
# `# %%`:
#
#     python examples/spark/06_triage_and_replay.py

# %%
import asyncio
import uuid

from place import redis_url
from pyspark.sql.functions import col

from chasquimq import Job, UnrecoverableError, Worker
from chasquimq.spark.act import purge, replay
from chasquimq.spark.pipelines.cluster import clustered, triage
from chasquimq.spark.session import session
from chasquimq.sync import Queue

url, name = redis_url(), f"mail-{uuid.uuid4().hex[:6]}"
spark = session("triage-and-replay", master="local[2]")

# %% [markdown]
# First, a bad day: a mail server that does not answer, users who are gone, and a template that
# nobody wrote. (In a notebook it is `await worker.run()`.)

# %%
queue = Queue(name, redis_url=url)
queue.add_bulk(
    [
        {"name": "welcome", "data": {"user": n, "smtp": {"password": "hunter2"}}, "attempts": 1}
        for n in range(300)
    ]
)


async def fail(job: Job) -> None:
    user = job.data["user"]
    if user % 10 == 0:
        raise UnrecoverableError(f"no template 'welcome-{user}.html' in /srv/app/v{user}/templates")
    if user % 3 == 0:
        raise LookupError(f"user {user} is gone")
    raise TimeoutError(f"10.1.2.{user % 250}:25 did not answer within {user / 10} s")


asyncio.run(Worker(name, fail, redis_url=url, burst=True).run())

# %% [markdown]
# ## Three causes, not three hundred errors
#
# What differs from job to job is masked; what sounds like a secret is hidden in examples.

# %%
dead = (
    spark.read.format("chasqui")
    .option("url", url)
    .option("queue", name)
    .option("view", "dlq")
    .load()
)
clusters = triage(dead).collect()
for one in clusters:
    print(f"{one.jobs} {one.error_type}: {one.message}")
print(f"for example: {clusters[0].example_payload}")

# %% [markdown]
# ## The mail server is back
#
# Choose by the cluster, look what would happen, then do it. What `replay` returns are values: to
# look at them again does nothing.

# %%
where = {"url": url}
timeouts = clustered(dead).where(col("cluster") == clusters[0].cluster)
for row in replay(timeouts, where, dry_run=True).groupBy("outcome").count().collect():
    print(f"{row.outcome}: {row['count']}")
told = replay(timeouts, where)
print(f"replayed: {told.where(col('outcome') == 'replayed').count()}")
print(f"again, by mistake: {replay(timeouts, where).count()}")


async def deliver(job: Job) -> None:
    return None


asyncio.run(Worker(name, deliver, redis_url=url, burst=True).run())

# %% [markdown]
# ## Who is gone gets no mail
#
# Any DataFrame with `queue` and `entry_id` will do: here one that SQL has filtered.

# %%
gone = dead.where("error LIKE '%is gone'")
print(f"purged: {purge(gone, where).count()}")
print(f"still dead: {queue.counts().dead}")
queue.close()
