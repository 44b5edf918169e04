"""One write, as Redis knows it: its keys, its states and its totals. In `{chasqui:<q>}:`

    spark:<run>                     hash     state       open | moving | done
                                             mode        direct | id | staged
                                             created_ms  when it began, by Redis' clock
                                             finished_ms when it was done
                                             seen_ms     when a task last staged something
                                             query, batch    of a stream
                                             rows        how many are in the queue
                                             skipped     how many were not wanted there
                                             part:<n>    direct: chunks of a partition that are in
                                             chunks:<n>:<attempt>    id: chunks of an attempt
                                             total       staged: how many a manifest promises
                                             moved       staged: how many of them left their stage
                                             max_stream_len, events_len, ttl_ms, rate    staged:
                                                         for whoever moves them
                                             paid_us, line_us    of rowsPerSecond, see
                                                         lua/part_spark_rate.lua
    spark:<run>:<part>              string   direct: a digest of each chunk that is in, with the
                                             number of its rows
    spark:<run>:stages              set      staged: the key of every attempt's stage
    spark:<run>:<part>:<attempt>    stream   staged: its rows, id <chunk>-<row>, from 1 on
    spark:<run>:manifest            list     staged: the keys of the stages that count
    spark:<run>:aborted:<write>     string   staged: tasks of this write are too late; expires
    spark:queries                   hash     id of a streaming query -> its last batch that is done

       begin               manifest written              all are moved
    -----------> open ------------------------> moving -----------------> done
                   |    (staged)                                            ^
                   +---------- all tasks have ended (direct, id) -----------+

What is `open` expires: tasks renew it as they write. What is `moving` never does, and neither does
anything a manifest names: those rows are promised, and whoever finds them may move them. What is
`done` is remembered for a while, so that late attempts and re-runs add nothing; of a stream's
batches the last one is remembered for ever.

A run that is aborted goes, and whoever writes it again begins it anew. So a task that Spark starts
when its driver has given up must not do that: a run may be written by several drivers one after
another, and what was aborted is remembered by which of them it was.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from chasquimq.errors import ConfigError, StoreError
from chasquimq.spark.client import Arg, Client
from chasquimq.wire import Keys

Mode = Literal["direct", "id", "staged"]

SCRIPTS = ("spark_begin", "spark_done")  # which `begin` and `finish` need
OPEN, MOVING, DONE = "open", "moving", "done"
ABORTED = "aborted"  # what a task is told whose driver has given up
MISSING, NOT_MOVING = -1, -2
BATCH_TTL_MS = 3_600_000  # a stream has many batches, and its query remembers the last by itself
ABORT_TTL_MS = 3_600_000  # longer than Spark starts tasks of a job that has failed
_AS_OPTIONS = {"direct": "commitMode=direct", "id": "idColumn", "staged": "commitMode=staged"}


class Run(NamedTuple):
    """`query` and `batch` are of a stream, and then make the run's id. `write` tells one driver's
    try from the next one's; "" where that does not matter."""

    queue: str
    run_id: str
    query: str = ""
    batch: int = 0
    write: str = ""

    @property
    def key(self) -> bytes:
        return b"%bspark:%b" % (Keys(self.queue).tag, self.run_id.encode())

    @property
    def stages(self) -> bytes:
        return self.key + b":stages"

    @property
    def manifest(self) -> bytes:
        return self.key + b":manifest"

    @property
    def aborted(self) -> bytes:
        return b"%b:aborted:%b" % (self.key, self.write.encode())

    @property
    def queries(self) -> bytes:
        return Keys(self.queue).tag + b"spark:queries"

    def marker(self, partition: int) -> bytes:
        return b"%b:%d" % (self.key, partition)

    def stage(self, partition: int, attempt: str) -> bytes:
        return b"%b:%d:%b" % (self.key, partition, attempt.encode())


def run_of_batch(queue: str, query: str, batch: int, write: str = "") -> Run:
    return Run(queue, f"{query}-{batch}", query, batch, write)


class Begun(NamedTuple):
    state: str
    created_ms: int
    marker: bytes  # digests of the chunks of this partition that are in


def begin(client: Client, run: Run, mode: Mode, partition: int, ttl_ms: int) -> Begun:
    """What a task asks first. Unless the run is `open`, it has nothing to write."""
    keys = [run.key, run.marker(partition), run.queries, *([run.aborted] if run.write else [])]
    told: list[Any] = client.run("spark_begin", keys, [ttl_ms, mode, run.query, run.batch])
    state, created_ms, marker, began_as = told[0].decode(), told[1], told[2], told[3].decode()
    if state == ABORTED:
        raise StoreError(
            f"run {run.run_id} of queue {run.queue!r} was aborted before this task began. Nothing "
            "came in; write it again"
        )
    if state != DONE and began_as != mode:
        raise ConfigError(
            f"run {run.run_id} of queue {run.queue!r} was begun with {_AS_OPTIONS[began_as]}, and "
            f"is not finished. Finish it that way, or by chasqui spark recover {run.queue}; or "
            f"give another runId for {_AS_OPTIONS[mode]}"
        )
    return Begun(state, created_ms, marker)


def remember_abort(client: Client, run: Run, ttl_ms: int) -> None:
    """Tasks of this write that begin from now on are too late."""
    if run.write:
        client.ask("SET", run.aborted, 1, "PX", min(ttl_ms, ABORT_TTL_MS))


def finish(client: Client, run: Run, ttl_ms: int, *, give_up: bool = False) -> int:
    """All is in: from now on nobody adds to this run. Answers how many rows it has brought.

    `give_up`: those that a manifest promises and that are not in will never be.
    """
    if run.query:
        ttl_ms = min(ttl_ms, BATCH_TTL_MS)
    keys = [run.key, run.manifest, run.queries]
    args: list[Arg] = [ttl_ms, run.query, run.batch, int(give_up)]
    answer, rows, total = client.run("spark_done", keys, args)
    if answer == NOT_MOVING:
        raise StoreError(
            f"run {run.run_id} of queue {run.queue!r} has begun anew meanwhile; whoever began it "
            "will finish it"
        )
    if answer == MISSING:
        raise StoreError(
            f"run {run.run_id} of queue {run.queue!r} has moved {rows} of the {total} rows that "
            "were staged, and the others are gone: their keys were deleted or evicted (check "
            "maxmemory-policy). Or a server took over that has them still: chasqui spark recover "
            f"{run.queue} {run.run_id} moves those, and with --give-up goes on without the others"
        )
    return int(rows)
