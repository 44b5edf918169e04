"""`chasqui spark triage`: what do dead jobs die of?"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chasquimq.cli import render_spark_dlq as render
from chasquimq.cli.ask import refuse
from chasquimq.cli.moment import moment_ms, read_time
from chasquimq.cli.near import near
from chasquimq.cli.screen import Screen
from chasquimq.cli.shell import AsJson, RedisUrl, examples
from chasquimq.cli.spark.dead import Place
from chasquimq.cli.spark.fault import plainly
from chasquimq.cli.spark.place import check_queues
from chasquimq.cli.spark.start import Master, SecretFile, progress, start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EXAMPLES = examples(
    "chasqui spark triage mail                    the largest clusters first",
    "chasqui spark triage mail orders --since 2d  of two queues, of late",
    "chasqui spark triage mail --full --limit 3   one by one, with data",
    "chasqui spark triage mail --redact '(?i)token|email'",
    "chasqui spark triage mail --json | jq -r '.clusters[].cluster'",
)


def triage(
    queues: Annotated[list[str], typer.Argument(metavar="QUEUE...", help="Names of queues.")],
    limit: Annotated[int, typer.Option(min=1, help="How many clusters, the largest first.")] = 20,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Died no longer ago than that, or not before that time."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Only jobs of this name.")] = None,
    reason: Annotated[str | None, typer.Option(help="Only jobs that lie there for this.")] = None,
    full: Annotated[
        bool, typer.Option("--full", help="One by one, with the example's data.")
    ] = False,
    redact: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN",
            help="Values of keys in which this is found are hidden; default: what sounds secret.",
            show_default=False,
        ),
    ] = None,
    master: Master = None,
    secret_file: SecretFile = None,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Cluster dead jobs by reason, exception and what their errors have in common.

    Numbers, ids, paths and quoted texts of errors are masked, so that errors of a kind are one.
    Nothing is changed. A cluster's id is what replay and purge take.
    """
    check_queues(queues)
    when = None if since is None else read_time(since, "--since")
    from chasquimq.spark.pipelines.mask import DEFAULT_PATTERN, Redaction

    pattern = DEFAULT_PATTERN if redact is None else redact
    Redaction(pattern)
    screen = Screen(as_json=as_json)
    place = Place(redis_url, secret_file, master)
    dead, now_ms = place.dead(queues)
    found: list[dict[str, Any]] = []
    if any(dead.values()):
        since_ms = None
        if when is not None:
            since_ms = moment_ms(-when if isinstance(when, timedelta) else when, now_ms)
        found = _clusters(place, queues, since_ms, name, reason, pattern)
    if as_json:
        meant = sum(one["jobs"] for one in found)
        told = {"queues": queues, "dead": dead, "jobs": meant, "clusters": found[:limit]}
        screen.json(told)
    elif full and found:
        screen.show(*(render.full(one, now_ms) for one in found[:limit]))
    else:
        screen.show(render.clusters(queues, found, limit, dead, now_ms, screen.width))


def _clusters(
    place: Place,
    queues: list[str],
    since_ms: int | None,
    name: str | None,
    reason: str | None,
    pattern: str,
) -> list[dict[str, Any]]:
    from pyspark.sql import functions as F

    from chasquimq.spark.pipelines.cluster import triage as cluster

    spark = start("triage", place.master)
    with plainly(), progress(spark, "reading the DLQ"):
        rows = place.rows(spark, queues, payload=True)
        meant = rows
        if since_ms is not None:
            meant = meant.where(F.unix_millis("failed_at") >= since_ms)
        for column, word in (("name", name), ("reason", reason)):
            if word is not None:
                meant = meant.where(F.coalesce(column, F.lit("")) == word)
        told = cluster(meant, redact=pattern)
        for seen in ("first_seen", "last_seen"):
            told = told.withColumn(f"{seen}_ms", F.unix_millis(seen)).drop(seen)
        found = [row.asDict() for row in told.collect()]
        if not found:
            _hint(rows, {"name": name, "reason": reason})
    return found


def _hint(rows: DataFrame, words: dict[str, str | None]) -> None:
    """Nobody was meant: say which names or reasons there are, if it is a word that nobody has."""
    for column, word in words.items():
        if word is not None:
            known = [row[0] or "" for row in rows.select(column).distinct().collect()]
            if word not in known:
                refuse(f"no dead job has the {column} '{word}'; {near(word, sorted(known))}")
