"""One page of rows on its way to Arrow, and what in it cannot be read.

1. a stage reads the values of all rows at once, mostly in C;
2. if it fails, they are read one by one, or in ever smaller halves: what is wrong becomes null, and
   its row has a fault;
3. what is null has no next stage, so each fault is told once.

What one row becomes never depends on its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from chasquimq.errors import WireError
from chasquimq.text import shown
from chasquimq.wire.scan import UNREADABLE

Build = Callable[[Sequence[Any]], pa.Array]
Values = Callable[[], Sequence[Any]]
Columns = dict[str, tuple[Build, Values]]  # how a column is built, and of what, if it is asked for

FAULTS = (WireError, pa.ArrowCapacityError, *UNREADABLE)
MAX_REASON = 500


class TooMuchError(Exception):
    """No fault of a row: together they are more than the 2 GiB that a column of a batch holds."""


def array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    made = pa.array(values, kind)
    if isinstance(made, pa.ChunkedArray):
        raise TooMuchError
    return made


class Page:
    def __init__(self, rows: Sequence[Any]) -> None:
        self.rows = rows
        self.faults: dict[int, str] = {}  # of which row, and why

    def each(self, what: str, read: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
        """`read` of each value; None of None, and of what cannot be read."""
        if None not in values:
            try:
                return list(map(read, values))
            except FAULTS:
                pass  # some value: which one, and what became of the others?
        found: list[Any] = []
        for at, value in enumerate(values):
            try:
                found.append(None if value is None else read(value))
            except FAULTS as error:
                self._note(at, what, error)
                found.append(None)
        return found

    def column(self, name: str, build: Build, values: Sequence[Any]) -> pa.Array:
        """The values in Arrow; null where one does not fit."""
        parts = self._parts(name, build, values, 0)
        try:
            return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        except pa.ArrowInvalid:
            raise TooMuchError from None

    def _parts(self, name: str, build: Build, values: Sequence[Any], start: int) -> list[pa.Array]:
        try:
            return [build(values)]
        except FAULTS as error:
            if len(values) == 1:
                self._note(start, name, error)
                return [build([None])]
        half = len(values) // 2
        return [
            *self._parts(name, build, values[:half], start),
            *self._parts(name, build, values[half:], start + half),
        ]

    def _note(self, at: int, what: str, error: BaseException) -> None:
        said = error.args[0] if isinstance(error, WireError) else error
        why = shown(f"{what}: {said}" if what else f"{said}", MAX_REASON)
        known = self.faults.get(at)
        if known is None:
            self.faults[at] = why
        elif why not in known:  # two columns may need the same broken part
            self.faults[at] = f"{known}; {why}"
