"""What can happen to a job or a queue, as frozen values. One thing happened, one `announce`.

`attempt` counts runs from 1, as the events stream does.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class Started(msgspec.Struct, frozen=True, gc=False):
    job_id: str
    name: str
    attempt: int
    created_at_ms: int


class Completed(msgspec.Struct, frozen=True, gc=False):
    job_id: str
    name: str
    attempt: int
    duration_us: int


class Failed(msgspec.Struct, frozen=True, gc=False):
    job_id: str
    name: str
    attempt: int
    duration_us: int
    error: str


class RetryScheduled(msgspec.Struct, frozen=True, gc=False):
    """`attempt` is the coming run."""

    job_id: str
    name: str
    attempt: int
    backoff_ms: int


class Buried(msgspec.Struct, frozen=True, gc=False):
    """`job_id` is empty where the entry could not be read."""

    job_id: str
    name: str
    attempt: int
    reason: str


class Promoted(msgspec.Struct, frozen=True, gc=False):
    job_id: str
    name: str


class Drained(msgspec.Struct, frozen=True, gc=False):
    """A reader got nothing right after it had got something."""


Happening = Started | Completed | Failed | RetryScheduled | Buried | Promoted | Drained
Announce = Callable[[Happening], None]
