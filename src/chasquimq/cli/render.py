"""What the doors answer, as sheets. Pure: values in, sheets out; no clock, no terminal."""

from __future__ import annotations

from collections.abc import Sequence

from chasquimq.cli.sheet import Cell, Column, Sheet, Tone, cell, sheet
from chasquimq.store.inspect import Overview

HUNDREDS = 100


def number(name: str) -> Column:
    return Column(name, right=True)


def ago(ms: int | None) -> str | None:
    """A duration as people say it: 850 ms, 12.3 s, 4 min 5 s, 3 h 20 min, 5 d 2 h."""
    if ms is None:
        return None
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1_000:.1f} s"
    seconds = ms // 1_000
    for first, second, name, inner, unit in _UNITS:
        if seconds < first * second:
            return f"{seconds // first} {name} {seconds % first // unit} {inner}"
    days, rest = divmod(seconds, 86_400)
    return f"{days} d {rest // 3_600} h"


# (seconds of the unit, up to how many of it, its name, the next smaller one, its seconds)
_UNITS = ((60, 60, "min", "s", 1), (3_600, 24, "h", "min", 60))


def size(count: int) -> str:
    """Bytes as people say them."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1_024 or unit == "TiB":
            break
        value /= 1_024
    return f"{int(value)} B" if unit == "B" else f"{value:.1f} {unit}"


def overview(one: Overview) -> Sheet:
    """`chasqui inspect QUEUE`: the rows of the reference, then ours."""
    rows: list[tuple[object, object]] = [
        ("stream depth", number_cell(one.stream_depth)),
        ("pending", "0 (group not created)" if one.pending is None else one.pending),
        ("DLQ depth", number_cell(one.dlq_depth, bad_from=1)),
        ("delayed depth", one.delayed_depth),
        ("oldest delayed lag (ms)", one.delayed_lag_ms),
        ("repeatable count", one.repeatables),
        ("waiting", one.counts.waiting),
        ("oldest waiting", ago(one.counts.oldest_waiting_ms)),
        ("consumers", len(one.consumers)),
        ("paused", Cell("yes", "warn") if one.paused else "no"),
    ]
    return sheet(
        (f"queue: {one.queue}", number(f"group: {one.group}")),
        rows,
    )


def overviews(every: Sequence[Overview]) -> Sheet:
    """`chasqui inspect`: a row per queue."""
    return sheet(
        (
            "queue",
            *map(number, ("waiting", "pending", "delayed", "DLQ", "repeatable", "consumers")),
            number("oldest waiting"),
            "state",
        ),
        (
            (
                one.queue,
                one.counts.waiting,
                0 if one.pending is None else one.pending,
                one.delayed_depth,
                number_cell(one.dlq_depth, bad_from=1),
                one.repeatables,
                len(one.consumers),
                ago(one.counts.oldest_waiting_ms),
                state(one),
            )
            for one in every
        ),
        empty="(no queues)",
    )


def consumers(one: Overview) -> Sheet:
    return sheet(
        ("consumer", number("pending"), number("last spoke")),
        ((row.name, row.pending, f"{ago(row.idle_ms)} ago") for row in one.consumers),
        empty="(no consumers)",
    )


def state(one: Overview) -> Cell:
    if one.paused:
        return Cell("paused", "warn")
    if one.counts.waiting and not one.consumers:
        return Cell("no workers", "bad")
    return Cell("ok", "good")


def number_cell(value: int, bad_from: int | None = None) -> Cell:
    tone: Tone = "bad" if bad_from is not None and value >= bad_from else ""
    return cell(value, tone)
