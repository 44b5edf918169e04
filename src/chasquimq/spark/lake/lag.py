"""How far the lake is behind, beside what a stream of events keeps. Pure.

A worker caps the events of its queue. What is more than that at once was lost before it was read;
who comes close should read more often, or keep more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

CAP = 100_000  # what workers keep, unless they were told otherwise
NEAR = 0.5  # of it


def unread(progress: Mapping[str, Any]) -> dict[str, int]:
    """Of each queue: how many events had piled up when a batch was planned."""
    found: dict[str, int] = {}
    for source in progress.get("sources", ()):
        start, latest = _offset(source.get("startOffset")), _offset(source.get("latestOffset"))
        end = _offset(source.get("endOffset"))
        for queue, tip in latest.items():
            begin = start.get(queue) or end.get(queue, {}).get("from") or {}
            if "n" in tip and "n" in begin:
                found[queue] = max(0, tip["n"] - begin["n"])
    return found


def warnings(unread: Mapping[str, int], cap: int) -> list[str]:
    return [
        f"{many:,} events of queue {queue!r} had piled up, and its stream keeps about {cap:,}: "
        "more would be lost before they are read; read them more often, or raise "
        "events_max_stream_len of the workers"
        for queue, many in sorted(unread.items())
        if many >= cap * NEAR
    ]


def _offset(told: Any) -> dict[str, Any]:
    read = json.loads(told) if isinstance(told, str) else told
    return read if isinstance(read, dict) else {}
