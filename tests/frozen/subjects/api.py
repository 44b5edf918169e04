"""Every public name with its signature, its members and its base classes.

Guards "public names and signatures" of what must not change. Annotations are left out: they may
name internals. A parameter that may be given by position carries its place; `->` introduces an
attribute of a returned value whose class has no public name:

    chasquimq.Queue.add (async method)
    chasquimq.Queue.add  1 name
    chasquimq.Queue.add delay_ms = None
    chasquimq.server.find_server -> path
"""

from __future__ import annotations

import ast
import enum
import inspect
import textwrap
import typing
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import chasquimq
from tests.frozen.public import DEEP, OPAQUE

OURS = ("chasquimq", "pyspark_chasqui")
# Methods by which Python's own syntax uses a value.
SYNTAX = {
    *("__aenter__", "__aexit__", "__aiter__", "__anext__", "__await__", "__call__"),
    *("__contains__", "__enter__", "__exit__", "__getitem__", "__iter__", "__len__", "__next__"),
}
# Returned by public methods, to be handed on or shown: their attributes are nobody's but ours.
INNER = {"Address", "Dialer", "Snapshot"}
PLAIN = (bool, int, float, str, bytes, tuple, type(None))


def lines() -> Iterator[str]:
    for name in chasquimq.__all__:
        yield from _of(f"chasquimq.{name}", getattr(chasquimq, name))
    for module, names in DEEP.items():
        for name in names:
            value = getattr(import_module(module), name)
            if name in chasquimq.__all__ and value is getattr(chasquimq, name):
                yield f"{module}.{name} is chasquimq.{name}"
            else:
                yield from _of(f"{module}.{name}", value)
    for module, names in OPAQUE.items():
        for name in names:
            value = getattr(import_module(module), name)
            yield f"{module}.{name} (value)"
            yield from _parameters(f"{module}.{name}", value)


def _of(path: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        yield from _class(path, value)
    elif inspect.isfunction(value):
        yield from _function(path, value, "function")
    elif isinstance(value, PLAIN) and path != "chasquimq.version":
        yield f"{path} = {value!r}"
    else:
        yield f"{path} (value)"


def _class(path: str, kind: type) -> Iterator[str]:
    bases = sorted({_public_name(base) for base in kind.__mro__[1:]} - {""})
    yield f"{path} (class{': ' if bases else ''}{', '.join(bases)})"
    if issubclass(kind, enum.Enum):
        yield from (f"{path}.{one.name} = {one.value!r}" for one in kind)
    elif _is_made_by_callers(kind):
        yield from _parameters(path, kind)
    for name, member in _members(kind).items():
        yield from _member(f"{path}.{name}", member)


def _public_name(base: type) -> str:
    """Of a base class that users see: one of Python's, or a public one of ours."""
    if not _is_ours(base):
        hidden = (object, typing.Generic, typing.Protocol, Exception, BaseException)
        return "" if base in hidden or base.__name__.startswith("_") else base.__name__
    return base.__name__ if base in _public_values() else ""


@cache
def _public_values() -> list[Any]:
    deep = [(import_module(module), names) for module, names in DEEP.items()]
    return [
        getattr(module, name)
        for module, names in [(chasquimq, chasquimq.__all__), *deep]
        for name in names
    ]


def _is_made_by_callers(kind: type) -> bool:
    """Whether callers may know how: not of protocols, nor where a library's class says how."""
    if getattr(kind, "_is_protocol", False):
        return False
    makers = [base for base in kind.__mro__ if {"__init__", "__new__"} & vars(base).keys()]
    return _is_ours(makers[0]) or hasattr(kind, "__struct_fields__")


def _is_ours(kind: type) -> bool:
    return kind.__module__.split(".")[0] in OURS


def _members(kind: type) -> dict[str, Any]:
    """Public members by name; those of Python's own classes are left out. None: an attribute that
    only instances have."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if _is_ours(base):
            found |= dict.fromkeys(_set_on_self(base)) | vars(base)
    entries = {one.name for one in kind} if issubclass(kind, enum.Enum) else set()
    return {
        name: member
        for name, member in found.items()
        if (name in SYNTAX or not name.startswith("_")) and name not in entries
    }


def _set_on_self(kind: type) -> Iterator[str]:
    """The attributes that a class annotates, or that its methods set on `self`."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError):  # made by a library, without source
        return
    [whole] = tree.body
    assert isinstance(whole, ast.ClassDef)
    for one in whole.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            yield one.target.id
    for node in ast.walk(whole):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            owner = node.value
            yield from [node.attr] if isinstance(owner, ast.Name) and owner.id == "self" else []


def _member(path: str, member: Any) -> Iterator[str]:
    if isinstance(member, classmethod):
        yield from _function(path, member.__func__, "class method")
    elif isinstance(member, staticmethod):
        yield from _function(path, member.__func__, "static method")
    elif isinstance(member, property):
        yield f"{path} (property)"
        yield from _answer(path, member.fget)
    elif inspect.isfunction(member):
        yield from _function(path, member, "method")
    elif isinstance(member, PLAIN) and member is not None:
        yield f"{path} = {member!r}"
    else:
        yield f"{path} (attribute)"


def _function(path: str, function: Any, what: str) -> Iterator[str]:
    # What blocks wraps what is awaited, and nothing tells them apart but the module's name.
    inner = function if path.startswith("chasquimq.sync.") else inspect.unwrap(function)
    is_async = inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner)
    yield f"{path} ({'async ' if is_async else ''}{what})"
    yield from _parameters(path, function, bound=what in ("method", "class method"))
    yield from _answer(path, function)


