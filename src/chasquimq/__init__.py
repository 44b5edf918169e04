"""ChasquiMQ for Python: background jobs on Redis Streams."""

from __future__ import annotations

from chasquimq._version import version
from chasquimq.errors import (
    AccessError,
    ChasquiError,
    ConfigError,
    EncodeError,
    NameTooLongError,
    NotSupportedError,
    PayloadTooLargeError,
    QueueFullError,
    RetryError,
    ShutdownError,
    StoreError,
    StoreUnavailableError,
    UnconfirmedError,
    UnrecoverableError,
    WireError,
)
from chasquimq.job import BackoffSpec, Job
from chasquimq.queue import Queue
from chasquimq.worker import Handler, Worker

__all__ = [
    "AccessError",
    "BackoffSpec",
    "ChasquiError",
    "ConfigError",
    "EncodeError",
    "Handler",
    "Job",
    "NameTooLongError",
    "NotSupportedError",
    "PayloadTooLargeError",
    "Queue",
    "QueueFullError",
    "RetryError",
    "ShutdownError",
    "StoreError",
    "StoreUnavailableError",
    "UnconfirmedError",
    "UnrecoverableError",
    "WireError",
    "Worker",
    "version",
]
