"""Tracing: what a door tells a tracer, and the few bytes of it that travel with a job.

A tracer is any object with the two methods of `Tracing`. What it returns is used once: one add or
bulk, one run of a handler. `observe/guard.py` stands in front of it, so that nothing it raises is
ever felt, and the engine need not care.

    carrier     00-<trace id>-<span id>-<flags>[;<tracestate>]     W3C's two headers, in one text

It travels as one field of the stream's entry (see `wire/entry.py`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from chasquimq.job import Again, Dead

MAX_CARRIER_BYTES = 512


class Batch(NamedTuple):
    """Jobs that are about to be sent. `name` is theirs if they have the same one, else empty;
    `job_id` is that of a single job whose caller chose it."""

    queue: str
    operation: str  # "add" or "add_bulk"
    jobs: int
    name: str = ""
    job_id: str = ""
    size: int = 0  # of their payloads, in bytes


class Run(NamedTuple):
    """A job whose handler is about to run. `attempt` counts runs from 1; `deliveries` says how
    often it had been delivered before, where the server tells."""

    queue: str
    group: str
    job_id: str
    name: str
    attempt: int
    deliveries: int
    created_at_ms: int
    carrier: bytes = b""  # as it came: a stranger may have written it


class Sending(Protocol):
    """One add, or one bulk. Exactly one of its methods is called, once, when it is over."""

    @property
    def carrier(self) -> bytes:
        """What goes with each of the jobs; b"" for nothing."""
        ...

    def sent(self, ids: Sequence[str], duplicates: int, errors: Sequence[BaseException]) -> None:
        """Redis has answered. `errors` befell those that were not accepted."""
        ...

    def failed(self, error: BaseException) -> None:
        """None was sent, or nobody waited for the answer."""
        ...


class Running(Protocol):
    """One run of a handler. `enter` and `leave` are called around it, where it runs, so that what
    it does is seen as its own. How it ended is told by one of the others, before `leave`; a run
    that would not end in time has failed before its handler ends."""

    def enter(self) -> None: ...

    def leave(self) -> None: ...

    def completed(self) -> None: ...

    def failed(self, error: BaseException, verdict: Again | Dead) -> None: ...

    def dropped(self, why: str) -> None:
        """However it ended, it does not count: "lease lost", or "given back"."""
        ...


class Tracing(Protocol):
    def sending(self, batch: Batch) -> Sending: ...

    def running(self, run: Run) -> Running: ...


# -- the carrier -------------------------------------------------------------------------------

MAX_MEMBERS = 32
_KEY = rb"[a-z0-9][a-z0-9_*/-]{0,240}(?:@[a-z][a-z0-9_*/-]{0,13})?"
_MEMBER = re.compile(_KEY + rb"=[ -+\x2d-<>-~]{0,255}[!-+\x2d-<>-~]")
_PARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-[!-~]*)?")


class Origin(NamedTuple):
    """Where a job comes from: the span that added it, as W3C's trace context names it."""

    trace_id: int
    span_id: int
    flags: int = 0
    state: str = ""  # the members of its tracestate, separated by commas


def pack_carrier(origin: Origin) -> bytes:
    """b"" for what is no valid origin. Members that do not fit are left out, from the end."""
    if not (0 < origin.trace_id < 1 << 128 and 0 < origin.span_id < 1 << 64):
        return b""
    parent = b"00-%032x-%016x-%02x" % (origin.trace_id, origin.span_id, origin.flags & 0xFF)
    members = origin.state.split(",") if origin.state and origin.state.isascii() else []
    while members:
        carrier = parent + b";" + ",".join(members).encode()
        if len(carrier) <= MAX_CARRIER_BYTES:
            return carrier
        members.pop()
    return parent


def unpack_carrier(carrier: bytes) -> Origin | None:
    """None for whatever is not what W3C's trace context allows; nothing here raises."""
    if len(carrier) > MAX_CARRIER_BYTES:
        return None
    parent, _, state = carrier.partition(b";")
    match = _PARENT.fullmatch(parent)
    if match is None:
        return None
    version, trace_id, span_id, flags = match.groups()
    if version == b"ff" or (version == b"00" and len(parent) != 55):
        return None
    origin = Origin(int(trace_id, 16), int(span_id, 16), int(flags, 16))
    if not origin.trace_id or not origin.span_id:
        return None
    # One member that is not as it should be, and all of them count for nothing.
    members = state.split(b",") if state else []
    if len(members) > MAX_MEMBERS or not all(map(_MEMBER.fullmatch, members)):
        return origin
    return origin._replace(state=state.decode())
