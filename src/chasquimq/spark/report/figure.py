"""The parts that figures are made of: traces, axes, and rows with a label above each mark.

A figure is what the library takes, with colours by their role (`@failed`): the page's script puts
in those of the theme. `meta` says what a trace counts, for whoever adds it up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from math import log10
from typing import Any, NamedTuple

from chasquimq.spark.report.series import Grid
from chasquimq.spark.report.show import count, duration, label

Trace = dict[str, Any]
Layout = dict[str, Any]

LEAST_MS = 0.01  # a logarithm has no zero: what is less is drawn here
_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_COARSE_MS: tuple[float, ...] = (
    *(0.01, 0.1, 1, 10, 100, _SECOND, 10 * _SECOND, _MINUTE, 10 * _MINUTE, _HOUR, 10 * _HOUR),
    *(3 * _DAY, 30 * _DAY, 300 * _DAY),
)
_FINE_MS = tuple(step * size for size in (0.01, 0.1, 1, 10, 100) for step in (1, 2, 5)) + tuple(
    step * unit
    for unit, steps in (
        (_SECOND, (1, 2, 5, 10, 20)),
        (_MINUTE, (1, 2, 5, 10, 20)),
        (_HOUR, (1, 2, 5, 10)),
        (_DAY, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    )
    for step in steps
)
_ROW_PX = 42
_FEW = 90
_NARROW, _WIDE = 40, 120  # characters of a name, where there is little room and where there is


class Figure(NamedTuple):
    data: list[Trace]
    layout: Layout
    height: int
    alt: str
    columns: str = ""  # what the first column of its table is; no table where there is none

    def packed(self) -> dict[str, Any]:
        return self._asdict()


class Line(NamedTuple):
    """A row of a plot that lists things: its name, what stands at its end, its values. Plain."""

    name: str
    said: str
    values: dict[str, float | None]


def time_axis(grid: Grid) -> Layout:
    return {"type": "date", "range": [stamp(grid.start_ms), stamp(grid.stop_ms)]}


def stamp(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def count_axis(**more: Any) -> Layout:
    return {"rangemode": "tozero", "tickformat": ",~s", "nticks": 5, **more}


def duration_axis(values: Iterable[float | None], **more: Any) -> Layout:
    ticks = ticks_for(value for value in values if value is not None)
    return {"type": "log", "tickvals": ticks, "ticktext": [*map(duration, ticks)], **more}


def ticks_for(values: Iterable[float]) -> list[float]:
    """Milliseconds to name on a logarithmic scale: three or more of them, and not too many."""
    known = [max(value, LEAST_MS) for value in values] or [LEAST_MS]
    low, high = log10(min(known)) - 0.3, log10(max(known)) + 0.3
    each = _COARSE_MS if high - low > 2.5 else _FINE_MS
    return [tick for tick in each if low <= log10(tick) <= high]


def bars_over_time(
    grid: Grid, values: Sequence[int], *, name: str, colour: str, meta: dict[str, str], **more: Any
) -> Trace:
    """A bar for each place, from its beginning to its end."""
    place = {**_places(grid), "width": grid.step_ms}
    mark = {"marker": {"color": colour, "line": {"width": 0}}, "hovertemplate": "%{y:,}"}
    return {"type": "bar", "name": name, "y": list(values), "meta": meta, **place, **mark, **more}


def line_over_time(
    grid: Grid,
    values: Sequence[float | None],
    *,
    name: str,
    colour: str,
    meta: dict[str, str],
    dash: str = "solid",
    **more: Any,
) -> Trace:
    return {
        "type": "scatter",
        "name": name,
        "y": list(values),
        "meta": meta,
        **_places(grid),
        "mode": "lines+markers" if _has_lonely(values) else "lines",
        "line": {"color": colour, "dash": dash, "width": 1.8},
        "marker": {"color": colour, "size": 5},
        **more,
    }


def _places(grid: Grid) -> Layout:
    """Values belong to the beginning of their place and are drawn in its middle."""
    start = stamp(grid.start_ms)
    period = {"xperiod": grid.step_ms, "xperiod0": start, "xperiodalignment": "middle"}
    return {"x0": start, "dx": grid.step_ms, **period}


def on_log(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else round(max(value, LEAST_MS), 3) for value in values]


def title_of(text: str, top: float) -> Layout:
    """A heading above one of two plots that share an axis."""
    place = {"x": 0, "xref": "paper", "xanchor": "left", "y": top, "yref": "paper"}
    return {"text": text, "showarrow": False, "yanchor": "bottom", "yshift": 4, **place}


def bars(
    lines: Sequence[Line], measure: str, colour: str, alt: str, rest: Line | None = None
) -> Figure:
    """A list with a bar below each name. That of the rest is cut where it would dwarf all others;
    its number stands beside it."""
    longest = max(line.values[measure] or 0 for line in lines)
    colours = [colour] * len(lines)
    if rest:
        lines, colours = [*lines, rest], [*colours, "@rest"]
    trace = {
        "type": "bar",
        "orientation": "h",
        "name": measure,
        "x": [line.values[measure] for line in lines],
        "y": list(range(len(lines))),
        "width": 0.34,
        "marker": {"color": colours},
        "hoverinfo": "skip",
        "meta": {"measure": measure},
    }
    layout = _listed(lines)
    layout["xaxis"] = {"visible": False, "range": [0, longest or 1], "fixedrange": True}
    layout |= {"showlegend": False, "hovermode": False}
    return Figure([trace], layout, _height(lines) - 40, alt)


def ranges(lines: Sequence[Line], marks: Sequence[tuple[str, str, str, str]], alt: str) -> Figure:
    """A list with a line below each name, from its least to its highest value.

    A mark is (measure, name, colour, symbol).
    """
    x: list[float | None] = []
    y: list[int | None] = []
    for place, line in enumerate(lines):
        found = on_log([value for value in line.values.values() if value is not None])
        ends = [value for value in found if value is not None]
        if ends:
            x += [min(ends), max(ends), None]
            y += [place, place, None]
    line_style = {"color": "@faint", "width": 3}
    stretch = {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": line_style}
    traces: list[Trace] = [stretch | {"hoverinfo": "skip", "showlegend": False}]
    for measure, name, colour, symbol in marks:
        values = on_log([line.values.get(measure) for line in lines])
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": values,
                "y": list(range(len(lines))),
                "marker": {"color": colour, "size": 10, "symbol": symbol},
                "meta": {"measure": measure, "unit": "ms"},
                "hovertemplate": f"{name} %{{text}}<extra></extra>",
            }
        )
    layout = _listed(lines)
    layout["xaxis"] = duration_axis(x, fixedrange=True)
    layout["hovermode"] = "closest"
    return Figure(traces, layout, _height(lines) + 34, alt)


def peak(grid: Grid, values: Sequence[int]) -> str:
    """Words for the highest of several values."""
    place = max(range(len(values)), key=lambda at: values[at])
    at = stamp(grid.start_ms + place * grid.step_ms)[:16]
    return f"at most {count(values[place])} in {duration(grid.step_ms)}, from {at} UTC"


def _listed(lines: Sequence[Line]) -> Layout:
    above = {"showarrow": False, "yref": "y", "xref": "paper", "yshift": 15, "borderpad": 0}
    above["bgcolor"] = "@panel"
    names: list[Layout] = []
    for place, line in enumerate(lines):
        wide, narrow = label(line.name, _WIDE), label(line.name, max(12, _NARROW - len(line.said)))
        left = {"x": 0, "xanchor": "left", "y": place, "text": wide, "narrow": narrow}
        left |= {"align": "left", "beside": len(line.said)}
        right = {"x": 1, "xanchor": "right", "y": place, "text": label(line.said)}
        names += [left | above, right | above]
    span = [len(lines) - 0.55, -0.75]
    return {"annotations": names, "yaxis": {"visible": False, "range": span, "fixedrange": True}}


def _height(lines: Sequence[Line]) -> int:
    return _ROW_PX * len(lines) + 56


def _has_lonely(values: Sequence[float | None]) -> bool:
    """Whether a line alone would leave something out: a value between two that are missing."""
    if len(values) <= _FEW:
        return True
    around = [None, *values, None]
    return any(
        value is not None and around[at] is None and around[at + 2] is None
        for at, value in enumerate(values)
    )
