"""Fields of entries by name, a page at a time; the first of a name counts, as in `wire/entry.py`.

Most entries of a page have the same fields in the same order. So they are not made into a dict
each: a value is picked by where its name stands in that order.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from chasquimq.errors import WireError
from chasquimq.spark.decode.page import Page

_GONE = ()  # the order of no fields: Redis has no entry without


class Fields:
    """Of rows whose last part is the fields of an entry, flat: name, value, name, value."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def values(self, name: bytes, absent: bytes | None = None) -> list[bytes | None]:
        """`absent` where an entry has no such field; None where there is no entry."""
        rows, orders, known = self._orders
        places = [order.index(name) * 2 + 1 if name in order else 0 for order in known]
        if len(places) == 1 and (at := places[0]):
            return [fields[at] for fields in rows]
        found = [
            fields[at] if (at := places[order]) else absent
            for fields, order in zip(rows, orders, strict=True)
        ]
        if _GONE in known:
            return [one if fields else None for one, fields in zip(found, rows, strict=True)]
        return found

    @cached_property
    def _orders(self) -> tuple[list[list[Any]], list[int], list[tuple[Any, ...]]]:
        """The fields of each row, which order it has, and the orders."""
        rows = [row[-1] or [] for row in self._page.rows]
        first = rows[0][:-1:2] if rows else []
        if first and all(fields[:-1:2] == first for fields in rows):
            return rows, [0] * len(rows), [tuple(first)]
        known: dict[tuple[Any, ...], int] = {}
        orders = [known.setdefault(tuple(fields[:-1:2]), len(known)) for fields in rows]
        if _GONE in known:
            self._page.each("", _there, self._page.rows)
        return rows, orders, list(known)


def _there(row: Any) -> None:
    if not row[-1]:
        raise WireError("its entry is gone: deleted or trimmed while a worker had it")
