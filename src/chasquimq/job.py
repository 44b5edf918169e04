"""The values that travel: what producers add, what handlers get, what the wire carries."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from chasquimq.config import refuse_unknown
from chasquimq.errors import ArgumentError, ConfigError
from chasquimq.model import read

T = TypeVar("T")


class Reason(StrEnum):
    """Why a job lies in the DLQ, in the words of the wire."""

    RETRIES_EXHAUSTED = "retries_exhausted"
    DECODE_FAILED = "decode_failed"
    MALFORMED = "malformed"
    OVERSIZE_PAYLOAD = "oversize_payload"
    UNRECOVERABLE = "unrecoverable"

    @property
    def code(self) -> str:
        return _REASON_CODES[self]


_REASON_CODES = {
    Reason.RETRIES_EXHAUSTED: "CMQ-020",
    Reason.DECODE_FAILED: "CMQ-021",
    Reason.MALFORMED: "CMQ-022",
    Reason.OVERSIZE_PAYLOAD: "CMQ-023",
    Reason.UNRECOVERABLE: "CMQ-024",
}


class BackoffSpec(msgspec.Struct, frozen=True):
    """How long a job waits before its next run. `None` falls back to the worker's setting."""

    kind: str
    delay_ms: int
    max_delay_ms: int | None = None
    multiplier: float | None = None
    jitter_ms: int | None = None

    def __post_init__(self) -> None:
        for name in ("delay_ms", "max_delay_ms", "jitter_ms"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, int | float):
                raise ArgumentError(f"backoff {name} is a number of ms, got {value!r:.80}")
            if value is not None and value < 0:
                raise ConfigError(f"backoff {name} must not be negative, got {value}")

    @classmethod
    def fixed(cls, delay_ms: int, jitter_ms: int | None = None) -> BackoffSpec:
        return cls("fixed", delay_ms, None, None, jitter_ms)

    @classmethod
    def exponential(
        cls,
        initial_ms: int,
        *,
        multiplier: float = 2.0,
        max_ms: int | None = None,
        jitter_ms: int | None = None,
    ) -> BackoffSpec:
        return cls("exponential", initial_ms, max_ms, multiplier, jitter_ms)

    @classmethod
    def from_dict(cls, options: Mapping[str, Any]) -> BackoffSpec:
        refuse_unknown(options, cls.__struct_fields__, "backoff")
        if options.get("kind") not in ("fixed", "exponential"):
            kind = options.get("kind")
            raise ConfigError(f"backoff kind must be fixed or exponential, got {kind!r}")
        try:
            return msgspec.convert(dict(options), cls)
        except msgspec.ValidationError as error:
            if isinstance(error.__cause__, ConfigError):  # our own words, which msgspec has wrapped
                raise error.__cause__ from None
            raise ConfigError(f"backoff: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """The set options, by name: the dict form that `add(backoff=...)` takes."""
        return {
            name: value for name, value in msgspec.structs.asdict(self).items() if value is not None
        }


class RetryOverride(msgspec.Struct, frozen=True):
    """A job's own retry rules; `None` means "as the worker says"."""

    max_attempts: int | None = None
    backoff: BackoffSpec | None = None


class Envelope(msgspec.Struct, array_like=True, gc=False):
    """The `d` field of an entry. `payload` is the user's data, already encoded."""

    id: str
    payload: bytes
    created_at_ms: int
    attempt: int = 0
    retry: RetryOverride | None = None


class Waits(Protocol):
    """Who can wait for a job's result: the Queue it was added to."""

    def wait_for_result(self, job_id: str, timeout: float, poll_interval: float) -> Any: ...


class _Added:
    """Where a job was added. A slot and no field of Job: not shown, compared, copied or encoded."""

    __slots__ = ("_queue",)
    _queue: Waits


class Job(_Added, msgspec.Struct, gc=False):
    """What a handler gets, and what `add` returns.

    `attempt` is 0 on the first run; `attempt_number` counts from 1, as events do.
    """

    id: str
    name: str
    data: Any
    attempt: int = 0
    created_at_ms: int = 0
    duplicate: bool = False
    lease_lost: bool = False  # this run counts no longer: another worker may have the job

    @property
    def attempts_made(self) -> int:
        return self.attempt

    @property
    def attempt_number(self) -> int:
        return self.attempt + 1

    def decode(self, model: type[T]) -> T:
        """`data` as a dataclass, a msgspec Struct, a Pydantic model, or a type made of such."""
        fitted: T = read(self.data, model, self.id)
        return fitted

    def wait_for_result(self, timeout: float = 30.0, poll_interval: float = 1.0) -> Any:
        """What its handler returned, once it has; for a job that `Queue.add` returned.

        To be awaited, unless a synchronous Queue added it: then it blocks.
        """
        queue: Waits | None = getattr(self, "_queue", None)
        if queue is None:
            raise ConfigError(
                f"job {self.id!r} does not know its queue: only jobs that add() returned can wait "
                "for their result. Elsewhere use Queue.wait_for_result(job_id)"
            )
        return queue.wait_for_result(self.id, timeout, poll_interval)


class NativeJob(msgspec.Struct, gc=False):
    """What the handler of a native Consumer gets: the payload as it was added, undecoded."""

    id: str
    name: str
    payload: bytes
    created_at_ms: int
    attempt: int = 0
    lease_lost: bool = False  # this run counts no longer: another worker may have the job


class Counts(msgspec.Struct, frozen=True):
    """How many jobs a queue has, by where they are."""

    waiting: int = 0  # in the stream, not yet given to a worker of the group
    running: int = 0  # given to one, and not yet settled
    delayed: int = 0  # to run later, retries included
    dead: int = 0
    repeatables: int = 0
    oldest_waiting_ms: int | None = None  # how long the next one has waited; None: nothing waits

    def to_dict(self) -> dict[str, int | None]:
        return msgspec.structs.asdict(self)


class Due(NamedTuple):
    """When a job is to run: so many ms from now by Redis's clock, or at an epoch ms."""

    ms: int
    absolute: bool = False


class Unique(NamedTuple):
    """For how long an id admits no second job: so many seconds after it was due, or until the job
    is done, but no longer than that."""

    lives_s: int
    until_done: bool = False


class Draft(msgspec.Struct, frozen=True, gc=False):
    """A job that can be sent: its parts are encoded and within the limits, its time is settled."""

    name: bytes
    payload: bytes
    own_id: bytes | None = None  # chosen by the caller; else one is minted
    retry: RetryOverride | None = None
    due: Due | None = None
    delay_ms: int = 0
    unique: Unique | None = None
    carrier: bytes = b""  # of a tracer; the delayed set has no place for it

    def carrying(self, carrier: bytes) -> Draft:
        return msgspec.structs.replace(self, carrier=carrier)

    def under(self, job_id: bytes) -> Draft:
        """The same as if the caller had chosen this id."""
        return self if self.own_id is not None else msgspec.structs.replace(self, own_id=job_id)


class Again(NamedTuple):
    """Verdict: run once more. `attempt` is what the envelope will say on that run."""

    attempt: int
    delay_ms: int


class Dead(NamedTuple):
    """Verdict: to the DLQ. `attempt` is how many runs there have been."""

    attempt: int
    reason: Reason


class DeadEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the DLQ, read leniently: what a field holds is told, what is missing is None."""

    dlq_id: str
    payload: bytes
    name: str = ""
    source_id: str = ""
    reason: str = ""
    detail: str | None = None
    job_id: str | None = None
    attempt: int | None = None
    error_type: str | None = None
    error: str | None = None
    failed_at_ms: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return msgspec.structs.asdict(self)
