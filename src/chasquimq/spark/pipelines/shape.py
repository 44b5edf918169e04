"""Rows of any kind -> rows that `format("chasqui")` takes, each of which becomes a job. Pure.

A parameter that names a column says so: `payload`, and those that end in `_column`. All others are
values, and the same for every row. So a misspelt column is refused, and never becomes a name.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import CharType, DateType, StringType, VarcharType

from chasquimq.config import MAX_MS, U32, check_within, nearest
from chasquimq.errors import ArgumentError, ConfigError
from chasquimq.job import BackoffSpec
from chasquimq.wire import check_name

_TEXTS = (StringType, CharType, VarcharType)
# What a column may be given as: files often have only texts, and calendars only dates.
_READ_FROM: dict[str, tuple[tuple[type, ...], str]] = {
    "delay_ms": (_TEXTS, "bigint"),
    "run_at": ((*_TEXTS, DateType), "timestamp"),
    "max_attempts": (_TEXTS, "bigint"),
}


def enqueue(
    rows: DataFrame,
    *,
    payload: str | Sequence[str] | None = None,
    name: str | None = None,
    name_column: str | None = None,
    id_column: str | None = None,
    delay_ms: int | None = None,
    delay_column: str | None = None,
    run_at: datetime | None = None,
    run_at_column: str | None = None,
    max_attempts: int | None = None,
    max_attempts_column: str | None = None,
    backoff: BackoffSpec | None = None,
    backoff_column: str | None = None,
) -> DataFrame:
    """One job for each row: `payload`, and what else was asked for of `name`, `id`, `delay_ms` or
    `run_at`, `max_attempts` and `backoff`.

    `payload`: one column as it is, or a list of those that make a struct; without it all that were
    not named otherwise do.
    """
    _refuse_two("delay_ms", delay_ms, "run_at", run_at)
    _refuse_two("delay_column", delay_column, "run_at_column", run_at_column)
    _refuse_two("delay_ms", delay_ms, "run_at_column", run_at_column)
    _refuse_two("run_at", run_at, "delay_column", delay_column)
    columns = {"id": id_column} | {
        made: _either(parameter, value, named)
        for made, parameter, value, named in (
            ("name", "name", name, name_column),
            ("delay_ms", "delay", delay_ms, delay_column),
            ("run_at", "run_at", run_at, run_at_column),
            ("max_attempts", "max_attempts", max_attempts, max_attempts_column),
            ("backoff", "backoff", backoff, backoff_column),
        )
    }
    found = {made: _found(rows, given) for made, given in columns.items() if given is not None}
    values = _values(name, delay_ms, run_at, max_attempts, backoff)
    data = _payload(rows, payload, {*found.values()})
    named = {made: _read(rows, made, column) for made, column in found.items()}
    jobs = {"payload": data, **named, **values}
    order = ("payload", "name", "id", "delay_ms", "run_at", "max_attempts", "backoff")
    return rows.select(*[jobs[made].alias(made) for made in order if made in jobs])


# -- columns ---------------------------------------------------------------------------------------


def _found(rows: DataFrame, named: str) -> str:
    """The column of this name, as the rows have it; names know no case, as everywhere in Spark."""
    if not isinstance(named, str):
        raise ArgumentError(f"a column is given by its name, got {named!r:.80}")
    alike = [one for one in rows.columns if one == named] or [
        one for one in rows.columns if one.lower() == named.lower()
    ]
    if not alike:
        spelt = {one.lower(): one for one in rows.columns}
        hint = nearest(named.lower(), [*spelt])
        near = next((spelt[one] for one in spelt if hint == f"did you mean {one!r}?"), None)
        known = f"known: {', '.join(rows.columns)}" if near is None else f"did you mean {near!r}?"
        raise ConfigError(f"there is no column {named!r:.80}; {known}")
    if len(alike) > 1:
        raise ConfigError(f"there are {len(alike)} columns {named!r:.80}; rename one")
    return alike[0]


def _column(named: str) -> Column:
    """Whatever the name holds: a dot would lead into a struct."""
    return F.col("`" + named.replace("`", "``") + "`")


def _read(rows: DataFrame, made: str, named: str) -> Column:
    kinds, read_as = _READ_FROM.get(made, ((), ""))
    column = _column(named)
    return column.cast(read_as) if isinstance(rows.schema[named].dataType, kinds) else column


def _payload(rows: DataFrame, payload: str | Sequence[str] | None, used: set[str]) -> Column:
    if isinstance(payload, str):
        return _column(_found(rows, payload))
    wanted = [one for one in rows.columns if one not in used] if payload is None else payload
    fields = [_found(rows, one) for one in wanted]
    if not fields:
        raise ConfigError(
            f"no column is left for the payload: {', '.join(rows.columns)} say other things of the "
            "job; name those that belong to its data, too, by payload=[...]"
        )
    return F.struct(*[_column(one).alias(one) for one in fields])


# -- values ----------------------------------------------------------------------------------------


def _values(
    name: str | None,
    delay_ms: int | None,
    run_at: datetime | None,
    max_attempts: int | None,
    backoff: BackoffSpec | None,
) -> dict[str, Column]:
    made: dict[str, Column] = {}
    if name is not None:
        check_name(name)
        made["name"] = F.lit(name)
    if delay_ms is not None:
        made["delay_ms"] = F.lit(check_within("delay_ms", delay_ms, 0, MAX_MS)).cast("bigint")
    if run_at is not None:
        if not isinstance(run_at, datetime) or run_at.tzinfo is None:
            raise ArgumentError(f"run_at is a datetime with a time zone, got {run_at!r:.80}")
        made["run_at"] = F.lit(run_at)
    if max_attempts is not None:
        made["max_attempts"] = F.lit(check_within("max_attempts", max_attempts, 1, U32))
    if backoff is not None:
        made["backoff"] = _struct(backoff)
    return made


def _struct(backoff: BackoffSpec) -> Column:
    if not isinstance(backoff, BackoffSpec):
        raise ArgumentError(f"backoff is a BackoffSpec, got {backoff!r:.80}")
    said = {name: getattr(backoff, name) for name in backoff.__struct_fields__}
    return F.struct(*[F.lit(one).alias(name) for name, one in said.items() if one is not None])


def _either(name: str, value: object, named: str | None) -> str | None:
    _refuse_two("delay_ms" if name == "delay" else name, value, f"{name}_column", named)
    return named


def _refuse_two(first: str, one: object, second: str, other: object) -> None:
    if one is not None and other is not None:
        raise ConfigError(f"give {first} or {second}, not both")
