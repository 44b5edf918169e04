"""Where the memory of a soak's worker goes: a line of JSON every ten seconds, from a thread.

`rss_kb` is what the kernel counts, `blocks` what CPython's own allocator holds, in objects, and
`heap_kb` what the C library holds. Every five minutes there is a second line after a full garbage
collection: what is gone then was waiting in CPython's free lists. With `trace` this line has the
places in the code that hold more than five minutes before, as tracemalloc tells.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

from tests.soak.quiet import body

EVERY_S = 10.0
COLLECT_EVERY = 30  # looks
FRAMES = 8
SHOWN = 5  # places in the code


class _Heap(ctypes.Structure):
    """`struct mallinfo2` of glibc, in bytes."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def watch(file: Path, *, trace: bool = False) -> None:
    """Begin to look, for as long as this process lives."""
    if trace:
        tracemalloc.start(FRAMES)
    threading.Thread(target=_watch, args=(file,), name="memory", daemon=True).start()


def _watch(file: Path) -> None:
    looks, before = 0, _snapshot()
    with file.open("w") as out:
        while True:
            time.sleep(EVERY_S)
            looks += 1
            _write(out, _look())
            if looks % COLLECT_EVERY == 0:
                gc.collect()
                line, now = _look(), _snapshot()
                if before is not None and now is not None:
                    grown = now.compare_to(before, "lineno")
                    line["grown_bytes"] = sum(one.size_diff for one in grown)
                    line["grown_at"] = [str(one) for one in grown[:SHOWN]]
                _write(out, {**line, "collected": True})
                before = now


def _look() -> dict[str, Any]:
    line = {"rss_kb": body(os.getpid()).rss_kb, "blocks": sys.getallocatedblocks()}
    if tracemalloc.is_tracing():
        line["traced_kb"] = tracemalloc.get_traced_memory()[0] // 1024
    try:
        heap = ctypes.CDLL(None).mallinfo2
    except AttributeError:  # not glibc
        return line
    heap.restype = _Heap
    found = heap()
    return line | {"heap_kb": found.arena // 1024, "heap_used_kb": found.uordblks // 1024}


def _snapshot() -> tracemalloc.Snapshot | None:
    if not tracemalloc.is_tracing():
        return None
    ours = (tracemalloc.__file__, __file__)
    return tracemalloc.take_snapshot().filter_traces(
        [tracemalloc.Filter(inclusive=False, filename_pattern=file) for file in ours]
    )


def _write(out: Any, line: dict[str, Any]) -> None:
    out.write(json.dumps(line) + "\n")
    out.flush()
