"""Adding: exactly the documented fields, an id of one's own only once, trimming only when asked."""

from __future__ import annotations

from typing import Any

import pytest

from chasquimq import lua
from chasquimq.store.dialect import ADDED, KNOWN
from tests.store.shelf import Shelf

MINTED = b"01JAAAAAAAAAAAAAAAAAAAAAAA"


def plain(
    shelf: Shelf, body: bytes, name: bytes = b"", job_id: bytes = MINTED, **options: Any
) -> bytes:
    """A plain add as the producer fills it in: `add_front`, the envelope, the name."""
    dialect = shelf.dialect(**({"producer_id": b"p"} | options))
    tail = b"\r\n$1\r\nn\r\n$%d\r\n%b\r\n" % (len(name), name) if name else b"\r\n"
    return b"%b%d\r\n%b%b" % (dialect.add_front(job_id, bool(name)), len(body), body, tail)


@pytest.mark.parametrize(
    ("name", "fields"),
    [(b"", {b"d": b"body"}), (b"send", {b"d": b"body", b"n": b"send"})],
)
@pytest.mark.parametrize("trim", [0, 1_000])
async def test_a_plain_add_writes_the_body_and_then_the_name(
    shelf: Shelf, name: bytes, fields: dict[bytes, bytes], trim: int
) -> None:
    entry_id = await shelf.send(plain(shelf, b"body", name, trim=trim))
    ((found_id, found),) = shelf.entries()
    assert found_id == entry_id
    assert list(found.items()) == list(fields.items())


@pytest.mark.parametrize("body", [b"", b"\0\r\n$5\r\n*", bytes(range(256)), b"x" * 100_000])
async def test_any_bytes_arrive_as_they_are(shelf: Shelf, body: bytes) -> None:
    await shelf.send(plain(shelf, body, "né*$".encode()))
    ((_, fields),) = shelf.entries()
    assert fields == {b"d": body, b"n": "né*$".encode()}


async def test_a_plain_add_sent_twice_comes_in_once_where_the_dialect_says_so(
    shelf: Shelf,
) -> None:
    await shelf.open_stream()
    dialect = shelf.dialect()
    ids = [await shelf.send(plain(shelf, b"body")) for _ in range(2)]
    assert dialect.safe_to_resend is shelf.native
    assert (ids[0] == ids[1]) is shelf.native
    assert shelf.redis.xlen(shelf.keys.stream) == (1 if shelf.native else 2)


# -- ids of one's own ----------------------------------------------------------------------------


def own(
    shelf: Shelf, job_id: bytes, body: bytes, producer_id: bytes = b"p", **options: Any
) -> bytes:
    dialect = shelf.dialect(producer_id=producer_id, **options)
    return dialect.add_own(job_id, [b"d", body, b"n", b"send"], 900)


async def test_an_id_of_ones_own_comes_in_once(shelf: Shelf) -> None:
    await shelf.open_stream()
    assert await shelf.send(own(shelf, b"order-1", b"first")) == ADDED
    assert await shelf.send(own(shelf, b"order-1", b"second")) == KNOWN
    [(_, fields)] = shelf.entries()
    assert fields == {b"d": b"first", b"n": b"send"}


@pytest.mark.parametrize("gone", ["acked", "deleted"])
async def test_an_id_stays_taken_once_a_worker_had_its_job(shelf: Shelf, gone: str) -> None:
    jobs = await shelf.join()
    await shelf.send(own(shelf, b"order-1", b"x"))
    [(first, _)] = shelf.entries()
    await shelf.send(jobs.read(1, 1_000))
    if gone == "acked":
        await shelf.send(jobs.dialect.ack([first]))
    else:
        shelf.redis.xdel(shelf.keys.stream, first)
    assert await shelf.send(own(shelf, b"order-1", b"x")) == KNOWN
    assert shelf.redis.xlen(shelf.keys.stream) == 0


@pytest.mark.parametrize("groups", [0, 1, 2])
async def test_a_job_that_was_removed_unread_comes_in_again(shelf: Shelf, groups: int) -> None:
    await shelf.open_stream()
    for number in range(groups):
        shelf.redis.xgroup_create(shelf.keys.stream, f"g{number}", "0")
    shelf.redis.xadd(shelf.keys.stream, {"d": "before"})
    for number in range(groups):
        shelf.redis.xreadgroup(f"g{number}", "c", {shelf.keys.stream: ">"})
    for turn in range(5):
        assert await shelf.send(own(shelf, b"order-1", b"%d" % turn)) == ADDED
        assert await shelf.send(own(shelf, b"order-1", b"again")) == KNOWN
        [_, (entry_id, fields)] = shelf.entries()
        assert fields[b"d"] == b"%d" % turn
        shelf.redis.xdel(shelf.keys.stream, entry_id)


