# %% [markdown]
# # Files become jobs, no faster than the workers can bear
#
# `pipelines.enqueue` makes rows that the sink takes out of any rows; `rowsPerSecond` keeps all
# tasks of the write together to one rate. `chasqui spark enqueue` is both of it at the terminal.
#
#     python examples/spark/07_enqueue_files.py

# %%
import json
import tempfile
import uuid
from pathlib import Path

from place import redis_url

from chasquimq.cli import main
from chasquimq.spark.pipelines import enqueue
from chasquimq.spark.session import session
from chasquimq.sync import Queue

url, name = redis_url(), f"mail-{uuid.uuid4().hex[:6]}"
spark = session("enqueue-files", master="local[2]")
work = Path(tempfile.mkdtemp())

# %% [markdown]
# Two files, as some export leaves them: who is to be written to, and what about.

# %%
for day in ("monday", "tuesday"):
    with (work / f"{day}.jsonl").open("w") as file:
        for n in range(100):
            kind = "welcome" if n % 4 else "reminder"
            row = {"key": f"{day}-{n}", "kind": kind, "email": f"user{n}@example.org"}
            file.write(json.dumps(row) + "\n")

# %% [markdown]
# A parameter that names a column says so (`..._column`, `payload`); all others are values. Columns
# that are not named otherwise make the payload. It is a DataFrame like any other: look at it first.

# %%
rows = spark.read.json(str(work / "*.jsonl"))
jobs = enqueue(rows, name_column="kind", id_column="key", max_attempts=3)
jobs.orderBy("id").show(2, truncate=False)

# %% [markdown]
# At most 400 rows per second, whatever the number of tasks. Workers can start at once.

# %%
(
    jobs.write.format("chasqui")
    .option("url", url)
    .option("queue", name)
    .option("idColumn", "id")
    .option("rowsPerSecond", 400)
    .mode("append")
    .save()
)
queue = Queue(name, redis_url=url)
print(f"after the program: {queue.counts().waiting} jobs wait")

# %% [markdown]
# The same at the terminal. It knows each row by its key, so nothing comes in twice.

# %%
files = str(work / "*.jsonl")
keys = ["--name-column", "kind", "--id-column", "key", "--attempts", "3"]
main(["spark", "enqueue", name, files, *keys, "--rate", "400", "--redis-url", url, "--run-id", "x"])
print(f"after the command: {queue.counts().waiting} jobs wait")

# %%
queue.close()
