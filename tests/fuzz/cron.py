"""Whatever text stands where an expression and a zone belong: a ConfigError, or fires in order."""

from __future__ import annotations

from chasquimq.errors import ConfigError
from chasquimq.policy.cron import read_cron
from chasquimq.policy.moment import LAST_MS
from tests.fuzz.draw import Draw

NOW_MS = 1_794_771_784_391
YEAR_MS = 31_556_952_000
FIRES = 3


def check(data: bytes) -> None:
    draw = Draw(data)
    start = draw.number(2)
    # Every 16th moment lies near the end of time, the others in the two centuries around now.
    at_ms = LAST_MS - start * 1000 if start % 16 == 0 else NOW_MS + (start - 2**15) * YEAR_MS // 300
    expression, _, tz = draw.rest().decode(errors="surrogateescape").partition("|")
    try:
        cron = read_cron(expression, tz or None)
    except ConfigError:
        return
    for _ in range(FIRES):
        fire_ms = cron.after(max(at_ms, 0))
        if fire_ms is None:
            return
        assert at_ms < fire_ms < LAST_MS and fire_ms % 1000 == 0
        assert cron.after(fire_ms - 1000) == fire_ms, "asked a second earlier, another comes first"
        at_ms = fire_ms
