"""Records to add, from a file or a pipe, a few at a time: memory does not grow with the file.

json      one document, of any number of lines
jsonl     a document on each line; blank lines count, and mean nothing
msgpack   values one behind the other

A pipe is read as it comes: what is there is handed on, nobody waits for a batch to be full. Where
the name tells no format, the first line does: if it is a whole document, each line is one.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from typing import IO, Any, Literal, NamedTuple

from chasquimq import wire
from chasquimq.errors import ConfigError, WireError
from chasquimq.wire import MAX_ROW_BYTES

Format = Literal["json", "jsonl", "msgpack"]

SUFFIXES: dict[str, Format] = {
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".msgpack": "msgpack",
    ".mpk": "msgpack",
}
_READ = 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_NO_JSON = {  # what a file begins with that is none
    b"\xff\xfe": "it is UTF-16; JSON is UTF-8: convert it, for instance with iconv -t UTF-8",
    b"\xfe\xff": "it is UTF-16; JSON is UTF-8: convert it, for instance with iconv -t UTF-8",
    b"\x1f\x8b": "it is compressed with gzip; pipe it in: zcat FILE | chasqui add ...",
    b"\x28\xb5\x2f\xfd": "it is compressed with zstd; pipe it in: zstdcat FILE | chasqui add ...",
}
_TOO_LARGE = f"it is longer than {MAX_ROW_BYTES:,} bytes"


class Record(NamedTuple):
    number: int  # its line, or its place among the values
    value: Any


class Bad(NamedTuple):
    """Where a record should be. `last`: nobody can tell where the next one begins."""

    number: int
    why: str
    last: bool = False


Item = Record | Bad


class Source:
    """`name` is what messages call it; `first` the first record that is wanted."""

    def __init__(
        self,
        file: IO[bytes],
        name: str,
        format: Format | None = None,
        *,
        first: int = 1,
        lists: bool = False,
    ) -> None:
        self.name = name
        self.format = format
        self.at = 0  # bytes that were read
        self.number = 1  # of the record that comes next
        self.blank = True  # nothing but white space has come
        self._file = file
        self._read: Callable[[int], bytes] = getattr(file, "read1", file.read)
        self.first = first
        self._lists = lists  # a document that is a list stands for its items
        self._head = b""
        self._items: Iterator[Item | None] | None = None

    @property
    def unit(self) -> str:
        return {"jsonl": "line", "msgpack": "value"}.get(self.format or "", "job")

    @property
    def size(self) -> int | None:
        """Of the file, in bytes; None: nobody knows, it is no ordinary one."""
        try:
            found = os.fstat(self._file.fileno())
        except (OSError, ValueError):  # it is in memory
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    @property
    def is_many(self) -> bool:
        """Whether it may hold more than one record."""
        return self.format != "json" or self._lists

    def batch(self, most: int) -> list[Item]:
        """The next records, at most so many, and as many as are there; none: the end."""
        if self._items is None:
            self._items = self._open()
        found: list[Item] = []
        for item in self._items:
            if item is not None:
                found.append(item)
                if len(found) == most:
                    break
            elif found:  # reading on might mean to wait
                break
        return found

    # -- inside --------------------------------------------------------------------------------

    def _open(self) -> Iterator[Item | None]:
        if self.format is None:
            self.format = self._guess()
        if self.format == "msgpack":
            return self._values()
        return self._lines() if self.format == "jsonl" else self._document()

    def _more(self) -> bytes:
        """What comes next; nothing: the end."""
        if self._head:
            data, self._head = self._head, b""
            return data
        begins = self.at == 0
        data = self._bytes()
        if not begins or self.format == "msgpack":
            return data
        while any(start.startswith(data) and start != data for start in (_BOM, *_NO_JSON)):
            more = self._bytes()  # too few bytes to tell what it is
            if not more:
                break
            data += more
        for start, why in _NO_JSON.items():
            if data.startswith(start):
                raise ConfigError(f"{self.name}: {why}")
        return data.removeprefix(_BOM) or (self._bytes() if data else b"")

    def _bytes(self) -> bytes:
        try:
            data = self._read(_READ)
        except OSError as error:
            raise WireError(f"{self.name} cannot be read: {error.strerror}") from None
        self.at += len(data)
        self.blank = self.blank and not data.strip()
        return data

    def _guess(self) -> Format:
        head = bytearray()
        ended = False
        while b"\n" not in head.lstrip() and len(head) <= MAX_ROW_BYTES and not ended:
            more = self._more()
            head += more
            ended = not more
        self._head = bytes(head)
        line = self._head.lstrip().partition(b"\n")[0]
        parsed = parse(line)
        whole = isinstance(parsed, Bad) or (self._lists and isinstance(parsed, list))
        return "json" if whole else "jsonl"

    def _lines(self) -> Iterator[Item | None]:
        parts: list[bytes] = []  # of a line that is not at its end
        size, too_long = 0, False
        while data := self._more():
            *lines, rest = data.split(b"\n")
            for line in lines:
                if too_long:
                    yield from self._past(Bad(self.number, _TOO_LARGE))
                else:
                    yield from self._line(b"".join([*parts, line]) if parts else line)
                parts, size, too_long = [], 0, False
            size += len(rest)
            too_long = size > MAX_ROW_BYTES
            parts = [] if too_long else [*parts, rest] if rest else parts
            yield None
        if too_long:
            yield from self._past(Bad(self.number, _TOO_LARGE))
        elif parts:
            yield from self._line(b"".join(parts))

    def _line(self, line: bytes) -> Iterator[Item]:
        if self.number < self.first or not line or line.isspace():
            self.number += 1
            return
        parsed = parse(line)
        is_bad = isinstance(parsed, Bad)
        yield from self._past(
            parsed._replace(number=self.number) if is_bad else Record(self.number, parsed)
        )

    def _past(self, item: Item) -> Iterator[Item]:
        """The item, if it is wanted; the next one has the next number."""
        self.number += 1
        if item.number >= self.first:
            yield item

    def _document(self) -> Iterator[Item | None]:
        data = bytearray()
        while more := self._more():
            data += more
            if len(data) > MAX_ROW_BYTES:
                yield Bad(1, f"{_TOO_LARGE}; for a document on each line say --format jsonl")
                return
        if data and not data.isspace():
            parsed = parse(bytes(data))
            if isinstance(parsed, Bad):
                yield parsed
            elif self._lists and isinstance(parsed, list):
                for value in parsed:
                    yield from self._past(Record(self.number, value))
            else:
                yield from self._past(Record(1, parsed))

    def _values(self) -> Iterator[Item | None]:
        data, at = b"", 0
        while True:
            left = memoryview(data)[at:]
            try:
                end = wire.row_end(left) if left else None
            except WireError as error:
                yield Bad(self.number, f"not MessagePack: {error.args[0]}", last=True)
                return
            if end is None:
                if len(left) > MAX_ROW_BYTES:
                    yield Bad(self.number, _TOO_LARGE, last=True)
                    return
                yield None
                more = self._more()
                # As much again as there is: a large value is walked through few times.
                while more and len(left) > _READ and len(more) < len(left):
                    if not (data := self._more()):
                        break
                    more += data
                if not more:
                    if left:
                        yield Bad(self.number, "the input ends in the middle of it", last=True)
                    return
                data, at = bytes(left) + more, 0
                continue
            if self.number < self.first:
                self.number += 1
            else:
                yield from self._past(self._value(bytes(left[:end])))
            at += end

    def _value(self, data: bytes) -> Item:
        try:
            return Record(self.number, wire.decode(data))
        except WireError as error:
            return Bad(self.number, str(error.args[0]))


def parse(line: bytes) -> Any:
    """The document in a line, or a Bad. NaN and the infinities pass, as in `Queue.add`; so do
    whole numbers of any size, which `Queue.add` refuses beyond 64 bits."""
    try:
        return json.loads(line.decode())
    except UnicodeDecodeError as error:
        return Bad(1, f"not UTF-8: {error.reason} at byte {error.start + 1}")
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column" if error.lineno > 1 else "column"
        return Bad(1, f"not JSON: {error.msg} ({where} {error.colno})")
    except ValueError:  # an int of thousands of digits
        return Bad(1, "it holds a number that is too long")
    except RecursionError:
        return Bad(1, "it is nested too deep")
