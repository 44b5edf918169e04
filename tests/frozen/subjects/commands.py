"""Every command, argument, option and flag, as the parser knows them.

Freezes how each is spelled, its type and default, and whether it may be repeated. The pages of
`docs/reference/cli/` hold what `--help` says about them.
"""

from __future__ import annotations

import enum
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chasquimq.cli.app import build_whole

KINDS = {str: "text", int: "integer", float: "number", bool: "flag", Path: "path"}


def lines() -> Iterator[str]:
    root = build_whole()
    yield from _command("chasqui", root)
    spellings = sorted(root.context_settings["help_option_names"], key=len, reverse=True)
    yield f"chasqui {' '.join(spellings)}: flag, for every command"


def _command(path: str, command: Any) -> Iterator[str]:
    inner = getattr(command, "commands", None)
    hidden = ", hidden" if command.hidden else ""
    yield f"{path} ({'command' if inner is None else 'group'}{hidden})"
    place = 0
    for one in command.params:
        if one.param_type_name == "argument":
            place += 1
            yield f"{path} {place} {(one.metavar or one.name.upper()).strip('[].')}: {_about(one)}"
        else:
            spellings = sorted(one.opts, key=len, reverse=True) + one.secondary_opts
            yield f"{path} {' '.join(spellings)}: {_about(one)}"
    for name, below in (inner or {}).items():
        yield from _command(f"{path} {name}", below)


def _about(one: Any) -> str:
    """What the parser does with an argument or an option."""
    words = [_kind(one)]
    if one.required:
        words.append("required")
    elif not callable(one.default) and one.default is not None:
        words.append(f"default {_shown(one.default)}")
    if one.nargs == -1 or getattr(one, "multiple", False) or getattr(one, "count", False):
        words.append("several times")
    words += [f"{word} {value}" for word, value in _bounds(one) if value is not None]
    words += [f"from ${one.envvar}"] if one.envvar else []
    words += ["hidden"] if one.hidden else []
    return ", ".join(words)


def _bounds(one: Any) -> Iterator[tuple[str, Any]]:
    yield "at least", getattr(one, "min", None)
    yield "at most", getattr(one, "max", None)


def _shown(default: Any) -> str:
    if isinstance(default, bool):
        return "on" if default else "off"
    return str(getattr(default, "value", default))


def _kind(one: Any) -> str:
    if getattr(one, "is_flag", False):
        return "flag"
    annotation = one.type_descriptor.annotation
    if typing.get_origin(annotation) is list:
        [annotation] = typing.get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return " | ".join(str(choice.value) for choice in annotation)
    if typing.get_origin(annotation) is typing.Literal:
        return " | ".join(map(str, typing.get_args(annotation)))
    return KINDS.get(annotation, repr(annotation))
