"""`chasqui spark compact`: fewer and larger files in the lake, and none that are too old."""

from __future__ import annotations

from typing import Annotated

import typer

from chasquimq.cli import render_lake as render
from chasquimq.cli.moment import duration_ms, read_duration
from chasquimq.cli.screen import Screen
from chasquimq.cli.shell import AsJson, examples
from chasquimq.cli.spark.fault import plainly
from chasquimq.cli.spark.place import Lake, the_lake
from chasquimq.cli.spark.start import Master, progress, start

EXAMPLES = examples(
    "chasqui spark compact --lake /data/lake",
    "chasqui spark compact --lake /data/lake --keep-days 90",
)


def compact(
    lake: Lake = None,
    least: Annotated[
        int, typer.Option(min=2, help="How many folders a day must have to be worth it.")
    ] = 8,
    grace: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="How long who reads meanwhile may go on to read old files."
        ),
    ] = "1h",
    keep_days: Annotated[
        int | None,
        typer.Option(min=1, help="Remove days that are older; else nothing is removed."),
    ] = None,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Put small files of the lake together, and remove what has had its time.

    Safe beside those who read and write the lake. Files that were put together stay for --grace,
    and are removed by the next run after it.
    """
    place = the_lake(lake, master)
    grace_ms = duration_ms(read_duration(grace, "--grace"))
    screen = Screen(as_json=as_json)
    with plainly():
        spark = start("compact", master)
        from chasquimq.spark.lake import compact as work

        options = work.CompactOptions(least=least, grace_ms=grace_ms, keep_days=keep_days)
        with progress(spark, "putting files together"):
            done = work.compact(spark, place, options)
    if as_json:
        screen.json({"lake": place, **done._asdict()})
    else:
        screen.say(render.compacted(done._asdict()))
