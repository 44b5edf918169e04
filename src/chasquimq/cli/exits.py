"""How a command ends, for scripts and for Kubernetes. The CLI reference has the same table."""

from __future__ import annotations

from enum import IntEnum

from chasquimq.errors import (
    ChasquiError,
    ConfigError,
    QueueFullError,
    StoreError,
    UnconfirmedError,
)


class Exit(IntEnum):
    DONE = 0  # it did what was asked; a worker was told to stop, and has
    FAILED = 1  # it could not: not found, refused by the user, or an error
    USAGE = 2  # the command line, an option or a setting makes no sense
    NO_SERVER = 3  # Redis cannot be reached, or does not let us in
    WARNINGS = 4  # doctor: something should be looked at
    PROBLEMS = 5  # doctor: something is wrong
    INTERRUPTED = 130  # Ctrl-C; of a worker, the second one
    TERMINATED = 143  # a worker's second SIGTERM


def exit_for(error: ChasquiError) -> Exit:
    if isinstance(error, ConfigError):
        return Exit.USAGE
    if isinstance(error, QueueFullError | UnconfirmedError):
        return Exit.FAILED  # the server answered, or did until then
    return Exit.NO_SERVER if isinstance(error, StoreError) else Exit.FAILED
