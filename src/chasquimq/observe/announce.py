"""One thing happened, one `announce`: it reaches every sink, and no sink is ever felt."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from chasquimq.happening import Announce, Happening

log = logging.getLogger(__name__)


def announcer(sinks: Sequence[Announce]) -> Announce:
    """One function for many sinks. A sink that raises is logged, and the others still hear."""
    if not sinks:
        return _silence

    def announce(happening: Happening) -> None:
        for sink in sinks:
            try:
                sink(happening)
            except Exception:
                log.exception("a sink failed on %s", type(happening).__name__)

    def announce_to_one(happening: Happening) -> None:
        try:
            only(happening)
        except Exception:
            log.exception("a sink failed on %s", type(happening).__name__)

    only = sinks[0]
    return announce_to_one if len(sinks) == 1 else announce


def _silence(happening: Happening) -> None:
    pass
