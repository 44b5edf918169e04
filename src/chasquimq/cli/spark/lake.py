"""`chasqui spark lake`: bring the events and the dead jobs of queues into the lake."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chasquimq.cli import render_lake as render
from chasquimq.cli.moment import duration_ms, read_duration
from chasquimq.cli.screen import Screen
from chasquimq.cli.shell import AsJson, RedisUrl, examples
from chasquimq.cli.spark.fault import plainly, told
from chasquimq.cli.spark.place import Lake, Queues, check_queues, the_lake
from chasquimq.cli.spark.start import Master, SecretFile, progress, reach, start, where
from chasquimq.errors import ConfigError
from chasquimq.text import shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

EVERY = "10s"
LOOK_S = 0.5
EXAMPLES = examples(
    "chasqui spark lake mail --lake /data/lake --available-now    once, for cron",
    "chasqui spark lake mail orders --lake /data/lake             until stopped",
    "chasqui spark lake mail --lake hdfs://data/lake --secret-file /run/redis",
)

AvailableNow = Annotated[
    bool, typer.Option("--available-now", help="Bring in what is there now, and end.")
]
Every = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help=f"How often; default: {EVERY}.", show_default=False),
]
AllowLoss = Annotated[
    bool,
    typer.Option("--allow-loss", help="Go on though events were trimmed before they were read."),
]
EventsCap = Annotated[
    int,
    typer.Option(min=1, help="How many events the workers keep, to warn when it gets close."),
]


def lake(
    queues: Queues,
    lake: Lake = None,
    available_now: AvailableNow = False,
    every: Every = None,
    dlq: Annotated[
        bool, typer.Option("--dlq/--no-dlq", help="Dead jobs, too, with their data.")
    ] = True,
    allow_loss: AllowLoss = False,
    events_cap: EventsCap = 100_000,
    master: Master = None,
    secret_file: SecretFile = None,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Bring the events and the dead jobs of queues into a lake of Parquet files, each once.

    It goes on where it was, whenever and however it was stopped. Ctrl-C or SIGTERM ends it with
    exit code 0. Events that were trimmed before they could be read end it with exit code 1, unless
    --allow-loss.
    """
    check_queues(queues)
    place, pause_ms = the_lake(lake, master), read_every(every, available_now)
    screen = Screen(as_json=as_json)
    options = reached(queues, where(redis_url, secret_file, master), allow_loss)
    with plainly():
        spark = start("lake", master)
        running = tables(spark, place, options, pause_ms, dlq=dlq)
        with progress(spark, "bringing events in") if available_now else _nothing():
            counted = follow(screen, running, events_cap)
    if as_json:
        screen.json({"lake": place, "queues": queues, "rows": counted})
    else:
        screen.say(render.brought_in(place, counted))


def reached(queues: Sequence[str], where: Mapping[str, str], allow_loss: bool) -> dict[str, str]:
    """Options of the queries; raises, if a server cannot be reached."""
    for queue in queues:
        reach(where, queue)
    loss = {"failOnDataLoss": str(not allow_loss).lower()}
    return {**where, "queue": ",".join(queues), **loss}


def tables(
    spark: SparkSession,
    lake: str,
    options: Mapping[str, str],
    every_ms: int | None,
    *,
    dlq: bool,
) -> dict[str, StreamingQuery]:
    """The queries that bring them in, started."""
    from chasquimq.spark.lake.keep import keep

    names = ("events", "dlq") if dlq else ("events",)
    return {name: keep(spark, lake, options, name, every_ms=every_ms) for name in names}


def read_every(every: str | None, available_now: bool) -> int | None:
    """How often, in ms; None: once."""
    if available_now and every is not None:
        raise ConfigError("give --available-now or --every, not both")
    return None if available_now else duration_ms(read_duration(every or EVERY, "--every"))


def follow(
    screen: Screen,
    running: Mapping[str, StreamingQuery],
    events_cap: int,
    meanwhile: Callable[[threading.Event], None] = lambda _: None,
) -> dict[str, int]:
    """Until all have ended, or one has failed, or we are told to stop. Answers how many rows came
    in."""
    from chasquimq.spark.lake import lag

    counted = dict.fromkeys(running, 0)
    heard: dict[str, int] = {}  # the last batch of each that was looked at
    with stopped() as stop:
        while not stop.is_set() and any(query.isActive for query in running.values()):
            stop.wait(LOOK_S)
            for table, query in running.items():
                for batch in _new(query, heard, table):
                    counted[table] += batch["numInputRows"]
                    for warning in lag.warnings(lag.unread(batch), events_cap):
                        print(f"chasqui: {shown(warning)}", file=sys.stderr)
                    if batch["numInputRows"] and not screen.as_json and screen.is_terminal:
                        screen.say(render.batch(table, batch))
            if any(query.exception() for query in running.values()):
                break
            meanwhile(stop)
    for query in running.values():
        query.stop()
    for query in running.values():
        if (error := query.exception()) and not stop.is_set():
            words, code = told(str(error))
            print(f"chasqui: {words}", file=sys.stderr)
            raise typer.Exit(code)
    return counted


def _new(query: StreamingQuery, heard: dict[str, int], table: str) -> Iterator[dict[str, Any]]:
    """Batches that have ended since the last look."""
    for one in query.recentProgress:
        batch: dict[str, Any] = json.loads(one.json)
        if batch["batchId"] > heard.get(table, -1):
            heard[table] = batch["batchId"]
            yield batch


@contextmanager
def stopped() -> Iterator[threading.Event]:
    """Set when somebody wants us to end: Ctrl-C or SIGTERM."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _nothing() -> Iterator[None]:
    yield
