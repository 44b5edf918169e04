"""Members of the delayed set: each that stays comes once, whatever others do."""

from __future__ import annotations

import random

import pytest

from chasquimq.spark.read import plan, scan
from chasquimq.spark.read.filters import Span, Wanted
from chasquimq.spark.read.part import Members
from tests.servers import DialectServer
from tests.spark_redis.reading import Reading
from tests.spark_redis.test_scan_entries import key_of

ODD = [
    b"",
    b"\x00",
    b"\x00\x00",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff",
    b"a",
    b"a\x00",
    b"ab",
    b"B",
]


def fill(server: DialectServer, queue: str, members: dict[bytes, float]) -> list[bytes]:
    """In the order of the server."""
    client, key = server.client(), key_of(queue, "delayed")
    client.zadd(key, members)  # type: ignore[arg-type]
    return client.zrange(key, 0, -1)  # type: ignore[return-value]


def some(count: int, scores: int = 7) -> dict[bytes, float]:
    return {b"job %06d" % (n * 7919 % count): float(n % scores) for n in range(count)}


@pytest.mark.parametrize("parts", [1, 2, 5, 300])
@pytest.mark.parametrize("fetch_size", [1, 7, 5000])
def test_every_member_is_in_one_part(
    dialect_server: DialectServer, queue_name: str, fetch_size: int, parts: int
) -> None:
    scores = {**some(150), **dict.fromkeys(ODD, 3.0), b"never": float("inf"), b"was": -1.5}
    members = fill(dialect_server, queue_name, scores)
    reading = Reading(
        dialect_server, queue_name, view="delayed", fetchSize=fetch_size, minPartitions=parts
    )
    rows = [reading.rows_of(part) for part in reading.parts()]
    assert [member for part in rows for member, _ in part] == members
    assert all(float(score) == scores[member] for part in rows for member, score in part)
    assert len(rows) == min(parts, len(members))
    assert max(map(len, rows)) - min(map(len, rows)) <= 2


def test_while_a_promoter_takes_some_and_others_come(
    dialect_server: DialectServer, queue_name: str
) -> None:
    """All of one score too, where a page begins in the middle of them."""
    dice = random.Random(5)
    client, key = dialect_server.client(), key_of(queue_name, "delayed")
    scores = {b"job %04d" % n: float(n // 50) for n in range(400)}
    members = fill(dialect_server, queue_name, scores)
    reading = Reading(dialect_server, queue_name, view="delayed", fetchSize=20, minPartitions=2)
    found: list[bytes] = []
    gone: set[bytes] = set()
    for part in reading.parts():
        for page in reading.pages(part):
            found += [member for member, _ in page]
            taken = {*client.zrange(key, 0, 4), *dice.sample(members, 3), page[-1][0]}
            gone |= taken
            client.zrem(key, *taken)
            client.zadd(key, {b"new %d %d" % (len(found), n): float(n) for n in range(9)})
    ours = [member for member in found if not member.startswith(b"new")]
    assert len(found) == len(set(found))
    assert set(members) - gone <= set(ours) <= set(members)


def test_nothing_comes_that_is_due_behind_all_that_were_there(
    dialect_server: DialectServer, queue_name: str
) -> None:
    members = fill(dialect_server, queue_name, some(20))
    reading = Reading(dialect_server, queue_name, view="delayed")
    parts = reading.parts()
    fill(dialect_server, queue_name, {b"later": 1e9})
    assert [member for part in parts for member, _ in reading.rows_of(part)] == members


def test_members_that_begin_alike(
    dialect_server: DialectServer, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the beginning of a member travels in a part."""
    monkeypatch.setattr(plan, "CUT_BYTES", 3)
    members = fill(dialect_server, queue_name, {b"job %04d" % n: 1.0 for n in range(40)})
    reading = Reading(dialect_server, queue_name, view="delayed", minPartitions=4)
    parts = reading.parts()
    assert all(isinstance(part, Members) and len(part.upto.member) <= 4 for part in parts)
    assert [member for part in parts for member, _ in reading.rows_of(part)] == members


def test_pages_are_bounded_by_bytes(
    dialect_server: DialectServer, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "SCRIPT_BYTES", 1_000_000)
    fill(dialect_server, queue_name, {b"%d" % n + b"x" * 100_000: 1.0 for n in range(35)})
    reading = Reading(dialect_server, queue_name, view="delayed")
    [part] = reading.parts()
    assert [len(page) for page in reading.pages(part)] == [10, 10, 10, 5]


@pytest.mark.parametrize(
    ("due", "scores"),
    [
        (Span(low=3), [4, 5, 6]),
        (Span(high=3), [0, 1, 2, 3]),
        (Span(1, 4), [2, 3, 4]),
        (Span(4, 4), []),
        (Span(5, 2), []),
        (Span(-(10**18), 10**18), [0, 1, 2, 3, 4, 5, 6]),
    ],
)
def test_a_range_of_scores(
    dialect_server: DialectServer, queue_name: str, due: Span, scores: list[int]
) -> None:
    fill(dialect_server, queue_name, some(70))
    reading = Reading(dialect_server, queue_name, view="delayed", minPartitions=3)
    rows = reading.rows(Wanted((queue_name,), due=due))
    assert [float(score) for _, score in rows] == [score for score in scores for _ in range(10)]


def test_no_set(dialect_server: DialectServer, queue_name: str) -> None:
    assert Reading(dialect_server, queue_name, view="delayed").parts() == []
