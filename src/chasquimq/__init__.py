"""ChasquiMQ for Python: background jobs on Redis Streams."""

from __future__ import annotations

import chasquimq._alone  # noqa: F401 - first, before the files of another program answer
from chasquimq._version import version
from chasquimq.errors import (
    AccessError,
    ArgumentError,
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
    "ArgumentError",
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
