"""Workers under a constant load while things break: `make soak` in short, and its judges."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.kit.ledger import Record
from tests.servers import DIALECTS, Servers
from tests.soak.account import S, Times, Window, calm_waits, quantile, recoveries, table
from tests.soak.fault import FAULTS
from tests.soak.quiet import LIMITS, Quiet, worse
from tests.soak.run import closing, report
from tests.soak.storm import Plan, storm

BRIEFLY = Plan(
    seconds=8.0,
    every_s=2.0,
    rate=150.0,
    lease_ms=1_000,
    workers=2,
    faults=(
        "worker kill -9",
        "SCRIPT FLUSH",
        "server kill -9 and restart",
        "worker SIGSTOP past its lease",
    ),
)


async def test_nothing_is_lost_doubled_or_left_while_one_thing_after_another_breaks(
    servers: Servers, tmp_path: Path
) -> None:
    lines: list[str] = []
    with servers.private(DIALECTS[0]) as server:
        outcome = await storm(server, tmp_path, BRIEFLY, lines.append)
    assert outcome.problems == [], "\n".join(lines)
    assert len(outcome.windows) >= 3
    assert outcome.counts["accepted"] == outcome.counts["completed"] == outcome.jobs > 500
    assert [one.fault for one in outcome.recoveries] == [one.fault for one in outcome.windows]
    assert all(one.still_s is not None for one in outcome.recoveries)
    assert report(outcome, "redis-native")["faults"]
    assert closing(outcome)[-1].startswith("nothing lost")


# -- the judges --------------------------------------------------------------------------------


def fact(event: str, job: str, at_s: float, pid: int = 1) -> Record:
    return Record(event, job, f"{pid}.{job}", pid, int(at_s * S))


KILLED = Window("worker kill -9", 10 * S, 11 * S)


def test_a_wait_counts_if_the_job_was_added_when_nothing_was_broken() -> None:
    asked = [("a", 1.0), ("b", 9.9), ("c", 10.5), ("d", 14.9), ("e", 15.5), ("later-f", 16.0)]
    facts = [fact("attempted", job, at) for job, at in asked]
    facts += [fact("start", job, at + 0.1) for job, at in asked]
    times = Times().tell(facts)
    # From a quarter of a second before to a lease of two seconds and two seconds more after.
    assert calm_waits(times, [KILLED], lease_s=2.0) == [100.0, 100.0]
    assert calm_waits(times, [], lease_s=2.0) == [pytest.approx(100.0)] * 5


def test_a_job_is_as_late_as_its_first_start() -> None:
    facts = [fact("attempted", "a", 1), fact("start", "a", 3), fact("start", "a", 4, pid=2)]
    assert calm_waits(Times().tell(facts), [], 1.0) == [2_000.0]


def test_a_recovery_lasts_until_jobs_start_until_none_is_late_and_until_the_cut_ones_run() -> None:
    facts = [
        fact("attempted", "held", 9.9),
        fact("start", "held", 9.95),
        fact("attempted", "late", 10.2),
        fact("dead", "", 10.5),
        fact("start", "late", 12.0, pid=2),
        fact("attempted", "quick", 12.5),
        fact("start", "quick", 12.6, pid=2),
        fact("start", "held", 13.5, pid=2),
    ]
    [found] = recoveries(Times().tell(facts), [KILLED])
    assert (found.lasted_s, found.still_s, found.late_s, found.taken_s) == (1.0, 1.0, 1.0, 3.0)
    assert len(table([found])) == 2


def test_a_fault_after_which_nothing_runs_has_no_recovery() -> None:
    facts = [fact("attempted", "a", 9), fact("start", "a", 9.5), fact("end", "a", 9.6)]
    times = Times().tell(facts)
    [found] = recoveries(times, [KILLED])
    assert recoveries(times, []) == []
    assert found.still_s is None
    assert "inf" in table([found])[1]


def test_each_fault_is_charged_with_what_was_added_before_the_next() -> None:
    windows = [KILLED, Window("SCRIPT FLUSH", 20 * S, 20 * S)]
    facts = [fact("attempted", "a", 20.1), fact("start", "a", 21)]
    assert [one.late_s for one in recoveries(Times().tell(facts), windows)] == [0.0, 1.0]


@pytest.mark.parametrize("name", LIMITS)
def test_what_is_more_than_before_is_told(name: str) -> None:
    before = Quiet(30_000, 15, 3, 18, 3, 4, 0)
    at_most = before._replace(**{name: getattr(before, name) + LIMITS[name]})
    more = before._replace(**{name: getattr(before, name) + LIMITS[name] + 1})
    assert worse(before, before) == worse(before, at_most) == []
    assert [one.split(":")[0] for one in worse(before, more)] == [f"I10 {name}"]


def test_quantiles_of_few_and_of_many() -> None:
    assert quantile([], 99) == 0.0
    assert quantile([7.0], 99) == 7.0
    assert quantile([float(n) for n in range(101)], 99) == 99.0


def test_the_short_form_tries_faults_that_there_are() -> None:
    assert set(BRIEFLY.faults) <= set(FAULTS)
