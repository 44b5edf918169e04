"""Open a report as people do, and tell what the browser saw: what it said, asked for and drew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, Page

from chasquimq.spark.report import ReportData, write_page

Scheme = Literal["light", "dark"]
DESKTOP, PHONE = 1280, 360
READY = "html[data-ready]"

DRAWN = """
() => [...document.querySelectorAll('[data-plot]')].map((place) => {
  const canvas = place.querySelector('.canvas');
  const size = (one) => one.getBoundingClientRect();
  const values = (trace) => (trace.orientation === 'h' ? trace.x : trace.y) || [];
  const marks = canvas.querySelectorAll(
    '.barlayer path, .scatterlayer path.js-line, .scatterlayer .points path, .heatmaplayer image');
  return {
    key: place.dataset.plot,
    words: place.querySelector('.empty').hidden ? '' : place.querySelector('.empty').textContent,
    box: [canvas.clientWidth, canvas.clientHeight],
    alt: canvas.getAttribute('aria-label'),
    marks: [...marks].filter((one) => size(one).width + size(one).height > 1).length,
    traces: (canvas.data || []).map((trace) => ({
      measure: (trace.meta || {}).measure || '',
      queue: (trace.meta || {}).queue || '',
      points: values(trace).length,
      sum: values(trace).reduce((sum, value) => sum + (value || 0), 0),
    })),
  };
})
"""
WIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@dataclass
class Opened:
    """A page, and what happened while it was open."""

    page: Page
    said: list[str] = field(default_factory=list)  # on the console, of whatever kind
    asked: list[str] = field(default_factory=list)  # for anything but the file itself

    def plots(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.page.evaluate(DRAWN)
        return found

    def plot(self, key: str) -> dict[str, Any]:
        return next(plot for plot in self.plots() if plot["key"] == key)

    def plotted(self, key: str) -> Counter[str]:
        """The sums of what a plot shows, by what it counts."""
        sums: Counter[str] = Counter()
        for trace in self.plot(key)["traces"]:
            sums[trace["measure"]] += trace["sum"]
        return sums

    def choose(self, place: int) -> None:
        self.page.select_option("#choice", str(place))
        self.page.wait_for_selector(READY)

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        wide: int = self.page.evaluate(WIDE)
        return wide

    def is_clean(self) -> bool:
        assert self.said == []
        assert self.asked == []
        return True


def saved(data: ReportData, folder: Path) -> Path:
    return write_page(data, folder / "report.html")


@contextmanager
def opened(
    browser: Browser,
    file: Path,
    *,
    scheme: Scheme = "light",
    width: int = DESKTOP,
    script: bool = True,
) -> Iterator[Opened]:
    """The file in a window of its own, when all of it is drawn."""
    is_phone = width < 500
    context = browser.new_context(
        color_scheme=scheme,
        viewport={"width": width, "height": 800},
        is_mobile=is_phone,
        has_touch=is_phone,
        java_script_enabled=script,
    )
    try:
        page = context.new_page()
        one = Opened(page)
        page.on("console", lambda message: one.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: one.said.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (one.said.append("a dialog"), dialog.dismiss()))
        context.on("page", lambda other: one.asked.append(f"a window: {other.url}"))
        page.on("request", lambda request: one.asked.append(request.url))
        page.goto(file.as_uri())
        one.asked.remove(file.as_uri())
        if script:
            page.wait_for_selector(READY, timeout=60_000)
        # A picture inside the page is asked for, too, but of nobody.
        one.asked[:] = [url for url in one.asked if not url.startswith("data:")]
        yield one
        one.asked[:] = [url for url in one.asked if not url.startswith(("data:", "blob:"))]
    finally:
        context.close()
