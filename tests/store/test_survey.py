"""What lives on a server: which queues, which families of keys, what they weigh; and the scripts
that show without writing."""

from __future__ import annotations

import re

import pytest

from chasquimq.store.exam import queue as queue_exam
from chasquimq.store.exam import right
from chasquimq.store.exam import server as server_exam
from chasquimq.store.exam.queue import Patience
from chasquimq.store.survey import Family, Survey, family_of
from chasquimq.wire import Keys
from tests.house.tree import SOURCE, files
from tests.store.shelf import GROUP, Shelf


@pytest.mark.parametrize(("rest", "family"), [
    (b"spark:nightly-412:3", "spark"), (b"sparkle", "other"),
    (b"stream", "stream"), (b"delayed", "delayed"), (b"dlq", "dlq"), (b"events", "events"),
    (b"repeat", "repeat"), (b"repeat:spec:a:b", "spec"), (b"result:x", "result"),
    (b"dlid:x", "dlid"), (b"didx:x", "didx"), (b"unique:x", "unique"), (b"idmp:p:x", "idmp"),
    (b"promoter:lock", "lock"), (b"scheduler:lock", "lock"), (b"paused", "paused"),
    (b"progress:x", "other"), (b"\xff", "other"),
])  # fmt: skip
def test_a_key_belongs_to_a_family(rest: bytes, family: str) -> None:
    assert family_of(rest) == family


async def test_queues_are_found_by_any_of_their_keys(shelf: Shelf) -> None:
    survey, name = Survey(shelf.link), shelf.keys.queue
    assert name not in await survey.queues()
    shelf.redis.set(shelf.keys.result("x"), "1", ex=60)
    assert name in await survey.queues()


async def test_names_that_no_queue_can_have_are_kept_apart(own_shelf: Shelf) -> None:
    for key in (b"{chasqui:a\x07}:stream", b"{chasqui:\xff}:dlq", b"{chasqui:}:dlq", b"{chasqui:b"):
        own_shelf.redis.set(key, "")
    own_shelf.redis.set("{chasqui:good}:paused", "1")
    census = await Survey(own_shelf.link).walk()
    assert (set(census.queues), census.foreign) == ({"good"}, {b"a\x07", b"\xff", b""})
    assert await Survey(own_shelf.link).queues() == ["good"]


async def test_a_walk_over_one_queue_sees_no_other(own_shelf: Shelf) -> None:
    for name in ("a*", "ab", "a", "a[b]"):
        own_shelf.redis.set("{chasqui:" + name + "}:paused", "1")
    census = await Survey(own_shelf.link).walk(["a*"])
    assert {name: set(found) for name, found in census.queues.items()} == {"a*": {"paused"}}
    census = await Survey(own_shelf.link).walk(["a[b]"])
    assert set(census.queues["a[b]"]) == {"paused"}
    census = await Survey(own_shelf.link).walk(["a", "ab"])
    assert set(census.queues) == {"a", "ab"}


async def test_a_walk_ends_when_it_has_seen_enough(own_shelf: Shelf) -> None:
    own_shelf.redis.mset({f"{{chasqui:q}}:result:{n}": "x" for n in range(5_000)})
    steps: list[int] = []
    census = await Survey(own_shelf.link).walk(pages=2, progress=steps.append)
    assert (census.complete, len(steps)) == (False, 2)
    whole = await Survey(own_shelf.link).walk()
    assert whole.complete and whole.queues["q"]["result"].count == 5_000


async def test_families_are_weighed_by_a_sample(own_shelf: Shelf) -> None:
    for n in range(200):
        own_shelf.redis.set(f"{{chasqui:q}}:result:{n}", "x" * 1_000, ex=60 if n % 2 else None)
    census = await Survey(own_shelf.link).walk(["q"])
    families = census.queues["q"]
    await Survey(own_shelf.link).weigh(families)
    result = families["result"]
    exact = own_shelf.redis.memory_usage("{chasqui:q}:result:7")
    assert result.count == 200
    assert result.weight == pytest.approx(200 * exact, rel=0.2)
    assert 0 < result.lasting <= 50


