"""A job is found wherever it is, and looking changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest
import redis

from chasquimq import Queue, wire
from chasquimq.job import Envelope
from chasquimq.store import sighting
from chasquimq.store.find import Find, Sought
from chasquimq.store.listing import Listing
from chasquimq.store.walk import PAGE, Walk
from tests.store.shelf import GROUP, Shelf


@pytest.fixture
async def queue(shelf: Shelf) -> AsyncIterator[Queue]:
    name, url = shelf.keys.queue, shelf.server.url
    async with Queue(name, redis_url=url, dialect=shelf.server.forced_dialect) as queue:
        yield queue


def find(shelf: Shelf, **options: Any) -> Find:
    return Find(shelf.keys, shelf.link, GROUP, **options)


def states(found: Sought) -> list[str]:
    return [one.state for one in found.sightings]


def entry(job_id: str, payload: bytes = b"\xc0", **options: Any) -> list[bytes]:
    return wire.join_entry(wire.pack_envelope(Envelope(job_id, payload, 1, **options)), b"n")


def put(shelf: Shelf, key: bytes, fields: list[bytes], entry_id: str = "*") -> str:
    return shelf.redis.execute_command("XADD", key, entry_id, *fields).decode()


def take(shelf: Shelf, consumer: str = "w-1", count: int = 1) -> None:
    stream = shelf.keys.stream
    with suppress(redis.ResponseError):  # it is there
        shelf.redis.xgroup_create(stream, GROUP, id="0", mkstream=True)
    shelf.redis.xreadgroup(GROUP, consumer, {stream: ">"}, count=count)


# -- where it is -----------------------------------------------------------------------------------


async def test_a_waiting_job_is_found_with_its_entry(shelf: Shelf, queue: Queue) -> None:
    job = await queue.add("welcome", {"user": 1})
    await queue.add("other", None)
    [one] = (await find(shelf).job(job.id)).sightings
    [(first, _), _] = shelf.redis.xrange(shelf.keys.stream)
    assert (one.state, one.name, one.job_id, one.attempt) == ("waiting", "welcome", job.id, 0)
    assert one.entry_id == first.decode()
    assert one.since_ms == int(first.split(b"-")[0])


async def test_a_running_job_tells_who_has_it(shelf: Shelf, queue: Queue) -> None:
    job = await queue.add("welcome", None)
    take(shelf, "w-1")
    [one] = (await find(shelf).job(job.id)).sightings
    assert (one.state, one.consumer, one.deliveries) == ("running", "w-1", 1)
    assert one.idle_ms is not None
    shelf.redis.xclaim(shelf.keys.stream, GROUP, "w-2", 0, [one.entry_id])
    [one] = (await find(shelf).job(job.id)).sightings
    assert (one.consumer, one.deliveries) == ("w-2", 2)


@pytest.mark.parametrize("own_id", [None, "order-17"])
async def test_a_delayed_job_is_found_by_its_index(
    shelf: Shelf, queue: Queue, own_id: str | None
) -> None:
    bulk = [{"name": "later", "data": n, "delay_ms": 600_000} for n in range(40)]
    bulk[23]["job_id"] = own_id
    if own_id is None:
        del bulk[23]["job_id"]
    jobs = await queue.add_bulk(bulk)
    found = await find(shelf, scan=1).job(jobs[23].id)  # walking would not get there
    [one] = found.sightings
    assert (one.state, one.job_id, one.indexed) == ("delayed", jobs[23].id, True)
    [score] = [
        score
        for member, score in shelf.redis.zrange(shelf.keys.delayed, 0, -1, withscores=True)
        if jobs[23].id.encode() in member
    ]
    assert one.due_ms == int(score) == await find(shelf).due_ms(jobs[23].id)


async def test_a_retry_has_no_index_and_is_found_by_walking(shelf: Shelf) -> None:
    for n in range(1_200):  # three pages, most of one score
        envelope = wire.pack_envelope(Envelope(f"job-{n}", b"\xc0", 1, 2))
        score = 5_000 + n // 1_000
        shelf.redis.zadd(shelf.keys.delayed, {wire.join_member(b"again", envelope): score})
    for wanted in ("job-3", "job-999", "job-1199"):
        [one] = (await find(shelf).job(wanted)).sightings
        assert (one.state, one.job_id, one.attempt, one.indexed) == ("delayed", wanted, 2, False)


async def test_a_dead_job_tells_why(shelf: Shelf) -> None:
    fields = wire.pack_dead(
        wire.pack_envelope(Envelope("a", b"\xc0", 5, 2)), b"welcome", b"7-0", "retries_exhausted",
        job_id="a", attempt=3, error_type="ValueError", error="no such user", failed_at_ms=99,
    )  # fmt: skip
    put(shelf, shelf.keys.dlq, fields)
    [one] = (await find(shelf).job("a")).sightings
    told = (one.state, one.reason, one.error_type, one.error, one.attempt, one.since_ms)
    assert told == ("dead", "retries_exhausted", "ValueError", "no such user", 3, 99)


async def test_a_row_of_the_reference_counts_its_runs_alike(shelf: Shelf) -> None:
    body = wire.pack_envelope(Envelope("a", b"\xc0", 5, 2))
    put(shelf, shelf.keys.dlq, wire.pack_dead(body, b"", b"7-0", "retries_exhausted"))
    [one] = (await find(shelf).job("a")).sightings
    assert (one.job_id, one.attempt) == ("a", 3)


async def test_a_job_in_several_places_is_shown_in_all_of_them(shelf: Shelf, queue: Queue) -> None:
    await queue.add("n", None, job_id="a", delay_ms=600_000)
    put(shelf, shelf.keys.stream, entry("a"))
    take(shelf)
    put(shelf, shelf.keys.stream, entry("a"))
    put(shelf, shelf.keys.dlq, wire.pack_dead(entry("a")[1], b"n", b"1-0", "unrecoverable"))
    assert states(await find(shelf).job("a")) == ["running", "waiting", "delayed", "dead"]


async def test_an_id_inside_of_another_or_of_the_data_is_not_it(shelf: Shelf) -> None:
    put(shelf, shelf.keys.stream, entry("order-17"))
    put(shelf, shelf.keys.stream, entry("b", wire.encode("order-1")))
    put(shelf, shelf.keys.dlq, wire.pack_dead(entry("order-17")[1], b"n", b"1-0", "malformed"))
    assert not (await find(shelf).job("order-1")).found


async def test_what_was_settled_but_not_removed_is_told(shelf: Shelf) -> None:
    entry_id = put(shelf, shelf.keys.stream, entry("a"))
    take(shelf)
    shelf.redis.xack(shelf.keys.stream, GROUP, entry_id)
    [one] = (await find(shelf).job("a")).sightings
    assert one.state == "waiting" and one.trouble is not None and "no worker" in one.trouble


async def test_an_entrys_id_leads_to_its_job(shelf: Shelf) -> None:
    entry_id = put(shelf, shelf.keys.stream, entry("a"))
    put(shelf, shelf.keys.stream, entry("a"))
    found = await find(shelf).job(entry_id)
    assert (found.job_id, states(found)) == ("a", ["waiting", "waiting"])


async def test_a_dead_job_is_found_by_the_entry_it_had_and_by_its_row(shelf: Shelf) -> None:
    fields = wire.pack_dead(entry("a")[1], b"n", b"1234567890123-4", "unrecoverable")
    row = put(shelf, shelf.keys.dlq, fields)
    assert states(await find(shelf).job("1234567890123-4")) == ["dead"]
    assert (await find(shelf).job(row)).job_id == "a"


async def test_rows_that_nobody_can_read_are_stepped_over(shelf: Shelf) -> None:
    put(shelf, shelf.keys.stream, [b"d", b"\xc1a"])
    put(shelf, shelf.keys.stream, [b"x", b"a"])
    put(shelf, shelf.keys.dlq, [b"x", b"a"])
    put(shelf, shelf.keys.events, [b"x", b"a"])
    shelf.redis.zadd(shelf.keys.delayed, {b"a": 1, b"": 2, b"\xffa": float("inf")})
    found = await find(shelf).job("a")
    assert not found.found and all(place.whole for place in found.looked)


# -- what else is known ------------------------------------------------------------------------


async def test_result_markers_and_events_are_told(shelf: Shelf, queue: Queue) -> None:
    await queue.add("n", None, job_id="a", unique="until_done")
    await queue.add("n", None, job_id="a", delay_ms=600_000)
    shelf.redis.set(shelf.keys.result("a"), wire.encode({"sum": 3}), ex=60)
    for kind in ("active", "failed", "retry-scheduled"):
        shelf.redis.execute_command("XADD", shelf.keys.events, "*", *wire.pack_event(kind, "a", 7))
    put(shelf, shelf.keys.events, wire.pack_event("active", "b", 7))
    found = await find(shelf).job("a")
    assert found.result is not None and found.result.payload == wire.encode({"sum": 3})
    assert found.result.ttl_ms is not None and 0 < found.result.ttl_ms <= 60_000
    assert [one.kind for one in found.markers] == ["didx", "dlid", "unique"]
    told = [row.name for _, row in found.events]
    assert told[-3:] == ["active", "failed", "retry-scheduled"]
    assert [row.name for _, row in (await find(shelf).job("a", events=2)).events] == told[-2:]


async def test_a_large_result_is_fetched_only_when_it_is_wanted(shelf: Shelf) -> None:
    shelf.redis.set(shelf.keys.result("a"), b"x" * 1_000)
    found = await find(shelf).job("a", result_bytes=999)
    assert found.result is not None
    assert (found.result.size, found.result.payload, found.result.ttl_ms) == (1_000, None, None)


async def test_a_fire_tells_its_spec(shelf: Shelf, queue: Queue) -> None:
    await queue.upsert_repeatable_job(
        "report", None, repeat={"kind": "every", "interval_ms": 3_600_000}, key="nightly"
    )
    put(shelf, shelf.keys.stream, entry("nightly@1794819600000"))
    origin = (await find(shelf).job("nightly@1794819600000")).origin
    assert origin is not None
    assert (origin.key, origin.window_ms, origin.exists) == ("nightly", 1794819600000, True)
    assert (origin.job_name, origin.pattern) == (
        "report",
        {"kind": "every", "interval_ms": 3_600_000},
    )
    await queue.remove_repeatable_by_key("nightly")
    gone = (await find(shelf).job("nightly@1794819600000")).origin
    assert gone is not None and not gone.exists


# -- how far, and at what price ------------------------------------------------------------------


async def test_a_long_stream_is_looked_at_where_the_id_was_made_and_at_its_ends(
    shelf: Shelf,
) -> None:
    mint, pipe = wire.Mint(), shelf.redis.pipeline()
    start_ms = 1_700_000_000_000
    ids = [mint.one(start_ms + n * 1_000).decode() for n in range(3_000)]
    for n, job_id in enumerate(ids):
        pipe.execute_command("XADD", shelf.keys.stream, f"{start_ms + n * 1_000}-0", *entry(job_id))
    pipe.execute()
    for place in (0, 1_500, 2_999):
        assert states(await find(shelf, scan=300).job(ids[place])) == ["waiting"]
    put(shelf, shelf.keys.stream, entry("named"))
    assert states(await find(shelf, scan=300).job("named")) == ["waiting"]
    found = await find(shelf, scan=300).job("nobody")
    assert not found.found
    [stream, *_] = found.looked
    assert (stream.rows, stream.total, stream.whole) == (300, 3_001, False)


BASE_MS = 1_700_000_000_000


def put_backlog(shelf: Shelf, count: int, per_ms: int, late_ms: Callable[[int], int]) -> list[str]:
    """`per_ms` jobs are made in each millisecond; the nth is added so much later."""
    mint, pipe, ids = wire.Mint(), shelf.redis.pipeline(), []
    for n in range(count):
        made_ms = BASE_MS + n // per_ms
        job_id = mint.one(made_ms).decode()
        body = wire.pack_envelope(Envelope(job_id, b"\xc0", made_ms))
        entry_id = f"{made_ms + late_ms(n)}-{n}"
        pipe.execute_command("XADD", shelf.keys.stream, entry_id, *wire.join_entry(body, b"n"))
        ids.append(job_id)
    pipe.execute()
    return ids


@pytest.mark.parametrize(
    "late_ms",
    [lambda n: 0, lambda n: 40_000, lambda n: -40_000, lambda n: n],
    ids=["at-once", "clock-behind", "clock-ahead", "slow-bulk"],
)
async def test_a_waiting_job_is_found_in_a_backlog_that_was_added_fast(
    shelf: Shelf, late_ms: Callable[[int], int]
) -> None:
    """5,000 jobs within a second, and it may look at 400 rows."""
    ids = put_backlog(shelf, 5_000, 5, late_ms)
    for wanted in (0, 700, 1_777, 2_500, 3_333, 4_100, 4_999):
        found = await find(shelf, scan=400).job(ids[wanted])
        assert states(found) == ["waiting"]
        assert found.sightings[0].entry_id is not None
        assert found.sightings[0].entry_id.endswith(f"-{wanted}")


async def test_a_bulk_that_was_added_at_once_is_found_by_each_of_its_ids(
    shelf: Shelf, queue: Queue
) -> None:
    """All of its ids were made in one millisecond."""
    bulk = [{"name": "n", "data": n} for n in range(1_000)]
    jobs = [job for _ in range(5) for job in await queue.add_bulk(bulk)]
    for wanted in (0, 999, 1_500, 2_222, 2_999, 4_500, 4_999):
        assert states(await find(shelf, scan=2_400).job(jobs[wanted].id)) == ["waiting"]


async def test_a_few_jobs_of_another_time_lead_nobody_astray(shelf: Shelf) -> None:
    """Retries and jobs that were delayed stand among those that were just made."""
    mint, pipe, ids = wire.Mint(), shelf.redis.pipeline(), []
    for n in range(4_000):
        made_ms = BASE_MS + n - (5_000_000 if n % 4 == 0 else 0)
        ids.append(mint.one(made_ms).decode())
        body = wire.pack_envelope(Envelope(ids[-1], b"\xc0", made_ms))
        pipe.execute_command(
            "XADD", shelf.keys.stream, f"{BASE_MS + n}-0", *wire.join_entry(body, b"n")
        )
    pipe.execute()
    for wanted in (801, 1_999, 2_501, 3_203):
        assert states(await find(shelf, scan=400).job(ids[wanted])) == ["waiting"]


async def test_an_entrys_id_leads_to_its_job_however_long_the_stream_is(shelf: Shelf) -> None:
    pipe = shelf.redis.pipeline()
    for key in (shelf.keys.stream, shelf.keys.dlq):
        for n in range(1_000):
            body = wire.pack_envelope(Envelope(f"job-{n}", b"\xc0", 1))
            fields = (
                wire.join_entry(body, b"n")
                if key == shelf.keys.stream
                else wire.pack_dead(body, b"n", b"7-0", "unrecoverable", job_id=f"dead-{n}")
            )
            pipe.execute_command("XADD", key, f"{n + 1}-{int(key == shelf.keys.dlq)}", *fields)
    pipe.execute()
    found = await find(shelf, scan=20).job("501-0")
    assert (found.job_id, [one.entry_id for one in found.sightings]) == ("job-500", ["501-0"])
    found = await find(shelf, scan=20).job("501-1")
    assert [(one.state, one.entry_id) for one in found.sightings] == [("dead", "501-1")]


async def test_no_answer_has_more_rows_than_a_page_nor_many_bytes(shelf: Shelf) -> None:
    small, large, pipe = [b"d", b"x"], [b"d", b"x" * 400_000], shelf.redis.pipeline()
    for n in range(1_500):
        pipe.execute_command("XADD", shelf.keys.dlq, f"{n + 1}-0", *small)
    for n in range(60):
        pipe.execute_command("XADD", shelf.keys.stream, f"{n + 1}-0", *large)
    pipe.execute()
    assert sum(pages := await walked(shelf, shelf.keys.dlq)) == 1_500
    assert max(pages) == PAGE
    assert sum(pages := await walked(shelf, shelf.keys.stream)) == 60
    assert max(pages) <= 10  # four megabytes


async def walked(shelf: Shelf, key: bytes) -> list[int]:
    pages: list[int] = []
    async for _ in Walk(shelf.link, pages.append).entries(key, 100_000):
        pass
    return pages


async def test_looking_changes_nothing(shelf: Shelf, queue: Queue) -> None:
    await queue.add("n", None, job_id="a", delay_ms=600_000)
    put(shelf, shelf.keys.stream, entry("a"))
    take(shelf)
    put(shelf, shelf.keys.stream, entry("b"))
    put(shelf, shelf.keys.dlq, wire.pack_dead(entry("a")[1], b"n", b"1-0", "malformed"))
    pattern = f"{{chasqui:{shelf.keys.queue}}}*"

    def everything() -> dict[bytes, Any]:
        return {key: shelf.redis.dump(key) for key in shelf.redis.scan_iter(pattern)}

    before = everything()
    for wanted in ("a", "b", "nobody", "1-0"):
        await find(shelf).job(wanted)
    for state in ("waiting", "running", "delayed", "dead"):
        await Listing(shelf.keys, shelf.link, GROUP).some(state, 10)
    assert everything() == before


async def test_a_queue_that_does_not_exist_has_no_jobs(shelf: Shelf) -> None:
    assert not (await find(shelf).job("a")).found
    for state in ("waiting", "running", "delayed", "dead"):
        listed = await Listing(shelf.keys, shelf.link, GROUP).some(state, 10)
        assert (listed.jobs, listed.more) == ([], False)


# -- lists -----------------------------------------------------------------------------------------


async def test_lists_have_the_jobs_of_their_state(shelf: Shelf, queue: Queue) -> None:
    ids = [(await queue.add("n", n)).id for n in range(5)]
    take(shelf, "w-1", count=2)
    late = (await queue.add("late", None, delay_ms=600_000)).id
    put(shelf, shelf.keys.dlq, wire.pack_dead(entry("dead")[1], b"n", b"1-0", "malformed"))
    listing = Listing(shelf.keys, shelf.link, GROUP)
    found = {
        state: [one.job_id for one in (await listing.some(state, 10)).jobs]
        for state in ("waiting", "running", "delayed", "dead")
    }
    assert found == {
        "running": ids[:2],
        "waiting": ids[2:],
        "delayed": [late],
        "dead": ["dead"],
    }
    some = await listing.some("waiting", 2)
    assert ([one.job_id for one in some.jobs], some.more) == (ids[2:4], True)
    assert not (await listing.some("waiting", 3)).more


async def test_a_name_is_looked_for_behind_the_first_page(shelf: Shelf, queue: Queue) -> None:
    bulk: list[dict[str, Any]] = [{"name": "usual", "data": n} for n in range(700)]
    bulk.append({"name": "rare", "data": None})
    jobs = await queue.add_bulk(bulk)
    take(shelf, count=1)
    listing = Listing(shelf.keys, shelf.link, GROUP)
    listed = await listing.some("waiting", 5, "rare")
    assert ([one.job_id for one in listed.jobs], listed.more) == ([jobs[-1].id], False)
    short = await Listing(shelf.keys, shelf.link, GROUP, scan=100).some("waiting", 5, "rare")
    assert (short.jobs, short.rows, short.more) == ([], 100, True)


async def test_a_pending_entry_without_a_body_is_listed_as_such(shelf: Shelf) -> None:
    entry_id = put(shelf, shelf.keys.stream, entry("a"))
    take(shelf)
    shelf.redis.xdel(shelf.keys.stream, entry_id)
    [one] = (await Listing(shelf.keys, shelf.link, GROUP).some("running", 5)).jobs
    assert (one.entry_id, one.consumer, one.trouble) == (entry_id, "w-1", "its body is gone")


# -- what an id tells ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job_id", "ms"),
    [
        ("01M7HSBBQVABCDEFGHJKMNPQRS", 1_794_819_600_123),
        ("report::every:5@1794819600000", 1_794_819_600_000),
        ("k@01M7HSBBQVABCDEFGHJKMNPQRS", 1_794_819_600_123),
        ("order-17", None),
        ("1794819600000", None),
        ("user@example", None),
        ("01m7hx31g8pnqqn6fsb2ysfbj5", None),
        ("a@²", None),
    ],
)
def test_when_an_id_was_made(job_id: str, ms: int | None) -> None:
    assert sighting.made_ms(job_id) == ms
