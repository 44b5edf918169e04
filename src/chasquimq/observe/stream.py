"""The events stream as a sink: each happening becomes one XADD, written with the next group.

    XADD <events> * e <event> id <job id> ts <ms> [n <name>] <extras of the event>

The two events that every job has are filled into templates, as text, which takes half as long
as bytes; the others are packed. The stream is not trimmed by every XADD but once per thousand:
trimming each time costs Redis a quarter more per event. The first one trims, too: a program
that adds a few jobs and ends never comes to its thousandth.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

from chasquimq import wire
from chasquimq.config import EventOptions
from chasquimq.happening import (
    Added,
    Buried,
    Completed,
    Drained,
    Failed,
    Fired,
    Happening,
    Promoted,
    RetryScheduled,
    Started,
)
from chasquimq.store.resp import bulk, pack
from chasquimq.wire import Keys

TRIM_EVERY = 1_000


Form = tuple[str, str, str]  # what comes before the id's size, the attempt's, the last field's


class Writer(Protocol):
    def event(self, command: bytes) -> None: ...

    def event_before(self, command: bytes) -> None: ...


class EventStream:
    def __init__(self, keys: Keys, writer: Writer, options: EventOptions) -> None:
        self._writer = writer
        self._keys = keys
        self._trim = pack("XTRIM", keys.events, "MAXLEN", "~", options.max_len)
        self._untrimmed = TRIM_EVERY - 1
        self._tells_starts = options.kinds == "all"
        self._active: dict[str, Form] = {}
        self._completed: dict[str, Form] = {}

    def hear(self, happening: Happening) -> None:
        if type(happening) is Completed:
            form = self._completed.get(happening.name) or self._remember(happening.name)[1]
            self._writer.event(_fill(form, happening, happening.duration_us))
        elif type(happening) is Started:
            if not self._tells_starts:
                return
            form = self._active.get(happening.name) or self._remember(happening.name)[0]
            self._writer.event_before(_fill(form, happening, happening.created_at_ms))
        else:
            row = _other(happening, int(time.time() * 1000))
            if row is None:
                return
            self._writer.event(pack("XADD", self._keys.events, "*", *wire.pack_event(*row)))
        self._untrimmed += 1
        if self._untrimmed == TRIM_EVERY:
            self._untrimmed = 0
            self._writer.event(self._trim)

    def _remember(self, name: str) -> tuple[Form, Form]:
        """The forms of both events for jobs of this name."""
        if len(self._active) > 1000:
            self._active.clear()
            self._completed.clear()
        named = (bulk("n") + bulk(name) if name else b"").decode() + "$7\r\nattempt\r\n$"
        front = b"*%d\r\n$4\r\nXADD\r\n%b" % (15 if name else 13, bulk(self._keys.events))
        front += bulk("*") + bulk("e")
        return (
            self._active.setdefault(name, _form(front, "active", named, "created_ms")),
            self._completed.setdefault(name, _form(front, "completed", named, "duration_us")),
        )


def _form(front: bytes, event: str, named: str, last: str) -> Form:
    return (front + bulk(event) + bulk("id")).decode() + "$", named, bulk(last).decode() + "$"


def _fill(form: Form, what: Started | Completed, last: int) -> bytes:
    front, named, end = form
    job_id = what.job_id
    size = len(job_id) if job_id.isascii() else len(job_id.encode())
    attempt, final, now_ms = str(what.attempt), str(last), str(int(time.time() * 1000))
    return (
        f"{front}{size}\r\n{job_id}\r\n$2\r\nts\r\n${len(now_ms)}\r\n{now_ms}\r\n"
        f"{named}{len(attempt)}\r\n{attempt}\r\n{end}{len(final)}\r\n{final}\r\n"
    ).encode()


Row = tuple[str, str, int, str, dict[str, int | str | None]]


def _other(what: Happening, now_ms: int) -> Row | None:
    """Event, job id, time, name and extras; None for what the stream does not tell."""
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
        case Added(delayed=True):
            return None  # the script that delayed it has told of it
        case Promoted() | Added() | Fired():
            kind = "waiting"
        case Drained():
            return "drained", "", now_ms, "", extras
        case _:
            return None
    return kind, what.job_id, now_ms, what.name, extras
