"""`chasqui spark work`: run the handlers of a queue in the tasks of Spark."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chasquimq.cli import render_spark_work as render
from chasquimq.cli.bar import Bar
from chasquimq.cli.moment import duration_ms, read_duration
from chasquimq.cli.screen import Screen
from chasquimq.cli.shell import AsJson, Group, RedisUrl, examples
from chasquimq.cli.spark.fault import plainly
from chasquimq.cli.spark.start import (
    Master,
    SecretFile,
    is_local,
    need_spark,
    start,
    where,
)
from chasquimq.errors import ConfigError, StoreError
from chasquimq.wire import Keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from chasquimq.spark.work import SparkWorker

LOOK_S = 0.5  # between two looks at how much is left
SIGNALS = (signal.SIGINT, signal.SIGTERM)
EXAMPLES = examples(
    "chasqui spark work app.tasks:handle --queue mail",
    "chasqui spark work app.tasks:router --queue mail --tasks 8 --concurrency 4",
    "chasqui spark work app:handle --queue mail --time-slice 50m --out /lake/runs",
    "chasqui spark work app:handle --queue mail --master spark://... --py-file a.py",
    "chasqui spark work app.tasks:handle --queue mail --json | jq .outcomes",
)


def work(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="package.module:name of a handler: a function of a job, a mapping of names to "
            "functions, or a Router. It is imported where the tasks run; on this machine, the "
            "current folder is looked at first.",
        ),
    ],
    queue: Annotated[str, typer.Option(metavar="QUEUE", help="Name of the queue.")],
    tasks: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="How many tasks. Default: as many as Spark likes."),
    ] = None,
    share: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Jobs that a task takes at most."),
    ] = None,
    time_slice: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="How long a task takes jobs at most, as in 50m; then its handlers have --drain.",
            show_default=False,
        ),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Handlers at a time, per task.")] = 1,
    max_attempts: Annotated[
        int, typer.Option(min=1, help="Runs of a job at most, unless it brings its own number.")
    ] = 25,
    time_limit: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="How long one run may take.", show_default=False),
    ] = None,
    drain: Annotated[
        str, typer.Option(metavar="DURATION", help="How long a stop waits for handlers.")
    ] = "30s",
    results: Annotated[
        bool, typer.Option("--results", help="Keep what handlers return, for an hour.")
    ] = False,
    group: Group = "default",
    out: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Add a row per run to the Parquet files there: a folder, s3a://..., hdfs://...",
            show_default=False,
        ),
    ] = None,
    py_file: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help="A .py, .zip or .egg with your code, sent to every task; may be given several "
            "times.",
            show_default=False,
        ),
    ] = None,
    master: Master = None,
    redis_url: RedisUrl = None,
    secret_file: SecretFile = None,
    as_json: AsJson = False,
) -> None:
    """Run handlers on the jobs of a queue, in the tasks of Spark, until it is empty.

    Each task is an ordinary worker in burst mode: leases, retries, the DLQ and results are the
    same. Jobs that fail are retried or buried as ever, and change nothing about the exit code.

    The first Ctrl-C or SIGTERM lets handlers end and gives back the rest, the second ends Spark's
    tasks at once; their jobs come back when their leases are over.
    """
    need_spark()
    from chasquimq.spark.task.summary import summary
    from chasquimq.spark.work import SparkWorker

    said = where(redis_url, secret_file, master)
    worker = SparkWorker(
        queue,
        target,
        url=said.get("url"),
        url_env=said.get("urlEnv"),
        secret_file=said.get("secretFile"),
        tasks=tasks,
        share=share,
        max_runtime_ms=_ms(time_slice, "--time-slice"),
        concurrency=concurrency,
        max_attempts=max_attempts,
        time_limit_ms=_ms(time_limit, "--time-limit"),
        drain_ms=_ms(drain, "--drain") or 0,
        store_results=results,
        group=group,
    )
    files = [_found(path) for path in py_file or ()]
    if is_local(master):
        _look_at(target)
    worker.check()  # before Spark starts, which takes a while
    screen = Screen(as_json=as_json)
    with plainly():
        spark = start(f"work {queue}", master)
        for path in files:
            spark.sparkContext.addPyFile(path)
        stop = Stop(worker, spark)
        with stop.heard(), _bar(queue, said):
            rows = stop.wait_for(lambda: worker.run(spark, out))
        told = {"queue": queue, **summary(rows), "stopped": stop.told, "out": out}
    if as_json:
        screen.json(told)
    else:
        screen.show(*render.sheets(queue, told, screen.width))


def _ms(text: str | None, option: str) -> int | None:
    return None if text is None else duration_ms(read_duration(text, option))


def _found(path: str) -> str:
    """As Spark finds it, which may run in another folder."""
    if "://" in path:
        return path
    if not os.path.isfile(path):
        raise ConfigError(f"--py-file: there is no file {path!r:.200}")
    return os.path.abspath(path)


def _look_at(target: str) -> None:
    """Tasks run on this machine and import what we can: what is wrong is said at once."""
    from chasquimq.spark.task.target import load

    here = os.getcwd()
    if sys.path[:1] not in ([here], [""]):
        sys.path.insert(0, here)
    load(target)


class Stop:
    """Signals, while Spark works: the first one asks it to stop, the second one makes it."""

    def __init__(self, worker: SparkWorker, spark: SparkSession) -> None:
        self.told = False
        self._worker = worker
        self._spark = spark
        self._again: int | None = None

    @contextmanager
    def heard(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._hear) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def wait_for(self, run: Callable[[], DataFrame]) -> DataFrame:
        """In a thread of its own: this one has to hear signals, and Spark would keep it busy."""
        ended: list[Any] = []

        def work() -> None:
            try:
                ended.append(run())
            except BaseException as error:
                ended.append(error)

        working, asked = threading.Thread(target=work, daemon=True), False
        working.start()
        while working.is_alive():
            working.join(0.1)
            if self.told and not asked and self._worker.stop():
                asked = True
                print("stopping: handlers may end (again to end them)", file=sys.stderr)
            if self._again is not None:
                self._spark.sparkContext.cancelAllJobs()
                raise typer.Exit(128 + self._again)
        if isinstance(ended[0], BaseException):
            raise ended[0]
        rows: DataFrame = ended[0]
        return rows

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.told:
            self._again = number
        self.told = True


@contextmanager
def _bar(queue: str, said: dict[str, str]) -> Iterator[None]:
    """How much of what is in the queue is done, while the block runs."""
    ended = threading.Event()
    watching = threading.Thread(target=_watch, args=(queue, said, ended), daemon=True)
    if sys.stderr.isatty():
        watching.start()
    try:
        yield
    finally:
        ended.set()
        if watching.ident is not None:
            watching.join()


def _watch(queue: str, said: dict[str, str], ended: threading.Event) -> None:
    from chasquimq.spark.client import Client
    from chasquimq.spark.secret import Where

    place = Where(
        url=said.get("url"), url_env=said.get("urlEnv"), secret_file=said.get("secretFile")
    )
    most = done = 0
    address = place.address_of(queue)
    with Client(address, patience_s=0) as client, Bar(f"work {queue}", 0, "jobs") as bar:
        while not ended.wait(LOOK_S):
            try:
                left = client.ask("XLEN", Keys(queue).stream)
            except StoreError:
                continue  # the workers say it, if it lasts
            most = max(most, left + done)
            done = max(done, most - left)
            bar.expect(most or 1)
            bar.reach(done)
