"""Finding a delayed job by its id.

The index of a minted id has the score and the member's bytes before the id; the member is
searched for among those of its score, which lie in the order of their bytes.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from chasquimq import wire
from chasquimq.job import Due, Envelope, RetryOverride
from tests.servers import DIALECTS, Dialect, Servers
from tests.store.faulty import wipe
from tests.store.shelf import Shelf, envelope, member

SCORE = 4_000_000_000_000
AT = Due(SCORE, absolute=True)
on_a_shared_server = settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


async def schedule(shelf: Shelf, due: Due, job_id: str, name: bytes = b"", **slots: Any) -> bytes:
    """A job whose id counts as minted; answers its member."""
    body = wire.pack_envelope(Envelope(job_id, b"\xc0", 1_700_000_000_000, **slots))
    one = wire.join_member(name, body)
    assert await shelf.send(shelf.store.delayed.schedule(due, one, job_id, 1)) == 1
    return one


def calls(shelf: Shelf) -> int:
    stats: dict[str, Any] = shelf.redis.info("commandstats")
    return sum(told["calls"] for told in stats.values())


# -- what is found -------------------------------------------------------------------------------

NAMES = st.sampled_from([b"", b"n", "ñandú-名前-🦙".encode(), b"n" * 256, b"\xff\x00\x80", b"\x00"])
IDS = st.text(min_size=1, max_size=40) | st.sampled_from(["i" * 31, "i" * 32, "i" * 256, "é\0"])
RETRY = st.sampled_from([None, RetryOverride(3, None)])
JOBS = st.lists(st.tuples(IDS, NAMES, RETRY), min_size=1, max_size=30, unique_by=lambda job: job[0])
STRANGERS = st.lists(st.binary(max_size=12) | st.builds(member, IDS, NAMES), max_size=10)


@on_a_shared_server
@given(jobs=JOBS, strangers=STRANGERS, data=st.data())
@example(jobs=[("a", b"", None)], strangers=[b"", b"\0\0\0\0\x94\xa1", b"\xff" * 9], data=None)
async def test_each_job_is_found_among_others_of_its_score_and_nothing_else_is_touched(
    shelf: Shelf, jobs: list[tuple[str, bytes, Any]], strangers: list[bytes], data: Any
) -> None:
    wipe(shelf)
    members = {
        job_id: await schedule(shelf, AT, job_id, name, retry=retry) for job_id, name, retry in jobs
    }
    starts = tuple(m[: wire.before_id(m, i.encode())] + i.encode() for i, m in members.items())
    strangers = [one for one in strangers if not one.startswith(starts)]
    if strangers:
        shelf.redis.zadd(shelf.keys.delayed, dict.fromkeys(strangers, SCORE))
    shelf.redis.zadd(shelf.keys.delayed, {b"sooner": SCORE - 1, b"later": SCORE + 1})
    order = data.draw(st.permutations(list(members))) if data else list(members)
    left = {*members.values(), *strangers, b"sooner", b"later"}
    assert set(shelf.delayed()) == left
    for job_id in order:
        assert await shelf.store.delayed.cancel(job_id) is True
        left -= {members[job_id]}
        assert set(shelf.delayed()) == left
        assert await shelf.store.delayed.cancel(job_id) is False
        assert not shelf.redis.exists(shelf.keys.didx(job_id))


async def test_names_and_ids_that_begin_alike_are_told_apart(shelf: Shelf) -> None:
    jobs = [(i, n) for i in ("a", "ab", "b") for n in (b"", b"a", b"ab", b"b")]
    for number, (job_id, name) in enumerate(jobs):
        wipe(shelf)
        for other, its_name in jobs:
            shelf.redis.zadd(shelf.keys.delayed, {member(other, its_name): SCORE})
        await schedule(shelf, AT, job_id, name)
        assert await shelf.store.delayed.cancel(job_id) is True
        left = [member(*one) for one in jobs[:number] + jobs[number + 1 :]]
        assert sorted(shelf.delayed()) == sorted(left)


@pytest.mark.parametrize("ms", [1, 999, 1_000, SCORE, 2**53 - 1])
async def test_a_job_is_found_at_every_time(shelf: Shelf, ms: int) -> None:
    await schedule(shelf, Due(ms, absolute=True), "job")
    shelf.redis.zadd(shelf.keys.delayed, {member("other"): ms})
    index = shelf.redis.get(shelf.keys.didx("job"))
    assert index[2:4] != b"\0\0", "two zeros there mean a copy of the member"
    assert await shelf.store.delayed.cancel("job") is True
    assert list(shelf.delayed()) == [member("other")]


async def test_an_index_without_its_job_finds_nothing(shelf: Shelf) -> None:
    """Another program promoted it, and had no time yet to remove the index."""
    one = await schedule(shelf, AT, "job")
    shelf.redis.zrem(shelf.keys.delayed, one)
    assert await shelf.store.delayed.cancel("job") is False
    shelf.redis.zadd(shelf.keys.delayed, {member("jo"): SCORE, member("joc"): SCORE})
    assert await shelf.store.delayed.cancel("job") is False
    assert len(shelf.delayed()) == 2


async def test_the_same_job_waiting_for_a_retry_is_not_taken_for_it(shelf: Shelf) -> None:
    one = await schedule(shelf, AT, "job")
    shelf.redis.zrem(shelf.keys.delayed, one)
    again = wire.join_member(b"", envelope("job", attempt=1))
    shelf.redis.zadd(shelf.keys.delayed, {again: SCORE + 5})
    assert await shelf.store.delayed.cancel("job") is False
    assert list(shelf.delayed()) == [again]


async def test_many_are_cancelled_in_order_whoever_chose_their_ids(shelf: Shelf) -> None:
    delayed = shelf.store.delayed
    for number in range(0, 1_200, 2):
        await schedule(shelf, AT, f"minted-{number}")
        once = delayed.schedule_once(AT, member(f"own-{number}"), f"own-{number}", 1)
        await shelf.send(once)
    ids = [f"{kind}-{number}" for number in range(1_200) for kind in ("own", "minted")]
    done = await delayed.cancel_each(ids)
    assert done == [number % 2 == 0 for number in range(1_200) for _ in range(2)]
    assert shelf.delayed() == {}


async def test_a_server_without_memory_still_cancels(own_shelf: Shelf) -> None:
    await schedule(own_shelf, AT, "job")
    own_shelf.redis.config_set("maxmemory", 1)
    assert await own_shelf.store.delayed.cancel("job") is True


# -- what it costs -------------------------------------------------------------------------------


async def test_one_score_for_many_jobs_costs_few_commands(own_shelf: Shelf) -> None:
    shelf, many = own_shelf, 50_000
    for first in range(0, many, 5_000):
        numbers = range(first, first + 5_000)
        shelf.redis.zadd(shelf.keys.delayed, {member(f"{n:026}", b"n"): SCORE for n in numbers})
    wanted = [f"{n:026}" for n in (0, 1, many // 3, many - 1)]
    for job_id in wanted:
        await schedule(shelf, AT, job_id, b"n")
    await shelf.store.delayed.cancel("unknown")  # the scripts are loaded
    await shelf.store.delayed.reschedule("unknown", AT)
    for job_id in wanted:
        before = calls(shelf)
        assert await shelf.store.delayed.reschedule(job_id, AT) is True
        assert calls(shelf) - before < 40
        before = calls(shelf)
        assert await shelf.store.delayed.cancel(job_id) is True
        assert calls(shelf) - before < 40
    assert shelf.redis.zcard(shelf.keys.delayed) == many - len(wanted)


@pytest.mark.expected_skip("localedef")
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
async def test_a_server_that_sorts_by_its_locale_finds_them_as_well(
    dialect: Dialect, servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There Lua's `<` puts a before B; a sorted set does not."""
    locale = tmp_path / "en_US.UTF-8"
    try:
        subprocess.run(
            ["localedef", "--no-archive", "-i", "en_US", "-f", "UTF-8", locale], check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no localedef that knows en_US: {error}")
    monkeypatch.setenv("LOCPATH", str(tmp_path))
    monkeypatch.setenv("LC_ALL", locale.name)
    with servers.private(dialect) as server:
        shelf = await Shelf(server, "sorted").open()
        ids = [f"{letter}{number}" for letter in "aBcDé" for number in range(20)]
        for job_id in ids:
            await schedule(shelf, AT, job_id, b"n")
        assert await shelf.store.delayed.cancel_each(ids) == [True] * len(ids)
        await shelf.close()
