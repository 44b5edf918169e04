"""The clocks of servers that take over from each other. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from chasquimq.cli.check.access import SKEW_MS
from chasquimq.cli.check.finding import WARNING, Book, Finding, Severity

KINDS: dict[str, Severity] = {"server.clocks-apart": WARNING}


def check_clocks(clocks: Mapping[str, int]) -> list[Finding]:
    """`clocks`: by names of servers, how far each is ahead of ours, in ms."""
    book = Book(KINDS)
    first, last = (choose(clocks, key=clocks.__getitem__, default="") for choose in (min, max))
    apart_ms = clocks[last] - clocks[first] if clocks else 0
    if apart_ms < SKEW_MS:
        return []
    middle = median(clocks.values())
    # Of two nobody knows which is wrong: probably not the one that agrees with ours.
    odd = max((first, last), key=lambda one: (abs(clocks[one] - middle), abs(clocks[one])))
    other, side = (first, "ahead of") if odd == last else (last, "behind")
    book.add(
        "server.clocks-apart",
        f"the clock of {odd} is {apart_ms / 1000:.1f} s {side} that of {other} ({len(clocks)} "
        "servers were asked). The one that takes over uses its own clock: delayed jobs and "
        "schedules come early or late by as much, and leases run out early or late",
        fix="timedatectl set-ntp true",
        node=odd,
        apart_ms=apart_ms,
        clocks_ms=dict(clocks),
    )
    return book.found
