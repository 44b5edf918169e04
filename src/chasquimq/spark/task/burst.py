"""Run a Worker inside a task until it ends, and hand on its rows meanwhile.

The Worker has an event loop in a thread of its own, and the task's thread waits for rows. A few
pages may wait in between, and then the Worker waits: so a task holds few rows, however many jobs it
runs. Leases are renewed from yet another thread in any case.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from queue import Queue
from types import TracebackType
from typing import Protocol, Self

import pyarrow as pa

from chasquimq.errors import StoreError
from chasquimq.spark.client import Client
from chasquimq.spark.task.ledger import Ledger

log = logging.getLogger("chasquimq.worker")

LISTEN_S = 1.0
PAGES = 4


class Running(Protocol):
    """What is wanted of a Worker."""

    async def run(self) -> None: ...

    def stop(self) -> None: ...


def drive(worker: Running, ledger: Ledger) -> Iterator[pa.RecordBatch]:
    pages: Queue[pa.RecordBatch | None] = Queue(PAGES)
    failures: list[BaseException] = []
    ledger.hand_on = pages.put

    def run() -> None:
        try:
            asyncio.run(worker.run())
            ledger.close()
        except BaseException as error:
            failures.append(error)
        pages.put(None)

    running = threading.Thread(target=run, name="chasqui-burst", daemon=True)
    running.start()
    try:
        while (page := pages.get()) is not None:
            yield page
    except GeneratorExit:  # Spark takes no more rows: the query was cancelled
        worker.stop()
        while pages.get() is not None:
            pass
        raise
    finally:
        running.join()
    if failures:
        raise failures[0]


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
