"""A model as plain data: a map of its fields, and in it what its types are written as.

    dataclass, Struct     field by field; a Struct's rename, tag and omit_defaults are obeyed
    Pydantic model        its own model_dump(), by the aliases that it reads; a RootModel its root
    inside of either      datetime date time timedelta  ISO 8601      UUID Decimal Path IP  str
                          Enum  its value                             set frozenset deque  list

Outside of models all these are refused: there nothing would turn them back into what they were.
`chasquimq.model` is the way back.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from operator import attrgetter
from typing import Any
from uuid import UUID

import msgspec

from chasquimq.model import BY_STR, MAX_MODELS, is_pydantic, shape

Writer = Callable[[Any], Any]
TEXTUAL = (UUID, Decimal, *BY_STR)  # written as their str()


# Where a value was found: in no model; it is the map of a model's fields; somewhere in a
# dataclass or a Struct; somewhere in what Pydantic made of a model.
PLAIN, FIELDS, FIELD, DUMP = range(4)


class Unfit(Exception):
    """What the wire has no form for. The path is put together on the way up, innermost first."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.path: list[str] = []
        self.is_key = False  # of the dict that the path has got to


def unwrap(value: Any, place: int) -> tuple[Any, int]:
    """A model as its map; inside of one, what is not plain as what it is written as."""
    kind: Any = type(value)
    write, found = _writer(kind)
    if found == FIELDS:
        return write(value), FIELDS
    if place == PLAIN and found != DUMP:
        return value, PLAIN
    inside = DUMP if DUMP in (place, found) else FIELD
    written = write(value) if found != PLAIN else _jsonable(value) if inside == DUMP else value
    if written is value or type(written) in (str, list, dict):
        return written, inside
    return unwrap(written, inside)  # an Enum has any value, a RootModel any root


@lru_cache(MAX_MODELS)
def _writer(kind: Any) -> tuple[Writer, int]:
    """What makes plain data of a type, and where: FIELDS and DUMP anywhere, FIELD in models."""
    if issubclass(kind, msgspec.Struct):
        return _struct_writer(kind), FIELDS
    if is_pydantic(kind):
        return _pydantic_writer(kind), DUMP
    if hasattr(kind, "__dataclass_fields__") and not issubclass(kind, enum.Enum):
        names = [field.name for field in dataclasses.fields(kind)]
        return _fields(names, names), FIELDS
    if hasattr(kind, "get_secret_value"):
        return _refuse_secret, FIELD
    for base in kind.__mro__:
        if base in _LEAVES:
            return _LEAVES[base], FIELD
    return lambda value: value, PLAIN


def _fields(names: Sequence[str], keys: Sequence[str]) -> Writer:
    """A map of the fields that are set; there may be UNSET ones in it."""

    def those_there(value: Any) -> dict[str, Any]:
        pairs = zip(names, keys, strict=True)
        return {key: getattr(value, name) for name, key in pairs if hasattr(value, name)}

    if len(names) < 2:
        return those_there
    read = attrgetter(*names)  # all in one call, if all are there

    def all_of_them(value: Any) -> dict[str, Any]:
        try:
            return dict(zip(keys, read(value), strict=True))
        except AttributeError:
            return those_there(value)

    return all_of_them


def _struct_writer(kind: type[msgspec.Struct]) -> Writer:
    config = kind.__struct_config__
    names, keys = kind.__struct_fields__, kind.__struct_encode_fields__
    if config.array_like:
        return _refuse_array_like
    read = _fields(names, keys)
    if config.tag is None and not config.omit_defaults:
        return read
    tag: dict[Any, Any] = {} if config.tag is None else {config.tag_field: config.tag}
    defaults = dict(zip(reversed(keys), reversed(kind.__struct_defaults__), strict=False))

    def write(value: Any) -> dict[str, Any]:
        fields = read(value)
        if config.omit_defaults:
            fields = {
                key: item
                for key, item in fields.items()
                if key not in defaults or not _is_default(item, defaults[key])
            }
        return {**tag, **fields}

    return write


def _refuse_array_like(value: msgspec.Struct) -> Any:
    raise Unfit(
        f"is {a_kind(value)}, an array_like Struct: models are written as maps, and it "
        "would be read from a list only; leave array_like out, or send a list"
    )


def _is_default(value: Any, default: Any) -> bool:
    """As msgspec sees it: the very same object, or empty where the default is a new container."""
    made = getattr(default, "factory", None)
    return value is default or (made in (list, dict, set) and type(value) is made and not value)


def _pydantic_writer(kind: Any) -> Writer:
    options: dict[str, bool] = {}

    def write(value: Any) -> Any:
        try:
            if not options:  # not before: making a schema may fail, too
                _, by_alias, round_trip = shape(kind.__pydantic_core_schema__)
                options.update(by_alias=by_alias, round_trip=round_trip)
            # Not in JSON mode: that has no bytes, no NaN, and asterisks for secrets.
            if hasattr(kind, "model_dump"):
                return value.model_dump(**options)
            return kind.__pydantic_serializer__.to_python(value, **options)
        except RecursionError:
            raise
        except Exception as error:
            name = full_name(kind)
            raise Unfit(f"is a {name} that Pydantic cannot dump: {error!s:.200}") from error

    return write


def _refuse_secret(value: Any) -> Any:
    raise Unfit(
        f"is {a_kind(value)}, which shows itself as asterisks only; send a reference "
        "to the secret, or give the field a serializer that reveals it"
    )


def _moment(value: datetime) -> str:
    try:
        if _has_seconds(value.utcoffset()):
            value = value.astimezone(UTC)  # the same moment; ISO readers know no such offsets
    except OverflowError:
        raise Unfit(
            "is a datetime that has no equal in UTC; send an earlier or later one"
        ) from None
    text = datetime.isoformat(value)
    return f"{text[:-6]}Z" if text.endswith("+00:00") else text


def _clock(value: time) -> str:
    if _has_seconds(value.utcoffset()):
        raise Unfit("is a time whose offset from UTC has seconds, which readers refuse")
    return time.isoformat(value)


def _has_seconds(offset: timedelta | None) -> bool:
    return offset is not None and bool(offset.seconds % 60 or offset.microseconds)


def _duration(value: timedelta) -> Any:
    return msgspec.to_builtins(timedelta(value.days, value.seconds, value.microseconds))


_LEAVES: dict[type, Writer] = {  # the types that models give back, and those derived from them
    enum.Enum: lambda member: member.value,
    datetime: _moment,
    date: date.isoformat,
    time: _clock,
    timedelta: _duration,
    **dict.fromkeys(TEXTUAL, str),
    **dict.fromkeys((set, frozenset, deque), list),
}
_OURS = (int, float, str, bytes, bytearray, memoryview, dict, list, tuple, type(None))


def _jsonable(value: Any) -> Any:
    """What Pydantic would write for a type that only Pydantic knows: a URL, a pattern."""
    if isinstance(value, _OURS):
        return value
    try:
        text = sys.modules["pydantic_core"].to_jsonable_python(value)
    except ValueError:
        return value
    return text if isinstance(text, str) else value


def a_kind(value: Any) -> str:
    """What it is, in a sentence: `a decimal.Decimal`, `an object`."""
    name = full_name(type(value))
    return f"{'an' if name[0] in 'AEIOaeio' else 'a'} {name}"


def full_name(kind: type) -> str:
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
