"""What pausing and resuming say. Pure: values in, text out."""

from __future__ import annotations

from collections.abc import Sequence

from chasquimq.store.hold import Unfinished
from chasquimq.text import shown

MOST_NAMES = 5


def running(groups: Sequence[Unfinished]) -> int:
    return sum(group.running for group in groups)


def still(count: int) -> str:
    return "1 job still runs" if count == 1 else f"{count:,} jobs still run"


def paused(queue: str, note: str | None, groups: Sequence[Unfinished]) -> str:
    """`note` is what was there before, None if this command paused it."""
    if note is None:
        state = f"{queue} is paused"
    else:
        state = f"{queue} was paused already" + (f", since {note}" if note else "")
    if not groups:  # who has mistyped the name finds it here
        return shown(f"{state}; no worker has read it yet")
    count = running(groups)
    return shown(f"{state}; " + (still(count) if count else "nothing runs"))


def resumed(queue: str, note: str | None) -> str:
    """`note` is what the pause had to say, None if there was none."""
    if note is None:
        return shown(f"{queue} was not paused")
    return shown(f"{queue} goes on" + (f"; it was paused since {note}" if note else ""))


def waiting(queue: str, count: int) -> str:
    return shown(f"{queue}: {still(count)}")


def in_vain(queue: str, groups: Sequence[Unfinished], seconds: float) -> str:
    """Why a wait has ended without its end."""
    held = [(who, count) for group in groups for who, count in group.holders]
    names = ", ".join(f"{who} ({count:,})" for who, count in held[:MOST_NAMES])
    more = f" and {len(held) - MOST_NAMES} more" if len(held) > MOST_NAMES else ""
    return shown(
        f"after {seconds:g} s {still(running(groups))} on {queue}, of {names}{more}; it "
        "stays paused. What a worker left that died is run when the queue goes on"
    )
