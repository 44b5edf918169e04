"""Every error ChasquiMQ raises, in one place. Each shows its code: `docs/reference/errors.md`.

ChasquiError
├── ConfigError              004  an option, a name or an argument makes no sense
│   ├── ArgumentError        004  … it has an unknown name, or a value of the wrong kind
│   └── NameTooLongError     004
├── WireError                003  bytes or fields we cannot read
│   ├── MalformedError       302  … met by a Spark reader that was told to stop there
│   └── EncodeError          002  data we cannot write
│       └── PayloadTooLargeError  023
├── StoreError               001  Redis refused a command
│   ├── AccessError          001  … because of who we are: wrong password, missing permission
│   ├── StoreUnavailableError  001  … or is away for now
│   ├── QueueFullError       030  the queue, or the server's memory, is full; nothing was written
│   └── UnconfirmedError     031  the job may be in, or not; or is in, but less safely than asked
├── ShutdownError            005  used after, or cut off by, a close
├── ResultTimeoutError       102  no result came in time; the job may still run
├── JobFailedError           103  no result will come: the job is dead
├── NotSupportedError        200  a form of the wire we can keep but not show
├── DataLossError            300  events went before Spark could read them
├── InputChangedError        301  a Spark task was run again and brought other rows
├── TimeLimitError           012  a handler ran for longer than it may
├── RetryError               010  raised by *handlers*: run this job again, after my delay
└── UnrecoverableError       011  raised by *handlers*: do not run this job again
    ├── NoHandlerError       013  … said by us: no handler for a job's name
    └── ModelError           014  … said by us: a job's data do not fit the model asked for
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` and `datetime` would make every import of ours wait for them

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta
    from typing import Any, ClassVar

_SHOWN_PROBLEMS = 5


class ChasquiError(RuntimeError):
    """Root of the tree: `except ChasquiError` catches all of ours, and only ours."""

    code: ClassVar[str] = "CMQ-000"

    def __str__(self) -> str:
        return f"{self.code}: {super().__str__()}"


class ConfigError(ChasquiError, ValueError):
    """An option makes no sense; raised when it is set, never later."""

    code = "CMQ-004"


class ArgumentError(ConfigError, TypeError):
    """An option nobody knows (the message names the nearest), or a value of the wrong kind."""


class NameTooLongError(ConfigError):
    """A job name does not fit its slot on the wire."""

    def __init__(self, name: str, limit: int) -> None:
        size = len(name.encode())
        super().__init__(f"job name is {size} bytes, limit is {limit}: {name[:40]!r}…; shorten it")
        self.name = name
        self.limit = limit


class WireError(ChasquiError):
    """Bytes or fields we cannot read. The entry goes to the DLQ, not to a handler."""

    code = "CMQ-003"


class MalformedError(WireError):
    """A Spark reader in mode FAILFAST met a row that it cannot read. Nothing was changed."""

    code = "CMQ-302"


class EncodeError(WireError, TypeError):
    """`data` (or a result) holds something the wire has no form for. Nothing was sent."""

    code = "CMQ-002"


class PayloadTooLargeError(EncodeError):
    """The job is larger than consumers accept. Nothing was sent."""

    code = "CMQ-023"

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"the encoded job is {size} bytes, limit is {limit}; store the data elsewhere and "
            "enqueue a reference, or raise max_payload_bytes here and on every worker"
        )
        self.size = size
        self.limit = limit


class StoreError(ChasquiError):
    """Redis refused a command. Trying again will not help."""

    code = "CMQ-001"
    outcomes: Sequence[Any] = ()  # where a bulk was sent: what became of each job


class AccessError(StoreError):
    """Redis does not know us, or does not let us: credentials or ACL rules are wrong."""


class StoreUnavailableError(StoreError):
    """Redis is away. Nothing is lost: what we hold stays pending. Try again."""


class _Outcomes(StoreError):
    """An add that did not go through; for a bulk, `outcomes` says what became of each job.

    `outcomes` is empty for a single add. For a bulk it has one element per job, in order:
    the accepted `Job`, or the error that befell it.
    """

    def __init__(self, message: str, outcomes: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.outcomes = list(outcomes)


class QueueFullError(_Outcomes):
    """The queue is at its limit, or the server is out of memory. The job was not accepted."""

    code = "CMQ-030"


class UnconfirmedError(_Outcomes):
    """What was asked for is not known to be so. `accepted` tells what is known of the job `job_id`:

    None    the connection broke, or `add_timeout_ms` passed, before the answer came: the job may be
            in, or not. Adding it again is safe only with a `job_id` of the caller's, which makes
            the second add a no-op
    True    a durable add: the job is in the server's memory, but the disk or the replicas did not
            confirm in time. Adding it again with `job_id=error.job_id` is safe
    """

    code = "CMQ-031"

    def __init__(
        self,
        message: str,
        outcomes: Sequence[Any] = (),
        *,
        job_id: str | None = None,
        accepted: bool | None = None,
    ) -> None:
        super().__init__(message, outcomes)
        self.job_id = job_id
        self.accepted = accepted


class ShutdownError(ChasquiError):
    """Used after `close()`, or cut off by it."""

    code = "CMQ-005"


class ResultTimeoutError(ChasquiError, TimeoutError):
    """No result came in time. The job itself is not affected: it may still wait, run or end."""

    code = "CMQ-102"

    def __init__(self, job_id: str, queue: str, timeout: float, completed: bool = False) -> None:
        known = "; it has completed" if completed else ""
        super().__init__(
            f"no result of job {job_id!r} (queue {queue!r}) within {timeout:g} s{known}. "
            "Check that a worker runs on this queue, that it has store_results=True, and that "
            "result_ttl_ms had not passed when you asked"
        )
        self.job_id = job_id
        self.timeout = timeout


class JobFailedError(ChasquiError):
    """The job lies in the DLQ, so no result will come, unless it is replayed.

    `reason` is why it lies there, `error` the text of its last failure, None if nobody saw it.
    """

    code = "CMQ-103"

    def __init__(self, job_id: str, reason: str, attempts: int, error: str | None = None) -> None:
        runs = f"{attempts} run{'' if attempts == 1 else 's'}"
        last = f"; its last error: {error!r:.300}" if error is not None else ""
        super().__init__(
            f"job {job_id!r} died after {runs} ({reason!r:.80}){last}. "
            "See peek_dlq; replay_dlq brings it back"
        )
        self.job_id = job_id
        self.reason = reason
        self.attempts = attempts
        self.error = error


class NotSupportedError(ChasquiError):
    """A form of the wire, written by a newer program, that we can keep but not show."""

    code = "CMQ-200"


class DataLossError(ChasquiError):
    """Events were trimmed before a streaming query read them. The query stands where it stood."""

    code = "CMQ-300"

    def __init__(self, queue: str, lost: int | None, after: str) -> None:
        many = "an unknown number of" if lost is None else lost
        super().__init__(
            f"CHASQUI_DATA_LOSS: {many} events of queue {queue!r} behind {after} are gone: they "
            "were trimmed, or the stream was deleted, before they were read. Let the workers keep "
            "more (events_max_stream_len), run the query more often, or go on without them by "
            "failOnDataLoss=false"
        )
        self.queue = queue
        self.lost = lost
        self.after = after


class InputChangedError(ChasquiError):
    """A task of a Spark write was run again, and its rows are not those of the first time."""

    code = "CMQ-301"

    def __init__(self, partition: int, chunk: int) -> None:
        super().__init__(
            f"CHASQUI_NONDETERMINISTIC_INPUT: partition {partition} was computed again and differs "
            f"from chunk {chunk} on, so that rows would be lost and doubled. Save the rows before "
            "writing them (df.checkpoint(), or a table), sort them within partitions by something "
            "unique, name a unique column by idColumn, or write with commitMode=staged"
        )
        self.partition = partition
        self.chunk = chunk


class _ByHandler(ChasquiError):
    """What handlers raise keeps its own words: they end up in events and in the DLQ."""

    def __str__(self) -> str:
        return RuntimeError.__str__(self)


class RetryError(_ByHandler):
    """Raise from a handler to run the job again; `delay` (ms or timedelta) beats the backoff."""

    code = "CMQ-010"

    def __init__(self, message: str = "", *, delay: float | timedelta | None = None) -> None:
        super().__init__(message)
        if delay is not None:
            from datetime import timedelta

            if isinstance(delay, timedelta):
                delay = delay // timedelta(milliseconds=1)
        if delay is not None and not 0 <= delay < float("inf"):
            raise ConfigError(f"RetryError(delay=...) must be finite non-negative, got {delay}")
        self.delay_ms = None if delay is None else int(delay)


class UnrecoverableError(_ByHandler):
    """Raise from a handler when no retry can help; the job goes straight to the DLQ."""

    code = "CMQ-011"


class NoHandlerError(UnrecoverableError):
    """A job's name is none that this worker handles, and there is no handler for all others."""

    code = "CMQ-013"

    def __str__(self) -> str:  # these are our words, not a handler's
        return f"{self.code}: {RuntimeError.__str__(self)}"


class ModelError(UnrecoverableError):
    """A job's data do not fit the model that `decode` was asked for; another run changes nothing.

    `problems` are pairs of a path and what is wrong there, the first few. They name places, types
    and limits, never the data: those may be private, and errors end up in logs and in the DLQ.
    """

    code = "CMQ-014"

    def __init__(self, job_id: str, model: str, problems: Sequence[tuple[str, str]]) -> None:
        self.problems = list(problems[:_SHOWN_PROBLEMS])
        told = [f"{path}: {what}"[:200] for path, what in self.problems]
        if len(problems) > _SHOWN_PROBLEMS:
            told.append(f"and {len(problems) - _SHOWN_PROBLEMS} more")
        super().__init__(f"job {job_id!r:.80} does not fit {model[:80]}: {'; '.join(told)}")
        self.job_id = job_id
        self.model = model

    def __str__(self) -> str:  # these are our words, not a handler's
        return f"{self.code}: {RuntimeError.__str__(self)}"


class TimeLimitError(ChasquiError, TimeoutError):
    """A handler ran for longer than it may; the run counts as failed."""

    code = "CMQ-012"
