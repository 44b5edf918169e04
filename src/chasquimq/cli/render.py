"""What the doors answer, as sheets. Pure: values in, sheets out; no clock, no terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from chasquimq.cli.sheet import Cell, Column, Sheet, Tone, cell, sheet
from chasquimq.store.inspect import Holding, Overview

SILENT_MS = 60_000  # a worker that waits for jobs speaks every few seconds
LATE_MS = 5_000  # who promotes and fires looks each second, and a lock passes on in five
NO_WORKERS = Cell("no workers", "bad")
_EPOCH = datetime.fromtimestamp(0, UTC)


def number(name: str) -> Column:
    return Column(name, right=True)


def ago(ms: int | None) -> str | None:
    """A duration as people say it: 850 ms, 12.3 s, 4 min 5 s, 3 h 20 min, 5 d 2 h."""
    if ms is None:
        return None
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms // 100 / 10:.1f} s"
    seconds = ms // 1_000
    for first, second, name, inner, unit in _UNITS:
        if seconds < first * second:
            return f"{seconds // first} {name} {seconds % first // unit} {inner}"
    days, rest = divmod(seconds, 86_400)
    return f"{days} d {rest // 3_600} h"


# (seconds of the unit, up to how many of it, its name, the next smaller one, its seconds)
_UNITS = ((60, 60, "min", "s", 1), (3_600, 24, "h", "min", 60))


def brief(ms: int | None) -> str | None:
    """The same in six characters, for a table of many columns: 850ms, 12.3s, 4m05s, 3h20m."""
    if ms is None:
        return None
    if ms < 1_000:
        return f"{ms}ms"
    if ms < 60_000:
        return f"{ms // 100 / 10:.1f}s"
    minutes, seconds = divmod(ms // 1_000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours:02}h" if days < 1_000 else f"{days}d"
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{seconds:02}s"


def size(count: int) -> str:
    """Bytes as people say them."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1_024 or unit == "TiB":
            break
        value /= 1_024
    return f"{int(value)} B" if unit == "B" else f"{value:.1f} {unit}"


def iso(ms: int) -> str:
    """A moment to the millisecond, in UTC: 2026-01-31T07:05:09.001Z; a number that is none as it
    is."""
    try:
        when = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return str(ms)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# -- one queue -----------------------------------------------------------------------------------


def overview(one: Overview) -> Sheet:
    """`chasqui inspect QUEUE`: the rows of the reference, then ours."""
    counts = one.counts
    waiting = None if counts is None else counts.waiting
    rows: list[tuple[object, object]] = [
        ("stream depth", _depth(one, "stream", one.stream_depth)),
        ("pending", "0 (group not created)" if one.pending is None else one.pending),
        ("DLQ depth", _depth(one, "dlq", one.dlq_depth, bad_from=1)),
        ("delayed depth", _depth(one, "delayed", one.delayed_depth)),
        ("oldest delayed lag (ms)", one.delayed_lag_ms),
        ("repeatable count", _depth(one, "repeat", one.repeatables)),
        ("waiting", waiting),
        ("oldest waiting", ago(None if counts is None else counts.oldest_waiting_ms)),
        ("next delayed", _coming(one.delayed_due, one.delayed_next_ms, one.delayed_lag_ms)),
        ("next repeatable", _next_fire(one)),
        ("consumers", _consumers(one)),
        ("promoter", _leader(one.promoter, one.delayed_due)),
        ("scheduler", _leader(one.scheduler, one.repeat_due)),
        ("memory", None if one.memory_bytes is None else size(one.memory_bytes)),
        ("paused", Cell("yes", "warn") if one.paused else "no"),
    ]
    # Names may be long, and are shown whole.
    columns = Column(f"queue: {one.queue}", wide=True), Column(f"group: {one.group}", True, True)
    return sheet(columns, rows, notes=map(str, one.problems))


def _depth(one: Overview, place: str, value: int, bad_from: int | None = None) -> Cell:
    for problem in one.problems:
        if problem.key.endswith(f"}}:{place}"):
            return Cell(f"a {problem.is_a}, not a {problem.not_a}", "bad")
    return number_cell(value, bad_from)


