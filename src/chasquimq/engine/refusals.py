"""Writes that Redis refuses: how often each, and whether it refuses all that we write.

A refusal that concerns one job (a key of another type, a key that our user may not touch) must not
hold up the others; one that concerns all (a right that was taken away) must not let this worker run
more jobs that it cannot settle.
"""

from __future__ import annotations

from collections.abc import Iterable

from chasquimq.wire.fault import for_all

TRIES = 5  # then a write is set aside
RARELY_S = 10.0  # between two tries of what is set aside


class Refusals:
    def __init__(self) -> None:
        self.reply = ""  # the last refusal, in the words of Redis
        self._tries: dict[bytes, int] = {}
        self._in_a_row: set[bytes] = set()  # entries, since Redis last took a write
        self._for_all = False

    def __contains__(self, entry_id: bytes) -> bool:
        return entry_id in self._tries

    def __bool__(self) -> bool:
        return bool(self._tries)

    @property
    def blocked(self) -> bool:
        """Whether no write can be expected to be taken. A single job's does not say so."""
        return self._for_all or len(self._in_a_row) >= TRIES

    def add(self, entry_id: bytes, reply: Exception) -> int:
        """Count a refusal; answers how often this write was refused by now."""
        self.reply = str(reply)
        self._in_a_row.add(entry_id)
        self._for_all = self._for_all or for_all(reply)
        self._tries[entry_id] = self._tries.get(entry_id, 0) + 1
        return self._tries[entry_id]

    def close(self, ids: Iterable[bytes]) -> None:
        """These are settled."""
        for entry_id in ids:
            self._tries.pop(entry_id, None)
        self._in_a_row.clear()
        self._for_all = False
