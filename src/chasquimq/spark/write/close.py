"""The end of a write that tasks made themselves: what Redis has is what counts, and is told.

spark:<run>    rows         how many came in
               skipped      how many did not: their ids were known
               finished_ms  when
"""

from __future__ import annotations

import logging

from chasquimq.errors import ChasquiError, StoreError
from chasquimq.spark.client import Client
from chasquimq.spark.options import SinkOptions
from chasquimq.spark.write import run as runs
from chasquimq.spark.write.run import Run
from chasquimq.spark.write.way import Messages, Written

log = logging.getLogger("chasquimq.queue")

FORGET = 500  # markers of partitions that one command removes
ABORT_S = 5.0  # a write that failed is not worth more patience


def commit(options: SinkOptions, run: Run, messages: Messages) -> None:
    """All tasks have ended. StoreError if Redis has not counted just the rows they brought."""
    with Client(options.where.address_of(options.queue), runs.SCRIPTS) as client:
        rows, skipped = _totals(client, run)
        brought = _brought(messages)
        if brought is not None and brought != rows + skipped:
            raise _differs(options, run, brought, rows + skipped)
        finished = runs.finish(client, run, options.marker_ttl_ms)
        if finished != rows:  # by a task that should have ended
            raise _differs(options, run, rows, finished)
        # Whoever comes late finds the run done, so what is in needs no marker any more.
        for first in range(0, len(messages), FORGET):
            parts = range(first, min(first + FORGET, len(messages)))
            client.ask("UNLINK", *[run.marker(part) for part in parts])
            client.ask("HDEL", run.key, *[f"part:{part}" for part in parts])
    _tell(options, run, rows, skipped, brought is None)


def commit_ids(options: SinkOptions, run: Run, messages: Messages) -> None:
    with Client(options.where.address_of(options.queue), runs.SCRIPTS) as client:
        _check_chunks(client, options, run, messages)
        rows, skipped = _totals(client, run)
        brought = _brought(messages)
        if brought is not None:
            skipped = max(brought - rows, 0)
            client.ask("HSET", run.key, "skipped", skipped)
        runs.finish(client, run, options.marker_ttl_ms)
    _tell(options, run, rows, skipped, brought is None)


def _check_chunks(client: Client, options: SinkOptions, run: Run, messages: Messages) -> None:
    """StoreError if a server took over that has not all that its predecessor has told of."""
    told = dict(one.chunks for one in messages if isinstance(one, Written) and one.chunks[1])
    for first in range(0, len(told), FORGET):
        fields = [*told][first : first + FORGET]
        counted = client.ask("HMGET", run.key, *fields)
        for field, count in zip(fields, counted, strict=True):
            if int(count or 0) < told[field]:
                raise _differs(options, run, told[field], int(count or 0), "chunks")
        client.ask("HDEL", run.key, *fields)


def abort(options: SinkOptions, run: Run) -> None:
    """Markers stay, so that the same run can go on."""
    try:
        with Client(options.where.address_of(options.queue), patience_s=ABORT_S) as client:
            rows, _ = _totals(client, run)
    except ChasquiError as error:
        log.warning(
            "the write %s into queue %s failed, and so did asking how far it got: %s",
            run.run_id,
            run.queue,
            error,
        )
        return
    log.warning(
        "the write into queue %s failed. %d rows came in, and stay; write again with runId=%s "
        "within %d ms to add the others",
        *(run.queue, rows, run.run_id, options.marker_ttl_ms),
    )


def _totals(client: Client, run: Run) -> tuple[int, int]:
    rows, skipped = client.ask("HMGET", run.key, "rows", "skipped")
    return int(rows or 0), int(skipped or 0)


def _brought(messages: Messages) -> int | None:
    """How many rows the tasks saw; None: the run was done before, and they looked at nothing."""
    counts = [message.rows for message in messages if isinstance(message, Written)]
    return None if None in counts else sum(count for count in counts if count is not None)


def _differs(
    options: SinkOptions, run: Run, brought: int, counted: int, what: str = "rows"
) -> StoreError:
    if counted < brought:
        why = (
            "the server lost its data meanwhile (was it flushed, restarted without an append-only "
            f"file, or lost to a replica?), or markerTtlMs ({options.marker_ttl_ms}) is too short; "
            f"write again with runId={run.run_id} to add what is missing"
        )
    else:
        why = (
            "an earlier write under this runId had other partitions; give every write of other "
            "data a runId of its own"
        )
    return StoreError(
        f"the tasks of run {run.run_id} brought {brought} {what}, and Redis has counted {counted} "
        f"in queue {run.queue!r}: {why}"
    )


def _tell(options: SinkOptions, run: Run, rows: int, skipped: int, was_done: bool) -> None:
    told = "was done before: nothing was added" if was_done else "is done"
    log.info(
        "run %s %s; queue %s got %d rows, %d were skipped",
        *(run.run_id, told, options.queue, rows, skipped),
    )