async def test_what_is_gone_meanwhile_weighs_nothing(shelf: Shelf) -> None:
    families = {"result": Family(1, [shelf.keys.result("gone")])}
    await Survey(shelf.link).weigh(families)
    assert (families["result"].weight, families["result"].lasting) == (0, 0)


async def test_long_lists_of_pending_entries_are_walked_page_by_page(shelf: Shelf) -> None:
    jobs = await shelf.join()
    pipe = shelf.redis.pipeline()
    for number in range(2_500):
        pipe.xadd(shelf.keys.stream, {"d": "x"}, id=f"{number + 1}-1")
    pipe.execute()
    shelf.redis.xreadgroup(GROUP, jobs.consumer, {shelf.keys.stream: ">"}, count=2_500)
    shelf.redis.xdel(shelf.keys.stream, "7-1", "1500-1", "2500-1")
    patience = Patience(stuck_ms=10**9, silent_ms=0)
    facts = await queue_exam.look(shelf.link, shelf.keys.queue, GROUP, patience)
    [holder] = facts.holders
    assert (facts.looked_at, holder.pending, holder.ghosts, holder.stuck) == (2_500, 2_500, 3, 0)
    quick = patience._replace(quick=True)
    facts = await queue_exam.look(shelf.link, shelf.keys.queue, GROUP, quick)
    assert (facts.looked_at, facts.holders[0].ghosts) == (1_000, 1)


async def test_large_bodies_are_looked_at_a_few_at_a_time(shelf: Shelf) -> None:
    await shelf.join()
    for _ in range(3):
        shelf.redis.xadd(shelf.keys.stream, {"d": b"x" * 3_000_000})
    shelf.redis.xreadgroup(GROUP, "w", {shelf.keys.stream: ">"})
    keys = (shelf.keys.stream,)
    after, *rows = await shelf.link.run("see_pending", keys, (GROUP, "-", 1_000, 4_000_000))
    assert (after == b"-", len(rows)) == (False, 2)
    after, *rows = await shelf.link.run("see_pending", keys, (GROUP, after, 1_000, 4_000_000))
    assert (after, len(rows)) == (b"-", 1)


async def test_the_dead_of_late_are_counted_to_a_limit(shelf: Shelf) -> None:
    shelf.redis.xadd(shelf.keys.dlq, {"d": "old"}, id="1-1")
    for _ in range(25):
        shelf.redis.xadd(shelf.keys.dlq, {"d": "x"})
    keys = (shelf.keys.dlq,)
    assert await shelf.link.run("count_dead", keys, (3_600_000, 100)) == 25
    assert await shelf.link.run("count_dead", keys, (3_600_000, 12)) == 12


async def test_a_server_that_stops_answering_is_asked_nothing_more(own_shelf: Shelf) -> None:
    own_shelf.server.server.pause()
    try:
        facts = await server_exam.look(own_shelf.link, 0.05, 1)
    finally:
        own_shelf.server.server.resume()
    assert (facts.answers, facts.unanswered) == (False, "INFO")
    assert (facts.info, facts.config, facts.hidden) == (None, None, [])


async def test_a_slow_log_knows_our_scripts_by_name(own_shelf: Shelf) -> None:
    own_shelf.redis.config_set("slowlog-log-slower-than", 0)
    await own_shelf.store.inspect.counts(GROUP)
    facts = await server_exam.look(own_shelf.link, 10.0, 1)
    assert "counts" in {row.script for row in facts.slow or ()}
    assert any(row.script is None for row in facts.slow or ())


def test_every_command_of_our_scripts_is_among_the_rights_that_are_tried() -> None:
    used = set()
    for path in files(SOURCE / "lua", ".lua"):
        if path.stem in ("drop_empty_spec", "drop_index", "drop_lock", "look"):
            continue  # only operators' commands run these
        if "spark" in path.stem:
            continue  # what Spark needs is its own: tests/spark_redis/test_right.py
        for command, sub in re.findall(
            r"redis\.p?call\('(\w+)'(?:, '([A-Z]+)')?", path.read_text()
        ):
            grouped = command in ("XGROUP", "XINFO")
            used.add(f"{command}|{sub}".lower() if grouped else command.lower())
    keys = Keys("mail")
    tried = {name for name, _ in [*right.needed(keys, "native"), *right.talked(keys)]}
    assert used - tried == set()
