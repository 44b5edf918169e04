# %% [markdown]
# # From a stream into a queue, exactly once
#
# Files land in a folder, and every line of them becomes a job: one, even if the driver dies between
# two of its steps and Spark plays a batch again.
#
#     python examples/spark/04_stream_into_queue.py

# %%
import json
import tempfile
import uuid
from pathlib import Path

from place import redis_url
from pyspark.sql import DataFrame

from chasquimq.spark.session import session
from chasquimq.sync import Queue

url, name = redis_url(), f"signups-{uuid.uuid4().hex[:6]}"
spark = session("stream-into-queue", master="local[2]")
work = Path(tempfile.mkdtemp())
queue = Queue(name, redis_url=url)
(work / "landing").mkdir()


def land(file: str, users: range) -> None:
    lines = [json.dumps({"user": n, "email": f"user{n}@example.org"}) for n in users]
    (work / "landing" / file).write_text("\n".join(lines))


def signups() -> DataFrame:
    return spark.readStream.schema("user BIGINT, email STRING").json(str(work / "landing"))


# %% [markdown]
# ## Staged commit
#
# What a stream uses by itself: tasks write beside the queue, and when all of a batch are done the
# driver moves their rows into it. Workers see nothing of a batch that failed.


# %%
def run(rows: DataFrame, checkpoint: str, **options: str) -> None:
    query = (
        rows.writeStream.format("chasqui")
        .option("url", url)
        .option("queue", name)
        .options(**options)
        .option("checkpointLocation", str(work / checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    if not query.awaitTermination(120):
        query.stop()
        raise TimeoutError("the query has not ended")


welcome = signups().selectExpr("'welcome' AS name", "struct(user, email) AS payload")
land("monday.json", range(100))
run(welcome, "welcome")
print(f"monday: {queue.counts().waiting} jobs")
land("tuesday.json", range(100, 150))
run(welcome, "welcome")
print(f"tuesday: {queue.counts().waiting} jobs")

# %% [markdown]
# ## A batch that is played again
#
# Spark notes that a batch is done after the sink has said so. A driver that dies in between plays
# the batch again when it comes back. Let us be that driver: take the note of the last batch away.

# %%
notes = work / "welcome" / "commits"
last = max((note for note in notes.iterdir() if note.name.isdigit()), key=lambda it: int(it.name))
last.unlink()
(notes / f".{last.name}.crc").unlink(missing_ok=True)
run(welcome, "welcome")
print(f"tuesday, played again: {queue.counts().waiting} jobs")

# %% [markdown]
# ## Rows that tell who they are
#
# With `idColumn` a row's own identity decides. That holds across runs and queries: here somebody
# has lost the checkpoint, and everything is read from the start.

# %%
numbered = signups().selectExpr(
    "'survey' AS name", "struct(user) AS payload", "concat('survey:', user) AS survey"
)
run(numbered, "first", idColumn="survey")
print(f"with surveys: {queue.counts().waiting} jobs")
run(numbered, "second", idColumn="survey")
print(f"from the start, without a checkpoint: {queue.counts().waiting} jobs")

# %%
queue.close()
