"""May these jobs come in? Pure.

`known` is the stream's length when Redis last told us, `sent` what we have sent since. Other
producers add and workers take away meanwhile, so the limit may be overshot by one flush per
producer, and a refusal is final only after Redis was asked again.
"""

from __future__ import annotations


def fits(known: int, sent: int, wanted: int, limit: int) -> bool:
    return known + sent + wanted <= limit
