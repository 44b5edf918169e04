"""Models: classes that give data a type. Which classes are, and how data become one again.

    Pydantic models, and types with one in them (list[Model])        read by Pydantic
    dataclass, Struct, TypedDict, NamedTuple, list[...], int, ...    read by msgspec

Pydantic is never imported: whoever has one of its models has imported it. What is said about
data that do not fit names places, types and limits, never the data: they may be private.
`wire.model` is the way out, this is the way back.
"""

from __future__ import annotations

import ipaddress
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import PurePath
from typing import Any, NamedTuple

import msgspec

from chasquimq.errors import ArgumentError, ModelError

Reader = Callable[[Any], Any]
Problem = tuple[str, str]  # a path below `data`, and what is wrong there

MAX_MODELS = 512  # whose readers are remembered (and, in `wire.model`, whose writers)
BY_STR = (  # types that msgspec does not know: out goes their str(), back comes a call
    PurePath,
    ipaddress.IPv4Address,
    ipaddress.IPv6Address,
    ipaddress.IPv4Network,
    ipaddress.IPv6Network,
    ipaddress.IPv4Interface,
    ipaddress.IPv6Interface,
)
_DERIVABLE = (str, int, float, bytes)
_BINARY = (bytes, bytearray, memoryview)  # msgspec would take base64 text for these otherwise
_JSON_DEPTH = 100


def is_pydantic(kind: Any) -> bool:
    """Whether this is a Pydantic model, or a dataclass made by Pydantic."""
    if not isinstance(kind, type) or not hasattr(kind, "__pydantic_serializer__"):
        return False
    # A plain dataclass derived from one of Pydantic's has fields its parent's code knows not of.
    return hasattr(kind, "model_dump") or "__pydantic_serializer__" in vars(kind)


def is_model(kind: Any) -> bool:
    """Whether data of this type travel as a map of their fields."""
    if not isinstance(kind, type):
        return False
    is_one = issubclass(kind, msgspec.Struct) or hasattr(kind, "__dataclass_fields__")
    return is_one or is_pydantic(kind)


def read(data: Any, model: Any, job_id: str) -> Any:
    """`data` as a `model`; ModelError if they do not fit, ArgumentError if none could."""
    if is_model(type(data)) and model in type(data).__mro__:
        return data  # the very object that `add` was given
    try:
        reader = _reader(model)
    except ArgumentError:
        raise
    except TypeError:  # it has no hash: Annotated may hold anything
        reader = _reader.__wrapped__(model)
    try:
        return reader(data)
    except _Unfit as unfit:
        problems = unfit.problems
    # Out here nothing hangs on to the libraries' own errors, which show the data.
    raise ModelError(job_id, _name(model), problems)


class _Unfit(ValueError):
    """A ValueError, so that msgspec adds to it the path of what it called."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("unfit")
        self.problems = problems


@lru_cache(MAX_MODELS)
def _reader(model: Any) -> Reader:
    try:
        return _by_pydantic(model) if _holds_pydantic(model) else _by_msgspec(model)
    except Exception as error:
        raise ArgumentError(f"cannot decode into {_name(model)}: {error}") from error


def _holds_pydantic(model: Any) -> bool:
    """Whether a Pydantic model is in a type; classes of others speak for what is in them."""
    ahead, seen = [model], set()
    while ahead:
        kind = ahead.pop()
        origin = typing.get_origin(kind) or kind
        if is_pydantic(origin):
            return True
        if not is_model(origin) and id(kind) not in seen:
            seen.add(id(kind))
            ahead += typing.get_args(kind)
            ahead += [kind.__value__] if hasattr(kind, "__value__") else []  # type X = ...
    return False


def _name(model: Any) -> str:
    return model.__name__ if isinstance(model, type) else str(model)


# -- msgspec ---------------------------------------------------------------------------------------


def _by_msgspec(model: Any) -> Reader:
    msgspec.msgpack.Decoder(model, dec_hook=_revive)  # says now what it would say later

    def convert(data: Any) -> Any:
        try:
            return msgspec.convert(data, model, builtin_types=_BINARY, dec_hook=_revive)
        except msgspec.ValidationError as error:
            if isinstance(error.__cause__, ArgumentError):
                raise error.__cause__ from None
            raise _Unfit(_msgspec_problems(error)) from None

    return convert


def _revive(kind: Any, value: Any) -> Any:
    """What msgspec asks us for: a value of a type that it does not know."""
    origin: Any = typing.get_origin(kind) or kind
    if not isinstance(origin, type):
        raise ArgumentError(f"cannot decode into {_name(kind)}: it is no class")
    if isinstance(value, origin):
        return value
    if is_pydantic(origin):
        return _reader(kind)(value)
    if issubclass(origin, BY_STR):
        return origin(value) if isinstance(value, str) else value
    derived: Callable[[Any], Any] = origin
    for base in _DERIVABLE:
        if issubclass(origin, base):
            return derived(value) if type(value) is base else value
    raise ArgumentError(f"cannot decode into {_name(kind)}: it is no type that data can have")


_PLACED = re.compile(r"(.*?)(?: - at (`key` in )?`\$([^`]*)`)?", re.DOTALL)
_HARMLESS = re.compile(
    r"Expected `.*|Object missing required field `.*|(\w+ )+out of range *"
    r"|Invalid (RFC3339 encoded \w+|ISO8601 duration|UUID( bytes)?|decimal string)"
)


def _msgspec_problems(error: msgspec.ValidationError) -> list[Problem]:
    found = _PLACED.fullmatch(str(error))
    what, of_key, below = found.groups() if found else ("", None, None)
    path = f"{'a key of ' if of_key else ''}data{below or ''}"
    cause = error.__cause__
    if isinstance(cause, _Unfit):  # said by a Pydantic model inside
        return [(path + inner.removeprefix("data"), said) for inner, said in cause.problems]
    if cause is not None:
        return [(path, f"refused by the model itself ({type(cause).__name__})")]
    for shown in ("Invalid enum value", "Invalid value", "Object contains unknown field"):
        if what.startswith(shown):  # and goes on with the value
            return [(path, shown)]
    return [(path, what if _HARMLESS.fullmatch(what) else "does not fit")]


# -- Pydantic --------------------------------------------------------------------------------------


class Shape(NamedTuple):
    """What a schema of Pydantic says about the way its model is written and read back."""

    names: frozenset[str]  # under which fields are known
    by_alias: bool  # the names it writes by alias, it also reads
    round_trip: bool  # it would not read computed fields, or parsed JSON, that it wrote


def shape(schema: Mapping[str, Any]) -> Shape:
    names: set[str] = set()
    by_alias, computes, is_picky, parses = True, False, False, False
    for node in _nodes(schema):
        for name, field in _fields(node):
            paths = [[name], *_paths(field.get("validation_alias"))]
            names.update(path[0] for path in paths)
            by_alias &= [field.get("serialization_alias", name)] in paths
        extra = node.get("extra_fields_behavior", node.get("extra_behavior"))
        is_picky |= extra in ("forbid", "allow")
        computes |= bool(node.get("computed_fields"))
        parses |= node.get("type") == "json"
    return Shape(frozenset(names), by_alias, parses or (computes and is_picky))


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Every schema in a schema, and config. Defaults are none, whatever they look like."""
    ahead = [schema]
    while ahead:
        node = ahead.pop()
        if isinstance(node, list | tuple):
            ahead += node
        elif isinstance(node, Mapping):
            inner = {key: node[key] for key in node if key not in ("default", "metadata")}
            yield inner
            for key, value in inner.items():
                # The keys of these two are the user's own: names and tags.
                named = key in ("fields", "choices") and isinstance(value, Mapping)
                ahead += value.values() if named else [value]


