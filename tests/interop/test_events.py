"""Events cross between us and the reference: each side's follower reads what the other wrote.

`a` writes them, `b` follows; the reference on both is the control.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.chaos.kit.wait import eventually
from tests.interop.conftest import MakeSide, both_ways
from tests.interop.side import Side, Told
from tests.servers import DialectServer

WORK: dict[str, Any] = {"concurrency": 1, "read_block_ms": 100}
NUMBERS = ("attempt", "backoff_ms", "delay_ms", "duration_us", "ts")
# What follows `e id ts [n]`, in the order of the reference.
EXTRAS: dict[str, list[str]] = {
    "active": ["attempt"],
    "completed": ["attempt", "duration_us"],
    "failed": ["attempt", "reason", "duration_us"],
    "retry-scheduled": ["attempt", "backoff_ms"],
    "dlq": ["attempt", "reason"],
    "drained": [],
    "waiting": [],
    "delayed": ["delay_ms"],  # the reference knows it, and does not write it
}


@pytest.fixture
def rows(native_server: DialectServer, queue_name: str) -> Any:
    """Asks for the rows of the events stream."""
    client: Any = native_server.client(protocol=2)

    def ask() -> list[dict[str, str]]:
        found = client.xrange(f"{{chasqui:{queue_name}}}:events")
        return [{key.decode(): value.decode() for key, value in row.items()} for _, row in found]

    return ask


def read(row: dict[str, str], by_us: bool) -> Told:
    """What a follower makes of a row."""
    rest = {key: value for key, value in row.items() if key not in ("e", "id", "n")}
    numbers = (*NUMBERS, "created_ms") if by_us else NUMBERS
    fields = {key: int(value) if key in numbers else value for key, value in rest.items()}
    return Told(row["e"], row["id"] or None, row.get("n", ""), fields)


@both_ways
def test_each_side_follows_what_the_other_writes(side: MakeSide, rows: Any, a: str, b: str) -> None:
    writer, follower = side(a), side(b)
    follower.follow(last_event_id="0", block_ms=100)
    writer.add("名前", 1, job_id="twice", delay_ms=50, attempts=3, backoff=1)
    writer.add("doomed", 1, job_id="doomed", attempts=1)
    writer.work(fail_below=1, **WORK)
    writer.wait_seen(3)
    wanted = EXTRAS.keys() if writer.is_ours else EXTRAS.keys() - {"delayed"}
    eventually(lambda: {row["e"] for row in rows()} == wanted, or_say=rows)
    written = rows()  # more may follow: each time that it finds nothing more to do, it says so
    eventually(lambda: len(follower.told()) >= len(written), or_say=follower.told)

    told = follower.told()[: len(written)]
    assert told == [read(row, follower.is_ours) for row in written]
    for row in written:
        named = ["n"] if "n" in row else []
        ours = ["created_ms"] if writer.is_ours and row["e"] == "active" else []
        assert list(row) == ["e", "id", "ts", *named, *EXTRAS[row["e"]], *ours]

    assert runs(told, "doomed") == [("active", 1), ("failed", 1), ("dlq", 1)]
    assert runs(told, "twice")[-5:] == [
        *(("active", 1), ("failed", 1), ("retry-scheduled", 2)),
        *(("active", 2), ("completed", 2)),
    ]
    assert {event.job_name for event in told if event.job_id == "twice"} >= {"名前"}


def runs(told: list[Told], job_id: str) -> list[tuple[str, Any]]:
    """What was told of a job, `waiting` apart: that may come behind `active`."""
    return [
        (event.name, event.fields.get("attempt"))
        for event in told
        if event.job_id == job_id and event.name != "waiting"
    ]


def test_the_reference_sees_adds_that_we_tell_of(side: MakeSide, rows: Any) -> None:
    follower: Side = side("reference")
    follower.follow(last_event_id="0", block_ms=100)
    side("ours").add("later", 1, job_id="later", delay_ms=60_000)
    eventually(follower.told)
    (row,) = rows()
    assert follower.told() == [Told("delayed", "later", "later", read(row, False).fields)]
    assert follower.told()[0].fields["delay_ms"] == 60_000
