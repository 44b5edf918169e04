"""Which lake, and what of it: options of the commands that read or write one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chasquimq import wire
from chasquimq.cli.moment import read_time
from chasquimq.cli.screen import Screen
from chasquimq.cli.spark.start import is_local
from chasquimq.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LAKE_VARIABLE = "CHASQUI_LAKE"
LOOK_BACK = timedelta(days=1)

Lake = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help=f"The lake's folder: on this machine, or on HDFS (hdfs://...); else ${LAKE_VARIABLE}.",
        show_default=False,
    ),
]
Queues = Annotated[
    list[str],
    typer.Argument(metavar="QUEUE...", help="Names of queues.", show_default=False),
]
OfQueues = Annotated[
    list[str] | None,
    typer.Argument(metavar="[QUEUE]...", help="Only these queues.", show_default=False),
]
Since = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="From then on: so long ago (2h, 7d), or a moment (2026-11-16T09:00Z).",
        show_default=False,
    ),
]
Until = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Before then; else up to now.", show_default=False),
]
Out = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="Write all rows there, as Parquet.", show_default=False),
]
Limit = Annotated[int, typer.Option(min=1, help="How many rows to show.")]


def the_lake(given: str | None, master: str | None) -> str:
    from chasquimq.spark.lake.layout import check_atomic

    lake = given or os.environ.get(LAKE_VARIABLE)
    if not lake:
        raise ConfigError(f"which lake? Give its folder by --lake, or set ${LAKE_VARIABLE}")
    check_atomic(lake)
    return the_path(lake, master)


def the_path(given: str, master: str | None) -> str:
    """What a path means that names no file system: on this machine it is below this folder, which
    Java may not be in; elsewhere it is what the cluster says."""
    if "://" in given or given.startswith("file:") or not is_local(master):
        return given
    return os.path.abspath(given)


def check_queues(queues: Sequence[str] | None) -> None:
    for name in queues or ():
        wire.check_stored_queue_name(name)
        if "," in name:  # which the source takes for two
            raise ConfigError(f"a name of one queue, got '{name}'; give several with blanks")


def moment(text: str | None, option: str) -> datetime | None:
    """So long ago, or then."""
    if text is None:
        return None
    told = read_time(text, option)
    return _now() - told if isinstance(told, timedelta) else told


def events(
    spark: SparkSession,
    lake: str,
    queues: list[str] | None,
    since: datetime | None = None,
    until: datetime | None = None,
    table: str = "events",
) -> DataFrame:
    """What the lake has of them; ConfigError where there is no lake."""
    from chasquimq.spark.lake.files import Files
    from chasquimq.spark.lake.table import read

    if not Files(spark, lake).folders(""):
        raise ConfigError(
            f"there is no lake in {lake}; bring events in by: chasqui spark lake QUEUE --lake ..."
        )
    return read(spark, lake, table, queues=queues or None, since=since, until=until)


def before(since: datetime | None) -> datetime | None:
    """Where to begin to read: what made a run due may have been told long before it began."""
    return None if since is None else since - LOOK_BACK


def collected(frame: DataFrame) -> Iterator[dict[str, Any]]:
    """Rows, one after another."""
    from chasquimq.spark.row import plain

    return map(plain, frame.toLocalIterator())


def say_written(screen: Screen, out: str) -> None:
    if screen.as_json:
        screen.json({"out": out})
    else:
        screen.say(f"written to {out}")


def _now() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)
