"""What the library logs while a command runs that goes on for long: beside the output, or not."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from chasquimq.text import shown


class Aside(logging.Handler):
    """Tells of trouble on stderr, once for as long as it is of the same kind."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said = ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg != self._said:
            self._said = record.msg
            print(f"chasqui: {shown(record.getMessage())}", file=sys.stderr, flush=True)


@contextmanager
def logged_to(handler: logging.Handler) -> Iterator[None]:
    """For the block, what the library logs goes there."""
    ours = logging.getLogger("chasquimq")
    ours.addHandler(handler)
    try:
        yield
    finally:
        ours.removeHandler(handler)


@contextmanager
def hushed(log: logging.Logger, level: int) -> Iterator[None]:
    """For the block, this logger logs from this level on only."""
    before = log.level
    log.setLevel(level)
    try:
        yield
    finally:
        log.setLevel(before)
