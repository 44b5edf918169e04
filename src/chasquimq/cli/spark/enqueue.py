"""`chasqui spark enqueue`: files, tables and queries become jobs, each row exactly once."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chasquimq.cli import render_enqueue as render
from chasquimq.cli.moment import duration_ms, read_duration
from chasquimq.cli.screen import Screen
from chasquimq.cli.shell import AsJson, QueueName, RedisUrl, examples
from chasquimq.cli.spark.fault import plainly
from chasquimq.cli.spark.rows import Watch
from chasquimq.cli.spark.start import Master, SecretFile, start, where
from chasquimq.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from chasquimq.cli.spark.plan import Sink
    from chasquimq.spark.load import Source
    from chasquimq.spark.options import SinkOptions

SHOWN_ROWS = 5
PASSWORD_VARIABLE = "CHASQUI_JDBC_PASSWORD"  # noqa: S105  # not a secret: the name of one
EXAMPLES = examples(
    "chasqui spark enqueue mail users.parquet --name welcome   a job for each row",
    "chasqui spark enqueue mail users.csv --dry-run   what would be written",
    "chasqui spark enqueue mail users.csv --id-column user   no user twice",
    "chasqui spark enqueue mail '/exports/*.jsonl' --rate 200 --run-id monday",
    'chasqui spark enqueue mail o.csv --query "SELECT * FROM source WHERE paid"',
    "chasqui spark enqueue mail --table shop.orders --name-column kind",
)


def enqueue(
    queue: QueueName,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE",
            help="Files, a folder or a pattern of them, as Spark reads them.",
            show_default=False,
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="parquet, csv, json, jsonl, orc, text; or table, query: then SOURCE is one. "
            "Else the ending says it.",
            show_default=False,
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="An option of Spark's reader, as in sep=; or multiLine=true.",
            show_default=False,
        ),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="DDL",
            help="Types of the columns, as in 'id STRING, total DOUBLE', instead of guesses.",
            show_default=False,
        ),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(
            metavar="SQL",
            help="Rows of a query; SOURCE, if given, is its table `source`.",
            show_default=False,
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="Rows of a table.", show_default=False),
    ] = None,
    jdbc_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="--table or --query of this database. Its password: "
            f"${PASSWORD_VARIABLE}, or --jdbc-password-file.",
            show_default=False,
        ),
    ] = None,
    jdbc_password_file: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="A file with that password.", show_default=False),
    ] = None,
    where_sql: Annotated[
        str | None,
        typer.Option("--where", metavar="SQL", help="Only these rows.", show_default=False),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="No more than so many.", show_default=False),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The name of all jobs.", show_default=False),
    ] = None,
    name_column: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="... or the column with it.", show_default=False),
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Its value is the job's id, and each comes in once, in whatever run.",
            show_default=False,
        ),
    ] = None,
    payload_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="The job's data, as this column has it.", show_default=False
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="A column of the job's data; else all that are not named otherwise.",
            show_default=False,
        ),
    ] = None,
    payload_format: Annotated[
        str,
        typer.Option(
            metavar="FORMAT", help="What --payload-column holds: value, json (text) or binary."
        ),
    ] = "value",
    delay: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Run so much later.", show_default=False),
    ] = None,
    run_at_column: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="... or when this column says.", show_default=False),
    ] = None,
    attempts: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Runs of a job at most.", show_default=False),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(metavar="N", help="Rows per second at most, in all.", show_default=False),
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="The name of this write; run again, it adds what is missing."
        ),
    ] = None,
    commit: Annotated[
        str | None,
        typer.Option(
            metavar="MODE",
            help="direct: rows come in as they are read; staged: all of them, at the end.",
            show_default=False,
        ),
    ] = None,
    remember: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="How long the server knows the run and its ids; more than the write takes.",
        ),
    ] = "1d",
    max_stream_len: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="How full the queue may get.", show_default=False),
    ] = None,
    on_full: Annotated[
        str, typer.Option(metavar="WHAT", help="When it is: wait, or fail.")
    ] = "wait",
    timeout: Annotated[
        str, typer.Option(metavar="DURATION", help="How long to wait for room.")
    ] = "10m",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be written.")
    ] = False,
    master: Master = None,
    redis_url: RedisUrl = None,
    secret_file: SecretFile = None,
    as_json: AsJson = False,
) -> None:
    """Add a job for each row of files, of a table or of a query, each exactly once.

    A row becomes the job's data, with its columns as keys. What was interrupted goes on by the same
    command with --run-id: nothing comes in twice. CSV files have a header, their types are guessed;
    a row that does not fit ends the command, and is named.
    """
    from chasquimq.cli.spark.plan import Job, plan, sink, source_of

    job = Job(
        name=name,
        name_column=name_column,
        id_column=id_column,
        payload_column=payload_column,
        columns=column or [],
        delay_ms=None if delay is None else duration_ms(read_duration(delay, "--delay")),
        run_at_column=run_at_column,
        attempts=attempts,
    )
    run_id = run_id or f"enqueue-{uuid.uuid4().hex[:12]}"
    read_from = source_of(
        *(source, form, option or [], schema, table, query, jdbc_url, jdbc_password_file, master)
    )
    options = sink(
        where(redis_url, secret_file, master),
        queue=queue,
        runId=run_id,
        commitMode=commit or ("staged" if limit is not None and id_column is None else None),
        idColumn=None if id_column is None else "id",
        payloadFormat=payload_format,
        rowsPerSecond=rate,
        markerTtlMs=duration_ms(read_duration(remember, "--remember")),
        maxStreamLen=max_stream_len,
        onFull=on_full,
        waitTimeoutMs=duration_ms(read_duration(timeout, "--timeout")),
    )
    screen = Screen(as_json=as_json)
    watch = None if dry_run else Watch(options.read)  # before Spark is started, which takes long
    with plainly():
        spark = start(f"enqueue {queue}", master)
        rows = plan(spark, read_from, job, where_sql, limit, options.read)
        if watch is None:
            _show(screen, queue, rows)
            return
        watch.total = _total(rows, read_from, where_sql, limit)
        _check_time(watch.total, options.read)
    with plainly(watch.stand):
        told = _write(rows, options, watch)
    if as_json:
        screen.json(told)
    else:
        for line in render.written(told):
            screen.say(line)


def _total(rows: DataFrame, source: Source, where_sql: str | None, limit: int | None) -> int | None:
    """How many there are, where that is known without reading them."""
    from chasquimq.spark.load import is_counted_quickly

    if where_sql is not None or limit is not None or not is_counted_quickly(source):
        return None
    return rows.count()


def _check_time(total: int | None, options: SinkOptions) -> None:
    if total is None or options.rows_per_second is None:
        return
    takes_ms = int(total / options.rows_per_second * 1000)
    if takes_ms > options.marker_ttl_ms:
        raise ConfigError(render.too_slow(total, takes_ms, options.marker_ttl_ms))


def _write(rows: DataFrame, options: Sink, watch: Watch) -> dict[str, Any]:
    """The write itself; what became of it is told by Redis."""
    began = time.monotonic()
    with watch:
        rows.write.format("chasqui").options(**options.given).mode("append").save()
    seconds = time.monotonic() - began
    now = watch.look()
    added = now.rows - watch.before.rows
    return {
        "queue": options.read.queue,
        "run": options.read.run_id,
        "rows": now.rows,
        "added": added,
        "skipped": now.skipped,
        "seconds": round(seconds, 3),
        "rows_per_second": round(added / seconds, 1) if seconds else 0.0,
        "was_done": watch.before.state == "done",
    }


def _show(screen: Screen, queue: str, rows: DataFrame) -> None:
    from chasquimq.cli.spark.plan import as_texts

    columns = [(field.name, field.dataType.simpleString()) for field in rows.schema.fields]
    first = as_texts(rows, SHOWN_ROWS)
    count = rows.count()
    if screen.as_json:
        told = {"queue": queue, "columns": dict(columns), "rows": count, "first": first}
        screen.json({**told, "dry_run": True})
    else:
        screen.show(render.columns(queue, columns), render.first(first, columns, count))
