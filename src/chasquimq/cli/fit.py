"""Which columns of a sheet give way when a terminal is narrow. Pure.

A row that is cut in every column tells nothing. So whole columns go, in an order that the sheet's
author chose, until the rest can be read; a line below says which.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from chasquimq.cli.sheet import Column, Sheet, cell

NOTHING = cell(None).text
_BORDER = 1  # a screen that is too narrow leaves out the blanks around words


def fit(
    one: Sheet, width: int | None, give_way: Sequence[str], hint: str = "", fold: int = 16
) -> Sheet:
    """The sheet without the columns that do not fit, those in which nothing stands first; None:
    there is room for all of them. `fold`: wide columns can be read from this width on."""
    if width is None:
        return one
    kept = list(range(len(one.columns)))
    places = [place for head in give_way for place in kept if one.columns[place].head == head]
    hidden: list[str] = []
    for place in sorted(places, key=lambda place: not _is_empty(one, place)):
        if _width(one, kept, fold) <= width:
            break
        kept.remove(place)
        hidden.append(one.columns[place].head)
    if not hidden:
        return one
    note = f"not shown at this width: {', '.join(hidden)}{f'; {hint}' if hint else ''}"
    return one._replace(
        columns=tuple(one.columns[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in one.rows),
        notes=(*one.notes, note),
    )


def _is_empty(one: Sheet, place: int) -> bool:
    return all(row[place].text == NOTHING for row in one.rows)


def _width(one: Sheet, kept: Sequence[int], fold: int) -> int:
    return _BORDER + sum(_column_width(one, place, fold) + _BORDER for place in kept)


def _column_width(one: Sheet, place: int, fold: int) -> int:
    column: Column = one.columns[place]
    widest = max(cell_len(text) for text in (column.head, *(row[place].text for row in one.rows)))
    return min(widest, max(fold, cell_len(column.head))) if column.wide else widest
