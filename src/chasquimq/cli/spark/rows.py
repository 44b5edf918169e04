"""How many rows of a write are in, while Spark writes them: a bar, and how things stand then."""

from __future__ import annotations

import threading
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from chasquimq.cli.bar import Bar
from chasquimq.cli.render_enqueue import unfinished
from chasquimq.errors import ChasquiError

if TYPE_CHECKING:
    from chasquimq.spark.options import SinkOptions
    from chasquimq.spark.progress import Progress

LOOK_S = 0.2  # between two looks
PATIENCE_S = 2.0  # with a server that is away: the tasks have their own


class Watch:
    """Looks at a run from the driver while the block runs. Redis tells, not Spark.

    StoreUnavailableError, or one of its kind, if the server is not there to begin with.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self.total: int | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self.before = self.look()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def stand(self) -> str | None:
        """For whoever sees it fail."""
        with suppress(ChasquiError):
            return unfinished(self._options.run_id or "", self.look())
        return None

    def look(self) -> Progress:
        from chasquimq.spark import progress
        from chasquimq.spark.client import Client
        from chasquimq.spark.write.run import Run

        run = Run(self._options.queue, self._options.run_id or "")
        address = self._options.where.address_of(run.queue)
        with Client(address, patience_s=PATIENCE_S) as client:
            return progress.look(client, run)

    def _follow(self) -> None:
        title = f"into {self._options.queue}"
        with Bar(title, self.total, "rows") as bar:
            while not self._ended.wait(LOOK_S):
                with suppress(ChasquiError):
                    now = self.look()
                    is_staging = now.staged and not now.rows
                    bar.say(f"{title}, aside" if is_staging else title)
                    bar.reach(now.staged if is_staging else now.rows + now.skipped)
