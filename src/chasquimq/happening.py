"""What can happen to a job or a queue, as frozen values. One thing happened, one `announce`.

`attempt` counts runs from 1, as the events stream does.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chasquimq.health import Health


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
    timed_out: bool = False


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


class Fired(msgspec.Struct, frozen=True, gc=False):
    """A window of a spec became a job, so many ms after it was due."""

    job_id: str
    name: str
    key: str
    late_ms: int


class PutAside(msgspec.Struct, frozen=True, gc=False):
    """A spec that cannot be fired was put aside: it is kept, and fires no more."""

    key: str
    problem: str


class SpecsTicked(msgspec.Struct, frozen=True, gc=False):
    """A leading scheduler looked at the specs; the first was overdue by so many ms."""

    fired: int
    depth: int
    lag_ms: int


class Drained(msgspec.Struct, frozen=True, gc=False):
    """A reader got nothing right after it had got something."""


class Added(msgspec.Struct, frozen=True, gc=False):
    """A producer's job came in, to run at once unless it is delayed."""

    job_id: str
    name: str
    delayed: bool = False


class Refused(msgspec.Struct, frozen=True, gc=False):
    """Jobs that a producer could not add: the queue is full, or the server out of memory."""

    count: int


class Read(msgspec.Struct, frozen=True, gc=False):
    """A reader got entries; `reclaimed` of them had been delivered before."""

    size: int
    reclaimed: int = 0


class Ticked(msgspec.Struct, frozen=True, gc=False):
    """A leading promoter looked at the delayed set."""

    promoted: int
    depth: int
    lag_ms: int


class LockTurned(msgspec.Struct, frozen=True, gc=False):
    """We became the leader of something ("promoter", "scheduler"), or are so no longer."""

    role: str
    held: bool


class LeasesLost(msgspec.Struct, frozen=True, gc=False):
    count: int


class GivenBack(msgspec.Struct, frozen=True, gc=False):
    count: int


class Swept(msgspec.Struct, frozen=True, gc=False):
    """The janitor removed pending entries without a body, and names of dead consumers."""

    ghosts: int
    consumers: int


class EventsDropped(msgspec.Struct, frozen=True, gc=False):
    count: int


class CameTooLate(msgspec.Struct, frozen=True, gc=False):
    """Outcomes of jobs that somebody else had settled meanwhile."""

    count: int


class Reconnected(msgspec.Struct, frozen=True, gc=False):
    connection: str


class GroupRecreated(msgspec.Struct, frozen=True, gc=False):
    """The stream or its group was gone, and a reader has made it again."""


class Pulsed(msgspec.Struct, frozen=True):
    """How a worker is: told each second, and once more when it has ended."""

    worker: str
    health: Health


Happening = (
    Started
    | Completed
    | Failed
    | RetryScheduled
    | Buried
    | Promoted
    | Fired
    | PutAside
    | SpecsTicked
    | Drained
    | Added
    | Refused
    | Read
    | Ticked
    | LockTurned
    | LeasesLost
    | GivenBack
    | Swept
    | EventsDropped
    | CameTooLate
    | Reconnected
    | GroupRecreated
    | Pulsed
)
Announce = Callable[[Happening], None]
