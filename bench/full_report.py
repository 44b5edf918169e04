"""The page of the full benchmark, and its figures as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from contest import (
    AGAINST_TUNED,
    FLAT,
    INSTALLED,
    OF_THE_LIMIT,
    OF_THE_LOOP,
    ON_VALKEY,
    OURS,
    OWN,
    REFERENCE,
    Aim,
)
from found import Found
from layout import table
from report import told

OTHERS = "cores busy with other things meanwhile"
FIGURES = {"rate": "", "p50": ", p50", "p99": ", p99", "cpu_per_100k": ", CPU of the process"}
LATENCIES = ("latency", "punctual")
Rows = list[list[str]]


def tables(found: Found) -> list[str]:
    parts: list[tuple[str, str, Rows, int]] = [
        ("Against ChasquiMQ 1.3.0 as installed", INSTALLED_NOTE, _aims(found, INSTALLED), 1),
        ("Against ChasquiMQ 1.3.0 tuned", TUNED_NOTE, _aims(found, AGAINST_TUNED), 1),
        ("Share of the limit", LIMIT_NOTE, _aims(found, OF_THE_LIMIT), 1),
        ("Share of what an event loop can do at all", LOOP_NOTE, _aims(found, OF_THE_LOOP), 1),
        ("On Valkey, beside Redis", VALKEY_NOTE, _aims(found, ON_VALKEY), 1),
        ("Bounds of our own", "", _own(found), 1),
        ("Latency, in ms", LATENCY_NOTE, _latencies(found), 2),
        ("Other job queues: ours is so many times as fast", PEERS_NOTE, _peers(found), 1),
        ("Other job queues: what they promise and cost", COST_NOTE, _promises(found), 2),
        ("Other job queues: how they ran", "", _ways(found), 3),
        ("An idle worker", "", _idle(found), 2),
        *((f"Growth: {name}", GROWTH_NOTE, _grown(found, name), 1) for name in found.groups()),
        ("What failed", "", _failed(found.problems), 3),
        ("What there is not", "", _failed(found.cannot), 3),
    ]
    lines: list[str] = []
    for title, note, rows, texts in parts:
        if len(rows) > 1:
            notes = [note, ""] if note else []
            lines += [f"## {title}", "", *notes, *table(rows, texts), ""]
    return lines


INSTALLED_NOTE = (
    "Both on asyncio's own event loop and with their defaults; ours is on uvloop for the handler "
    "that sleeps. A ratio of latencies or of CPU is good when it is small."
)
TUNED_NOTE = "It is on uvloop, reads by 256 and has one core to itself; ours is on uvloop."
LIMIT_NOTE = (
    "The limit is a client that sends the same commands, written down beforehand, over one socket."
)
LOOP_NOTE = (
    "All on uvloop. The other side is the loop with the same tasks and nothing else: sleeps of a "
    "millisecond without a queue; `gather` of coroutines that wait for prepared commands. No job "
    "queue with this API can do more."
)
VALKEY_NOTE = "Portable dialect on Valkey over native dialect on Redis."
LATENCY_NOTE = (
    "`latency`: from the call of add to the start of the handler, an idle worker in the same "
    "process. `punctual`: how late jobs start that are due at different moments."
)
PEERS_NOTE = (
    "Median of the rounds' ratios of jobs per second. What stands beside each in the next table "
    "belongs to it: an acknowledged job and one that its worker took out of Redis are not the same."
)
COST_NOTE = "Worker, 100 at a time; CPU in s per 100,000 jobs, memory of the process in MB."
GROWTH_NOTE = (
    "CPU of the process and of Redis in s per 100,000 jobs; the ratio is that of our CPU, both "
    "together, to the first row's."
)


def _aims(found: Found, aims: Sequence[Aim]) -> Rows:
    head = ["case", "ratio", "min–max", "target", "", "ours", "other", "CPU ours", "CPU other"]
    rows = [head]
    for aim in aims:
        ratios = found.ratios_of(aim)
        if not ratios:
            continue
        sides = [
            _figure(found.median(aim.case, side, figure))
            for figure in (aim.figure, "cpu_per_100k")
            for side in (aim.mine, aim.theirs)
        ]
        rows.append(
            [
                found.title(aim.case) + FIGURES[aim.figure],
                f"{median(ratios):.2f}x",
                f"{min(ratios):.2f}–{max(ratios):.2f}",
                _bound(aim),
                _verdict(aim.met(median(ratios))),
                *sides,
            ]
        )
    return rows


def _bound(aim: Aim) -> str:
    if aim.bound is None:
        return ""
    return f">= {aim.bound:g}x" if aim.more_is_better else f"<= {aim.bound:g}x"


def _verdict(met: bool | None) -> str:
    return {None: "", True: "met", False: "not met"}[met]


def _own(found: Found) -> Rows:
    rows = [["bound", "is", "min–max", "at most", ""]]
    for one in OWN:
        values = found.values(one.case, OURS, one.figure)
        if values:
            spread = f"{min(values):.1f}–{max(values):.1f}"
            at_most = f"{one.at_most:g} {one.unit}".strip()
            met = _verdict(median(values) <= one.at_most)
            rows.append([one.title, f"{median(values):.1f}", spread, at_most, met])
    costs = [cost for case in found.group("backlog") if (cost := _cost(found, case.key, OURS))]
    if len(costs) > 1:
        off = max(abs(cost / costs[0] - 1) for cost in costs)
        title = "what a job costs with a long backlog, more or less than with a short one"
        rows.append([title, f"{off:.0%}", "", f"{FLAT:.0%}", _verdict(off <= FLAT)])
    return rows


def _latencies(found: Found) -> Rows:
    rows = [["case", "side", "p50", "p95", "p99", "most"]]
    for case in LATENCIES:
        for side in found.sides(case):
            at = [found.median(case, side, figure) for figure in ("p50", "p95", "p99")]
            most = max(found.values(case, side, "most"), default=None)
            rows.append([case, side, *map(_figure, (*at, most))])
    return rows


def _peers(found: Found) -> Rows:
    compared = [
        case
        for case in found.cases
        if any(found.ratios(case.key, OURS, peer) for peer in found.peers)
    ]
    rows = [["", *(case.key for case in compared)]]
    for peer in (REFERENCE, *found.peers):
        cells = [_ratio(found.ratios(case.key, OURS, peer)) for case in compared]
        if any(cells):
            rows.append([peer, *cells])
    return rows


def _promises(found: Found) -> Rows:
    rows = [["", "promise", "ours is", "jobs/s", "CPU", "Redis CPU", "memory"]]
    for name, peer in found.peers.items():
        figures = ("rate", "cpu_per_100k", "server_cpu_per_100k", "rss_mb")
        cells = [_figure(found.median("worker-100", name, figure)) for figure in figures]
        ratio = _ratio(found.ratios("worker-100", OURS, name))
        rows.append([name, peer.guarantee, ratio, *cells])
    return rows


def _ways(found: Found) -> Rows:
    rows = [["", "how it ran", "packages"]]
    for name, peer in found.peers.items():
        rows.append([name, peer.how, told(found.packages.get(name, {}))])
    return rows


def _idle(found: Found) -> Rows:
    rows = [["case", "side", "commands/s", "CPU, %", "memory, MB"]]
    for case in ("idle", "idle-alone"):
        for side in found.sides(case):
            figures = ("sent_per_s", "cpu_percent", "rss_mb")
            cells = [_figure(found.median(case, side, figure)) for figure in figures]
            rows.append([found.title(case), side, *cells])
    return rows


def _grown(found: Found, group: str) -> Rows:
    head = [group, "jobs/s", "CPU", "Redis CPU", "ratio", "memory, MB"]
    rows = [[*head, "reference: jobs/s", "CPU", "Redis CPU"]]
    first = None
    for case in found.group(group):
        cost = _cost(found, case.key, OURS)
        first = first or cost
        figures = ("rate", "cpu_per_100k", "server_cpu_per_100k")
        ours, other = (
            [_figure(found.median(case.key, side, figure)) for figure in figures]
            for side in (OURS, REFERENCE)
        )
        ratio = f"{cost / first:.2f}x" if cost and first else ""
        memory = _figure(found.median(case.key, OURS, "rss_mb"))
        rows.append([case.title, *ours, ratio, memory, *other])
    return rows


def _cost(found: Found, case: str, side: str) -> float | None:
    """CPU of process and server together."""
    parts = [found.median(case, side, one) for one in ("cpu_per_100k", "server_cpu_per_100k")]
    return sum(part for part in parts if part) or None


def _failed(told_by: dict[str, dict[str, str]]) -> Rows:
    rows = [["case", "side", "why"]]
    for case, sides in told_by.items():
        rows += [[case, side, _one_line(why)] for side, why in sides.items()]
    return rows


def _one_line(text: str) -> str:
    """The error itself, if there is one; what follows it is about tasks that were left."""
    lines = text.strip().splitlines() or ["it did not say"]
    errors = [line for line in lines if re.match(r"[\w.]+(Error|Exception)\b", line)]
    return (errors or lines)[-1].replace("|", "/")[:200]


def _ratio(ratios: Iterable[float]) -> str:
    values = list(ratios)
    if not values:
        return ""
    middle = median(values)
    return f"{middle:.0f}x" if middle >= 20 else f"{middle:.1f}x"


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def write(folder: Path, name: str, found: Found, facts: dict[str, Any]) -> Path:
    """Write `<name>.md` and `<name>.json`; answers the first."""
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / f"{name}.md"
    versions = {f"{side}, packages": told(found.packages[side]) for side in found.packages}
    whole = facts | versions
    raw = {"facts": whole, **found.to_dict()}  # first: half an hour's figures
    page.with_suffix(".json").write_text(json.dumps(raw, indent=1) + "\n")
    lines = [
        f"# {name}",
        "",
        "Medians; in each round all sides of a case ran one after the other, in fresh processes on",
        "the same server. Ratios are what counts: jobs per second belong to this machine and to",
        "what else it did. CPU is in seconds per 100,000 jobs. How it is measured:",
        "[bench/README.md](../README.md).",
        "",
        *tables(found),
        "## Facts",
        "",
        *(f"- {label}: {told(value)}" for label, value in whole.items()),
    ]
    page.write_text("\n".join(lines) + "\n")
    return page
