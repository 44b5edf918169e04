"""Python's collector of cycles, called seldom while rows are read.

A page is tens of thousands of lists that live for a moment and form no cycle. To look through them
again and again, and through all of Spark with them, is a third of the time of a read. Counted are
objects that were made and are still there: pages that go leave nothing behind, so it hardly ever
comes to a million; if something leaks, it does, and memory is bounded all the same.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MOST_OBJECTS = 1_000_000


@contextmanager
def seldom() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(MOST_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
