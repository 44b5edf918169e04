"""The choices of a page: all queues at once, or one of them."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from chasquimq.spark.report.data import ReportData, Rows

MOST_VIEWS = 50  # queues with plots of their own; the rest is in those of all queues
APART = 7  # queues with a colour of their own


class View(NamedTuple):
    """Which queues are shown, the busiest first."""

    title: str
    queues: tuple[str, ...]

    @property
    def is_several(self) -> bool:
        return len(self.queues) > 1

    def of(self, rows: Rows) -> Rows:
        wanted = {*self.queues}
        return tuple(row for row in rows if str(row["queue"]) in wanted)


def views_of(data: ReportData) -> list[View]:
    queues = _busiest_first(data)
    alone = [View(queue, (queue,)) for queue in queues[:MOST_VIEWS]]
    if len(queues) == 1:
        return alone
    return [View(f"all {len(queues)} queues" if queues else "all queues", queues), *alone]


def _busiest_first(data: ReportData) -> tuple[str, ...]:
    busy = Counter(dict.fromkeys(map(str, data.queues), 0))
    for row in data.totals:
        busy[str(row["queue"])] += int(row["started"] or 0)
    for table in (data.windows, data.clusters, data.schedules, data.stuck, data.depth, data.names):
        for row in table:
            busy[str(row["queue"])] += 0  # nothing that is in a table is on no view
    return tuple(sorted(busy, key=lambda queue: (-busy[queue], queue)))
