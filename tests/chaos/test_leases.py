"""Leases, with real processes: who holds a job, when it changes hands, and whose outcome counts.

Each test ends with a verdict on the ledger and on what the server holds; invariants are named.
"""

from __future__ import annotations

import time

from chasquimq import lua
from tests.chaos.kit.fleet import Process
from tests.chaos.kit.ledger import open_runs
from tests.chaos.kit.stage import Stage
from tests.chaos.kit.wait import eventually

LEASE_MS = 500
LEASE_S = LEASE_MS / 1000
RENEWAL = lua.SHA["renew"]


def test_a_handler_ten_times_longer_than_its_lease_runs_once(shared_stage: Stage) -> None:
    """I3 and I4: two workers, each of which would take over what the other let go."""
    stage = shared_stage
    crew = stage.sentries(2, LEASE_MS, concurrency=3)
    stage.act({f"job-{n}": {"sleep": 10 * LEASE_S} for n in range(6)})
    stage.started(6)
    assert [open_runs(stage.ledger.path, one.pid) for one in crew] == [3, 3]
    stage.drained()
    verdict = stage.verdict()
    assert verdict.problems() == [], str(verdict)
    assert verdict.runs == dict.fromkeys(verdict.accepted, 1)
    assert [stage.counters(one)["leases_lost"] for one in crew] == [0, 0]


def test_a_handler_that_keeps_the_event_loop_or_the_interpreter_keeps_its_lease(
    lone_stage: Stage,
) -> None:
    """I4. An event loop may be kept for as long as one likes. The interpreter's lock may not: the
    renewing thread needs it each third of the lease, and a call that keeps it for less than the
    other two thirds delays no renewal for a whole one. Here it is four tenths, eight times, with
    a breath between. One server is enough: what renews is the same script on all of them."""
    stage, lease_s = lone_stage, 1.2
    stage.act({"loop": {"block": 3.5 * lease_s}, "gil": {"hold_gil": 0.4 * lease_s, "times": 8}})
    hogs = stage.sentries(2, int(lease_s * 1000), concurrency=1)
    heir = stage.sentry(int(lease_s * 1000))  # has nothing to do, and would take over
    assert {start.pid for start in stage.started(2)} == {hog.pid for hog in hogs}
    stage.drained()
    verdict = stage.verdict()
    assert verdict.problems() == [], str(verdict)
    assert verdict.runs == {"loop": 1, "gil": 1}
    assert stage.counters(heir)["read"] == 0


def test_a_stopped_worker_wakes_up_and_nothing_of_its_outcome_counts(shared_stage: Stage) -> None:
    """I4, the exception, and I5: stopped past its lease its jobs run elsewhere, and what its own
    runs come to is refused. Its renewals are held back, or chance would decide whether its
    handlers end before it knows."""
    stage = shared_stage
    stage.act(
        {
            "retry": {"gate": "woken", "then": "fail"},
            "burial": {"gate": "woken", "then": "bury"},
            "result": {"gate": "woken"},
            "cancelled": {"gate": "never"},
        }
    )
    with stage.proxy() as proxy:
        stopped = stage.sentry(LEASE_MS, url=proxy.url, options={"store_results": True})
        stage.started(4)
        heir = stage.sentry(LEASE_MS, options={"store_results": True})
        renewal = proxy.hold(RENEWAL)
        eventually(lambda: renewal.seen)
        stopped.pause()
        stage.drained()
        assert [end.pid for end in stage.facts("end")] == [heir.pid] * 4
        stage.open("woken")
        stopped.resume()
        eventually(lambda: came_too_late(stage, stopped) == [3])
        assert not stage.facts("lost")
        proxy.heal()
        [lost] = eventually(lambda: stage.facts("lost"))
        assert (lost.job, lost.pid) == ("cancelled", stopped.pid)
        eventually(lambda: stage.counters(stopped)["leases_lost"] == 1)
    verdict = stage.verdict()
    assert verdict.scan.present == ()  # not delayed, not in the DLQ, not pending
    assert verdict.problems(duplicates_allowed=1, overlaps_allowed=4) == [], str(verdict)
    assert verdict.duplicated.keys() == {"result"}
    for job_id in verdict.accepted:
        assert b"attempt 1" in (stage.redis.get(stage.keys.result(job_id)) or b"")
    assert [row.job_id for row in stage.events("retry-scheduled") + stage.events("dlq")] == []
    assert came_too_late(stage, heir) == [0]


