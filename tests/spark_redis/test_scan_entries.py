"""Entries in pages: each once, bounded by rows and bytes, while others add and remove."""

from __future__ import annotations

import pytest

from chasquimq.errors import StoreError
from chasquimq.spark.place import END, LAST_SEQ
from chasquimq.spark.read import scan
from chasquimq.spark.read.part import Part, Picked
from chasquimq.spark.read.scan import FIRST, next_count
from tests.servers import DialectServer
from tests.spark_redis.reading import Reading

ALL = ("0-0", END)


def key_of(queue: str, name: str = "stream") -> str:
    return f"{{chasqui:{queue}}}:{name}"


def fill(server: DialectServer, key: str, bodies: list[bytes], start_ms: int = 1) -> list[str]:
    with server.client().pipeline(transaction=False) as pipe:
        for ms, body in enumerate(bodies, start_ms):
            pipe.xadd(key, {"d": body}, id=f"{ms}-0")
        return [entry_id.decode() for entry_id in pipe.execute()]


@pytest.mark.parametrize("fetch_size", [1, 7, 10, 11, 1000, 5000])
def test_every_entry_comes_once_and_in_order(
    dialect_server: DialectServer, queue_name: str, fetch_size: int
) -> None:
    bodies = [b"%d" % n for n in range(200)]
    ids = fill(dialect_server, key_of(queue_name), bodies)
    reading = Reading(dialect_server, queue_name, fetchSize=fetch_size)
    pages = list(reading.pages(Part(queue_name, *ALL)))
    rows = [row for page in pages for row in page]
    assert rows == [[one.encode(), [b"d", body]] for one, body in zip(ids, bodies, strict=True)]
    assert all(0 < len(page) <= fetch_size for page in pages)


def test_of_a_part_neither_its_start_nor_what_is_behind_its_end(
    dialect_server: DialectServer, queue_name: str
) -> None:
    fill(dialect_server, key_of(queue_name), [b"x"] * 30)
    reading = Reading(dialect_server, queue_name)
    found = [row[0] for row in reading.rows_of(Part(queue_name, "5-0", "8-0"))]
    assert found == [b"6-0", b"7-0", b"8-0"]
    assert reading.rows_of(Part(queue_name, "8-0", "8-0")) == []
    assert reading.rows_of(Part(queue_name, "9-0", "8-0")) == []


def test_while_others_add_and_remove(dialect_server: DialectServer, queue_name: str) -> None:
    """What is there all the time comes once; what comes behind the part's end is not in it."""
    key, client = key_of(queue_name), dialect_server.client()
    ids = fill(dialect_server, key, [b"x"] * 100)
    found: list[str] = []
    gone: set[str] = set()
    for number, page in enumerate(
        Reading(dialect_server, queue_name, fetchSize=10).pages(Part(queue_name, "0-0", ids[-1]))
    ):
        found += [row[0].decode() for row in page]
        last = int(found[-1].partition("-")[0])
        # The next page is on its way by now, so the one behind it is what they still can change.
        client.xdel(key, found[-1], f"{last + 15}-0")
        gone.add(f"{last + 15}-0")
        client.xadd(key, {"d": b"new"}, id=f"{1000 + number}-0")
    assert len(found) == len(set(found))
    assert set(ids) - gone <= set(found) <= set(ids)


def test_rows_that_are_large_make_small_pages(
    dialect_server: DialectServer, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "PAGE_BYTES", 1 << 20)
    small, large = [b"x"] * 300, [b"x" * 100_000] * 60
    fill(dialect_server, key_of(queue_name), [*small, *large, *small])
    pages = list(Reading(dialect_server, queue_name).pages(Part(queue_name, *ALL)))
    sizes = [(len(page), sum(len(row[1][1]) for row in page)) for page in pages]
    assert sum(rows for rows, _ in sizes) == 660
    heavy = [at for at, (_, size) in enumerate(sizes) if size > 2 << 20]
    assert len(heavy) == 1  # the page in which they begin: nobody could know
    assert all(size <= 1_100_000 for _, size in sizes[heavy[0] + 1 :])