def depths(one: Overview) -> tuple[Cell, Cell, Cell]:
    """Delayed jobs, dead jobs and specs in a table of many queues."""
    found = (
        _depth(one, "delayed", one.delayed_depth),
        _depth(one, "dlq", one.dlq_depth, bad_from=1),
        _depth(one, "repeat", one.repeatables),
    )
    delayed, dead, specs = (cell if cell.text[0].isdigit() else Cell("?", "bad") for cell in found)
    return delayed, dead, specs


def _coming(due: int, next_ms: int | None, lag_ms: int | None = None) -> Cell | str | None:
    if due:
        return Cell(f"{due:,} due already", "bad" if (lag_ms or 0) >= LATE_MS else "")
    return None if next_ms is None else f"in {ago(next_ms)}"


def _next_fire(one: Overview) -> Cell:
    coming = _coming(one.repeat_due, one.repeat_next_ms)
    next_ = coming if isinstance(coming, Cell) else cell(coming)
    if not one.repeat_paused:
        return next_
    return Cell(f"{next_.text} ({one.repeat_paused:,} paused or put aside)", "warn")


def _consumers(one: Overview) -> Cell:
    silent = len(one.consumers) - len(living(one))
    text = f"{len(one.consumers):,}"
    if silent:
        text += f" ({silent:,} silent for over a minute)"
    return Cell(text, "bad" if state(one) == NO_WORKERS else "")


def _leader(holder: str | None, due: int) -> Cell:
    return cell(holder) if holder is not None else Cell("nobody", "warn" if due else "dim")


def living(one: Overview) -> list[Holding]:
    return [each for each in one.consumers if each.idle_ms < SILENT_MS]


def consumers(one: Overview) -> Sheet:
    """`--consumers`: who works on the queue, who leads, and who has fallen silent."""
    leads = {
        name: ", ".join(role for role, who in _roles(one) if who == name)
        for name in dict.fromkeys(who for _, who in _roles(one))
    }
    strangers = [name for name in leads if name not in {each.name for each in one.consumers}]
    return sheet(
        (Column("consumer", wide=True), number("pending"), number("spoke ago"), "leads"),
        (
            (each.name, each.pending, _spoke(each), leads.get(each.name))
            for each in one.consumers
        ),
        notes=[f"{leads[name]}: {name}, no consumer of this group" for name in strangers],
        empty="(no consumers)",
    )  # fmt: skip


def _roles(one: Overview) -> list[tuple[str, str]]:
    roles = (("promoter", one.promoter), ("scheduler", one.scheduler))
    return [(role, who) for role, who in roles if who is not None]


def _spoke(each: Holding) -> Cell:
    text = ago(each.idle_ms) or ""
    if each.idle_ms < SILENT_MS:
        return Cell(text)
    return Cell(text, "bad" if each.pending else "warn")


# -- all queues ----------------------------------------------------------------------------------


def overviews(every: Sequence[Overview]) -> Sheet:
    """`chasqui inspect`: a row per queue."""
    heads = ("waiting", "pending", "delayed", "DLQ", "repeat", "workers", "oldest")
    return sheet(
        (Column("queue", wide=True), *map(number, heads), "state"),
        (
            (
                one.queue,
                None if one.counts is None else one.counts.waiting,
                0 if one.pending is None else one.pending,
                *depths(one),
                len(living(one)),
                brief(None if one.counts is None else one.counts.oldest_waiting_ms),
                state(one),
            )
            for one in every
        ),
        notes=problems(every),
        empty="(no queues)",
    )


def problems(every: Iterable[Overview]) -> list[str]:
    return [str(problem) for one in every for problem in one.problems]


def state(one: Overview) -> Cell:
    if one.problems:
        return Cell("broken", "bad")
    if one.paused:
        return Cell("paused", "warn")
    if one.counts is not None and one.counts.waiting and not living(one):
        return NO_WORKERS
    if one.delayed_due and (one.delayed_lag_ms or 0) >= LATE_MS:
        return Cell("overdue", "bad")
    return Cell("ok", "good")


def number_cell(value: int, bad_from: int | None = None) -> Cell:
    tone: Tone = "bad" if bad_from is not None and value >= bad_from else ""
    return cell(value, tone)