def test_a_success_that_comes_too_late_is_not_acked_over_the_heirs_head(
    shared_stage: Stage,
) -> None:
    """I4, the exception: two workers are stopped past their leases, and each wakes up to a success
    while its job runs elsewhere. The deaf one cannot know, for its renewals are held back, so its
    ack asks first. The busy one knows, but its event loop, kept by the handler, has not heard."""
    stage = shared_stage
    with stage.proxy() as proxy:
        stage.act({"for-deaf": {"gate": "woken", "again": "heirs"}})
        deaf = stage.sentry(LEASE_MS, url=proxy.url, consumer_id="deaf", concurrency=1)
        stage.started(1)
        busy = stage.sentry(LEASE_MS, url=proxy.url, consumer_id="busy", concurrency=1)
        eventually(lambda: stage.health(busy).get("healthy"))
        stage.act({"for-busy": {"block_until": "heard", "again": "heirs"}})
        assert [start.pid for start in stage.started(2)] == [deaf.pid, busy.pid]
        heirs = stage.sentries(2, LEASE_MS)
        renewal = proxy.hold(RENEWAL, "deaf")
        eventually(lambda: renewal.seen)
        for sleeper in (deaf, busy):
            sleeper.pause()
        stage.started(4)
        taken = stage.pending()
        assert len(taken) == 2
        assert not {"deaf", "busy"} & set(taken.values())
        stage.open("woken")
        heard = proxy.watch(RENEWAL, "busy")
        for sleeper in (deaf, busy):
            sleeper.resume()
        eventually(lambda: heard.seen >= 2)  # the second one goes out when the first is answered
        stage.open("heard")
        eventually(lambda: came_too_late(stage, deaf, busy) == [1, 1], or_say=stage.pending)
        assert stage.pending() == taken
        stage.open("heirs")
        stage.drained()
        eventually(lambda: all(stage.health(heir)["held"] == 0 for heir in heirs))
    verdict = stage.verdict()
    assert verdict.problems(duplicates_allowed=2, overlaps_allowed=2) == [], str(verdict)
    assert came_too_late(stage, *heirs) == [0, 0]  # theirs are the ones that were accepted


def came_too_late(stage: Stage, *workers: Process) -> list[int]:
    return [stage.counters(worker)["came_too_late"] for worker in workers]


def test_a_worker_whose_renewals_alone_are_lost_loses_its_job_and_learns_of_it(
    shared_stage: Stage,
) -> None:
    """I4 and I9: everything else of that worker is connected. The job is taken over after its lease
    and not before, and by then the first handler was told and has ended."""
    stage = shared_stage
    with stage.proxy() as proxy:
        stage.act({"job": {"gate": "never"}})
        cut_off = stage.sentry(LEASE_MS, url=proxy.url)
        stage.started(1)
        heir = stage.sentry(LEASE_MS)
        time.sleep(1.3 * LEASE_S)  # its renewals have been without a gap for a lease: it claims
        renewal = proxy.hold(RENEWAL)
        eventually(lambda: renewal.seen)
        renewed_ns = time.monotonic_ns() - stage.idle_ms() * 1_000_000
        _, second = stage.started(2)
        assert second.pid == heir.pid
        # Idle times are whole milliseconds, and the answer took some time to come.
        assert second.at_ns - renewed_ns >= (LEASE_MS - 1) * 1_000_000
        stage.drained()
        problems = eventually(lambda: stage.health(cut_off)["problems"])
        assert any("renewed" in problem for problem in problems)
        assert stage.health(cut_off)["running"] == 0
        [lost] = eventually(lambda: stage.facts("lost"))
        assert (lost.job, lost.pid) == ("job", cut_off.pid)
        proxy.heal()
        eventually(lambda: stage.health(cut_off)["healthy"])
        assert stage.counters(cut_off)["leases_lost"] == 1
    verdict = stage.verdict()
    assert verdict.problems() == [], str(verdict)
    assert verdict.runs == {"job": 2}
    assert [row.fields["attempt"] for row in stage.events("completed")] == [2]


def test_a_renewal_without_an_answer_is_repeated_before_the_lease_is_over(
    lone_stage: Stage,
) -> None:
    """I4: one that is lost on its way must not make a living worker look dead. What renews, and
    when, does not depend on the dialect."""
    stage, lease_ms = lone_stage, 1_500
    with stage.proxy() as proxy:
        stage.act({"job": {"gate": "over"}})
        stage.sentry(lease_ms, url=proxy.url)
        stage.started(1)
        renewal = proxy.hold(RENEWAL, times=1)
        eventually(lambda: renewal.seen)
        # A third until it is due, a third until it is given up; the last third is a margin.
        while renewal.seen == 1:
            assert stage.idle_ms() < 0.85 * lease_ms
            time.sleep(0.005)
        stage.open("over")
        stage.drained()


def test_a_new_job_goes_to_who_has_a_place_for_it(shared_stage: Stage) -> None:
    """I6: while all places of a worker are taken by long jobs, it takes nothing to itself."""
    stage = shared_stage
    stage.act({"long": {"gate": "over"}})
    busy = stage.sentry(LEASE_MS, concurrency=1)
    stage.started(1)
    time.sleep(1.3 * LEASE_S)  # its renewals have been without a gap for a lease: it claims
    stage.act({"new": {}})
    time.sleep(2 * LEASE_S)
    free = stage.sentry(LEASE_MS)
    second = stage.started(2)[-1]
    assert (second.job, second.pid) == ("new", free.pid)
    assert open_runs(stage.ledger.path, busy.pid) == 1
    stage.open("over")
    stage.drained()
    verdict = stage.verdict()
    assert verdict.problems() == [], str(verdict)
