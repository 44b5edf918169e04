"""Pictures of the newest full report, and the README's figures: `make bench-plot`.

Bars are jobs per second, the median of the rounds. Text is mid-grey on nothing, so that it reads
on light pages and on dark ones.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import readme
from contest import OURS, OURS_UVLOOP, REFERENCE, TUNED
from found import Found

mpl.use("svg")

from matplotlib import pyplot

GREY, MINE, THEIRS, REST = "#808080", "#d97706", "#0d9488", "#7c8ba1"
COLOURS = {OURS: MINE, OURS_UVLOOP: MINE, REFERENCE: THEIRS, TUNED: THEIRS}
NAMES = {REFERENCE: "ChasquiMQ 1.3.0", TUNED: "ChasquiMQ 1.3.0 tuned"}
PANELS: dict[str, tuple[str, ...]] = {
    "bench-worker.svg": ("worker-100", "sleep"),
    "bench-add.svg": ("add", "concurrent", "bulk-50"),
}
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "chasqui",  # the same figures make the same file
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": GREY,
    "axes.labelcolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--report", type=Path, default=readme.newest(), help="its JSON")
    parser.add_argument("--images", type=Path, default=readme.ROOT / "docs" / "images")
    parser.add_argument("--readme", type=Path, default=readme.README)
    told = parser.parse_args(argv)
    if told.report is None:
        sys.exit("there is no full report yet: `make bench` writes one")
    raw = json.loads(told.report.read_text())
    told.images.mkdir(parents=True, exist_ok=True)
    for name, cases in PANELS.items():
        draw(Found.read(raw), raw["facts"], cases, told.images / name)
        print(f"{told.images / name}")
    readme.rewrite(readme.block(told.report), told.readme)
    print(f"{told.readme}")


def draw(found: Found, facts: Mapping[str, Any], cases: Sequence[str], target: Path) -> None:
    shown = [case for case in cases if found.sides(case)]
    with mpl.rc_context(STYLE):
        most = max(len(_bars(found, case)) for case in shown)
        size = (4.6 * len(shown), 0.9 + 0.24 * most)
        figure, axes = pyplot.subplots(1, len(shown), figsize=size, squeeze=False)
        for one, case in zip(axes[0], shown, strict=True):
            _panel(one, found.title(case), _bars(found, case))
        figure.text(0.01, 0.01, f"jobs per second, {facts['date']}, {facts['machine']}", size=7)
        figure.tight_layout(rect=(0, 0.04, 1, 1))
        figure.savefig(target, transparent=True, metadata={"Date": None})
        pyplot.close(figure)


def _bars(found: Found, case: str) -> list[tuple[str, float]]:
    """The fastest first."""
    sides = [*COLOURS, *found.peers]
    rates = [(side, rate) for side in sides if (rate := found.median(case, side, "rate"))]
    return sorted(rates, key=lambda bar: -bar[1])


def _panel(axes: Any, title: str, bars: Sequence[tuple[str, float]]) -> None:
    rates = [rate for _, rate in bars]
    places = range(len(bars))
    axes.barh(places, rates, color=[COLOURS.get(side, REST) for side, _ in bars], height=0.72)
    axes.set_yticks(places, [NAMES.get(side, side) for side, _ in bars])
    axes.invert_yaxis()
    axes.set_xlim(0, max(rates) * 1.2)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.set_title(title.replace("`", ""), loc="left", size=10)
    axes.set_frame_on(False)
    for place, rate in zip(places, rates, strict=True):
        axes.text(rate + max(rates) * 0.01, place, f"{rate:,.0f}", va="center", size=8)


if __name__ == "__main__":
    main()
