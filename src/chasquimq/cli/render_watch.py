"""What `chasqui watch` shows at each look. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from chasquimq.cli import render
from chasquimq.cli.render import brief, iso, number, state
from chasquimq.cli.sheet import Cell, Column, Line, Sheet, Tone, cell, sheet
from chasquimq.cli.trend import Trend

_BARS = "▁▂▃▄▅▆▇█"


def header(queue: str | None, interval_ms: int, now_ms: int) -> str:
    what = "chasqui watch" if queue is None else f"chasqui watch {queue}"
    return f"{what}  refresh={interval_ms}ms  {iso(now_ms)}  (Ctrl+C to exit)"


def one_queue(trend: Trend) -> Sheet:
    """The table of `inspect`; from the second look on, how much the depths have changed."""
    table = render.overview(trend.last)
    if not trend.last.exists:
        table = table._replace(notes=(*table.notes, "there is no such queue (yet)"))
    stream, dlq = trend.stream_delta, trend.dlq_delta
    if stream is None or dlq is None:
        return table
    deltas = {"stream depth": _delta(stream), "DLQ depth": _delta(dlq, bad=dlq > 0)}
    return table._replace(
        columns=(*table.columns, number("Δ")),
        rows=tuple((*row, deltas.get(row[0].text, Cell(""))) for row in table.rows),
    )


def _delta(change: int, *, bad: bool = False) -> Cell:
    tone: Tone = "bad" if bad else "strong" if change else "dim"
    return Cell(f"{change:+,}" if change else "0", tone)


def pace(trend: Trend) -> Line:
    """How many jobs per second came and went."""
    rates = trend.rates
    if rates is None:
        return (Cell("in -/s  out -/s  dead -/s", "dim"),)
    died: Tone = "bad" if rates.died else ""
    over = f" over {render.ago(rates.over_ms)} (out: done, retried, dead)"
    return (
        Cell(f"in {per_second(rates.come)}/s "),
        Cell(f"out {per_second(rates.gone)}/s "),
        Cell(f"dead {per_second(rates.died)}/s", died),
        Cell(over, "dim"),
    )


def per_second(rate: float) -> str:
    return f"{rate:.1f}" if rate < 100 else f"{round(rate):,}"


def curve(trend: Trend, width: int) -> Line:
    """How many jobs waited lately, drawn into so many columns."""
    room = max(width - len("waiting  0 to 999,999,999"), 8)
    values = trend.waiting(room)
    return (
        Cell("waiting"),
        Cell(spark(values)),
        Cell(f"{min(values):,} to {max(values):,}", "dim"),
    )


def spark(values: Sequence[int]) -> str:
    """A bar each, from nothing to the highest of them; what is not nothing can be seen."""
    top = max(values, default=0)
    if not top:
        return _BARS[0] * len(values)
    return "".join(_BARS[-(-value * (len(_BARS) - 1) // top)] for value in values)


def all_queues(trends: Sequence[Trend], most: int | None = None) -> Sheet:
    """A row per queue. Where there are more than fit, those with the most to do."""
    shown = trends
    notes = render.problems(one.last for one in trends)
    if most is not None and len(trends) > most:
        busiest = sorted(trends, key=_weight, reverse=True)[: max(most, 1)]
        shown = sorted(busiest, key=lambda one: one.last.queue)
        notes = [f"{len(shown):,} of {len(trends):,} queues: those with the most to do"]
    heads = ("waiting", "pending", "delayed", "DLQ", "oldest", "in/s", "out/s")
    return sheet(
        (Column("queue", wide=True), *map(number, heads), "state"),
        (_row(one) for one in shown),
        notes=notes,
        empty="(no queues)",
    )


def _weight(one: Trend) -> tuple[bool, int, int]:
    last = one.last
    return state(last).tone != "good", last.stream_depth, last.delayed_depth + last.dlq_depth


def _row(one: Trend) -> tuple[object, ...]:
    last, rates = one.last, one.rates
    return (
        last.queue,
        None if last.counts is None else last.counts.waiting,
        last.pending or 0,
        render.depths(last)[0],
        _dead(one),
        brief(None if last.counts is None else last.counts.oldest_waiting_ms),
        None if rates is None else per_second(rates.come),
        None if rates is None else per_second(rates.gone),
        state(last),
    )


def _dead(one: Trend) -> Cell:
    if not one.dlq_delta:
        return render.depths(one.last)[1]
    return Cell(f"{one.last.dlq_depth:,} {one.dlq_delta:+,}", "bad")


def no_answer(where: str, since_ms: int) -> Cell:
    return cell(f"no answer from {where} since {iso(since_ms)}; trying again", "bad")
