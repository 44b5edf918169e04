"""`chasqui worker`: run Workers in processes that are kept alive."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from chasquimq.address import DEFAULT_URL
from chasquimq.cli.crew.message import Orders
from chasquimq.cli.shell import RedisUrl, examples, the_dialect, the_url

EXAMPLES = examples(
    "chasqui worker app.tasks:worker              one process",
    "chasqui worker app.tasks:worker --processes 4 --metrics :9400",
    "chasqui worker app.tasks:workers --burst     run the queues dry, and end",
    "chasqui worker app.tasks:make --reload       again when a file changes",
)


class LogFormat(StrEnum):
    text = "text"
    json = "json"


class LogLevel(StrEnum):
    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"
    critical = "critical"


Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="package.module:name of a Worker, of a list of them, or of a function without "
        "arguments that returns them. The current folder is looked at first.",
    ),
]
Level = Annotated[LogLevel, typer.Option(help="The least important lines to write.")]


def worker(
    target: Target,
    processes: Annotated[int, typer.Option(min=1, max=1024, help="How many processes.")] = 1,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, help="Handlers at a time, per Worker and process. Default: its own."),
    ] = None,
    burst: Annotated[bool, typer.Option("--burst", help="End when the queues are empty.")] = False,
    max_jobs: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Replace a process after so many runs of jobs."),
    ] = None,
    max_memory: Annotated[
        int | None,
        typer.Option(min=1, metavar="MB", help="Replace a process that is larger than this."),
    ] = None,
    drain: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="SECONDS", help="How long a stop waits for handlers. Default: 25."
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST]:PORT",
            help="Serve /metrics, /livez, /readyz and /health there: :9400 on all interfaces, "
            "127.0.0.1:9400 on one.",
        ),
    ] = None,
    reload: Annotated[
        bool,
        typer.Option(
            "--reload", help="Start again when a Python file changes, and log every run of a job."
        ),
    ] = False,
    reload_dir: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="Watch this folder, too; may be given several times. Implies --reload.",
        ),
    ] = None,
    log_level: Level = LogLevel.info,
    log_format: Annotated[
        LogFormat, typer.Option(help="Lines for people, or a JSON object per line.")
    ] = LogFormat.text,
    uvloop: Annotated[
        bool, typer.Option("--uvloop/--no-uvloop", help="Use uvloop where it is installed.")
    ] = True,
    redis_url: RedisUrl = None,
) -> None:
    """Run Workers, in processes that are kept alive.

    A process that crashes is started again, after a wait that doubles from 0.5 to 30 seconds. The
    first SIGTERM or SIGINT lets handlers end, the second gives their jobs back at once; SIGHUP
    replaces the processes one after another.

    Exit codes: 0 stopped as told, or all is done; 1 a process failed for good, or did not end
    cleanly; 2 the command line, the target or a setting is wrong; 3 the server cannot be reached
    (--burst) or does not let us in; 130 and 143 stopped by a second signal.
    """
    from chasquimq.cli.crew.run import Wish, run_crew

    url = the_url(redis_url)
    orders = Orders(
        target=target,
        processes=processes,
        redis_url=None if url == DEFAULT_URL else url,
        dialect=the_dialect(),
        concurrency=concurrency,
        drain_ms=None if drain is None else int(drain * 1000),
        burst=burst,
        max_jobs=max_jobs,
        max_bytes=None if max_memory is None else max_memory * 2**20,
        metrics=metrics is not None,
        log_runs=reload or bool(reload_dir),
        uvloop=uvloop,
        log_format=log_format.value,
        log_level=log_level.value,
    )
    folders = [str(path.absolute()) for path in reload_dir or ()]
    raise typer.Exit(run_crew(Wish(orders, folders if reload or folders else None, metrics)))
