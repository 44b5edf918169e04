"""What `chasqui spark enqueue` shows. Pure: values in, sheets and words out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from chasquimq.cli.render import ago
from chasquimq.cli.render_spark import rows
from chasquimq.cli.sheet import Column, Sheet, sheet
from chasquimq.text import shown

WIDEST = 160  # of a value, in a table of examples


class Progress(Protocol):
    """As chasquimq.spark.progress tells of a run."""

    @property
    def state(self) -> str: ...

    @property
    def rows(self) -> int: ...


def columns(queue: str, found: Sequence[tuple[str, str]]) -> Sheet:
    return sheet(
        ["column", Column("type", wide=True)], found, title=f"{queue}: what would be written"
    )


def first(
    found: Sequence[Mapping[str, str | None]], named: Sequence[tuple[str, str]], count: int
) -> Sheet:
    names = [name for name, _ in named]
    lines = [[_short(one[name]) for name in names] for one in found]
    more = count - len(found)
    notes = [f"... and {rows(more)} more"] if more > 0 else []
    notes.append(f"{rows(count)} in all; nothing was written")
    return sheet([Column(name, wide=True) for name in names], lines, notes=notes)


def _short(value: str | None) -> str | None:
    return None if value is None else shown(value, WIDEST)


def written(told: Mapping[str, Any]) -> list[str]:
    run, queue = told["run"], told["queue"]
    if told["was_done"]:
        return [shown(f"run {run} was done before: nothing was added; queue {queue} got its "
                      f"{rows(told['rows'])} then")]  # fmt: skip
    seconds = ago(int(told["seconds"] * 1000))
    line = f"{rows(told['added'])} came into queue {queue} in {seconds}"
    line += f", {told['rows_per_second']:,.0f} rows/s"
    if told["skipped"]:
        line += f"; {rows(told['skipped'])} skipped: their ids were known"
    if told["added"] != told["rows"]:
        line += f"; with those of before it is {rows(told['rows'])}"
    return [shown(line), shown(f"run it again with --run-id {run}: nothing comes in twice")]


def unfinished(run: str, now: Progress) -> str:
    """For whoever sees it fail."""
    if not now.state:
        return "nothing was written"
    return shown(
        f"{rows(now.rows)} came in; run it again with --run-id {run} to add the others: "
        "nothing comes in twice"
    )


def too_slow(total: int, takes_ms: int, remembered_ms: int) -> str:
    return (
        f"at this --rate {rows(total)} take {ago(takes_ms)}, and the server would forget the first "
        f"of them after {ago(remembered_ms)}: say a longer --remember"
    )
