"""What the commands about dead jobs share: rows of view dlq, and what is done to some of them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chasquimq import wire
from chasquimq.cli import render_spark_dlq as render
from chasquimq.cli.ask import confirm, refuse
from chasquimq.cli.bar import Bar
from chasquimq.cli.near import near
from chasquimq.cli.screen import Screen
from chasquimq.cli.spark.fault import plainly
from chasquimq.cli.spark.place import check_queues
from chasquimq.cli.spark.start import progress, start, where
from chasquimq.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from chasquimq.spark.act.choice import Choice
    from chasquimq.spark.act.task import Verb

PATIENCE_S = 2.0  # with a server that is away

Cluster = Annotated[
    list[str] | None,
    typer.Option(
        "--cluster", metavar="ID", help="Those of this cluster, as triage shows it; repeatable."
    ),
]
Sql = Annotated[
    str | None,
    typer.Option(
        "--where", metavar="SQL", help="Those for which this holds, of the columns of view dlq."
    ),
]
All = Annotated[bool, typer.Option("--all", help="All that are dead now.")]


class Place:
    """The server, as Spark is led to it and as we ask it ourselves."""

    def __init__(self, redis_url: str | None, secret_file: str | None, master: str | None) -> None:
        self.options = where(redis_url, secret_file, master)
        self.master = master

    def dead(self, queues: Sequence[str]) -> tuple[dict[str, int], int]:
        """How many lie in each DLQ, and what time it is there."""
        dead: dict[str, int] = {}
        for name in queues:
            clock, dead[name] = self._ask(name, [("TIME",), ("XLEN", wire.Keys(name).dlq)])
        return dead, int(clock[0]) * 1000 + int(clock[1]) // 1000

    def left(self, queue: str) -> dict[str, int]:
        """What Redis has now."""
        keys = wire.Keys(queue)
        dead, jobs = self._ask(queue, [("XLEN", keys.dlq), ("XLEN", keys.stream)])
        return {"dead": dead, "in_queue": jobs}

    def rows(self, spark: SparkSession, queues: Sequence[str], *, payload: bool) -> DataFrame:
        """View dlq. Nothing is decoded that is not asked for."""
        from pyspark.sql.types import StringType, StructField, StructType

        from chasquimq.spark.schema import COLUMNS

        kinds = {name: kind or StringType() for name, kind in COLUMNS["dlq"].items()}
        if not payload:
            del kinds["payload"]
        schema = StructType([StructField(name, kind) for name, kind in kinds.items()])
        given = {**self.options, "queue": ",".join(queues), "view": "dlq"}
        return spark.read.format("chasqui").schema(schema).options(**given).load()

    def _ask(self, queue: str, commands: list[tuple[Any, ...]]) -> list[Any]:
        from chasquimq.spark.client import Client
        from chasquimq.spark.options import where_options
        from chasquimq.wire.fault import as_error

        address = where_options(self.options).address_of(queue)
        with Client(address, patience_s=PATIENCE_S) as client:
            replies = client.ask_each(commands)
        for command, reply in zip(commands, replies, strict=True):
            if isinstance(reply, Exception):
                raise as_error(reply, str(command[0]))
        return replies


def command(
    verb: Verb,
    queue: str,
    clusters: Sequence[str],
    sql: str | None,
    everything: bool,
    place: Place,
    *,
    rate: float | None,
    dry_run: bool,
    yes: bool,
    screen: Screen,
) -> None:
    """`replay` and `purge`: choose, ask, do, tell."""
    if everything == bool(clusters or sql):
        raise ConfigError(
            "which dead jobs? Give --cluster or --where, or --all; --all stands alone"
        )
    check_queues([queue])
    _check_rate(rate)
    counts, _ = place.dead([queue])
    if not counts[queue]:
        _tell(screen, place, verb, queue, 0, {}, dry_run)
        return
    spark = start(verb, place.master)
    with plainly():
        with progress(spark, f"reading the DLQ of {queue}"):
            chosen = _choose(spark, place, queue, clusters, sql)
        if len(chosen) and not dry_run:
            confirm(render.question(verb, len(chosen), queue), yes)
        totals = _carry_out(spark, place, verb, chosen, rate, dry_run)
    _tell(screen, place, verb, queue, len(chosen), totals, dry_run)


def _choose(
    spark: SparkSession, place: Place, queue: str, clusters: Sequence[str], sql: str | None
) -> Choice:
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as F

    from chasquimq.spark.act.choice import choose
    from chasquimq.spark.pipelines.cluster import clustered

    rows = clustered(place.rows(spark, [queue], payload="payload" in (sql or "").lower()))
    if clusters:
        known = {row.cluster: row["count"] for row in rows.groupBy("cluster").count().collect()}
        for name in clusters:
            if name not in known:
                most = sorted(known, key=lambda one: -known[one])
                refuse(f"no dead job of queue {queue} is of cluster '{name}'; {near(name, most)}")
        rows = rows.where(F.col("cluster").isin(*clusters))
    if sql is not None:
        try:
            rows = rows.where(sql)
        except (AnalysisException, ParseException) as error:
            names = ", ".join(rows.columns)
            what = " ".join(str(error).split("\n\n")[0].split())
            raise ConfigError(f"--where: {what[:300]}; columns: {names}, payload") from None
    return choose(rows)


def _carry_out(
    spark: SparkSession, place: Place, verb: Verb, chosen: Choice, rate: float | None, dry_run: bool
) -> dict[str, int]:
    from chasquimq.spark.act.dead import carry_out
    from chasquimq.spark.act.task import Order
    from chasquimq.spark.options import where_options

    order = Order(verb, where_options(place.options), uuid.uuid4().hex, rate, dry_run)
    with Bar("replaying" if verb == "replay" else "deleting", len(chosen), "jobs") as bar:
        done = carry_out(spark, chosen, order, bar.reach)
    return {**done.totals(), "noted": done.noted}


def _tell(
    screen: Screen,
    place: Place,
    verb: Verb,
    queue: str,
    chosen: int,
    totals: Mapping[str, int],
    dry_run: bool,
) -> None:
    left = place.left(queue)
    if screen.as_json:
        screen.json(render.ended_json(verb, queue, chosen, totals, left, dry_run))
        return
    for line in render.ended(verb, queue, chosen, totals, left, dry_run):
        screen.say(line)


def _check_rate(rate: float | None) -> None:
    from chasquimq.policy.pace import Pace

    Pace(rate, 1)
