"""Listing specs by their next fire, a page at a time, while they move."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chasquimq.repeat import PAUSED_MS
from chasquimq.store.resp import Arg
from chasquimq.store.specs import Seen
from tests.servers import DIALECTS, Dialect, Servers
from tests.store.drawer import AHEAD, PAST, arm, snapshot, spec
from tests.store.faulty import wipe
from tests.store.shelf import Shelf

KEYS = ["", "B", "Z", "a", "aa", "ab", "b", "z", "zz", "\x7f", "Ä", "ä", "ß", "é", "名", "🦙"]


async def page(shelf: Shelf, limit: int, after: tuple[Arg, str] | None = None) -> list[str]:
    return [seen.key.decode() for seen in await shelf.store.specs.page(limit, after)]


async def walk(shelf: Shelf, size: int) -> list[str]:
    """All keys, page by page."""
    found: list[str] = []
    after: tuple[Arg, str] | None = None
    while rows := await shelf.store.specs.page(size, after):
        assert len(rows) <= size
        found += [row.key.decode() for row in rows]
        after = rows[-1].place, rows[-1].key.decode()
        assert len(found) <= 10_000, "it does not end"
    return found


def in_order(shelf: Shelf) -> list[str]:
    return [key.decode() for key in shelf.redis.zrange(shelf.keys.repeat, 0, -1)]


async def test_nothing_is_listed_where_there_is_nothing(shelf: Shelf) -> None:
    assert await page(shelf, 100) == []
    assert await page(shelf, 100, (PAST, "k")) == []
    assert snapshot(shelf) == {}


async def test_no_more_are_listed_than_asked_for(shelf: Shelf) -> None:
    for number in range(5):
        arm(shelf, f"k{number}", AHEAD - number)
    assert await page(shelf, 0) == []
    assert await page(shelf, 1) == ["k4"]
    assert await page(shelf, 4) == ["k4", "k3", "k2", "k1"]
    assert await page(shelf, 100) == ["k4", "k3", "k2", "k1", "k0"]


async def test_a_row_shows_all_that_is_told_of_a_spec(shelf: Shelf) -> None:
    arm(shelf, "k", PAUSED_MS, retry=b"r", fired=7, aside=f"{PAST} why", catchup="1 1")
    [row] = await shelf.store.specs.page(10)
    place = str(PAUSED_MS).encode()
    assert row == Seen(b"k", place, spec("k"), b"r", 7, f"{PAST} why".encode())
    assert (row.stood, row.problem) == (PAST, "why")


async def test_what_others_left_is_listed_too(shelf: Shelf) -> None:
    shelf.redis.zadd(shelf.keys.repeat, {"none": PAST, "text": AHEAD, b"\xff": AHEAD})
    shelf.redis.set(shelf.keys.spec("text"), "in the way")
    shelf.redis.hset(shelf.keys.spec(b"\xff"), mapping={"spec": b"\xc1", "fired": "x"})
    shelf.redis.hset(shelf.keys.spec("hash only"), "spec", spec("k"))
    rows = await shelf.store.specs.page(10)
    assert [(row.key, row.packed, row.fired) for row in rows] == [
        (b"none", None, 0),
        (b"text", None, 0),
        (b"\xff", b"\xc1", 0),
    ]


@pytest.mark.parametrize("size", [1, 7, 499, 500, 501, 1_300])
async def test_pages_of_any_size_show_each_spec_once(shelf: Shelf, size: int) -> None:
    with shelf.redis.pipeline(transaction=False) as pipe:
        for number in range(1_250 if size > 100 else 60):
            key = f"k{number * 7919 % 1250:04}"
            pipe.zadd(shelf.keys.repeat, {key: AHEAD + (number % 3 == 0)})
            pipe.hset(shelf.keys.spec(key), "spec", b"x")
        pipe.execute()
    assert await walk(shelf, size) == in_order(shelf)


@pytest.mark.parametrize("size", [1, 2, 5])
async def test_specs_of_one_moment_come_by_the_bytes_of_their_keys(shelf: Shelf, size: int) -> None:
    for key in KEYS:
        arm(shelf, key, AHEAD)
    arm(shelf, "last", AHEAD + 1)
    assert await walk(shelf, size) == [*sorted(KEYS, key=str.encode), "last"] == in_order(shelf)


async def test_scores_that_others_wrote_are_passed_one_by_one(shelf: Shelf) -> None:
    odd = ["-inf", "-5", "0.5", "1.5", "1.75", f"{AHEAD}.25", "9007199254740992", "1e300", "inf"]
    for number, score in enumerate(odd):
        arm(shelf, f"b{number}", score)
        arm(shelf, f"a{number}", score)
    assert await walk(shelf, 1) == [f"{side}{n}" for n in range(len(odd)) for side in "ab"]


TEXT = st.text(max_size=4) | st.sampled_from(KEYS)
SPECS = st.dictionaries(TEXT, st.sampled_from([PAST, AHEAD, PAUSED_MS]), max_size=25)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(specs=SPECS, after=TEXT, score=st.sampled_from([0, PAST, PAST + 1, AHEAD, PAUSED_MS]))
async def test_what_comes_behind_a_place_is_listed_whether_or_not_somebody_is_there(
    shelf: Shelf, specs: dict[str, int], after: str, score: int
) -> None:
    wipe(shelf)
    if specs:
        shelf.redis.zadd(shelf.keys.repeat, {key.encode(): at for key, at in specs.items()})
    found = await page(shelf, 100, (score, after))
    places = sorted((at, key.encode()) for key, at in specs.items())
    assert found == [key.decode() for at, key in places if (at, key) > (score, after.encode())]
    assert await walk(shelf, 3) == [key.decode() for _, key in places]


async def test_a_spec_that_moved_or_vanished_between_two_pages_hides_no_other(
    shelf: Shelf,
) -> None:
    for number, key in enumerate("abcdef"):
        arm(shelf, key, PAST + number // 2)
    rows = await shelf.store.specs.page(3)
    after = rows[-1].score, rows[-1].key.decode()
    assert after == (PAST + 1, "c")
    shelf.redis.zadd(shelf.keys.repeat, {"c": AHEAD, "a": AHEAD + 1})  # they have fired
    assert await page(shelf, 100, after) == ["d", "e", "f", "c", "a"]
    shelf.redis.zrem(shelf.keys.repeat, "c")
    assert await page(shelf, 100, after) == ["d", "e", "f", "a"]
    arm(shelf, "c", PAST)
    assert await page(shelf, 100, after) == ["d", "e", "f", "a"], "those before it are not shown"


async def test_an_answer_of_big_specs_is_cut_and_the_page_is_whole(shelf: Shelf) -> None:
    big = spec("k", bytes(1_500_000))
    for number in range(5):
        arm(shelf, f"k{number}", AHEAD, spec=big)
    await page(shelf, 1)  # the script is loaded
    before = calls(shelf)
    rows = await shelf.store.specs.page(5)
    assert [row.key for row in rows] == [b"k0", b"k1", b"k2", b"k3", b"k4"]
    assert all(row.packed == big for row in rows)
    assert calls(shelf) - before == 2
    arm(shelf, "a", AHEAD, spec=spec("k", bytes(5_000_000)))
    assert await page(shelf, 3) == ["a", "k0", "k1"]


def calls(shelf: Shelf) -> int:
    stats = shelf.redis.info("commandstats")
    return sum(told["calls"] for name, told in stats.items() if name.startswith("cmdstat_evalsha"))


async def test_a_place_among_many_of_one_moment_costs_few_commands(own_shelf: Shelf) -> None:
    shelf, many = own_shelf, 50_000
    for first in range(0, many, 5_000):
        shelf.redis.zadd(
            shelf.keys.repeat, {f"{n:026}": AHEAD for n in range(first, first + 5_000)}
        )
    await page(shelf, 1)
    for number in (0, many // 3, many - 2):
        before = sum(told["calls"] for told in shelf.redis.info("commandstats").values())
        assert await page(shelf, 1, (AHEAD, f"{number:026}")) == [f"{number + 1:026}"]
        after = sum(told["calls"] for told in shelf.redis.info("commandstats").values())
        assert after - before < 40


@pytest.fixture(scope="module")
def locale(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Lua's `<` puts a before B; a sorted set does not."""
    path = tmp_path_factory.mktemp("locale") / "en_US.UTF-8"
    try:
        subprocess.run(
            ["localedef", "--no-archive", "-i", "en_US", "-f", "UTF-8", path], check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no localedef that knows en_US: {error}")
    return path


@pytest.mark.expected_skip("localedef")
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
async def test_a_server_that_sorts_by_its_locale_lists_them_as_well(
    dialect: Dialect, servers: Servers, locale: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCPATH", str(locale.parent))
    monkeypatch.setenv("LC_ALL", locale.name)
    with servers.private(dialect) as server:
        shelf = await Shelf(server, "sorted").open()
        for key in KEYS:
            arm(shelf, key, AHEAD)
        assert await walk(shelf, 1) == sorted(KEYS, key=str.encode)
        await shelf.close()
