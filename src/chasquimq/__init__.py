"""ChasquiMQ for Python: background jobs on Redis Streams.

Names whose modules bring half of the package with them come when they are first asked for: who
needs a part of it, as each process does that Spark starts, does not wait for the rest.
"""

from __future__ import annotations

import chasquimq._alone  # noqa: F401 - first, before the files of another program answer
from chasquimq._version import version
from chasquimq.errors import (
    AccessError,
    ArgumentError,
    ChasquiError,
    ConfigError,
    DataLossError,
    EncodeError,
    InputChangedError,
    JobFailedError,
    MalformedError,
    ModelError,
    NameTooLongError,
    NoHandlerError,
    NotSupportedError,
    PayloadTooLargeError,
    QueueFullError,
    ResultTimeoutError,
    RetryError,
    ShutdownError,
    StoreError,
    StoreUnavailableError,
    TimeLimitError,
    UnconfirmedError,
    UnrecoverableError,
    WireError,
)

TYPE_CHECKING = False  # as `typing` has it, which would be half of what this import takes

if TYPE_CHECKING:
    from chasquimq.handler import Handler, Route, Router
    from chasquimq.health import Health
    from chasquimq.job import BackoffSpec, Counts, Job
    from chasquimq.native import Consumer, Producer, Promoter, Scheduler
    from chasquimq.observe.memory import InMemorySink
    from chasquimq.observe.metrics import MetricsSink
    from chasquimq.queue import Queue
    from chasquimq.repeat import MissedFiresPolicy, RepeatableMeta, RepeatPattern
    from chasquimq.subscribe import QueueEvent, QueueEvents
    from chasquimq.worker import Worker, run_workers

_LATER = {
    "BackoffSpec": "job",
    "Consumer": "native",
    "Counts": "job",
    "Handler": "handler",
    "Health": "health",
    "InMemorySink": "observe.memory",
    "Job": "job",
    "MetricsSink": "observe.metrics",
    "MissedFiresPolicy": "repeat",
    "Producer": "native",
    "Promoter": "native",
    "Queue": "queue",
    "QueueEvent": "subscribe",
    "QueueEvents": "subscribe",
    "RepeatPattern": "repeat",
    "RepeatableMeta": "repeat",
    "Route": "handler",
    "Router": "handler",
    "Scheduler": "native",
    "Worker": "worker",
    "run_workers": "worker",
}
__all__ = [
    "AccessError",
    "ArgumentError",
    "BackoffSpec",
    "ChasquiError",
    "ConfigError",
    "Consumer",
    "Counts",
    "DataLossError",
    "EncodeError",
    "Handler",
    "Health",
    "InMemorySink",
    "InputChangedError",
    "Job",
    "JobFailedError",
    "MalformedError",
    "MetricsSink",
    "MissedFiresPolicy",
    "ModelError",
    "NameTooLongError",
    "NoHandlerError",
    "NotSupportedError",
    "PayloadTooLargeError",
    "Producer",
    "Promoter",
    "Queue",
    "QueueEvent",
    "QueueEvents",
    "QueueFullError",
    "RepeatPattern",
    "RepeatableMeta",
    "ResultTimeoutError",
    "RetryError",
    "Route",
    "Router",
    "Scheduler",
    "ShutdownError",
    "StoreError",
    "StoreUnavailableError",
    "TimeLimitError",
    "UnconfirmedError",
    "UnrecoverableError",
    "WireError",
    "Worker",
    "run_workers",
    "version",
]


if not TYPE_CHECKING:  # who would take any name at all for ours

    def __getattr__(name: str) -> object:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
        globals()[name] = value  # asked for once
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
