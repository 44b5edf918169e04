"""The figures over time: throughput, latency, failures, depth, and waiting by weekday and hour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10

from chasquimq.spark.report.data import Rows
from chasquimq.spark.report.figure import (
    LEAST_MS,
    Figure,
    Layout,
    Trace,
    bars_over_time,
    count_axis,
    duration_axis,
    line_over_time,
    on_log,
    peak,
    stamp,
    ticks_for,
    time_axis,
    title_of,
)
from chasquimq.spark.report.series import Grid, Series, thinned_depth, together
from chasquimq.spark.report.show import clipped, count, duration, label, ms_of, number
from chasquimq.spark.report.view import APART, View

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_UPPER, _LOWER = [0.57, 1], [0, 0.43]
_RANKS = ((50, "@p50", "dot"), (95, "@p95", "solid"), (99, "@p99", "dash"))


def throughput(view: View, series: Mapping[str, Series], grid: Grid) -> Figure | None:
    """Completed runs by queue; of one queue, completed and failed ones."""
    whole = together([series[queue] for queue in view.queues if queue in series], grid)
    done, failed = whole.total("completed"), whole.total("failed")
    if not done and not failed:
        return None
    if view.is_several:
        traces = _by_queue(view, series, grid)
    else:
        traces = [_counted(whole, grid, "completed"), _counted(whole, grid, "failed")]
    layout = {"barmode": "stack", "bargap": 0, "xaxis": time_axis(grid), "yaxis": count_axis()}
    said = peak(grid, whole.counts["completed"])
    alt = f"{count(done)} jobs completed, {count(failed)} runs failed; {said}."
    return Figure(traces, layout, 340, alt, "from (UTC)")


def latency(view: View, series: Mapping[str, Series], grid: Grid) -> Figure | None:
    """p50, p95 and p99 of one queue; of several the p95 of each: percentiles do not add up."""
    shown = [queue for queue in view.queues if queue in series]
    traces: list[Trace] = []
    for what, axis in (("wait", "y"), ("run", "y2")):
        if view.is_several:
            for place, queue in enumerate(shown[:APART]):
                traces += _p95_of(queue, series[queue], grid, what, axis, f"@q{place}")
        else:
            for queue in shown:
                traces += _ranked(series[queue], grid, what, axis)
    if not traces:
        return None
    return Figure(
        traces,
        {
            "xaxis": time_axis(grid) | {"anchor": "y2"},
            "yaxis": duration_axis(_drawn(traces, "y"), domain=_UPPER),
            "yaxis2": duration_axis(_drawn(traces, "y2"), domain=_LOWER),
            "annotations": [
                title_of("wait, until a run starts" + " (p95)" * view.is_several, _UPPER[1]),
                title_of("run, from start to end" + " (p95)" * view.is_several, _LOWER[1]),
            ],
            "hoversubplots": "axis",
        },
        460,
        _worst(shown, series, grid),
        "from (UTC)",
    )


def failures(view: View, series: Mapping[str, Series], grid: Grid) -> Figure | None:
    whole = together([series[queue] for queue in view.queues if queue in series], grid)
    totals = {measure: whole.total(measure) for measure in ("failed", "retried", "buried")}
    if not any(totals.values()):
        return None
    finished = zip(whole.counts["failed"], whole.counts["completed"], strict=True)
    rates = [failed / (failed + done) if failed + done else None for failed, done in finished]
    traces = [
        _counted(whole, grid, "retried"),
        _counted(whole, grid, "buried"),
        line_over_time(
            grid,
            whole.counts["failed"],
            name="failed",
            colour="@failed",
            meta={"measure": "failed"},
            hovertemplate="%{y:,}",
        ),
        line_over_time(
            grid,
            [None if rate is None else round(rate, 5) for rate in rates],
            name="failure rate",
            colour="@p99",
            meta={"measure": "failure_rate"},
            yaxis="y2",
            showlegend=False,
            hovertemplate="%{y:.2%}",
        ),
    ]
    layout: Layout = {
        "barmode": "stack",
        "bargap": 0,
        "xaxis": time_axis(grid) | {"anchor": "y2"},
        "yaxis": count_axis(domain=_UPPER),
        "yaxis2": {"domain": _LOWER, "tickformat": ".0~%", "rangemode": "tozero", "nticks": 5},
        "annotations": [
            title_of("runs", _UPPER[1]),
            title_of("share of finished runs that failed", _LOWER[1]),
        ],
        "hoversubplots": "axis",
    }
    said = ", ".join(f"{count(value)} {measure}" for measure, value in totals.items())
    return Figure(
        traces, layout, 420, f"{said}; {peak(grid, whole.counts['failed'])}.", "from (UTC)"
    )


def depth(view: View, rows: Rows, most: int) -> Figure | None:
    """Jobs that wait and jobs that run, at the moments when somebody looked."""
    traces: list[Trace] = []
    named = ", %{fullData.name}" if view.is_several else ""
    by_queue = {queue: View(queue, (queue,)).of(rows) for queue in view.queues[:APART]}
    held = [(queue, found) for queue, found in by_queue.items() if found]
    for place, (queue, found) in enumerate(held):
        thin = thinned_depth(found, most)
        for measure, axis in (("waiting", "y"), ("running", "y2")):
            traces.append(
                {
                    "type": "scatter",
                    "name": label(queue, 24) if view.is_several else measure,
                    "x": [stamp(ms_of(row["at"])) for row in thin],
                    "y": [int(row[measure] or 0) for row in thin],
                    "mode": "lines+markers" if len(thin) <= 90 else "lines",
                    "line": {"color": f"@q{place}" if view.is_several else f"@{measure}"},
                    "marker": {"color": f"@q{place}" if view.is_several else f"@{measure}"},
                    "meta": {"measure": measure, "queue": clipped(queue)},
                    "yaxis": axis,
                    "legendgroup": str(place),
                    "showlegend": axis == "y" or not view.is_several,
                    "hovertemplate": f"%{{y:,}}<extra>{measure}{named}</extra>",
                }
            )
    if not traces:
        return None
    deepest = max(max(trace["y"]) for trace in traces if trace["yaxis"] == "y")
    layout = {
        "xaxis": {"type": "date", "anchor": "y2"},
        "yaxis": count_axis(domain=_UPPER),
        "yaxis2": count_axis(domain=_LOWER),
        "annotations": [title_of("waiting", _UPPER[1]), title_of("running", _LOWER[1])],
        "hoversubplots": "axis",
    }
    return Figure(traces, layout, 400, f"At most {count(deepest)} jobs waited in a queue.")


def heat(rows: Rows) -> Figure | None:
    """The p95 of waiting for each hour of the week, all queues together."""
    cells = {(int(row["weekday"]), int(row["hour"])): row for row in rows}
    known = {place: number(row["wait_p95_ms"]) for place, row in cells.items()}
    waits = {place: max(ms, LEAST_MS) for place, ms in known.items() if ms is not None}
    if not waits:
        return None
    z = [[_log(waits.get((day, hour))) for hour in range(24)] for day in range(1, 8)]
    texts = []
    for day, name in enumerate(DAYS, 1):
        line = []
        for hour in range(24):
            row = cells.get((day, hour))
            at = f"{name} {hour:02}:00–{hour + 1:02}:00 UTC"
            line.append(
                f"{at}<br>p95 {duration(row['wait_p95_ms'])}, p50 {duration(row['wait_p50_ms'])}"
                f"<br>{count(row['started'] or 0)} runs"
                if row
                else f"{at}<br>nothing ran"
            )
        texts.append(line)
    ticks = ticks_for(waits.values())
    bar = {"orientation": "h", "thickness": 10, "y": -0.16, "yanchor": "top", "len": 1}
    bar |= {"tickvals": [*map(log10, ticks)], "ticktext": [*map(duration, ticks)]}
    trace = {
        "type": "heatmap",
        "z": z,
        "x": list(range(24)),
        "y": list(range(7)),
        "text": texts,
        "hovertemplate": "%{text}<extra></extra>",
        "xgap": 2,
        "ygap": 2,
        "colorscale": "@heat",
        "colorbar": bar,
        "meta": {"measure": "wait_p95_ms", "runs": sum(int(row["started"] or 0) for row in rows)},
    }
    hours = list(range(0, 24, 3))
    day_axis = {"tickvals": list(range(7)), "ticktext": [day[:3] for day in DAYS]}
    layout = {
        "xaxis": {
            "tickvals": hours,
            "ticktext": [f"{hour:02}" for hour in hours],
            "showgrid": False,
        },
        "yaxis": {"autorange": "reversed", "showgrid": False} | day_axis,
        "hovermode": "closest",
    }
    worst = max(waits, key=lambda place: waits[place])
    alt = (
        f"Longest on {DAYS[worst[0] - 1]} from {worst[1]:02}:00 UTC: p95 {duration(waits[worst])}."
    )
    return Figure([trace], layout, 360, alt)


def _by_queue(view: View, series: Mapping[str, Series], grid: Grid) -> list[Trace]:
    shown = [queue for queue in view.queues if queue in series]
    traces = [
        bars_over_time(
            grid,
            series[queue].counts["completed"],
            name=label(queue, 24),
            colour=f"@q{place}",
            meta={"measure": "completed", "queue": clipped(queue)},
        )
        for place, queue in enumerate(shown[:APART])
    ]
    if rest := shown[APART:]:
        others = together([series[queue] for queue in rest], grid).counts["completed"]
        name = f"{len(rest)} more"
        meta = {"measure": "completed", "queue": name}
        traces.append(bars_over_time(grid, others, name=name, colour="@rest", meta=meta))
    return traces


def _counted(series: Series, grid: Grid, measure: str) -> Trace:
    meta = {"measure": measure}
    values = series.counts[measure]
    return bars_over_time(grid, values, name=measure, colour=f"@{measure}", meta=meta)


def _ranked(series: Series, grid: Grid, what: str, axis: str) -> list[Trace]:
    return [
        line_over_time(
            grid,
            on_log(series.times[f"{what}_p{rank}_ms"]),
            name=f"p{rank}",
            colour=colour,
            dash=dash,
            meta={"measure": f"{what}_p{rank}_ms", "unit": "ms"},
            yaxis=axis,
            legendgroup=str(rank),
            showlegend=what == "wait",
            hovertemplate=f"%{{text}}<extra>{what} p{rank}</extra>",
        )
        for rank, colour, dash in _RANKS
        if any(value is not None for value in series.times[f"{what}_p{rank}_ms"])
    ]


def _p95_of(
    queue: str, series: Series, grid: Grid, what: str, axis: str, colour: str
) -> list[Trace]:
    measure = f"{what}_p95_ms"
    if all(value is None for value in series.times[measure]):
        return []
    return [
        line_over_time(
            grid,
            on_log(series.times[measure]),
            name=label(queue, 24),
            colour=colour,
            meta={"measure": measure, "queue": clipped(queue), "unit": "ms"},
            yaxis=axis,
            legendgroup=colour,
            showlegend=what == "wait",
            # The name by reference: in the template itself a stranger's %{...} would be read.
            hovertemplate=f"%{{text}}<extra>{what}, %{{fullData.name}}</extra>",
        )
    ]


def _worst(queues: Sequence[str], series: Mapping[str, Series], grid: Grid) -> str:
    said = []
    for what in ("wait", "run"):
        found = [
            (value, place)
            for queue in queues
            for place, value in enumerate(series[queue].times[f"{what}_p95_ms"])
            if value is not None
        ]
        if found:
            value, place = max(found)
            at = stamp(grid.start_ms + place * grid.step_ms)[:16]
            said.append(f"highest p95 of {what}: {duration(value)}, from {at} UTC")
    whole = "; ".join(said)
    return f"{whole[:1].upper()}{whole[1:]}."


def _drawn(traces: Sequence[Trace], axis: str) -> list[float | None]:
    return [value for trace in traces if trace["yaxis"] == axis for value in trace["y"]]


def _log(ms: float | None) -> float | None:
    return None if ms is None else round(log10(ms), 4)
