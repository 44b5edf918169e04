"""Files on a command line: a path, or `-` for a pipe. What fails with them is one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Annotated, Any, Literal, NamedTuple

import typer

from chasquimq.cli.ask import refuse
from chasquimq.cli.exits import Exit
from chasquimq.cli.output import FULL, drop_stdout
from chasquimq.config import one_of
from chasquimq.errors import ChasquiError, ConfigError

FormatName = Literal["jsonl", "msgpack"]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="jsonl|msgpack",
        help="Default: by the file's name, else jsonl.",
        show_default=False,
    ),
]
STANDARD = "-"


class Chosen(NamedTuple):
    file: str | IO[Any]
    format: FormatName
    is_standard: bool


@contextmanager
def into_file(path: str | None, format: str | None, *, force: bool) -> Iterator[Chosen]:
    """Where to write: a file that is not there yet, or stdout where it is a pipe or asked for."""
    if path is None:
        if sys.stdout.isatty():
            raise ConfigError("say where to write: a FILE, a pipe, or - for this terminal")
        path = STANDARD
    form = _read_format(path, format)
    is_standard = path == STANDARD
    if not is_standard and os.path.lexists(path) and not force:
        refuse(f"{path} is there already; --force replaces it")
    target: str | IO[Any] = path
    if is_standard:
        target = _binary(sys.stdout)
    with _told("cannot write to stdout" if is_standard else path):
        if is_standard or os.path.isfile(path) or not os.path.exists(path):
            yield Chosen(target, form, is_standard)
        else:  # a device or a named pipe, which no other file can replace
            with open(path, "wb") as opened:
                yield Chosen(opened, form, is_standard)


@contextmanager
def from_file(path: str, format: str | None) -> Iterator[Chosen]:
    form = _read_format(path, format)
    is_standard = path == STANDARD
    with _told("cannot read stdin" if is_standard else path):
        yield Chosen(_binary(sys.stdin) if is_standard else path, form, is_standard)


def _read_format(path: str, format: str | None) -> FormatName:
    if format is not None:
        one_of("--format", format, ("jsonl", "msgpack"))
        return "msgpack" if format == "msgpack" else "jsonl"
    return "msgpack" if path.lower().endswith((".msgpack", ".mpk")) else "jsonl"


def _binary(file: Any) -> IO[Any]:
    buffer: IO[Any] = getattr(file, "buffer", file)
    return buffer


@contextmanager
def _told(trouble: str) -> Iterator[None]:
    try:
        yield
    except ChasquiError:
        raise
    except BrokenPipeError:
        drop_stdout()
        raise typer.Exit(Exit.FAILED) from None
    except OSError as error:
        if error.errno in FULL:
            drop_stdout()
        refuse(f"{trouble}: {error.strerror or error}")
