"""Which column is what, known when a write is planned: what cannot go well is refused then. Pure.

    payload                 any type that MessagePack has a form for; the one that must be there
    name                    string
    id                      string or a whole number; or the column that `idColumn` names
    delay_ms | run_at       a whole number | timestamp
    max_attempts            a whole number
    backoff                 struct of kind, delay_ms [, max_delay_ms, multiplier, jitter_ms]

Names know no case, as everywhere in Spark. A column that is none of these is refused: a misspelt
delay_ms would run jobs at once, and what belongs to the job belongs into its payload.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    FractionalType,
    IntegralType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
    UserDefinedType,
    VarcharType,
    VariantType,
)

from chasquimq.config import nearest
from chasquimq.errors import ConfigError
from chasquimq.spark.options import SinkOptions
from chasquimq.wire.scan import MAX_DEPTH

COLUMNS = ("payload", "name", "id", "delay_ms", "run_at", "max_attempts", "backoff")
BACKOFF = ("kind", "delay_ms", "max_delay_ms", "multiplier", "jitter_ms")

_TEXTS = (StringType, CharType, VarcharType)
_SCALARS = (
    *(NullType, BooleanType, IntegralType, FractionalType, *_TEXTS, BinaryType),
    *(DateType, TimeType, TimestampType, TimestampNTZType),
)
_FITTING: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    "name": (_TEXTS, "string"),
    "id": ((*_TEXTS, IntegralType), "string or a whole number"),
    "delay_ms": ((IntegralType,), "a whole number"),
    "run_at": ((TimestampType,), "timestamp"),
    "max_attempts": ((IntegralType,), "a whole number"),
    "backoff": ((StructType,), "a struct"),
    "kind": (_TEXTS, "string"),
    "max_delay_ms": ((IntegralType,), "a whole number"),
    "multiplier": ((FractionalType, IntegralType), "a number"),
    "jitter_ms": ((IntegralType,), "a whole number"),
}


@dataclass(frozen=True)
class Layout:
    """Where the columns are, and of what types; `names` are as the caller wrote them."""

    places: dict[str, int]
    types: dict[str, DataType]
    names: dict[str, str]


def layout(schema: StructType, options: SinkOptions) -> Layout:
    """Of rows as `schema` has them; ConfigError for those that cannot be written."""
    id_column = options.id_column.lower() if options.id_column is not None else None
    if "payload" not in {name.lower() for name in schema.names} - {id_column}:
        raise ConfigError(
            "there is no column 'payload', which holds the data of each job; make one of the "
            "columns, as in df.selectExpr('struct(*) AS payload')"
        )
    places: dict[str, int] = {}
    names: dict[str, str] = {}
    for place, name in enumerate(schema.names):
        known = "id" if name.lower() == id_column else name.lower()
        if known not in COLUMNS:
            raise ConfigError(f"column {name!r:.80} is none that a job has; {_hint(name, schema)}")
        if known in names:
            raise ConfigError(_twice(known, names[known], name, options))
        places[known], names[known] = place, name
    if id_column is not None and "id" not in places:
        known_names = ", ".join(schema.names)
        raise ConfigError(f"idColumn names {options.id_column!r:.80}; there are: {known_names}")
    if "delay_ms" in places and "run_at" in places:
        raise ConfigError("a job has delay_ms or run_at, not both; drop one of the columns")
    types = {name: schema.fields[place].dataType for name, place in places.items()}
    for name, kind in types.items():
        _check(name, kind, options)
    return Layout(places, types, names)


def _hint(name: str, schema: StructType) -> str:
    free = [one for one in COLUMNS if one not in {given.lower() for given in schema.names}]
    near = nearest(name.lower(), free or COLUMNS)
    return f"{near}. What belongs to the job's data belongs into payload, the rest can be dropped"


def _twice(known: str, first: str, second: str, options: SinkOptions) -> str:
    if known == "id" and options.id_column is not None and first.lower() != second.lower():
        other = second if first.lower() == options.id_column.lower() else first
        return (
            f"idColumn={options.id_column} is what gives jobs their ids, and there is a column "
            f"{other!r} as well; drop it, or put it into payload"
        )
    return f"there are two columns {first!r} and {second!r}; drop one"


def _check(name: str, kind: DataType, options: SinkOptions) -> None:
    if name == "payload":
        _check_payload(kind, options)
        return
    fitting, said = _FITTING[name]
    is_identity = name == "id" and options.id_column is not None
    if not isinstance(kind, fitting) and (is_identity or not isinstance(kind, NullType)):
        raise ConfigError(
            f"column {name} is {said}, got {kind.simpleString():.80}; {_cast(name, kind)}"
        )
    if isinstance(kind, StructType):
        _check_backoff(kind)


def _cast(name: str, kind: DataType) -> str:
    if name == "run_at" and isinstance(kind, TimestampNTZType):
        return "it has no time zone: give it one by cast(run_at AS TIMESTAMP)"
    return "cast it"


def _check_backoff(kind: StructType) -> None:
    for field in kind.fields:
        if field.name not in BACKOFF:
            near = nearest(field.name, BACKOFF)
            raise ConfigError(f"column backoff has no field {field.name!r:.80}; {near}")
        fitting, said = _FITTING[field.name]
        if not isinstance(field.dataType, (*fitting, NullType)):
            found = field.dataType.simpleString()
            raise ConfigError(f"backoff.{field.name} is {said}, got {found:.80}; cast it")
    for needed in ("kind", "delay_ms"):
        if kind.names.count(needed) != 1:
            raise ConfigError(f"column backoff needs one field {needed!r}, got {kind.names}")


def _check_payload(kind: DataType, options: SinkOptions) -> None:
    form = options.payload_format
    if form == "json" and not isinstance(kind, _TEXTS):
        raise ConfigError(
            f"payloadFormat=json wants a string column, got {kind.simpleString():.80}; "
            "leave the option out to write the value as it is"
        )
    if form == "binary" and not isinstance(kind, BinaryType):
        raise ConfigError(
            f"payloadFormat=binary wants a binary column that is MessagePack already, got "
            f"{kind.simpleString():.80}; leave the option out to write the value as it is"
        )
    for path, what in _unfit(kind, "payload", 0):
        raise ConfigError(f"{path} {what}")


def _unfit(kind: DataType, path: str, depth: int) -> Iterator[tuple[str, str]]:
    """The places in a type that have no form in MessagePack, and what to do about them."""
    if isinstance(kind, UserDefinedType):
        yield from _unfit(kind.sqlType(), path, depth)
    elif isinstance(kind, StructType | ArrayType | MapType):
        if depth == MAX_DEPTH:
            yield path, f"is nested deeper than {MAX_DEPTH}; flatten it"
        elif isinstance(kind, StructType):
            yield from _twins(kind, path)
            for field in kind.fields:
                yield from _unfit(field.dataType, f"{path}.{field.name:.80}", depth + 1)
        elif isinstance(kind, ArrayType):
            yield from _unfit(kind.elementType, f"{path}[]", depth + 1)
        else:
            if not isinstance(kind.keyType, _SCALARS):
                found = kind.keyType.simpleString()
                yield path, f"is a map whose keys are {found:.80}; cast them to string"
            yield from _unfit(kind.keyType, f"a key of {path}", depth + 1)
            yield from _unfit(kind.valueType, f"{path}[]", depth + 1)
    elif not isinstance(kind, (*_SCALARS, VariantType)):
        yield path, f"is {kind.simpleString():.80}, which no job can hold; cast it to string"


def _twins(kind: StructType, path: str) -> Iterator[tuple[str, str]]:
    for name in kind.names:
        if kind.names.count(name) > 1:
            yield path, f"has two fields {name!r:.80}, of which one would be lost; rename one"
