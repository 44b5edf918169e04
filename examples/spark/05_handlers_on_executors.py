# %% [markdown]
# # Handlers on executors, and what became of each run
#
# Each task of a Spark job is an ordinary Worker: the same handlers, leases, retries and dead
# letters, on as many cores as Spark has.
#
#     python examples/spark/05_handlers_on_executors.py

# %%
import math
import uuid

from place import redis_url

from chasquimq import BackoffSpec, Job, Router, UnrecoverableError
from chasquimq.spark.session import session
from chasquimq.spark.work import SparkWorker
from chasquimq.sync import Queue

url, name = redis_url(), f"numbers-{uuid.uuid4().hex[:6]}"
spark = session("handlers", master="local[2]")
queue = Queue(name, redis_url=url)

# %% [markdown]
# Jobs that need a core each: which numbers are prime? One of them cannot be asked.

# %%
queue.add_bulk([{"name": "prime", "data": n} for n in range(2, 502)])
queue.add("prime", -1)
queue.add("flaky", None)

# %% [markdown]
# The handlers, as any Worker would get them.

# %%
router = Router()


@router.on("prime")
def is_prime(job: Job) -> bool:
    if job.data < 0:
        raise UnrecoverableError(f"{job.data} is not a natural number")
    return all(job.data % divisor for divisor in range(2, math.isqrt(job.data) + 1))


@router.on("flaky")
def fail_once(job: Job) -> None:
    if job.attempts_made == 0:
        raise ConnectionError("nobody answers")


worker = SparkWorker(
    name, router, url=url, tasks=2, store_results=True, backoff=BackoffSpec.fixed(1, jitter_ms=0)
)

# %% [markdown]
# Run the queue dry. A retry that is not due yet is left for the next run; so it is run until
# nothing is left.

# %%
runs = worker.run(spark)
while queue.counts().delayed:
    runs = runs.union(worker.run(spark))

# %% [markdown]
# One row per run. They are kept: looking at them runs nothing again.

# %%
runs.groupBy("name", "attempt", "outcome", "error").count().orderBy(
    "name", "attempt", "outcome"
).show(truncate=False)
print("tasks that had work:", sorted(row.task for row in runs.select("task").distinct().collect()))

# %% [markdown]
# What the handlers returned is in Redis, and reads as a DataFrame, too.

# %%
results = spark.read.format("chasqui").option("url", url).option("queue", name)
primes = results.option("view", "results").load().where("value = 'true'").count()
print(f"{primes} of them are prime; {queue.counts().dead} job is dead")

# %%
queue.close()
