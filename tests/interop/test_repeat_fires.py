"""Specs that one program wrote and another fires, and the jobs that come of it.

`a` writes and runs, `b` fires; the reference on both sides is the control.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chasquimq.repeat import StoredSpec
from tests.chaos.kit.wait import eventually
from tests.interop.conftest import MakeSide, across, both_ways
from tests.interop.keys import Keys
from tests.interop.test_both_ways import WORK

HOUR_MS = 3_600_000
EVERY: dict[str, Any] = {"kind": "every", "interval_ms": HOUR_MS}
OFTEN: dict[str, Any] = {"kind": "every", "interval_ms": 50}
ALWAYS: dict[str, Any] = {"kind": "cron", "expression": "* * * * * *", "tz": "Europe/Berlin"}
ALL = {"kind": "fire-all", "max_catchup": 1000}
TICK: dict[str, Any] = {"tick_interval_ms": 20}
NAME = "naïve-名前"

SPECS: list[tuple[str, Any, dict[str, Any]]] = [  # (name, data, how it repeats); 8 jobs
    (NAME, {"a": [1, None]}, {"repeat": OFTEN, "limit": 3, "missed_fires": ALL}),
    ("", None, {"repeat": {**OFTEN, "interval_ms": 60}, "limit": 2, "missed_fires": ALL}),
    ("seconds", "ñandú", {"repeat": ALWAYS, "limit": 1}),
    ("once", 1.5, {"repeat": {**OFTEN, "interval_ms": 90}, "limit": 1}),
    ("late", [], {"repeat": {**OFTEN, "interval_ms": 70}, "start_after_ms": 1, "limit": 1}),
]
EXPECTED = sorted(repr((name, data)) for name, data, how in SPECS for _ in range(int(how["limit"])))


@both_ways
def test_specs_of_one_fire_in_the_scheduler_of_the_other_and_their_jobs_run_in_either(
    side: MakeSide, keys: Keys, a: str, b: str
) -> None:
    writer, firer = side(a), side(b)
    for name, data, how in SPECS:
        writer.upsert(name, data, **how)
    firer.schedule(**TICK)
    eventually(lambda: keys.all_of_specs() == [], or_say=lambda: keys.client.keys("*"))
    jobs = keys.jobs()
    assert sorted(repr((job.name, job.data)) for job in jobs) == EXPECTED
    assert {job.retry for job in jobs} == {None}
    assert len({job.id for job in jobs}) == len(jobs)
    assert all(("@" in job.id) is firer.is_ours for job in jobs)
    writer.work(run_scheduler=False, **WORK)
    seen = writer.wait_seen(len(jobs))
    assert sorted((run.id, run.name) for run in seen) == sorted((job.id, job.name) for job in jobs)
    keys.wait_drained()


@across
def test_specs_of_one_fire_and_run_in_the_worker_of_the_other(
    side: MakeSide, keys: Keys, a: str, b: str
) -> None:
    writer, worker = side(a), side(b)
    for name, data, how in SPECS:
        writer.upsert(name, data, **how)
    worker.work(scheduler_tick_ms=20, **WORK)
    eventually(lambda: keys.all_of_specs() == [])
    seen = worker.wait_seen(len(EXPECTED))
    assert sorted(repr((run.name, run.data)) for run in seen) == EXPECTED
    assert 0 < keys.client.pttl(keys.scheduler_lock) <= 5_000
    keys.wait_drained()


# -- what only ours writes ---------------------------------------------------------------------


def test_a_spec_with_fields_of_ours_fires_in_a_reference_scheduler_without_them(
    side: MakeSide, keys: Keys
) -> None:
    ours, reference = side("ours"), side("reference")
    key = ours.upsert("tried", 1, repeat=OFTEN, attempts=7, backoff=50, missed_fires=ALL)
    stale = {"aside": "12345 ", "catchup": f"0 {keys.score(key)}"}
    keys.client.hset(keys.spec(key), mapping=stale)
    reference.schedule(**TICK)
    eventually(lambda: keys.fired(key) >= 3)
    assert {job.retry for job in keys.jobs()} == {None}
    reference.rest_scheduler()
    fired = keys.fired(key)
    ours.schedule(**TICK)
    eventually(lambda: keys.fired(key) >= fired + 3)
    mine = keys.jobs()[fired:]
    assert [job.retry[0] for job in mine] == [7] * len(mine), "here it counts again"


def test_a_paused_spec_never_fires_in_a_reference_scheduler(side: MakeSide, keys: Keys) -> None:
    ours, reference = side("ours"), side("reference")
    paused = ours.upsert("paused", 1, repeat=OFTEN, missed_fires=ALL)
    assert ours.pause_repeatable(paused) is True
    fires = ours.upsert("fires", 1, repeat={**OFTEN, "interval_ms": 60}, missed_fires=ALL)
    reference.schedule(**TICK)
    eventually(lambda: keys.fired(fires) >= 5)
    assert keys.fired(paused) == 0
    assert {job.name for job in keys.jobs()} == {"fires"}
    assert ours.resume_repeatable(paused) is True
    eventually(lambda: keys.fired(paused) >= 2)
    assert ours.pause_repeatable(paused) is True
    assert reference.remove_repeatable(paused) is True
    assert not keys.client.exists(keys.spec(paused))


def test_a_fire_out_of_turn_of_a_spec_of_the_reference_does_not_count(
    side: MakeSide, keys: Keys
) -> None:
    ours, reference = side("ours"), side("reference")
    key = reference.upsert(NAME, {"a": 1}, repeat=EVERY, limit=1)
    next_ms = keys.score(key)
    made = ours.run_repeatable_now(key)
    assert (keys.score(key), keys.fired(key)) == (next_ms, 0)
    reference.work(run_scheduler=False, **WORK)
    [run] = reference.wait_seen(1)
    assert (run.id, run.name, run.data) == (made, NAME, {"a": 1})


# -- forms that newer programs write -----------------------------------------------------------

FIELDS = [*StoredSpec.__struct_fields__]
RETRY = [7, ["fixed", 50, None, None, None]]


def form(key: str, slots: int, **changes: Any) -> list[Any]:
    payload = msgspec.msgpack.encode(msgspec.msgpack.encode(key))  # a bin in a bin
    whole = [key, key, {"Every": [HOUR_MS]}, payload, None, None, None, 0, "Skip", RETRY]
    return [
        changes.get(name, value) for name, value in zip(FIELDS[:slots], whole[:slots], strict=True)
    ]


def by_name(key: str, slots: int, **changes: Any) -> dict[str, Any]:
    return dict(zip(FIELDS[:slots], form(key, slots, **changes), strict=True))


FORMS: dict[str, Any] = {
    "seven": form("seven", 7),
    "eight": form("eight", 8),
    "nine": form("nine", 9),
    "nine, Skip with nil": form("nine, Skip with nil", 9, missed_fires={"Skip": None}),
    "nine, Skip by number": form("nine, Skip by number", 9, missed_fires=0),
    "interval by name": form("interval by name", 8, pattern={"Every": {"interval_ms": HOUR_MS}}),
    "pattern by number": form("pattern by number", 8, pattern={1: [HOUR_MS]}),
    "a map": by_name("a map", 9),
}
NEWER = {
    "ten": form("ten", 10),
    "ten with FireOnce": form("ten with FireOnce", 10, missed_fires="FireOnce"),
}
NEWER_MAP = {"a map of ten": by_name("a map of ten", 10)}
PLAIN_TEN = {"ten without an override": form("ten without an override", 10, retry=None)}


def put_due(keys: Keys, forms: dict[str, Any]) -> None:
    for key, value in forms.items():
        keys.put_spec(key, msgspec.msgpack.encode(value), keys.now_ms())


def test_every_form_fires_here_with_its_override(side: MakeSide, keys: Keys) -> None:
    put_due(keys, forms := {**FORMS, **PLAIN_TEN, **NEWER, **NEWER_MAP})
    side("ours").schedule(**TICK)
    eventually(lambda: len(keys.jobs()) == len(forms), or_say=lambda: keys.jobs())
    retries = {job.name: job.retry for job in keys.jobs()}
    assert retries == {key: RETRY if key in {**NEWER, **NEWER_MAP} else None for key in forms}
    assert {job.data for job in keys.jobs()} == set(forms)
    assert keys.client.zcard(keys.repeat) == len(forms)


def test_ten_elements_are_dropped_by_the_reference_and_our_override_is_not(
    side: MakeSide, keys: Keys
) -> None:
    """Why we keep the override in a field of its own."""
    ours, reference = side("ours"), side("reference")
    ours.upsert("ours", "ours", repeat=EVERY, attempts=7, key="ours")
    keys.client.zadd(keys.repeat, {"ours": keys.now_ms()})
    put_due(keys, {**FORMS, **PLAIN_TEN, **NEWER, **NEWER_MAP})
    reference.schedule(**TICK)
    fires = {"ours", *FORMS, *NEWER_MAP}
    eventually(lambda: len(keys.jobs()) == len(fires), or_say=lambda: keys.jobs())
    eventually(lambda: keys.client.zcard(keys.repeat) == len(fires))
    assert {job.name for job in keys.jobs()} == fires
    assert {job.retry for job in keys.jobs()} == {None}
    for key in {**PLAIN_TEN, **NEWER}:
        assert keys.score(key) is None
        assert keys.client.exists(keys.spec(key)), "its hash is left behind"
        assert ours.remove_repeatable(key) is True
    assert keys.client.hexists(keys.spec("ours"), "retry")


@pytest.mark.parametrize("firer", ["ours", "reference"])
def test_a_catch_up_ends_at_the_limit(side: MakeSide, keys: Keys, firer: str) -> None:
    started = side(firer)
    spec = form("limited", 9, limit=3, missed_fires={"FireAll": [100]})
    keys.client.hset(keys.spec("limited"), "fired", 1)
    keys.put_spec("limited", msgspec.msgpack.encode(spec), keys.now_ms() - 11 * HOUR_MS // 2)
    started.schedule(**TICK)
    eventually(lambda: keys.all_of_specs() == [])
    assert len(keys.jobs()) == 2


# -- where the two differ ----------------------------------------------------------------------


@pytest.mark.parametrize(("firer", "fires"), [("ours", 3), ("reference", 6)])
def test_a_catch_up_goes_beyond_the_end_only_in_the_reference(
    side: MakeSide, keys: Keys, firer: str, fires: int
) -> None:
    started = side(firer)
    first_ms = keys.now_ms() - 11 * HOUR_MS // 2
    end_ms = first_ms + 2 * HOUR_MS
    spec = form("ends", 9, end_before_ms=end_ms, missed_fires={"FireAll": [100]})
    keys.put_spec("ends", msgspec.msgpack.encode(spec), first_ms)
    started.schedule(**TICK)
    eventually(lambda: keys.all_of_specs() == [])
    assert len(keys.jobs()) == fires


def test_what_ends_a_reference_scheduler_is_put_aside_here_and_the_reference_goes_on(
    side: MakeSide, keys: Keys
) -> None:
    broken = form("broken", 8, payload=b"\xc1")
    ours, reference = side("ours"), side("reference")
    ours.upsert("fires", 1, repeat=OFTEN, missed_fires=ALL, key="fires")
    keys.put_spec("broken", msgspec.msgpack.encode(broken), keys.now_ms() - 1)

    reference.schedule(**TICK)
    assert "decode" in str(eventually(reference.ended))
    reference.schedule(**TICK)  # nor does another one get any further
    eventually(reference.ended)
    fired = keys.fired("fires")

    ours.schedule(**TICK)
    eventually(lambda: keys.fired("fires") > fired)
    [problem] = [spec["problem"] for spec in ours.repeatables() if spec["key"] == "broken"]
    assert problem is not None
    ours.rest_scheduler()

    fired = keys.fired("fires")
    side("reference").schedule(**TICK)
    eventually(lambda: keys.fired("fires") >= fired + 3)
