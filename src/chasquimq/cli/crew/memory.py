"""How much memory this process has: resident, in bytes."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

_STATM = Path("/proc/self/statm")


def resident() -> int:
    """As of now where the system tells; else the most it ever had."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
