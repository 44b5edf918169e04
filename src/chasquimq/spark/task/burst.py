"""Run a Worker inside a task until it ends, and hand on its rows meanwhile.

The event loop runs in slices: until there are enough rows, then not at all while Spark takes them,
which is short. So a task holds a page of rows, however many jobs it runs. Leases are renewed from
a thread of their own in any case.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Protocol, Self

import pyarrow as pa

from chasquimq.errors import StoreError
from chasquimq.spark.client import Client
from chasquimq.spark.task.ledger import Ledger

log = logging.getLogger(__name__)

LISTEN_S = 1.0


class Running(Protocol):
    """What is wanted of a Worker."""

    async def run(self) -> None: ...

    def stop(self) -> None: ...


def drive(worker: Running, ledger: Ledger) -> Iterator[pa.RecordBatch]:
    with asyncio.Runner() as runner:
        running = runner.run(_begin(worker))
        try:
            while not running.done():
                runner.run(_page(running, ledger))
                yield from _rows(ledger)
        finally:
            # Spark takes no more rows: the query was cancelled.
            if not running.done():
                worker.stop()
                runner.run(asyncio.wait([running]))
        running.result()


async def _begin(worker: Running) -> asyncio.Task[None]:
    return asyncio.create_task(worker.run(), name="chasqui-burst")


async def _page(running: asyncio.Task[None], ledger: Ledger) -> None:
    """Until there are enough rows, or no more will come."""
    full = asyncio.create_task(ledger.full.wait())
    await asyncio.wait([running, full], return_when=asyncio.FIRST_COMPLETED)
    full.cancel()


def _rows(ledger: Ledger) -> Iterator[pa.RecordBatch]:
    rows = ledger.take()
    if rows is not None:
        yield rows


class Ear:
    """Hears whether a run shall stop: a key is there, which its driver has set."""

    def __init__(self, client: Client, key: bytes) -> None:
        self._client = client
        self._key = key
        self._stop: Callable[[], None] | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="chasqui-ear", daemon=True)
        self.told = False  # to stop

    def __enter__(self) -> Self:
        self._ask()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        self._client.close()

    def stops(self, worker: Running) -> None:
        """From now on this is the one to stop."""
        self._stop = worker.stop
        if self.told:
            worker.stop()

    def _listen(self) -> None:
        while not self.told and not self._over.wait(LISTEN_S):
            self._ask()

    def _ask(self) -> None:
        try:
            self.told = bool(self._client.ask("EXISTS", self._key))
        except StoreError as error:  # the Worker has more patience, and says more
            log.info("cannot hear whether to stop: %s", error)
        if self.told and self._stop is not None:
            self._stop()
