"""A scheduler of each program on one queue: who leads, and what a change of the leader costs.

Every spec here catches up on what was missed. So, as long as nothing is fired twice or left out,
as many jobs have come as there are intervals between its first fire and its next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.chaos.kit.proxy import Proxy
from tests.chaos.kit.wait import eventually
from tests.interop.conftest import MakeSide, across, both_ways
from tests.interop.keys import Keys
from tests.interop.side import Side
from tests.servers import DialectServer

HOUR_MS = 3_600_000
STEP_MS = 50
OFTEN: dict[str, Any] = {
    "repeat": {"kind": "every", "interval_ms": STEP_MS},
    "missed_fires": {"kind": "fire-all", "max_catchup": 10_000},
}
EVERY: dict[str, Any] = {"repeat": {"kind": "every", "interval_ms": HOUR_MS}}
TICK: dict[str, Any] = {"tick_interval_ms": 20, "lock_ttl_secs": 1}
TURNS: dict[str, Any] = {"tick_interval_ms": 20, "lock_ttl_secs": 2}
LONG: dict[str, Any] = {"tick_interval_ms": 20, "lock_ttl_secs": 60}


@pytest.fixture
def through_proxy(
    native_server: DialectServer, queue_name: str, tmp_path: Path
) -> Iterator[tuple[Proxy, Any]]:
    port = native_server.client().connection_pool.connection_kwargs["port"]
    with Proxy(port) as proxy:
        yield proxy, lambda name: Side(name, proxy.url, queue_name, tmp_path / f"{name}.proxied")


class Late(NamedTuple):
    key: str
    at_ms: int
    go_on: Callable[[], None]


def wait_fires(keys: Keys, key: str, more: int) -> None:
    goal = keys.fired(key) + more
    eventually(lambda: keys.fired(key) >= goal, or_say=lambda: (keys.fired(key), goal))


def wait_held_by(keys: Keys, holder: bytes) -> None:
    eventually(
        lambda: keys.client.get(keys.scheduler_lock) == holder,
        or_say=lambda: keys.client.get(keys.scheduler_lock),
    )


def wait_asked(keys: Keys, times: int) -> None:
    """Until schedulers have asked so often for the lock."""
    with keys.client.monitor() as monitor:
        for said in monitor.listen():
            if said["client_type"] != "lua" and keys.scheduler_lock in said["command"]:
                times -= 1
            if times == 0:
                return


def test_each_window_fires_once_while_leaders_take_turns(side: MakeSide, keys: Keys) -> None:
    key = side("ours").upsert("tick", 1, **OFTEN)
    first_ms = keys.score(key)
    crew = [("ours", side("ours")), ("reference", side("reference"))]
    crew[0][1].schedule(holder_id="0", **TURNS)
    for turn, end in enumerate(["stop", "kill", "kill", "stop"]):
        wait_held_by(keys, str(turn).encode())
        (kind, leader), standby = crew
        standby[1].schedule(holder_id=str(turn + 1), **TURNS)
        wait_fires(keys, key, 3)
        if end == "kill":
            leader.stop()
            leader = side(kind)
        else:
            leader.rest_scheduler()
        crew = [standby, (kind, leader)]
    wait_held_by(keys, b"4")
    wait_fires(keys, key, 3)
    crew[0][1].rest_scheduler()

    jobs, next_ms = keys.jobs(), keys.score(key)
    assert first_ms is not None and next_ms is not None
    assert len(jobs) == keys.fired(key) == (next_ms - first_ms) // STEP_MS
    mine = [int(job.id.removeprefix(f"{key}@")) for job in jobs if "@" in job.id]
    assert len(set(mine)) == len(mine) >= 6
    assert {(at_ms - first_ms) % STEP_MS for at_ms in mine} == {0}


@both_ways
def test_limit_and_counter_go_on_with_the_next_leader(
    side: MakeSide, keys: Keys, a: str, b: str
) -> None:
    first, second = side(a), side(b)
    key = first.upsert("tick", 1, limit=12, **OFTEN)
    first.schedule(**TICK)
    wait_fires(keys, key, 3)
    first.rest_scheduler()
    assert not keys.client.exists(keys.scheduler_lock)
    fired = keys.fired(key)
    assert 3 <= fired < 12
    second.schedule(**TICK)
    eventually(lambda: keys.all_of_specs() == [])
    jobs = keys.jobs()
    assert len(jobs) == 12
    assert [("@" in job.id) for job in jobs] == [first.is_ours] * fired + [second.is_ours] * (
        12 - fired
    )


def test_a_fleet_of_both_keeps_a_limit_and_leaves_nothing_behind(
    side: MakeSide, keys: Keys
) -> None:
    crew = [side(kind) for kind in ("ours", "reference", "ours", "reference")]
    for each in crew:
        each.schedule(**TICK)
    specs = [
        crew[n % 2].upsert(f"tick{n}", n, limit=5 + n, **OFTEN | {"start_after_ms": n})
        for n in range(8)
    ]
    assert len(set(specs)) == 8
    for _ in range(2):
        eventually(lambda: keys.client.exists(keys.scheduler_lock))
        crew.pop().stop()
    eventually(lambda: keys.all_of_specs() == [], or_say=keys.jobs)
    names = [job.name for job in keys.jobs()]
    assert {name: names.count(name) for name in names} == {f"tick{n}": 5 + n for n in range(8)}


# -- the lock ----------------------------------------------------------------------------------


@both_ways
def test_neither_fires_while_the_other_leads(side: MakeSide, keys: Keys, a: str, b: str) -> None:
    leader, other = side(a), side(b)
    leader.schedule(**LONG)
    eventually(lambda: keys.client.exists(keys.scheduler_lock))
    held = keys.client.get(keys.scheduler_lock)
    assert held.startswith(b"s-")
    assert 0 < keys.client.pttl(keys.scheduler_lock) <= 60_000
    leader.freeze()
    key = other.upsert("tick", 1, **OFTEN)
    other.schedule(**TICK)
    eventually(lambda: keys.now_ms() > (keys.score(key) or 0))
    wait_asked(keys, 10)
    assert (keys.fired(key), keys.jobs()) == (0, [])
    assert keys.client.get(keys.scheduler_lock) == held
    leader.stop()
    keys.client.pexpire(keys.scheduler_lock, 1)  # as if it were up
    wait_fires(keys, key, 2)


@across
def test_the_lock_of_a_leader_that_stands_still_expires_for_the_other(
    side: MakeSide, keys: Keys, a: str, b: str
) -> None:
    leader, other = side(a), side(b)
    leader.schedule(holder_id="first", **TICK)
    wait_held_by(keys, b"first")
    leader.freeze()
    key = other.upsert("tick", 1, **OFTEN)
    other.schedule(holder_id="second", **LONG)
    wait_held_by(keys, b"second")
    wait_fires(keys, key, 2)
    leader.thaw()
    wait_asked(keys, 10)
    assert keys.client.get(keys.scheduler_lock) == b"second"


# -- a leader that stands still between its look and its fire ----------------------------------


@pytest.fixture
def late(side: MakeSide, keys: Keys, through_proxy: tuple[Proxy, Any]) -> Iterator[Late]:
    """A scheduler of ours that has seen a spec and is about to fire it."""
    proxy, proxied = through_proxy
    key, at_ms = due(side("ours"), keys)

    def go_on() -> None:
        proxy.heal()
        done = proxy.watch(keys.scheduler_lock)
        eventually(lambda: done.seen >= 5)

    with proxied("ours") as scheduler:
        held = proxy.hold(keys.stream, keys.spec(key))
        scheduler.schedule(holder_id="late", **TICK)
        eventually(lambda: held.seen)
        assert keys.jobs() == []
        yield Late(key, at_ms, go_on)


def test_ours_is_refused_when_it_comes_too_late(side: MakeSide, keys: Keys, late: Late) -> None:
    side("reference").schedule(holder_id="other", **TICK)
    eventually(keys.jobs)
    late.go_on()
    assert len(keys.jobs()) == keys.fired(late.key) == 1
    assert keys.score(late.key) == late.at_ms + HOUR_MS


def test_ours_is_refused_when_another_leads_by_then(keys: Keys, late: Late) -> None:
    keys.client.set(keys.scheduler_lock, "s-another", ex=60)
    late.go_on()
    assert (keys.score(late.key), keys.jobs()) == (late.at_ms, [])


def test_ours_is_refused_when_the_reference_has_written_the_spec_anew(
    side: MakeSide, keys: Keys, late: Late
) -> None:
    side("reference").upsert("tick", 1, **EVERY)
    next_ms = keys.score(late.key)
    keys.client.set(keys.scheduler_lock, "late", ex=60)  # it leads all the while
    late.go_on()
    assert (keys.score(late.key), keys.jobs()) == (next_ms, [])


def test_the_reference_fires_a_second_time_when_it_comes_too_late(
    side: MakeSide, keys: Keys, through_proxy: tuple[Proxy, Any]
) -> None:
    """Its own weakness, with ours or without: its script looks at no lock and at no score."""
    proxy, proxied = through_proxy
    ours = side("ours")
    key, at_ms = due(ours, keys)
    with proxied("reference") as late:
        held = proxy.hold(keys.stream, keys.spec(key))
        late.schedule(holder_id="late", **TICK)
        eventually(lambda: held.seen)
        ours.schedule(holder_id="other", **TICK)
        eventually(lambda: len(keys.jobs()) == 1)
        assert [job.id for job in keys.jobs()] == [f"{key}@{at_ms}"]
        proxy.heal()
        eventually(lambda: len(keys.jobs()) == 2)
    assert keys.score(key) == at_ms + HOUR_MS


@pytest.mark.parametrize("kind", ["ours", "reference"])
def test_a_late_reference_turns_a_spec_back_and_its_windows_fire_again(
    side: MakeSide, keys: Keys, through_proxy: tuple[Proxy, Any], kind: str
) -> None:
    """Whoever leads by then. Ours calls a window's job by the window, so that can be seen."""
    proxy, proxied = through_proxy
    other = side(kind)
    with proxied("reference") as late:
        key = other.upsert("tick", 1, **OFTEN)
        first_ms = keys.score(key)
        held = proxy.hold(keys.stream, keys.spec(key))
        late.schedule(holder_id="late", **TICK)
        eventually(lambda: held.seen)
        other.schedule(holder_id="other", **LONG)
        wait_fires(keys, key, 5)
        proxy.heal()
        done = proxy.watch(keys.scheduler_lock)
        eventually(lambda: done.seen >= 5)
    wait_fires(keys, key, 5)
    other.rest_scheduler()
    jobs, next_ms = keys.jobs(), keys.score(key)
    assert first_ms is not None and next_ms is not None
    windows = (next_ms - first_ms) // STEP_MS
    assert len(jobs) > windows
    mine = {job.id for job in jobs if "@" in job.id}
    assert len(mine) == (windows if other.is_ours else 0)


def test_what_a_late_reference_brings_back_is_cleared_away_by_ours(
    side: MakeSide, keys: Keys, through_proxy: tuple[Proxy, Any]
) -> None:
    proxy, proxied = through_proxy
    ours = side("ours")
    key = ours.upsert("tick", 1, **OFTEN)
    with proxied("reference") as late:
        held = proxy.hold(keys.stream, keys.spec(key))
        late.schedule(holder_id="late", **TICK)
        eventually(lambda: held.seen)
        assert ours.remove_repeatable(key) is True
        assert keys.all_of_specs() == []
        proxy.heal()
        eventually(keys.jobs)
        late.stop()
    jobs = keys.jobs()
    assert keys.client.hkeys(keys.spec(key)) == [b"fired"], "a spec without a spec"
    ours.schedule(**TICK)
    eventually(lambda: keys.all_of_specs() == [])
    assert keys.jobs() == jobs


def due(ours: Side, keys: Keys) -> tuple[str, int]:
    """A spec with one window, which is due."""
    key, at_ms = ours.upsert("tick", 1, **EVERY), keys.now_ms()
    keys.client.zadd(keys.repeat, {key: at_ms})
    return key, at_ms
