"""Pages of rows, as Redis gives them. While one is decoded, the next is on its way; those two are
all that an executor holds.

A page has at most so many rows, and about so many bytes: Redis builds an answer as a whole, so what
it was asked for is the only bound there is. So the first answers are small, until it is known how
large rows are. As decoding a page costs as much as a few hundred rows, however few it has, those
answers are put together into one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from chasquimq import lua
from chasquimq.spark.client import Arg, Client
from chasquimq.spark.place import read_place
from chasquimq.spark.read.part import Bound
from chasquimq.wire import Keys
from chasquimq.wire.fault import as_error

FIRST = 10  # rows: nobody knows yet how large they are
FASTER = 8  # times as many in the next page, at the most
STARTING = 2  # times as many, at the least, as long as pages are small
SAMPLE = 250  # rows of a page tell how large all are
PAGE_BYTES = 8 << 20
LARGE_BYTES = 64 << 20  # if all were as large as the largest of the last page
SCRIPT_ROWS = 500  # in one call: the server serves nobody meanwhile
SCRIPT_BYTES = 1 << 20
SCRIPTS = ("spark_pending", "spark_delayed", "list_specs")

Page = list[Any]


def next_count(page: Page, most: int) -> int:
    """How many entries the next page may have, when those of the last one were so large."""
    some = page[:: len(page) // SAMPLE + 1]
    sizes = [sum(map(len, fields)) + 1 for _, fields in some]
    count = min(PAGE_BYTES * len(some) // sum(sizes), LARGE_BYTES // max(sizes))
    return max(1, min(most, count, len(page) * FASTER))


def entries(client: Client, key: bytes, after: str, upto: str, most: int) -> Iterator[Page]:
    """The entries of `(after, upto]` of a stream, in order."""
    if read_place(after) >= read_place(upto):
        return
    count = min(most, FIRST)
    client.post("XRANGE", key, f"({after}", upto, "COUNT", count)
    held: Page = []
    more = True
    while more:
        page = _answer(client, key)
        held += page
        more = len(page) == count and page[-1][0] != upto.encode()
        starting = False
        if more:
            count = next_count(held, most)
            starting = count >= STARTING * len(held)
            if starting:
                count -= len(held)
            client.post("XRANGE", key, b"(%b" % page[-1][0], upto, "COUNT", count)
        if held and not starting:
            yield held
            held = []


def picked(client: Client, key: bytes, ids: Iterable[str], most: int) -> Iterator[Page]:
    """Those of the entries that are there."""
    left, count = iter(ids), min(most, FIRST)
    while some := list(islice(left, count)):
        replies = client.ask_each([("XRANGE", key, entry_id, entry_id) for entry_id in some])
        page = [entry for reply in replies for entry in _checked(reply, key)]
        if page:
            count = next_count(page, most)
            yield page


def pending(
    client: Client, key: bytes, group: str, after: str, upto: str, most: int
) -> Iterator[Page]:
    """`[entry id, consumer, idle ms, deliveries, fields or None]` of `(after, upto]`."""
    if read_place(after) >= read_place(upto):
        return
    args = (upto, min(most, SCRIPT_ROWS), SCRIPT_BYTES)
    behind: str | bytes = after
    client.post(*lua.call("spark_pending", (key,), (group, behind, *args)))
    while behind:
        behind, *page = _answer(client, key)
        if behind:
            client.post(*lua.call("spark_pending", (key,), (group, behind, *args)))
        if page:
            yield page


def delayed(
    client: Client, key: bytes, after: Bound | None, upto: Bound, most: int
) -> Iterator[Page]:
    """`(member, score)` of a sorted set, in order; each that stays comes once."""
    args = (*upto, min(most, SCRIPT_ROWS), SCRIPT_BYTES)
    client.post(*lua.call("spark_delayed", (key,), (*args, *(after or ()))))
    over = 0
    while not over:
        over, *flat = _answer(client, key)
        page = list(zip(flat[::2], flat[1::2], strict=True))
        if not over:
            member, score = page[-1]
            client.post(*lua.call("spark_delayed", (key,), (*args, score, b"=" + member)))
        if page:
            yield page


def specs(client: Client, keys: Keys, most: int) -> Iterator[Page]:
    """`[key, score, [spec, retry, fired, aside]]`; no third where there is no hash."""
    known: set[bytes] = set()
    behind: tuple[bytes, ...] = ()
    most = min(most, SCRIPT_ROWS)
    while True:
        args: tuple[Arg, ...] = (most, keys.spec(""), SCRIPT_BYTES, *behind)
        rows = client.run("list_specs", (keys.repeat,), args)
        page = [row for row in rows if row[0] not in known]
        if page:
            known.update(row[0] for row in page)
            yield page
        elif len(rows) < most:  # not more than some that have fired meanwhile, and come again
            return
        behind = rows[-1][1], rows[-1][0]


def _answer(client: Client, key: bytes) -> Any:
    [reply] = client.collect()
    return _checked(reply, key)


def _checked(reply: Any, key: bytes) -> Any:
    if isinstance(reply, Exception):
        raise as_error(reply, f"reading {key.decode(errors='replace')}")
    return reply
