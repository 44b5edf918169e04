"""The README's figures, made of the newest full report. A house test compares the two."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from contest import AGAINST_TUNED, INSTALLED, ON_VALKEY, OURS, REFERENCE, Aim
from found import Found
from layout import table

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
REPORTS = Path(__file__).parent / "reports"
START, END = "<!-- bench -->\n", "<!-- /bench -->\n"
PICTURES = {
    "docs/images/bench-worker.svg": "Jobs per second of a worker, ours beside other job queues",
    "docs/images/bench-add.svg": "Jobs added per second, ours beside other job queues",
}
FIGURES = "cpu_per_100k", "p50", "p99"


def newest(reports: Path = REPORTS) -> Path | None:
    found = sorted(reports.glob("*-full.json"))
    return found[-1] if found else None


def block(page: Path) -> str:
    """What stands between the markers."""
    raw = json.loads(page.read_text())
    found, facts = Found.read(raw), raw["facts"]
    servers = " and ".join(f"{kind.title()} {number}" for kind, number in facts["servers"].items())
    lines = [
        "Against ChasquiMQ 1.3.0 (a Rust engine with a Python API), as installed and as it is at",
        "its fastest: on uvloop, reading by 256, pinned to one core; ours is on uvloop there too.",
        f"The handler does nothing. Measured on {_day(facts)} by `make bench`: {servers},",
        f"{facts['machine']}; all sides interleaved, medians of {raw['rounds']} rounds. Jobs per",
        "second belong to that machine.",
        "",
        *table(_rows(found)),
        "",
        *_latency(found),
        *(f"![{text}]({path})" for path, text in PICTURES.items()),
        "",
        f"[The whole report](bench/reports/{page.stem}.md) has the limits of Redis itself, growth,",
        "idle costs, and what each of the others promises; [bench/README.md](bench/README.md) says",
        "what is measured and how.",
    ]
    return "\n".join(lines) + "\n"


def _day(facts: dict[str, Any]) -> str:
    day = date.fromisoformat(facts["date"])
    return f"{day.day} {day:%B %Y}"


def _rows(found: Found) -> list[list[str]]:
    tuned = {aim.case: aim for aim in AGAINST_TUNED if aim.figure == "rate"}
    rows = [
        ["", "ours / installed", "ours / tuned", "our jobs per second", "CPU, ours / installed"]
    ]
    for aim in INSTALLED:
        if aim.figure == "rate" and found.ratios_of(aim):
            cpu = Aim(aim.case, aim.mine, aim.theirs, "cpu_per_100k")
            beside = _ratio(found, tuned[aim.case]) if aim.case in tuned else ""
            rate = found.median(aim.case, aim.mine, "rate")
            title = found.title(aim.case)
            rows.append([title, _ratio(found, aim), beside, f"{rate:,.0f}", _ratio(found, cpu)])
    valkey = ON_VALKEY[0]
    if found.ratios_of(valkey):
        rate = found.median(valkey.case, valkey.mine, "rate")
        rows.append(
            ["our worker on Valkey / on Redis", _ratio(found, valkey), "", f"{rate:,.0f}", ""]
        )
    return rows


def _ratio(found: Found, aim: Aim) -> str:
    ratios = found.ratios_of(aim)
    if not ratios:
        return ""
    middle = median(ratios)
    if aim.figure in FIGURES and middle < 1:
        return f"1/{1 / middle:.0f}" if middle < 0.4 else f"{middle:.1f}"
    return f"{middle:.0f}x" if middle >= 20 else f"{middle:.1f}x"


def _latency(found: Found) -> list[str]:
    figures = [
        found.median("latency", side, figure)
        for side in (OURS, REFERENCE)
        for figure in ("p50", "p99")
    ]
    if any(figure is None for figure in figures):
        return []
    ours_50, ours_99, theirs_50, theirs_99 = (f"{figure:.2f}" for figure in figures)
    return [
        f"From add to the handler's start on an idle queue: p50 {ours_50} ms and p99 {ours_99} ms;",
        f"ChasquiMQ 1.3.0: {theirs_50} and {theirs_99} ms.",
        "",
    ]


def current(readme: Path = README) -> str:
    return readme.read_text().partition(START)[2].partition(END)[0]


def rewrite(text: str, readme: Path = README) -> None:
    before, _, rest = readme.read_text().partition(START)
    _, end, after = rest.partition(END)
    if not end:
        raise LookupError(f"{readme.name} has no {START.strip()} ... {END.strip()}")
    readme.write_text(f"{before}{START}{text}{END}{after}")
