"""Files of exported rows. Everything here may block: it runs beside the event loop.

A path is written under another name beside it, readable by its owner alone (jobs may hold what
is private), and gets its name when it is whole: whatever fails, an older file stays as it is.
Reading holds a few rows at a time, and none that is larger than an export writes them.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import IO, Any, Literal, NamedTuple, get_args

from chasquimq import wire
from chasquimq.config import one_of
from chasquimq.errors import ArgumentError, ConfigError, WireError
from chasquimq.store.dead import PAGE, DeadRow
from chasquimq.wire import MAX_ROW_BYTES, Exported

Format = Literal["jsonl", "msgpack"]
File = str | os.PathLike[str] | IO[str] | IO[bytes]

CHUNK_BYTES = 4 * 1024 * 1024  # a batch ends with the row that makes it larger
_READ_BYTES = 64 * 1024

_SUFFIXES: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".msgpack": "msgpack",
    ".mpk": "msgpack",
}


class Sheet:
    """Where an export is written."""

    def __init__(self, target: File, format: Format | None) -> None:
        self._path = _path(target, "write")
        self._file: Any = None if self._path else target
        self._part: str | None = None  # the name that the file has until it is whole
        self._is_text = False
        self._pack = wire.pack_json
        if read_format(target, format) == "msgpack":
            self._pack = wire.pack_msgpack

    def open(self) -> None:
        if self._path is None:
            self._is_text = _is_text(self._file, "write", self._pack is wire.pack_msgpack)
            return
        if os.path.exists(self._path) and not os.path.isfile(self._path):
            raise ConfigError(f"{self._path!r} is no ordinary file; give it as an open one")
        folder = os.path.dirname(self._path)
        handle, self._part = tempfile.mkstemp(prefix=".chasquimq-", suffix=".part", dir=folder)
        self._file = os.fdopen(handle, "wb")

    def write(self, rows: Sequence[DeadRow]) -> None:
        for row in rows:
            data = self._pack(row.entry, row.fields)
            taken = self._file.write(data.decode() if self._is_text else data)
            while isinstance(self._file, io.RawIOBase) and (data := data[taken or 0 :]):
                # Without a buffer a file may take less than it is given.
                taken = self._file.write(data)

    def end(self, whole: bool) -> None:
        if self._path is None:
            if whole and hasattr(self._file, "flush"):
                self._file.flush()
            return
        if self._part is None:
            return
        try:
            with self._file as file:
                file.flush()
                os.fsync(file.fileno())
            if whole:
                os.replace(self._part, self._path)
        except OSError:
            if whole:
                raise
        finally:
            with suppress(FileNotFoundError):  # it has its real name
                os.unlink(self._part)


class Batch(NamedTuple):
    """Some rows, and what is wrong with the one behind them."""

    rows: list[Exported]
    trouble: str = ""


NO_MORE = Batch([])


class Source:
    """Where an import is read from."""

    def __init__(self, source: File, format: Format | None) -> None:
        self._path = _path(source, "read")
        self._file: Any = None if self._path else source
        self._is_msgpack = read_format(source, format) == "msgpack"
        self._rows: Iterator[tuple[int, Exported]] | None = None
        self._number = 0  # of the row that was read last

    def open(self) -> None:
        if self._path is None:
            _is_text(self._file, "read", self._is_msgpack)
        else:
            self._file = open(self._path, "rb")  # noqa: SIM115 - `end` closes it
        self._rows = self._documents() if self._is_msgpack else self._lines()

    def read(self) -> Batch:
        """The next rows, at the end NO_MORE."""
        assert self._rows is not None, "read before open"
        rows: list[Exported] = []
        size = 0
        try:
            for length, row in self._rows:
                rows.append(row)
                size += length
                if len(rows) == PAGE or size > CHUNK_BYTES:
                    break
        except (WireError, UnicodeError) as error:
            what = "row" if self._is_msgpack else "line"
            why = error.args[0] if isinstance(error, WireError) else "from here on it is no text"
            return Batch(rows, f"{what} {self._number}: {why}")
        return Batch(rows)

    def end(self, whole: bool) -> None:
        if self._path is not None and self._file is not None:
            self._file.close()

    def _lines(self) -> Iterator[tuple[int, Exported]]:
        self._number = 1
        while line := self._file.readline(MAX_ROW_BYTES + 1):
            if len(line) > MAX_ROW_BYTES:
                raise WireError(_TOO_LARGE)
            if not line.isspace():
                yield len(line), wire.unpack_json(line)
            self._number += 1

    def _documents(self) -> Iterator[tuple[int, Exported]]:
        self._number = 1
        data, at = b"", 0
        while True:
            left = memoryview(data)[at:]
            end = wire.row_end(left) if left else None
            if end is None:
                if len(left) > MAX_ROW_BYTES:
                    raise WireError(_TOO_LARGE)
                # As much again as there is: a row is walked through few times until it is whole.
                more = self._file.read(max(_READ_BYTES, len(left)))
                if not more:
                    break
                data, at = bytes(left) + more, 0
            else:
                yield end, wire.unpack_msgpack(left[:end])
                self._number += 1
                at += end
        if left:
            raise WireError("the file ends in the middle of it")


_TOO_LARGE = f"it is larger than {MAX_ROW_BYTES} bytes"


def read_format(file: File, format: Format | None) -> Format:
    """What was asked for, or what the file's name says."""
    if format is not None:
        one_of("format", format, get_args(Format))
        return format
    name = os.fspath(file) if isinstance(file, str | os.PathLike) else getattr(file, "name", None)
    suffix = os.path.splitext(name)[1].lower() if isinstance(name, str) else ""
    if suffix not in _SUFFIXES:
        known = ", ".join(_SUFFIXES)
        raise ConfigError(
            f"no format is known by the name {name!r:.80} (known: {known}); "
            'give format="jsonl" or format="msgpack"'
        )
    return _SUFFIXES[suffix]


def _path(file: object, verb: str) -> str | None:
    """The file's place; None for a file that is open."""
    path = os.fspath(file) if isinstance(file, str | os.PathLike) else None
    if isinstance(path, str):
        return os.path.realpath(path)  # a link stays one: what it leads to is written
    if not hasattr(file, verb):
        raise ArgumentError(
            f"give a path or a file that is open to {verb}, got {type(file).__name__}: {file!r:.80}"
        )
    return None


def _is_text(file: Any, verb: str, needs_bytes: bool) -> bool:
    """Whether an open file is one of text; asked with nothing, which harms neither kind."""
    try:
        is_text = isinstance(file.read(0), str) if verb == "read" else _takes_text(file)
    except io.UnsupportedOperation as error:
        raise ConfigError(f"the file is not open to {verb}: {error}") from error
    if is_text and needs_bytes:
        raise ConfigError("msgpack is no text; open the file in binary mode")
    return is_text


def _takes_text(file: Any) -> bool:
    try:
        file.write(b"")
    except TypeError:
        file.write("")
        return True
    return False
