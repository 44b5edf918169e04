"""SparkWorker: the handlers of a queue, run by the tasks of a Spark job.

Each task is an ordinary Worker that runs until its queue is empty, its share is done or its time
is over; leases, retries, burying, results and budgets are that Worker's. `run` answers with one
row per run of a handler.

1. the driver looks whether the server lets it in and to all that is needed, and starts so many
   tasks;
2. a task waits for an earlier attempt of itself to be over (`task/group.py`), imports the handler,
   and runs its Worker, handing on rows as they come (`task/burst.py`);
3. the rows are kept, on the executors' disks or in Parquet files, before `run` returns: an action
   on them reads what was kept, and runs no handler again.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark import StorageLevel, TaskContext

from chasquimq.address import CredentialProvider, Credentials
from chasquimq.config import MAX_MS, check_within, suggesting
from chasquimq.errors import ChasquiError, ConfigError
from chasquimq.handler import Handler, OnError, Route, Router
from chasquimq.job import BackoffSpec, Job
from chasquimq.spark.client import Client
from chasquimq.spark.secret import Where
from chasquimq.spark.task.burst import Ear, drive
from chasquimq.spark.task.group import Group, name_of, stop_key
from chasquimq.spark.task.ledger import SCHEMA, Ledger
from chasquimq.spark.task.target import check_target, load
from chasquimq.spark.write.ready import check_rights
from chasquimq.wire import Keys
from chasquimq.wire.right import of_worker
from chasquimq.worker import Worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("chasquimq.worker")

Handlers = Handler | Mapping[str, Handler | Route] | Router | str
Batches = Iterator[pa.RecordBatch]

MOST_TASKS = 100_000
PATIENCE_S = 2.0  # the driver's, with a server that is away
# What tasks do beside their Workers: they find their earlier attempts, and hear of a stop.
OF_TASKS = {"EXISTS": 0, "SET": 1, "UNLINK": 0, "XINFO|CONSUMERS": 1}
STOP_MS = 86_400_000  # how long a stop is remembered, should its driver die


class SparkWorker:
    """Runs handlers on the jobs of one queue in the tasks of Spark.

    `handler` is what a Worker takes, or the name of it, `package.module:name`, which is imported
    where the tasks run.
    """

    @suggesting
    def __init__(
        self,
        queue: str,
        handler: Handlers,
        *,
        url: str | None = None,
        url_env: str | None = None,
        secret_file: str | None = None,
        tasks: int | None = None,
        share: int | None = None,
        max_runtime_ms: int | None = None,
        concurrency: int = 1,
        max_attempts: int = 25,
        backoff: BackoffSpec | None = None,
        time_limit_ms: int | None = None,
        drain_ms: int = 25_000,
        on_error: OnError | None = None,
        store_results: bool = False,
        result_ttl_ms: int | None = None,
        max_result_bytes: int | None = None,
        group: str = "default",
        claim_min_idle_ms: int = 30_000,
        max_payload_bytes: int | None = None,
        dlq_max_stream_len: int | None = None,
        dlq_on_full: str = "warn",
        events_enabled: bool = True,
        events_max_stream_len: int | None = None,
        delayed_enabled: bool = True,
        run_scheduler: bool = False,
        reconnect_max_attempts: int | None = None,
    ) -> None:
        self._where = Where(url=url, url_env=url_env, secret_file=secret_file)
        if tasks is not None:
            check_within("tasks", tasks, 1, MOST_TASKS)
        if share is not None:
            check_within("share", share, 1, MAX_MS)
        if isinstance(handler, str):
            check_target(handler)
        self._tasks = tasks
        self._handler = handler
        self._queue = queue
        self._running: str | None = None
        self._options: dict[str, Any] = {
            "burst": True,
            "max_jobs": share,
            "max_runtime_ms": max_runtime_ms,
            "concurrency": concurrency,
            "max_attempts": max_attempts,
            "backoff": backoff,
            "time_limit_ms": time_limit_ms,
            "drain_ms": drain_ms,
            "on_error": on_error,
            "store_results": store_results,
            "result_ttl_ms": result_ttl_ms,
            "max_result_bytes": max_result_bytes,
            "group": group,
            "claim_min_idle_ms": claim_min_idle_ms,
            "max_payload_bytes": max_payload_bytes,
            "dlq_max_stream_len": dlq_max_stream_len,
            "dlq_on_full": dlq_on_full,
            "events_enabled": events_enabled,
            "events_max_stream_len": events_max_stream_len,
            "delayed_enabled": delayed_enabled,
            "run_scheduler": run_scheduler,
            "reconnect_max_attempts": reconnect_max_attempts,
        }
        # Whatever a Worker refuses is refused here, not by an executor an hour later.
        Worker(queue, _nothing if isinstance(handler, str) else handler, **self._options)

    def check(self) -> None:
        """Raise, if the server cannot be reached from here, does not let us in, or refuses what
        handlers need. `run` does it first."""
        options = self._options
        delayed, scheduler = options["delayed_enabled"], options["run_scheduler"]
        needed = {**of_worker(delayed=delayed, scheduler=scheduler), **OF_TASKS}
        with self._client(("may",)) as client:
            who = f"handlers of queue {self._queue!r} need; no job was run"
            check_rights(client, Keys(self._queue), needed, who)

    def run(self, spark: SparkSession, out: str | None = None) -> DataFrame:
        """Run jobs until all tasks have ended; one row per run of a handler.

        Rows are kept on the executors' disks, or with `out` in Parquet files there, beside those of
        earlier runs.
        """
        if self._running is not None:
            raise ConfigError("it runs already; a second SparkWorker may run beside it")
        self.check()
        run_id = uuid.uuid4().hex[:12]
        orders = Orders(run_id, self._queue, self._handler, self._where, self._options)
        self._running = run_id
        try:
            return _kept(spark, _rows(spark, orders, self._tasks), run_id, out)
        finally:
            self._running = None
            self._forget(run_id)

    def stop(self) -> bool:
        """Ask the tasks to stop, from another thread: each lets its handlers end, for `drain_ms` at
        the most, gives back what it did not start, and `run` returns with the rows so far. False:
        it does not run."""
        run_id = self._running
        if run_id is None:
            return False
        with self._client() as client:
            client.ask("SET", stop_key(self._queue, run_id), 1, "PX", STOP_MS)
        return True

    def _forget(self, run_id: str) -> None:
        """That it was to stop. It is over: no rows are lost because a server is away now."""
        try:
            with self._client() as client:
                client.ask("UNLINK", stop_key(self._queue, run_id))
        except ChasquiError as error:
            log.warning("what told run %s to stop is left to expire: %s", run_id, error)

    def _client(self, scripts: Sequence[str] = ()) -> Client:
        return Client(self._where.address_of(self._queue), scripts, patience_s=PATIENCE_S)


class Orders(NamedTuple):
    """What every task of a run is told."""

    run_id: str
    queue: str
    handler: Handlers
    where: Where
    options: dict[str, Any]

    @property
    def lease_ms(self) -> int:
        return int(self.options["claim_min_idle_ms"])


# -- on the driver ---------------------------------------------------------------------------------


def _rows(spark: SparkSession, orders: Orders, tasks: int | None) -> DataFrame:
    def work(batches: Batches) -> Batches:
        for _ in batches:  # numbers, by which Spark makes tasks
            pass
        yield from run_task(orders)

    # As many tasks as Spark finds right, or one number for each that was asked for.
    numbers = spark.range(MOST_TASKS) if tasks is None else spark.range(0, tasks, 1, tasks)
    try:
        return numbers.mapInArrow(work, SCHEMA)
    except Exception as error:
        if "PicklingError" not in type(error).__name__:
            raise
        raise ConfigError(
            f"the handler cannot be sent to the executors ({error}); give it by name, as in "
            "'app.tasks:handle', and it is imported there"
        ) from error


def _kept(spark: SparkSession, rows: DataFrame, run_id: str, out: str | None) -> DataFrame:
    """Run the tasks, once, and keep their rows."""
    if out is None:
        return rows.localCheckpoint(True, StorageLevel.DISK_ONLY)
    rows.write.mode("append").parquet(out)
    return spark.read.schema(SCHEMA).parquet(out).where(f"run = '{run_id}'")


def _nothing(job: Job) -> None:
    """In the place of a handler that is not here."""


# -- on an executor --------------------------------------------------------------------------------


def run_task(orders: Orders) -> Batches:
    task = TaskContext.get()
    assert task is not None
    until = Until(orders.options["max_runtime_ms"])
    address = orders.where.address_of(orders.queue)
    handler = load(orders.handler) if isinstance(orders.handler, str) else orders.handler
    partition = task.partitionId()
    name = name_of(orders.run_id, partition)
    with (
        Client(address) as client,
        Ear(Client(address, patience_s=0), stop_key(orders.queue, orders.run_id)) as ear,
    ):
        group = Group(client, orders.queue, orders.options["group"], orders.lease_ms)
        if task.attemptNumber() and not group.may_begin(name):
            return
        yield from _burst(orders, handler, partition, name, ear, until)
        if partition == 0:
            over = lambda: ear.told or until.left_ms == 0  # noqa: E731
            for left in group.left_by_others(orders.run_id, over):
                yield from _burst(orders, handler, partition, left, ear, until)


class Until:
    """The time that a task may take."""

    def __init__(self, limit_ms: int | None) -> None:
        self._limit_ms = limit_ms
        self._began = time.monotonic()

    @property
    def left_ms(self) -> int | None:
        if self._limit_ms is None:
            return None
        return max(self._limit_ms - int((time.monotonic() - self._began) * 1000), 0)


def _burst(
    orders: Orders, handler: Any, partition: int, name: str, ear: Ear, until: Until
) -> Batches:
    ledger = Ledger(orders.run_id, orders.queue, partition, name)
    url, provider = _leading_to(orders.where)
    left_ms = until.left_ms
    worker = Worker(
        orders.queue,
        handler,
        redis_url=url,
        credential_provider=provider,
        consumer_id=name,
        tracing=ledger,
        metrics=ledger,
        **{**orders.options, "max_runtime_ms": None if left_ms is None else max(left_ms, 1)},
    )
    ear.stops(worker)
    yield from drive(worker, ledger)


def _leading_to(where: Where) -> tuple[str, CredentialProvider | None]:
    """As a Worker wants it: an address without a secret, and who knows the secret, which is looked
    for anew with each connection."""
    address = where.address()
    if address.password is None:
        return address.without_secret(address.username), None

    def ask(_: str | None) -> Credentials:
        now = where.address()
        return now.username, now.password.reveal() if now.password is not None else None

    return address.without_secret(None), ask
