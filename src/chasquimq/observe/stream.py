"""The events stream as a sink: each happening becomes one XADD, written with the next group.

    XADD <events> * e <event> id <job id> ts <ms> [n <name>] <extras of the event>

The two events that every job has are filled into templates; the others are packed. The stream
is not trimmed by every XADD but once per thousand: trimming each time costs Redis a quarter
more per event.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

from chasquimq import wire
from chasquimq.config import EventOptions
from chasquimq.happening import (
    Buried,
    Completed,
    Drained,
    Failed,
    Happening,
    Promoted,
    RetryScheduled,
    Started,
)
from chasquimq.store.resp import bulk, pack
from chasquimq.wire import Keys

TRIM_EVERY = 1_000


class Writer(Protocol):
    def event(self, command: bytes, *, before: bool = False) -> None: ...


class EventStream:
    def __init__(self, keys: Keys, writer: Writer, options: EventOptions) -> None:
        self._writer = writer
        self._keys = keys
        self._trim = pack("XTRIM", keys.events, "MAXLEN", "~", options.max_len)
        self._untrimmed = 0
        self._names: dict[str, tuple[int, bytes]] = {}
        front = b"*%%d\r\n$4\r\nXADD\r\n%b$1\r\n*\r\n$1\r\ne\r\n" % bulk(keys.events)
        rest = b"$2\r\nid\r\n$%d\r\n%b\r\n$2\r\nts\r\n$13\r\n%d\r\n%b$7\r\nattempt\r\n$%d\r\n%d\r\n"
        last = b"$%d\r\n%d\r\n"
        self._active = front + bulk("active") + rest + bulk("created_ms") + last
        self._completed = front + bulk("completed") + rest + bulk("duration_us") + last

    def __call__(self, happening: Happening) -> None:
        if type(happening) is Completed:
            self._writer.event(self._fill(self._completed, happening, happening.duration_us))
        elif type(happening) is Started:
            command = self._fill(self._active, happening, happening.created_at_ms)
            self._writer.event(command, before=True)
        else:
            event = wire.pack_event(*_other(happening, int(time.time() * 1000)))
            self._writer.event(pack("XADD", self._keys.events, "*", *event))
        self._untrimmed += 1
        if self._untrimmed == TRIM_EVERY:
            self._untrimmed = 0
            self._writer.event(self._trim)

    def _fill(self, form: bytes, what: Started | Completed, last: int) -> bytes:
        job_id = what.job_id.encode()
        words, name = self._names.get(what.name) or self._remember(what.name)
        attempt = what.attempt
        return form % (
            words,
            len(job_id),
            job_id,
            time.time() * 1000,
            name,
            1 if attempt < 10 else len(str(attempt)),
            attempt,
            len(str(last)),
            last,
        )

    def _remember(self, name: str) -> tuple[int, bytes]:
        """How many words the command has, and the name's part of it."""
        if len(self._names) > 1000:
            self._names.clear()
        part = (15, bulk("n") + bulk(name)) if name else (13, b"")
        self._names[name] = part
        return part


def _other(what: Happening, now_ms: int) -> tuple[str, str, int, str, dict[str, int | str | None]]:
    """Event, job id, time, name and extras."""
    extras: dict[str, Any] = {}
    match what:
        case Failed():
            kind = "failed"
            extras = {
                "attempt": what.attempt,
                "reason": what.error,
                "duration_us": what.duration_us,
            }
        case RetryScheduled():
            kind, extras = (
                "retry-scheduled",
                {"attempt": what.attempt, "backoff_ms": what.backoff_ms},
            )
        case Buried():
            kind, extras = "dlq", {"attempt": what.attempt, "reason": what.reason}
        case Promoted():
            kind = "waiting"
        case Drained():
            return "drained", "", now_ms, "", extras
        case _:
            raise TypeError(f"no event for {type(what).__name__}")
    return kind, what.job_id, now_ms, what.name, extras
