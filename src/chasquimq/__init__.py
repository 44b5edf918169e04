"""ChasquiMQ for Python: background jobs on Redis Streams."""

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
