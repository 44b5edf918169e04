"""A progress bar on stderr, if that is a terminal; else nothing at all."""

from __future__ import annotations

import math
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

SHORT_S = 0.2  # what takes less needs no bar


class Bar:
    """How far along something is: so much of `total` (None: nobody knows), and how many so far.

    It comes when the work has lasted for a moment, or at once where the total is `large`.
    """

    def __init__(
        self, title: str, total: float | None, unit: str, *, large: float = math.inf
    ) -> None:
        self._title = title
        self._total = total
        self._unit = unit
        self._large = large
        self._done: float = 0
        self._count = 0
        self._began = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._silent = not sys.stderr.isatty()

    def forward(self, amount: float, count: int | None = None) -> None:
        """So much more of the total; `count` is how many there are, if that is something else."""
        self._done += amount
        self._count = self._count + int(amount) if count is None else count
        if not self._silent:
            self._show()

    def reach(self, done: float) -> None:
        """So much of the total is done by now."""
        self.forward(done - self._done)

    def expect(self, total: float) -> None:
        self._total = total

    def say(self, title: str) -> None:
        self._title = title
        if not self._silent:
            self._show()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _show(self) -> None:
        lasts = time.monotonic() - self._began
        if self._bar is None:
            if lasts < SHORT_S and (self._total or 0) < self._large:
                return
            self._begin()
        assert self._bar is not None and self._task is not None
        rate = f"{self._count / lasts:,.0f} {self._unit}/s" if lasts > 0 else ""
        self._bar.update(
            self._task,
            description=self._title,
            completed=self._done,
            total=self._total,
            count=f"{self._count:,} {self._unit}",
            rate=rate,
        )

    def _begin(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TextColumn("{task.fields[count]}", markup=False),
            TextColumn("{task.fields[rate]}", markup=False),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(self._title, total=self._total, count="", rate="")
        self._bar.start()
