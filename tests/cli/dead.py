"""Dead jobs for tests of the command: the same rows on every server, under ids of our own."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from chasquimq import wire
from chasquimq.job import Envelope
from tests.cli.kit import Chasqui
from tests.servers import DIALECTS, Servers

DAY_MS = 86_400_000
FIRST_MS = 1_700_000_000_000  # ids of rows; when a row died is told by the row


class Grave:
    """The DLQ of a queue with a short name, so that tables look the same in every run."""

    def __init__(self, chasqui: Chasqui) -> None:
        self.queue = f"mail-{uuid.uuid4().hex[:6]}"
        self.keys = wire.Keys(self.queue)
        self.client = chasqui.server.client()
        self._count = 0
        seconds, _ = self.client.time()
        self.now_ms = seconds * 1000

    @property
    def words(self) -> dict[str, str]:
        return {self.queue: "mail-QUEUE"}

    @property
    def rows(self) -> int:
        return int(self.client.xlen(self.keys.dlq))

    @property
    def waiting(self) -> int:
        return int(self.client.xlen(self.keys.stream))

    @property
    def ids(self) -> list[str]:
        return [row.decode() for row, _ in self.client.xrange(self.keys.dlq)]

    def bury(
        self,
        name: str = "welcome",
        data: Any = None,
        *,
        days: int = 3,
        envelope: bytes | None = None,
        reason: str = "retries_exhausted",
        **told: Any,
    ) -> str:
        """Lay one row; answers its id."""
        dlq_id = f"{FIRST_MS + self._count}-0"
        fields = self._fields(name, data, days, envelope, reason, told)
        self.client.execute_command("XADD", self.keys.dlq, dlq_id, *fields)
        return dlq_id

    def bury_many(self, count: int, **told: Any) -> None:
        pipe = self.client.pipeline(transaction=False)
        for number in range(count):
            fields = self._fields("welcome", {"user": number}, 3, None, "retries_exhausted", told)
            pipe.execute_command("XADD", self.keys.dlq, f"{FIRST_MS + self._count}-0", *fields)
        pipe.execute()

    def _fields(
        self,
        name: str,
        data: Any,
        days: int,
        envelope: bytes | None,
        reason: str,
        told: dict[str, Any],
    ) -> Sequence[bytes]:
        self._count += 1
        job_id = told.pop("job_id", None) or f"job-{self._count}"
        if envelope is None:
            envelope = wire.pack_envelope(Envelope(job_id, wire.encode(data), FIRST_MS, 0))
        # Five hours more, and a bit: what a table shows of it does not change while a test runs.
        died_ms = self.now_ms - days * DAY_MS - 5 * 3_600_000 - 10_000
        source = b"1600000000000-%d" % self._count
        return wire.pack_dead(
            envelope, name.encode(), source, reason, job_id=job_id, failed_at_ms=died_ms, **told
        )

    def fill(self) -> None:
        """One of each kind."""
        error = "user 42 has no address:\nask \x1b[31mher"
        told = {"attempt": 25, "error_type": "ValueError", "error": error}
        self.bury("welcome", {"user": 42, "key": b"\x00\xff", "tags": ["a", 1.5]}, **told)
        self.bury("welcome", {"user": 43}, days=2, **told)
        self.bury(
            "digest",
            {"text": "long " * 600},
            days=1,
            reason="unrecoverable",
            attempt=1,
            error_type="UnrecoverableError",
            error="no such list",
        )
        detail = "the field d is missing, and what is there says nothing about ä job"
        self.bury("", days=0, envelope=b"\xc1\xc1 no envelope", reason="malformed", detail=detail)


@pytest.fixture
def grave(chasqui: Chasqui) -> Grave:
    return Grave(chasqui)


@pytest.fixture
def shown(servers: Servers) -> Chasqui:
    """The command on one server: what a terminal shows is the same on all."""
    return Chasqui(servers.shared(DIALECTS[0]))
