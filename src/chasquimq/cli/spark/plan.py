"""What `chasqui spark enqueue` was told, as rows that would be written."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from chasquimq.address import Secret
from chasquimq.cli.spark.enqueue import PASSWORD_VARIABLE
from chasquimq.cli.spark.start import is_local
from chasquimq.config import one_of
from chasquimq.errors import ConfigError
from chasquimq.spark import pipelines
from chasquimq.spark.load import Form, Source, load
from chasquimq.spark.options import SinkOptions, sink_options
from chasquimq.spark.secret import read_file
from chasquimq.spark.write.check import layout


class Job(NamedTuple):
    """What makes a job of a row."""

    name: str | None
    name_column: str | None
    id_column: str | None
    payload_column: str | None
    columns: Sequence[str]
    delay_ms: int | None
    run_at_column: str | None
    attempts: int | None


class Sink(NamedTuple):
    """Options, as Spark takes them and as we do."""

    given: dict[str, str]
    read: SinkOptions


def sink(place: Mapping[str, str], **said: Any) -> Sink:
    """ConfigError for what makes no sense, before Spark is started."""
    if said["idColumn"] is not None and said["commitMode"] is not None:
        raise ConfigError("--id-column tells rows apart by itself: leave out --commit")
    if said["commitMode"] is not None:
        one_of("--commit", said["commitMode"], ("direct", "staged"))
    one_of("--on-full", said["onFull"], ("wait", "fail"))
    one_of("--payload-format", said["payloadFormat"], ("value", "json", "binary"))
    given = {**place, **{key: str(value) for key, value in said.items() if value is not None}}
    return Sink(given, sink_options(given))


def source_of(
    place: str | None,
    form: str | None,
    options: Sequence[str],
    schema: str | None,
    table: str | None,
    query: str | None,
    jdbc: str | None,
    password_file: str | None,
    master: str | None,
) -> Source:
    password = os.environ.get(PASSWORD_VARIABLE) if password_file is None else None
    if password_file is not None:
        password = read_file(os.path.abspath(password_file), "--jdbc-password-file")
    if jdbc is not None and password is not None and (master or "").startswith("sc://"):
        raise ConfigError(
            "a database's password would stand in the log of the Spark Connect server; run this "
            "by spark-submit"
        )
    if place is not None and form not in ("table", "query") and is_local(master):
        # Spark's Java has a working directory of its own.
        place = place if ":" in place else os.path.abspath(place)
    return Source(
        place=place,
        form=cast("Form | None", form),
        schema=schema,
        table=table,
        query=query,
        jdbc=jdbc,
        password=Secret(password) if password and jdbc is not None else None,
        options=dict(map(_pair, options)),
    )


def plan(
    spark: SparkSession,
    source: Source,
    job: Job,
    where_sql: str | None,
    limit: int | None,
    options: SinkOptions,
) -> DataFrame:
    """The rows as they would be written."""
    rows = load(spark, source)
    if where_sql is not None:
        rows = rows.where(where_sql)
    if limit is not None:
        rows = rows.limit(limit)
    jobs = pipelines.enqueue(
        rows,
        payload=_payload(source, job),
        name=job.name,
        name_column=job.name_column,
        id_column=job.id_column,
        delay_ms=job.delay_ms,
        run_at_column=job.run_at_column,
        max_attempts=job.attempts,
    )
    layout(jobs.schema, options)
    return jobs


def _payload(source: Source, job: Job) -> str | Sequence[str] | None:
    if job.payload_column is not None and job.columns:
        raise ConfigError("give --payload-column or --column, not both")
    if job.payload_column is None and not job.columns and source.place is not None:
        # A line of a text is a text, not something that has a value.
        return "value" if source.kind == "text" and source.query is None else None
    return job.payload_column or job.columns or None


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--option is KEY=VALUE, got {text[:80]!r}")
    return key.strip(), value


def as_texts(rows: DataFrame, most: int) -> list[dict[str, str | None]]:
    """The first rows, for people."""
    shown = [
        F.to_json(F.col(field.name)).alias(field.name)
        if isinstance(field.dataType, StructType)
        else F.col(field.name).cast("string").alias(field.name)
        for field in rows.schema.fields
    ]
    return [row.asDict() for row in rows.select(*shown).take(most)]
