"""Arrow columns -> payloads as MessagePack, by the type that Spark says they have.

    boolean, numbers, string, binary           as they are
    struct, map                                map
    array                                      array
    timestamp                                  text in UTC: 2026-11-16T12:00:00.500000Z
    timestamp_ntz, date, time                  text, without a zone
    decimal                                    text: 1.50
    variant                                    what its JSON says
    null                                       nil

Texts are those of `wire/model.py`, so that `job.decode(model)` reads them back into what they were.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, starmap
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
    UserDefinedType,
    VariantType,
    VariantVal,
)

from chasquimq import wire
from chasquimq.errors import EncodeError, WireError
from chasquimq.spark.options import Written
from chasquimq.wire.scan import MAX_NUMBER_KEYS

Plain = Callable[[pa.Array], list[Any]]

_NIL = b"\xc0"
_encode = msgspec.msgpack.Encoder().encode
_parse = msgspec.json.Decoder().decode


def payloads(kind: DataType, form: Written) -> Callable[[pa.Array], list[bytes]]:
    """What makes a list of payloads of a column. It raises what `trouble` has words for."""
    if form == "json":
        return lambda column: [*map(_of_json, column.to_pylist())]
    if form == "binary":
        return lambda column: [*map(_as_it_is, column.to_pylist())]
    plain = reader(kind)
    return lambda column: [*map(_packed, plain(column))]


def _packed(value: Any) -> bytes:
    packed = _encode(value)
    if len(packed) > 2 * MAX_NUMBER_KEYS:  # smaller ones hold neither too many values nor keys
        wire.decode(packed)
    return packed


def _of_json(text: str | None) -> bytes:
    return _NIL if text is None else wire.encode(_parse(text))


def _as_it_is(data: bytes | None) -> bytes:
    if data is None:
        return _NIL
    wire.decode(data)
    return data


def trouble(error: Exception) -> str:
    """What is wrong with a payload, in words that show nothing of it."""
    if isinstance(error, UnicodeError):
        return "holds text that is not UTF-8"
    if isinstance(error, msgspec.DecodeError):
        return f"is no JSON ({error})"
    if isinstance(error, WireError) and not isinstance(error, EncodeError):
        return f"cannot be read as MessagePack ({error.args[0]})"
    if isinstance(error, EncodeError | RecursionError):
        return "is nested too deep, or holds a number beyond 64 bits"
    return (
        "holds a number beyond 64 bits, or a time outside of the years 1 to 9999 or finer than "
        "microseconds"
    )


# -- Arrow's values as plain ones ------------------------------------------------------------------


def reader(kind: DataType) -> Plain:
    """What makes plain Python values of a column of this type, so that msgspec can write them."""
    if isinstance(kind, UserDefinedType):
        return reader(kind.sqlType())
    if isinstance(kind, StructType):
        return _structs(kind)
    if isinstance(kind, ArrayType):
        return _lists(reader(kind.elementType))
    if isinstance(kind, MapType):
        return _maps(reader(kind.keyType), reader(kind.valueType))
    if isinstance(kind, VariantType):
        return _variants
    if isinstance(kind, TimestampType):
        return _moments
    if isinstance(kind, TimestampNTZType | DateType | TimeType):
        return _isoformats
    if isinstance(kind, DecimalType):
        return _texts
    return lambda column: column.to_pylist()


def _structs(kind: StructType) -> Plain:
    """One struct of msgspec's per row: it is made and written faster than a dict."""
    fields = [f"f{place}" for place in range(len(kind.names))]
    made = msgspec.defstruct(
        "Payload",
        [(field, Any) for field in fields],
        rename=dict(zip(fields, kind.names, strict=True)),
        gc=False,
    )
    readers = [reader(field.dataType) for field in kind.fields]

    def read(column: pa.Array) -> list[Any]:
        if not readers:
            rows: list[Any] = [{}] * len(column)
        else:
            parts = column.flatten()
            columns = [read(part) for read, part in zip(readers, parts, strict=True)]
            rows = [*map(made, *columns)]
        return _without_nulls(column, rows)

    return read


def _lists(read_items: Plain) -> Plain:
    def read(column: pa.Array) -> list[Any]:
        ends, items = _items(column, column.values, read_items)
        lists = [items[a:b] for a, b in pairwise(ends)]
        return _without_nulls(column, lists)

    return read


def _maps(read_keys: Plain, read_values: Plain) -> Plain:
    def read(column: pa.Array) -> list[Any]:
        ends, keys = _items(column, column.keys, read_keys)
        _, values = _items(column, column.items, read_values)
        pairs = [*zip(keys, values, strict=True)]
        return _without_nulls(column, [dict(pairs[a:b]) for a, b in pairwise(ends)])

    return read


def _items(column: pa.Array, inside: pa.Array, read: Plain) -> tuple[list[int], list[Any]]:
    """What lies in the lists of a column, and where each begins and ends in it."""
    ends = column.offsets.to_pylist()
    first = ends[0]
    return [end - first for end in ends], read(inside.slice(first, ends[-1] - first))


def _without_nulls(column: pa.Array, values: list[Any]) -> list[Any]:
    if not column.null_count:
        return values
    there = column.is_valid().to_pylist()
    return [value if is_there else None for value, is_there in zip(values, there, strict=True)]


def _moments(column: pa.Array) -> list[Any]:
    # Without its zone a timestamp of Arrow shows what it counts: UTC.
    values = column.view(pa.timestamp("us")).to_pylist()
    return [None if value is None else value.isoformat() + "Z" for value in values]


def _isoformats(column: pa.Array) -> list[Any]:
    return [None if value is None else value.isoformat() for value in column.to_pylist()]


def _texts(column: pa.Array) -> list[Any]:
    return [None if value is None else str(value) for value in column.to_pylist()]


def _variants(column: pa.Array) -> list[Any]:
    values, metadata = (part.to_pylist() for part in column.flatten())
    made = starmap(VariantVal, zip(values, metadata, strict=True))
    return [
        None if value is None else _parse(variant.toJson())
        for value, variant in zip(values, made, strict=True)
    ]
