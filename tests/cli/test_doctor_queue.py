"""`chasqui doctor` on real queues, each brought into the state that it should find, and what
`--fix` does about it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from chasquimq import lua
from chasquimq.sync import Queue
from tests.cli.clinic import Clinic, Patient, wait_for
from tests.servers import DIALECTS, Servers

NOW = ("--silent-ms", "0", "--lease-ms", "1")  # who is silent now counts as gone


@pytest.fixture(scope="module", params=[DIALECTS[0], DIALECTS[2]], ids=["redis", "valkey"])
def clinic(request: pytest.FixtureRequest, servers: Servers) -> Iterator[Clinic]:
    """A server for this file: a walk over the keys of all other tests would take long."""
    with servers.private(request.param) as server:
        yield Clinic(server)


@pytest.fixture
def patient(clinic: Clinic, queue_name: str) -> Patient:
    """A queue with a group and nothing in it."""
    patient = Patient(clinic, queue_name)
    patient.group()
    return patient


# -- states, each made by hand -----------------------------------------------------------------


def ghosts(patient: Patient) -> None:
    ids = patient.add(3)
    patient.hold("w", 3)
    patient.redis.xdel(patient.keys.stream, *ids[:2])
    patient.redis.xack(patient.keys.stream, "default", ids[2])


def dead_consumers(patient: Patient) -> None:
    patient.redis.xgroup_createconsumer(patient.keys.stream, "default", "gone")


def wrong_kind(patient: Patient) -> None:
    patient.redis.set(patient.keys.dlq, "no stream")


def no_workers(patient: Patient) -> None:
    patient.redis.xadd(patient.keys.stream, {"d": "x"}, id="1-1")


def stuck(patient: Patient) -> None:
    patient.add()
    patient.hold("w")


def given_back(patient: Patient) -> None:
    """A job that a worker let go of when it stopped: it waits, it is not stuck."""
    [entry] = patient.add()
    patient.hold("w")
    patient.redis.xclaim(patient.keys.stream, "default", "w", 0, [entry], idle=2**31, justid=True)


def other_group(patient: Patient) -> None:
    patient.redis.xgroup_destroy(patient.keys.stream, "default")
    patient.group("crew")


def delayed_stuck(patient: Patient) -> None:
    patient.redis.zadd(patient.keys.delayed, {b"\x00\x00\x00\x00x": 1})


def delayed_late(patient: Patient) -> None:
    delayed_stuck(patient)
    patient.redis.set(patient.keys.promoter_lock, "w", ex=60)


def lock_forever(patient: Patient) -> None:
    patient.redis.set(patient.keys.scheduler_lock, "w")


def specs_stuck(patient: Patient) -> None:
    with queue_of(patient) as queue:
        every = {"kind": "every", "interval_ms": 60_000}
        queue.upsert_repeatable_job("daily", None, repeat=every, key="daily")
    patient.redis.zadd(patient.keys.repeat, {"daily": 1})


def specs_late(patient: Patient) -> None:
    specs_stuck(patient)
    patient.redis.set(patient.keys.scheduler_lock, "w", ex=60)


def spec_unreadable(patient: Patient) -> None:
    patient.redis.zadd(patient.keys.repeat, {"bad": 9e15})
    patient.redis.hset(patient.keys.spec("bad"), "spec", b"\xc1")


def spec_no_hash(patient: Patient) -> None:
    patient.redis.zadd(patient.keys.repeat, {"bad": 9e15})
    patient.redis.set(patient.keys.spec("bad"), "x")


def spec_aside(patient: Patient) -> None:
    specs_stuck(patient)
    patient.redis.hset(patient.keys.spec("daily"), "aside", "1 no such zone")
    patient.redis.zadd(patient.keys.repeat, {"daily": 2**53 - 1})


def spec_paused(patient: Patient) -> None:
    specs_stuck(patient)
    with queue_of(patient) as queue:
        queue.pause_repeatable("daily")


def spec_empty(patient: Patient) -> None:
    patient.redis.zadd(patient.keys.repeat, {"bare": 9e15, "rest": 9e15})
    patient.redis.hset(patient.keys.spec("rest"), "fired", 1)
    patient.redis.hset(patient.keys.spec("zombie"), "fired", 1)


def spec_unlisted(patient: Patient) -> None:
    specs_stuck(patient)
    patient.redis.zrem(patient.keys.repeat, "daily")


def dead(patient: Patient) -> None:
    patient.redis.xadd(patient.keys.dlq, {"d": "x"}, id="1-1")


def dead_growing(patient: Patient) -> None:
    for _ in range(25):
        patient.redis.xadd(patient.keys.dlq, {"d": "x"})


def paused(patient: Patient) -> None:
    no_workers(patient)
    patient.redis.set(patient.keys.paused, "deploy")


def never_expire(patient: Patient) -> None:
    patient.redis.set(patient.keys.result("x"), "x")


def index_lost(patient: Patient) -> None:
    with queue_of(patient) as queue:
        for job_id in ("own", None):
            queue.add("later", None, delay_ms=600_000, job_id=job_id)
    patient.redis.delete(patient.keys.delayed)


def several_groups(patient: Patient) -> None:
    patient.redis.xgroup_create(patient.keys.stream, "second")


def queue_of(patient: Patient) -> Queue:
    server = patient.server
    return Queue(patient.name, redis_url=server.url, dialect=server.forced_dialect)


STATES: list[tuple[str, Callable[[Patient], None], tuple[str, ...]]] = [
    ("queue.ghosts", ghosts, NOW),
    ("queue.dead-consumers", dead_consumers, NOW),
    ("queue.wrong-kind", wrong_kind, ()),
    ("queue.no-workers", no_workers, ()),
    ("queue.stuck", stuck, ("--lease-ms", "1")),
    ("queue.several-groups", several_groups, ()),
    ("queue.other-group", other_group, ()),
    ("queue.delayed-stuck", delayed_stuck, ()),
    ("queue.delayed-late", delayed_late, ()),
    ("queue.lock-forever", lock_forever, ()),
    ("queue.specs-stuck", specs_stuck, ()),
    ("queue.specs-late", specs_late, ()),
    ("queue.spec-unreadable", spec_unreadable, ()),
    ("queue.spec-unreadable", spec_no_hash, ()),
    ("queue.spec-aside", spec_aside, ()),
    ("queue.spec-paused", spec_paused, ()),
    ("queue.spec-empty", spec_empty, ()),
    ("queue.spec-unlisted", spec_unlisted, ()),
    ("queue.dead", dead, ()),
    ("queue.dead-growing", dead_growing, ()),
    ("queue.paused", paused, ()),
    ("queue.never-expire", never_expire, ()),
    ("queue.index-lost", index_lost, ()),
]


@pytest.mark.parametrize(("code", "bring", "args"), STATES, ids=[one[1].__name__ for one in STATES])
def test_doctor_matrix_of_queues(
    clinic: Clinic, patient: Patient, code: str, bring: Callable[[Patient], None],
    args: tuple[str, ...],
) -> None:  # fmt: skip
    bring(patient)
    found: set[str] = set()

    def seen() -> bool:
        report = clinic.report(patient.name, *args)
        found.clear()
        found.update(one for one in report if one.startswith("queue."))
        return code in found

    wait_for(seen)  # who has been silent for less than a millisecond is not silent yet
    assert found - {"queue.bytes", "queue.well"} == {code}


def test_a_queue_with_nothing_in_it_is_well(clinic: Clinic, patient: Patient) -> None:
    found = clinic.report(patient.name, *NOW)
    assert {one for one in found if one.startswith("queue.")} == {"queue.bytes", "queue.well"}


def test_a_job_that_was_given_back_waits_for_as_long_as_its_worker_is_gone(
    clinic: Clinic, patient: Patient
) -> None:
    given_back(patient)
    assert "queue.stuck" not in clinic.report(patient.name)
    wait_for(lambda: "queue.stuck" in clinic.report(patient.name, "--lease-ms", "1"))


def test_a_stream_that_another_program_made_remembers_little(
    clinic: Clinic, queue_name: str
) -> None:
    patient = Patient(clinic, queue_name)
    patient.add()
    assert ("queue.idmp-small" in clinic.report(patient.name)) == clinic.native


def test_a_worker_that_was_killed_leaves_a_job_that_nobody_runs(
    servers: Servers, queue_name: str
) -> None:
    clinic = Clinic(servers.shared(DIALECTS[0]))
    patient = Patient(clinic, queue_name)
    with queue_of(patient) as queue:
        queue.add("endless", None)
    program = (
        "import asyncio, sys; from chasquimq import Worker\n"
        "async def handle(job): await asyncio.sleep(600)\n"
        "asyncio.run(Worker(sys.argv[1], handle, redis_url=sys.argv[2]).run())"
    )
    url = clinic.server.url
    with subprocess.Popen([sys.executable, "-c", program, queue_name, url]) as worker:
        wait_for(lambda: bool(clinic.redis.exists(patient.keys.stream)))
        wait_for(lambda: any(g["pending"] for g in clinic.redis.xinfo_groups(patient.keys.stream)))
        assert "queue.stuck" not in clinic.report(patient.name)  # it renews
        worker.kill()
    found = clinic.report(patient.name, "--lease-ms", "1")["queue.stuck"]
    assert found["severity"] == "problem"
    assert [one["stuck"] for one in found["facts"]["holders"]] == [1]


def test_names_that_are_none_are_told(servers: Servers) -> None:
    with servers.private(DIALECTS[0]) as server:
        clinic = Clinic(server)
        clinic.redis.xadd(b"{chasqui:a\x07b}:stream", {"d": "x"})
        clinic.redis.xadd(b"{chasqui:\xff}:stream", {"d": "x"})
        assert clinic.report()["queue.name-refused"]["facts"]["names"] == ["a\x07b", "\\xff"]
        assert "\x07" not in clinic.doctor().out
        assert clinic.chasqui.call("inspect").code == 0


# -- repairing -----------------------------------------------------------------------------------

SICK = (ghosts, lock_forever, spec_empty, index_lost)


def test_fix_repairs_what_is_safe_and_leaves_the_rest(clinic: Clinic, patient: Patient) -> None:
    for bring in SICK:
        bring(patient)
    [kept] = patient.add()  # a job, held by the same consumer
    patient.hold("w")
    dead_consumers(patient)
    several_groups(patient)
    with queue_of(patient) as queue:
        queue.add("later", None, delay_ms=600_000, job_id="kept")
    wait_for(lambda: _idle(patient) > 0)
    found = clinic.report(patient.name, *NOW, "--fix", "--yes")
    repaired = {code: one["done"] for code, one in found.items() if one["done"]}
    assert repaired == {
        "queue.ghosts": "removed 2",
        "queue.lock-forever": "removed 1",
        "queue.spec-empty": "removed 3",
        "queue.index-lost": "removed 2",
        "queue.dead-consumers": "removed 1",
    }
    assert found["queue.several-groups"]["severity"] == "warning"
    keys, client = patient.keys, patient.redis
    rows = client.xpending_range(keys.stream, "default", "-", "+", 10)
    assert [row["message_id"] for row in rows] == [kept]
    assert [one["name"] for one in client.xinfo_consumers(keys.stream, "default")] == [b"w"]
    assert not client.exists(keys.scheduler_lock, keys.repeat, keys.spec("rest"))
    assert not client.exists(keys.didx("own"), keys.spec("zombie"))
    assert client.exists(keys.didx("kept")) and client.zcard(keys.delayed) == 1
    again = clinic.report(patient.name, *NOW)
    assert not {code for code, one in again.items() if one["fixable"]}


def _idle(patient: Patient) -> int:
    return min(one["idle"] for one in patient.redis.xinfo_consumers(patient.keys.stream, "default"))


def test_fix_leaves_those_alone_who_spoke_within_the_hour(clinic: Clinic, patient: Patient) -> None:
    ghosts(patient)
    dead_consumers(patient)
    before = clinic.digest()
    found = clinic.report(patient.name, "--fix", "--yes")
    assert found["queue.ghosts"]["fixable"] is False
    assert "queue.dead-consumers" not in found
    assert {key: before[key] for key in before if key.startswith(patient.keys.tag)} == {
        key: value for key, value in clinic.digest().items() if key.startswith(patient.keys.tag)
    }


def test_fix_asks_first_and_no_is_an_answer(clinic: Clinic, patient: Patient) -> None:
    lock_forever(patient)
    refused = clinic.doctor(patient.name, "--fix")
    assert (refused.code, "--yes" in refused.err) == (1, True)
    assert patient.redis.exists(patient.keys.scheduler_lock)


def test_fix_with_nothing_to_repair_asks_nothing(clinic: Clinic, patient: Patient) -> None:
    assert clinic.doctor(patient.name, "--fix", "--quick").err == ""


def test_fix_in_a_terminal_shows_asks_and_does(servers: Servers, queue_name: str) -> None:
    clinic = Clinic(servers.shared(DIALECTS[0]))
    patient = Patient(clinic, queue_name)
    patient.group()
    lock_forever(patient)
    args = ("doctor", "--quick", patient.name, "--fix")
    with clinic.chasqui.open(*args, columns=100, rows=60) as terminal:
        asked = terminal.until("[y/N]")
        assert "remove the scheduler's lock" in asked
        assert "queue.lock-forever" in asked
        terminal.press(b"y\n")
        assert terminal.end() in (0, 4, 5)
        assert "1 repaired" in terminal.text
    assert not patient.redis.exists(patient.keys.scheduler_lock)


# -- what the scripts look at again --------------------------------------------------------------


def run(patient: Patient, script: str, keys: list[bytes], *args: object) -> int:
    return int(patient.redis.eval(lua.SOURCES[script], len(keys), *keys, *args))


def test_a_lock_that_changed_hands_or_expires_again_is_left(patient: Patient) -> None:
    lock = patient.keys.promoter_lock
    patient.redis.set(lock, "w")
    assert run(patient, "drop_lock", [lock], "other") == 0
    patient.redis.set(lock, "w", ex=60)
    assert run(patient, "drop_lock", [lock], "w") == 0
    patient.redis.persist(lock)
    assert run(patient, "drop_lock", [lock], "w") == 1


def test_a_spec_that_has_a_recipe_by_now_is_left(patient: Patient) -> None:
    keys = [patient.keys.repeat, patient.keys.spec("daily")]
    assert run(patient, "drop_empty_spec", keys, "daily") == 0
    specs_stuck(patient)
    assert run(patient, "drop_empty_spec", keys, "daily") == 0
    patient.redis.hdel(keys[1], "spec")
    assert run(patient, "drop_empty_spec", keys, "daily") == 1
    assert not patient.redis.exists(*keys)
    patient.redis.set(keys[1], "no hash")
    assert run(patient, "drop_empty_spec", keys, "daily") == 0


@pytest.mark.parametrize("job_id", ["own", None])
def test_an_index_whose_job_is_there_is_left(patient: Patient, job_id: str | None) -> None:
    with queue_of(patient) as queue:
        found = queue.add("later", None, delay_ms=600_000, job_id=job_id).id
    keys = [patient.keys.delayed, patient.keys.didx(found)]
    assert run(patient, "drop_index", keys, found, 100) == 0
    [member] = patient.redis.zrange(patient.keys.delayed, 0, 0)
    score = patient.redis.zscore(patient.keys.delayed, member)
    patient.redis.zrem(patient.keys.delayed, member)
    crowd = {b"other-%d" % n: score for n in range(3)}
    patient.redis.zadd(patient.keys.delayed, crowd)
    assert run(patient, "drop_index", keys, found, 2) == (
        1 if job_id else 0
    )  # it may be further on
    patient.redis.delete(patient.keys.delayed)
    assert run(patient, "drop_index", keys, found, 100) == (0 if job_id else 1)