def test_nobody_knows_at_first_how_large_rows_are(
    dialect_server: DialectServer, queue_name: str
) -> None:
    fill(dialect_server, key_of(queue_name), [b"x" * 1_000_000] * 30)
    pages = list(Reading(dialect_server, queue_name).pages(Part(queue_name, *ALL)))
    assert [len(page) for page in pages] == [FIRST, 8, 8, 4]


def test_small_answers_at_the_beginning_are_one_page(
    dialect_server: DialectServer, queue_name: str
) -> None:
    """Each page has its own cost, and in a short queue there are no others to bear it."""
    fill(dialect_server, key_of(queue_name), [b"x"] * 2_500)
    part = Part(queue_name, *ALL)
    for fetch_size, rows in ((1_000, [640, 1_000, 860]), (5_000, [2_500])):
        reading = Reading(dialect_server, queue_name, fetchSize=fetch_size)
        assert [len(page) for page in reading.pages(part)] == rows


def test_answers_are_put_together_up_to_what_a_page_may_hold(
    dialect_server: DialectServer, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "PAGE_BYTES", 1 << 20)
    fill(dialect_server, key_of(queue_name), [b"x" * 10_000] * 400)
    pages = list(Reading(dialect_server, queue_name).pages(Part(queue_name, *ALL)))
    assert [len(page) for page in pages] == [80, 104, 104, 104, 8]


def page_of(*sizes: int) -> list[object]:
    return [[b"1-0", [b"d", b"x" * (size - 2)]] for size in sizes]


@pytest.mark.parametrize(
    ("page", "most", "count"),
    [
        (page_of(*[100] * 10), 5_000, 80),  # not at once
        (page_of(*[100] * 4_000), 5_000, 5_000),
        (page_of(*[100] * 4_000), 300, 300),
        (page_of(*[1 << 20] * 10), 5_000, 8),
        (page_of(*[64 << 20] * 2), 5_000, 1),
        (page_of(1 << 20, *[100] * 999), 5_000, 64),  # all may be like the largest
    ],
)
def test_how_many_rows_to_ask_for_next(page: list[object], most: int, count: int) -> None:
    assert next_count(page, most) == count


def test_the_last_possible_entry(dialect_server: DialectServer, queue_name: str) -> None:
    client = dialect_server.client()
    ids = ["1-0", f"{LAST_SEQ}-{LAST_SEQ - 1}", f"{LAST_SEQ}-{LAST_SEQ}"]
    for one in ids:
        client.xadd(key_of(queue_name), {"d": b"x"}, id=one)
    for fetch_size in (1, 2, 3, 4):
        assert Reading(dialect_server, queue_name, fetchSize=fetch_size).ids() == ids


def test_entries_by_name(dialect_server: DialectServer, queue_name: str) -> None:
    bodies = [b"%d" % n for n in range(50)]
    ids = fill(dialect_server, key_of(queue_name), bodies)
    reading = Reading(dialect_server, queue_name, fetchSize=8)
    wanted = (*ids[::2], "777-0")
    pages = list(reading.pages(Picked(queue_name, wanted)))
    assert [row[0].decode() for page in pages for row in page] == ids[::2]
    assert max(map(len, pages)) <= 8


@pytest.mark.parametrize(
    ("view", "name"), [("jobs", "stream"), ("dlq", "dlq"), ("events", "events")]
)
def test_each_view_reads_its_stream(
    dialect_server: DialectServer, queue_name: str, view: str, name: str
) -> None:
    fill(dialect_server, key_of(queue_name, name), [b"mine"] * 3)
    assert [row[1][1] for row in Reading(dialect_server, queue_name, view=view).rows()] == [
        b"mine"
    ] * 3
    others = {"jobs", "dlq", "events"} - {view}
    assert all(Reading(dialect_server, queue_name, view=one).rows() == [] for one in others)


def test_a_key_that_becomes_something_else(dialect_server: DialectServer, queue_name: str) -> None:
    dialect_server.client().set(key_of(queue_name), "x")
    with pytest.raises(StoreError, match=rf"reading \{{chasqui:{queue_name}\}}:stream.*WRONGTYPE"):
        Reading(dialect_server, queue_name).rows_of(Part(queue_name, *ALL))
