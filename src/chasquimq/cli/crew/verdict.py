"""What follows when a process ended that nobody had told to. Pure.

A command line or a target that cannot work ends the command while nothing has worked yet, and
is waited out where files are watched. A server that is away is waited for. Everything else is a
crash.
"""

from __future__ import annotations

from typing import Literal

from chasquimq.cli.crew.message import Failed
from chasquimq.cli.crew.target import TargetError
from chasquimq.errors import AccessError, ChasquiError, StoreUnavailableError

Next = Literal["crash", "retry", "await change"]


def judge(
    failure: Failed | None, *, started: bool, burst: bool, watching: bool
) -> Next | ChasquiError:
    """What to do, or the error with which the command ends. `started`: some process was ready
    before. `watching`: a change of its files may mend it."""
    if failure is None:
        return "crash"
    if failure.kind == "unavailable":
        return StoreUnavailableError(failure.text) if burst and not started else "retry"
    if failure.kind == "config" and watching:
        return "await change"
    if failure.kind == "config" and not started:
        return TargetError(failure.text, failure.trace)
    if failure.kind == "access" and not started:
        return AccessError(failure.text)
    return "crash"