async def test_an_id_whose_stream_was_deleted_comes_in_again(shelf: Shelf) -> None:
    await shelf.open_stream()
    for turn in range(3):
        assert await shelf.send(own(shelf, b"order-1", b"x")) == ADDED, turn
        assert await shelf.send(own(shelf, b"order-1", b"x")) == KNOWN
        shelf.redis.delete(shelf.keys.stream)


async def test_a_job_that_one_of_two_groups_had_does_not_come_in_again(shelf: Shelf) -> None:
    await shelf.open_stream()
    for name in ("one", "two"):
        shelf.redis.xgroup_create(shelf.keys.stream, name, "0")
    await shelf.send(own(shelf, b"order-1", b"x"))
    shelf.redis.xreadgroup("two", "c", {shelf.keys.stream: ">"})
    [(entry_id, _)] = shelf.entries()
    shelf.redis.xdel(shelf.keys.stream, entry_id)
    assert await shelf.send(own(shelf, b"order-1", b"x")) == KNOWN
    assert shelf.redis.xlen(shelf.keys.stream) == 0


@pytest.mark.parametrize(
    ("removed", "delivered", "known"),
    [
        ("9-0", "10-0", True),
        ("10-0", "9-0", False),
        ("10-0", "10-0", True),
        ("10-9", "10-10", True),
        ("10-10", "10-9", False),
        ("10-18446744073709551615", "10-18446744073709551614", False),
        ("10-18446744073709551614", "10-18446744073709551615", True),
    ],
)
async def test_entry_ids_are_compared_as_numbers(
    shelf: Shelf, removed: str, delivered: str, known: bool
) -> None:
    script = lua.SOURCES["add_once"].partition("local known")[0]
    stream = shelf.keys.stream
    shelf.redis.xgroup_create(stream, "g", delivered, mkstream=True)
    asked = f"{script} return removed_unread(KEYS[1], ARGV[1]) and 1 or 0"
    assert bool(shelf.redis.eval(asked, 1, stream, removed)) != known


async def test_a_marker_that_is_no_entry_id_stays_known(shelf: Shelf) -> None:
    await shelf.open_stream()
    if not shelf.native:
        shelf.redis.set(shelf.keys.idmp("p", "order-1"), "somebody's")
        assert await shelf.send(own(shelf, b"order-1", b"x")) == KNOWN


async def test_other_ids_and_other_producers_are_not_in_the_way(shelf: Shelf) -> None:
    await shelf.open_stream()
    for job_id in (b"a", b"b", "é ü".encode(), b"i" * 1_024):
        for producer in (b"p", b"q"):
            assert await shelf.send(own(shelf, job_id, b"x", producer)) == ADDED
    assert shelf.redis.xlen(shelf.keys.stream) == 8


async def test_ordinary_adds_cannot_push_an_own_id_out_of_memory(shelf: Shelf) -> None:
    await shelf.open_stream()
    if shelf.native:  # remember little, so that little has to be added
        shelf.redis.execute_command("XCFGSET", shelf.keys.stream, "IDMP-MAXSIZE", 5)
    assert await shelf.send(own(shelf, b"order-1", b"x")) == ADDED
    for number in range(20):
        await shelf.send(plain(shelf, b"y", job_id=b"01JAAAAAAAAAAAAAAAAAAAAA%02d" % number))
    assert await shelf.send(own(shelf, b"order-1", b"x")) == KNOWN
    assert shelf.redis.xlen(shelf.keys.stream) == 21


async def test_the_marker_of_an_own_id_lives_as_long_as_the_server_would_remember_it(
    shelf: Shelf,
) -> None:
    await shelf.send(own(shelf, b"order-1", b"x"))
    marker = shelf.keys.idmp("p", "order-1")
    if shelf.native:
        assert shelf.redis.exists(marker) == 0
    else:
        ((entry_id, _),) = shelf.entries()
        assert shelf.redis.get(marker) == entry_id
        assert 895 <= shelf.redis.ttl(marker) <= 900


# -- trimming ------------------------------------------------------------------------------------


@pytest.mark.parametrize("own_id", [False, True])
@pytest.mark.parametrize("trim", [0, 100])
async def test_a_stream_is_trimmed_only_when_asked(shelf: Shelf, own_id: bool, trim: int) -> None:
    with shelf.redis.pipeline(transaction=False) as pipe:
        for number in range(400):
            pipe.xadd(shelf.keys.stream, {"d": number})
        pipe.execute()
    if own_id:
        await shelf.send(own(shelf, b"order-1", b"newest", trim=trim))
    else:
        await shelf.send(plain(shelf, b"newest", b"send", trim=trim))
    entries = shelf.entries()
    assert entries[-1][1] == {b"d": b"newest", b"n": b"send"}
    assert len(entries) == 401 if trim == 0 else 100 <= len(entries) <= 200
