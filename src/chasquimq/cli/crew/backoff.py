"""How long to wait before a process that crashed is started again. Pure: times come in."""

from __future__ import annotations

FIRST_S, LONGEST_S = 0.5, 30.0
HEALTHY_S = 60.0  # a process that was well for so long starts with a clean sheet
HOPELESS = 5  # crashes in a row


class Backoff:
    def __init__(self) -> None:
        self.crashes = 0  # in a row
        self._waits = 0

    @property
    def hopeless(self) -> bool:
        return self.crashes >= HOPELESS

    def crashed(self, well_s: float) -> float:
        """After a crash of a process that had been ready for so long: the wait in seconds."""
        if well_s >= HEALTHY_S:
            self.crashes = self._waits = 0
        self.crashes += 1
        return self.refused()

    def refused(self) -> float:
        """The server is away: as long a wait, but it is not the process's fault."""
        self._waits += 1
        return min(FIRST_S * 2.0 ** (self._waits - 1), LONGEST_S)

    def well(self) -> None:
        """It is ready: whoever was away is back. Crashes are forgiven after a minute only."""
        if not self.crashes:
            self._waits = 0
