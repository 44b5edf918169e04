"""One write, as Redis knows it: its keys, its state and its totals.

    {chasqui:<q>}:spark:<run>            hash     state, created_ms, rows
    {chasqui:<q>}:spark:<run>:<part>     string   a digest of each chunk that is in

The state is `open` while tasks write, `done` when the driver has committed. A chunk is added and
marked by one script, so no attempt, however late, adds it again.
"""

from __future__ import annotations

from typing import NamedTuple

from chasquimq.wire import Keys


class Run(NamedTuple):
    queue: str
    run_id: str

    @property
    def key(self) -> bytes:
        return b"%bspark:%b" % (Keys(self.queue).tag, self.run_id.encode())

    def marker(self, partition: int) -> bytes:
        return b"%b:%d" % (self.key, partition)
