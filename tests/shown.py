"""A value as part of a test's id, the same in every process: no address, no order of a set."""

from __future__ import annotations

import re


def shown(value: object) -> str:
    text = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
    return re.sub(r" at 0x\w+", "", repr(text))[:40]
