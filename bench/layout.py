"""Tables in Markdown that read as text, too."""

from __future__ import annotations

from collections.abc import Sequence

THINNEST = 2  # a rule with its colon


def table(rows: Sequence[Sequence[str]], texts: int = 1) -> list[str]:
    """The first row is the head. The first `texts` columns are words, the others figures."""
    columns = range(len(rows[0]))
    widths = [max(THINNEST, *(len(row[column]) for row in rows)) for column in columns]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column < texts else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(f"| {' | '.join(cells)} |")
    rule = [
        "-" * width if column < texts else "-" * (width - 1) + ":"
        for column, width in enumerate(widths)
    ]
    return [lines[0], f"| {' | '.join(rule)} |", *lines[1:]]
