"""Bring dead jobs back, or delete them: those that a DataFrame names, each once.

1. the driver learns which they are, once (`choice.py`);
2. tasks act on them, page by page, and note each in Redis (`task.py`);
3. the driver keeps what became of each, and makes a DataFrame of that. It holds values: looking at
   it, however often, does nothing.
"""

from __future__ import annotations

import logging
import math
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from chasquimq.errors import ChasquiError
from chasquimq.policy.pace import Pace
from chasquimq.spark.act.choice import PAGE, Choice, choose, pages_frame
from chasquimq.spark.act.task import (
    DONE,
    OUTCOMES,
    OUTCOMES_DDL,
    Act,
    Order,
    Verb,
    acting,
    notes_key,
)
from chasquimq.spark.client import Client, Clients
from chasquimq.spark.options import where_options
from chasquimq.spark.write import ready
from chasquimq.wire import Keys

log = logging.getLogger("chasquimq.queue")

Progress = Callable[[int], object] | None  # is told now and then how many are done

# Redis answers one command at a time, so more tasks than these would only wait for each other.
TASKS = 4
TASK_RATE = 1_000  # of jobs per second: what one task can bring about
LOOK_S = 0.2

# What the scripts run after their first write, and how many arguments follow the key.
NOTING = {"XDEL": 1, "GETBIT": 1, "SETBIT": 2, "PEXPIRE": 1}
NEEDED: dict[Verb, dict[str, int]] = {
    "replay": {"XADD": 3, "GET": 0, "SET": 1, **NOTING},
    "purge": NOTING,
}


class Done(NamedTuple):
    """`noted`: how many Redis says were moved or deleted."""

    outcomes: pa.Table
    noted: int

    def totals(self) -> dict[str, int]:
        return dict(Counter(self.outcomes["outcome"].to_pylist()))


def replay(
    dead: DataFrame,
    where: Mapping[str, str],
    *,
    rate: float | None = None,
    dry_run: bool = False,
    progress: Progress = None,
) -> DataFrame:
    """Bring dead jobs back to their queues, with fresh attempts; answers what became of each.

    `dead` names them by its columns `queue` and `entry_id`; all else is read from the DLQ. `where`
    holds `url`, `urlEnv` or `secretFile`, as the options of `format("chasqui")`. `rate`: so many
    per second, over all tasks.
    """
    return _frame(dead, "replay", where, rate, dry_run, progress)


def purge(
    dead: DataFrame,
    where: Mapping[str, str],
    *,
    dry_run: bool = False,
    progress: Progress = None,
) -> DataFrame:
    """Delete dead jobs for good; the same otherwise."""
    return _frame(dead, "purge", where, None, dry_run, progress)


def _frame(
    dead: DataFrame,
    verb: Verb,
    where: Mapping[str, str],
    rate: float | None,
    dry_run: bool,
    progress: Progress,
) -> DataFrame:
    order = Order(verb, where_options(where), uuid.uuid4().hex, rate, dry_run)
    Pace(rate, PAGE)  # refuses what is none, before anything is read
    done = carry_out(dead.sparkSession, choose(dead), order, progress)
    return dead.sparkSession.createDataFrame(done.outcomes, OUTCOMES_DDL)


def carry_out(
    spark: SparkSession,
    choice: Choice,
    order: Order,
    progress: Progress = None,
    acting: Callable[[Order], Act] = acting,
) -> Done:
    if not len(choice):
        return Done(OUTCOMES.empty_table(), 0)
    with Clients(order.where.address(), ready.SCRIPTS) as clients:
        if order.dry_run:
            return Done(_run(spark, choice, order, acting), 0)
        for queue in choice.queues:
            _make_ready(clients.of(queue), order.verb, Keys(queue))
        try:
            with _telling(choice, order, progress):
                outcomes = _run(spark, choice, order, acting)
        except BaseException as error:  # Ctrl-C is one, too
            _add_note(clients, choice, order, error)
            raise
        done = Done(outcomes, _noted(clients, choice, order))
        if progress is not None:
            progress(done.noted)
        for queue in choice.queues:
            clients.of(queue).ask_each([("UNLINK", notes_key(Keys(queue), order.run))])
    told = done.totals().get(DONE[order.verb], 0)
    if told != done.noted:
        log.warning(
            "tasks tell of %d jobs that they %s, Redis has noted %d: did the server change?",
            told, DONE[order.verb], done.noted,
        )  # fmt: skip
    return done


def _make_ready(client: Client, verb: Verb, keys: Keys) -> None:
    if verb == "replay":
        ready.make_ready(client, keys.queue, NEEDED[verb])
    else:
        ready.check_rights(client, keys, NEEDED[verb])


def _run(
    spark: SparkSession, choice: Choice, order: Order, acting: Callable[[Order], Act]
) -> pa.Table:
    tasks, each = share_out(len(choice), order.rate)
    order = order._replace(rate=each)
    pages = pages_frame(spark, choice, tasks)
    outcomes: pa.Table = pages.mapInArrow(acting(order), OUTCOMES_DDL).toArrow()
    return outcomes


def share_out(jobs: int, rate: float | None) -> tuple[int, float | None]:
    """How many tasks, and the rate of each. If they do not all run at once, it is less in all."""
    tasks = min(TASKS, math.ceil(jobs / PAGE))
    if rate is None:
        return tasks, None
    tasks = min(tasks, math.ceil(rate / TASK_RATE))
    return tasks, rate / tasks


def _noted(clients: Clients, choice: Choice, order: Order) -> int:
    noted = 0
    for client, queues in clients.shared(choice.queues):
        asked = [("BITCOUNT", notes_key(Keys(queue), order.run)) for queue in queues]
        noted += sum(one for one in client.ask_each(asked) if isinstance(one, int))
    return noted


def _add_note(clients: Clients, choice: Choice, order: Order, error: BaseException) -> None:
    with suppress(ChasquiError):
        if count := _noted(clients, choice, order):
            done = DONE[order.verb]
            error.add_note(f"{count:,} jobs were {done} before this; to go on, do it again")


@contextmanager
def _telling(choice: Choice, order: Order, progress: Progress) -> Iterator[None]:
    """While the block runs, `progress` is told what Redis has noted."""
    if progress is None:
        yield
        return
    ended = threading.Event()

    def watch() -> None:
        with Clients(order.where.address(), patience_s=0) as clients:
            while not ended.wait(LOOK_S):
                with suppress(ChasquiError):
                    progress(_noted(clients, choice, order))

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()