def _fields(node: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if node.get("type") in ("model-fields", "typed-dict"):
        yield from node["fields"].items()
    elif node.get("type") == "dataclass-args":
        yield from ((field["name"], field) for field in node["fields"])


def _paths(alias: Any) -> list[list[Any]]:
    """Where a validation alias looks: it is nothing, a key, a path, or a choice of paths."""
    if not alias:
        return []
    if isinstance(alias, str):
        return [[alias]]
    return list(alias) if isinstance(alias[0], list) else [alias]


def _by_pydantic(model: Any) -> Reader:
    pydantic, core = sys.modules["pydantic"], sys.modules["pydantic_core"]
    if tuple(map(int, pydantic.VERSION.split(".")[:2])) < (2, 11):
        raise TypeError(f"Pydantic {pydantic.VERSION} is too old, 2.11 is needed")
    adapter = pydantic.TypeAdapter(model)
    names = shape(adapter.core_schema).names
    known = frozenset(typing.get_args(sys.modules["pydantic_core.core_schema"].ErrorType))
    both = {"by_alias": True, "by_name": True}

    def validate(data: Any) -> Any:
        try:
            return adapter.validate_python(data, **both)
        except pydantic.ValidationError as error:
            failure = error
        # A strict model takes an ISO string for a datetime, a list for a set, from JSON only.
        if _is_json(data):
            try:
                return adapter.validate_json(core.to_json(data, inf_nan_mode="constants"), **both)
            except pydantic.ValidationError as error:
                failure = error
        raise _Unfit(
            [
                (_place(problem["loc"], data, names), _what(problem, known))
                for problem in failure.errors(include_url=False, include_input=False)
            ]
        )

    return validate


def _is_json(data: Any) -> bool:
    """Whether JSON can hold it unchanged: no bytes, only str as keys, not too deep."""
    level, depth = [data], 0
    while level and depth < _JSON_DEPTH:
        below: list[Any] = []
        for node in level:
            if isinstance(node, dict):
                if not all(type(key) is str for key in node):
                    return False
                below += node.values()
            elif isinstance(node, list):
                below += node
            elif node is not None and not isinstance(node, str | int | float):
                return False
        level, depth = below, depth + 1
    return not level


def _place(loc: tuple[int | str, ...], data: Any, names: frozenset[str]) -> str:
    """A path of Pydantic's. Keys of a dict are data, too: only names of fields are shown."""
    path, node = "data", data
    for part in loc:
        if isinstance(node, list) and isinstance(part, int):
            path += f"[{part}]"
            node = node[part] if part < len(node) else None
        elif part in names:
            path += f".{part}"
            node = node.get(part) if isinstance(node, dict) else None
        elif isinstance(node, dict) and part in node:
            path += "[...]"
            node = node[part]
        # Anything else is Pydantic's own: which side of a union, which function.
    return path


def _what(problem: Mapping[str, Any], known: frozenset[str]) -> str:
    """What is wrong, in Pydantic's words as far as these cannot contain data."""
    kind, context = str(problem["type"]), problem.get("ctx", {})
    if kind not in known or kind in ("value_error", "assertion_error"):
        return f"refused by the model itself ({kind})"
    if "tag" in context:
        return kind
    if context.keys() & {"error", "encoding_error", "tz_actual", "attribute"}:
        return re.split("[,:]", problem["msg"])[0]
    return str(problem["msg"])
