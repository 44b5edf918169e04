"""Payloads by a schema: what msgspec decodes to, and how that becomes Arrow, column by column.

Nothing is converted but what loses nothing. A text is no number, 1.5 and 1.0 are no BIGINT, 300 is
no TINYINT. A field that is missing, or nil, is null; one that the schema does not name is left out.
Names are compared as they are written.

    DOUBLE          a number; a whole one up to 2**53. FLOAT: the same, rounded as all of them are
    DECIMAL         a number, or the text of one; every digit has to fit
    DATE            text, 2026-11-16
    TIMESTAMP       text with a zone, 2026-11-16T12:00:00Z (RFC 3339); TIMESTAMP_NTZ: without
    MAP             keys are text or whole numbers; at most 4,096 numbers
    VARIANT         anything
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_type

from chasquimq import wire
from chasquimq.errors import ConfigError, WireError
from chasquimq.spark.decode.column import in_time
from chasquimq.spark.decode.page import Build, array
from chasquimq.spark.decode.variant import Variant, pack_variant, variants
from chasquimq.wire.scan import MAX_NUMBER_KEYS, UNREADABLE

_ATOMS: dict[type[types.DataType], Any] = {
    types.StringType: str,
    types.BinaryType: bytes,
    types.BooleanType: bool,
    types.ByteType: int,
    types.ShortType: int,
    types.IntegerType: int,
    types.LongType: int,
    types.FloatType: int | float,  # whole ones as such, so that Arrow looks whether they fit
    types.DoubleType: int | float,
    types.DecimalType: Decimal,
    types.DateType: date,
    types.TimestampType: Annotated[datetime, msgspec.Meta(tz=True)],
    types.TimestampNTZType: Annotated[datetime, msgspec.Meta(tz=False)],
    types.VariantType: msgspec.Raw,  # its bytes, so that `wire.decode` applies its bounds
}
_UNFIT_NAME = re.compile(r'["\\\x00-\x1f]')  # what msgspec does not take
_KEYS = (types.StringType, types.ByteType, types.ShortType, types.IntegerType, types.LongType)


class Fit(NamedTuple):
    python: Any
    build: Build


def fit(kind: types.DataType, path: str = "$") -> Fit:
    """ConfigError for a type that payloads cannot have; `path` says where, as msgspec does."""
    if isinstance(kind, types.StructType):
        return _struct(kind, path)
    if isinstance(kind, types.ArrayType):
        return _array(kind, path)
    if isinstance(kind, types.MapType):
        return _map(kind, path)
    if type(kind) not in _ATOMS:
        raise ConfigError(
            f"{path} is {kind.simpleString()}, which no payload holds; use one of "
            f"{', '.join(atom().simpleString() for atom in _ATOMS)}, or an array, a map or a "
            "struct of these"
        )
    return Fit(_ATOMS[type(kind)], _told(_atoms(kind), kind, path))


def _told(build: Build, kind: types.DataType, path: str) -> Build:
    """The same; what does not fit is told in our words, and without the value."""

    def told(values: Sequence[Any]) -> pa.Array:
        try:
            return build(values)
        except WireError as error:
            raise WireError(f"{path} {error.args[0]}") from None
        except UNREADABLE:
            raise WireError(f"{path} does not fit {kind.simpleString()}") from None

    return told


# -- values without parts --------------------------------------------------------------------------


def _atoms(kind: types.DataType) -> Build:
    arrow = to_arrow_type(kind, timezone="UTC")
    if isinstance(kind, types.FloatType):
        return _floats
    if isinstance(kind, types.DecimalType):
        return _decimals(kind.precision, kind.scale)
    if isinstance(kind, types.TimestampType):
        return lambda values: in_time(pa.array(values, arrow))
    if isinstance(kind, types.VariantType):
        return lambda values: variants([_variant(one) for one in values])
    return lambda values: array(values, arrow)


def _variant(packed: msgspec.Raw | None) -> Variant | None:
    value = None if packed is None else wire.decode(bytes(packed))
    return None if value is None else pack_variant(value)


def _floats(values: Sequence[int | float | None]) -> pa.Array:
    """Arrow would take 1e300 for the infinity."""
    given = pa.array(values, pa.float64())
    single = given.cast(pa.float32())
    if pc.any(pc.and_(pc.is_inf(single), pc.is_finite(given))).as_py():
        raise WireError("does not fit float")
    return single


def _decimals(precision: int, scale: int) -> Build:
    arrow = pa.decimal128(precision, scale)
    step = Decimal(1).scaleb(-scale)
    # It raises where a digit would be lost, or there are too many. Arrow must see no others: a
    # very small one, 1e-999999999, kills its process.
    exact = Context(prec=precision, traps=[Inexact, InvalidOperation])

    def build(values: Sequence[Decimal | None]) -> pa.Array:
        fitted = [None if one is None else one.quantize(step, context=exact) for one in values]
        return pa.array(fitted, arrow)

    return build


# -- values with parts -----------------------------------------------------------------------------


def _check_names(names: list[str], path: str) -> None:
    if not names:
        raise ConfigError(f"{path} is a struct without fields; name those you want")
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{path} names the field {name!r:.80} twice")
        if _UNFIT_NAME.search(name):
            raise ConfigError(
                f"{path} names the field {name!r:.80}; a struct can have no field with quotes, "
                "backslashes or control characters in its name: use a map, or a variant"
            )


def _struct(kind: types.StructType, path: str) -> Fit:
    _check_names(kind.names, path)
    fits = [fit(field.dataType, f"{path}.{field.name}") for field in kind.fields]
    arrow = to_arrow_type(kind, timezone="UTC")
    # Spark's names may be anything, so attributes have names of their own.
    attributes = [f"f{at}" for at in range(len(fits))]
    made = msgspec.defstruct(
        "Payload",
        [
            (attribute, _or_null(each.python, True), None)
            if field.nullable
            else (attribute, each.python)
            for attribute, each, field in zip(attributes, fits, kind.fields, strict=True)
        ],
        rename=dict(zip(attributes, kind.names, strict=True)),
        kw_only=True,
        gc=False,
    )
    nothing = made(**dict.fromkeys(attributes))
    readers = [(attrgetter(name), each.build) for name, each in zip(attributes, fits, strict=True)]

    def build(values: Sequence[Any]) -> pa.Array:
        nulls = None
        if None in values:
            nulls = pa.array([one is None for one in values], pa.bool_())
            values = [nothing if one is None else one for one in values]
        columns = [build(list(map(get, values))) for get, build in readers]
        return pa.StructArray.from_arrays(columns, fields=list(arrow), mask=nulls)

    return Fit(made, build)


def _array(kind: types.ArrayType, path: str) -> Fit:
    items = fit(kind.elementType, f"{path}[]")
    arrow = to_arrow_type(kind, timezone="UTC")

    def build(values: Sequence[list[Any] | None]) -> pa.Array:
        flat = list(chain.from_iterable(one for one in values if one))
        return pa.ListArray.from_arrays(_offsets(values), items.build(flat), type=arrow)

    python = _of(list, _or_null(items.python, kind.containsNull))
    return Fit(python, build)


def _map(kind: types.MapType, path: str) -> Fit:
    if type(kind.keyType) not in _KEYS:
        raise ConfigError(
            f"{path} is a map whose keys are {kind.keyType.simpleString()}; in payloads they can "
            "be string, tinyint, smallint, int or bigint"
        )
    keys, items = fit(kind.keyType, f"a key of {path}"), fit(kind.valueType, f"{path}[]")
    arrow = to_arrow_type(kind, timezone="UTC")

    def build(values: Sequence[dict[Any, Any] | None]) -> pa.Array:
        there = [one for one in values if one]
        names = keys.build(list(chain.from_iterable(there)))
        flat = items.build(list(chain.from_iterable(one.values() for one in there)))
        return pa.MapArray.from_arrays(_offsets(values), names, flat, type=arrow)

    python = _of(dict, keys.python, _or_null(items.python, kind.valueContainsNull))
    if keys.python is int:  # numbers can be chosen to collide in a dict
        python = _of(Annotated, python, msgspec.Meta(max_length=MAX_NUMBER_KEYS))
    return Fit(python, build)


def _of(container: Any, *parts: Any) -> Any:
    return container[parts]


def _or_null(python: Any, nullable: bool) -> Any:
    # Raw bytes may be those of nil, and msgspec reads no union that they are in.
    return python | None if nullable and python is not msgspec.Raw else python


def _offsets(values: Sequence[Any]) -> pa.Array:
    """Where each begins among the flat ones; null where it is null."""
    at, found = 0, []
    for one in values:
        found.append(None if one is None else at)
        at += len(one or ())
    found.append(at)
    return pa.array(found, pa.int32())