def _parameters(path: str, value: Any, *, bound: bool = False) -> Iterator[str]:
    parameters = [*inspect.signature(value).parameters.values()][bound:]
    for place, one in enumerate(parameters, 1):
        default = "" if one.default is one.empty else f" = {_shown(one.default)}"
        if one.kind is one.VAR_POSITIONAL:
            yield f"{path} *{one.name}"
        elif one.kind is one.VAR_KEYWORD:
            keys = _keys_of(value, one)
            yield from (f"{path} {key} = ..." for key in keys or [f"**{one.name}"])
        elif one.kind is one.KEYWORD_ONLY:
            yield f"{path} {one.name}{default}"
        else:
            only = ", by position only" if one.kind is one.POSITIONAL_ONLY else ""
            yield f"{path} {place:2} {one.name}{default}{only}"


def _shown(default: Any) -> str:
    """A default as a caller would write it; one that has no such form is just there."""
    return repr(default) if isinstance(default, PLAIN) else "..."


def _keys_of(function: Any, parameter: inspect.Parameter) -> list[str]:
    """The names that `**options: Unpack[...]` lets through; none: it takes any."""
    if inspect.isclass(function):
        function = function.__init__
    kinds = _classes_in(_evaluated(function, parameter.annotation))
    return [key for kind in kinds for key in typing.get_type_hints(kind)]


def _answer(path: str, function: Any) -> Iterator[str]:
    """The attributes of what comes back, where that is a class of ours without a public name."""
    annotation = getattr(function, "__annotations__", {}).get("return")
    for kind in _classes_in(_evaluated(function, annotation)):
        if _is_ours(kind) and kind.__name__ not in INNER and kind not in _public_values():
            yield from (f"{path} -> {name}" for name in _members(kind))


def _evaluated(function: Any, annotation: Any) -> Any:
    if not isinstance(annotation, str):
        return annotation
    try:
        holder = SimpleNamespace(__annotations__={"it": annotation})
        return typing.get_type_hints(holder, inspect.unwrap(function).__globals__)["it"]
    except NameError:  # of another library, and imported for type checkers only
        return None


def _classes_in(annotation: Any) -> Iterator[type]:
    if inspect.isclass(annotation):
        yield annotation
    for part in typing.get_args(annotation):
        yield from _classes_in(part)
