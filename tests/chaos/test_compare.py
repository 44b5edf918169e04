"""What `make chaos-compare` makes of verdicts, its shortest scenarios, and the page about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.compare import BY_NAME, Figures, judge, one, problems
from tests.chaos.contest import CONTESTS, Contest
from tests.chaos.kit.fleet import ROOT
from tests.chaos.kit.history import check
from tests.chaos.kit.ledger import Ledger
from tests.chaos.kit.scan import Scan
from tests.chaos.kit.trial import CARELESS, NO_LEASE, OURS, REFERENCE

NOTHING = Scan()
SLOW = BY_NAME["slow_handler"]
POISON = BY_NAME["poison_with_innocents"]


def figures(
    tmp_path: Path, contest: Contest, runs: tuple[str, ...], seen: Scan = NOTHING
) -> Figures:
    """Of `job-1` and `job-2`, which were accepted, and runs that follow each other."""
    ledger = Ledger(tmp_path / "ledger")
    for job in ("job-1", "job-2"):
        ledger.accepted(job)
    for job in runs:
        ledger.end(job, ledger.start(job))
    ledger.close()
    return judge(contest, "somebody", check(ledger.path, seen))


def test_one_run_each_breaks_nothing(tmp_path: Path) -> None:
    told = figures(tmp_path, SLOW, ("job-1", "job-2"))
    assert told == Figures("slow_handler", "somebody", jobs=2)
    assert told.line == "| `slow_handler` | somebody | 2 | 0 | 0 | 0 | 0 | 0 | 0 | holds |"


def test_what_is_lost_and_what_no_death_explains_is_told(tmp_path: Path) -> None:
    told = figures(tmp_path, SLOW, ("job-1", "job-1"))
    assert (told.lost, told.twice, told.uncharged) == (1, 1, 1)
    assert told.broken == ["I1", "I3"]


def test_an_invariant_that_a_scenario_does_not_name_is_not_judged(tmp_path: Path) -> None:
    told = figures(tmp_path, BY_NAME["redis_kill9_restart"], ("job-1", "job-1", "job-2"))
    assert (told.uncharged, told.broken) == (1, [])


def test_only_the_doomed_may_be_dead(tmp_path: Path) -> None:
    told = figures(tmp_path, POISON, (), Scan(dead=("job-1", "job-2")))
    assert (told.buried, told.broken) == (1, ["I5"])
    assert not figures(tmp_path, POISON, ("job-2",), Scan(dead=("job-1",))).broken


def test_what_was_planted_is_no_fault_and_what_waits_is_one(tmp_path: Path) -> None:
    contest = BY_NAME["poison_zset_member"]
    told = figures(tmp_path, contest, ("job-1",), Scan(delayed=("job-2",), unreadable=1))
    assert (told.stuck, told.broken) == (1, ["I6"])
    assert not figures(tmp_path, contest, ("job-2",), Scan(unreadable=1)).broken


def test_a_window_that_fires_twice_breaks_a_promise_of_schedules(tmp_path: Path) -> None:
    told = figures(tmp_path, BY_NAME["two_leaders_forced"], ("job-1", "job-1", "job-2"))
    assert told.broken == ["I8"]


def test_a_fault_of_ours_or_a_careless_worker_that_passes_is_a_problem() -> None:
    broken = ("I4 overlapping",)
    assert problems([Figures(SLOW.name, OURS.name, problems=broken)])
    assert problems([Figures(SLOW.name, NO_LEASE.name)])
    good = [
        Figures(SLOW.name, OURS.name),
        Figures(SLOW.name, REFERENCE.name, problems=broken),
        Figures(SLOW.name, NO_LEASE.name, problems=broken),
    ]
    assert problems(good) == []


@pytest.mark.parametrize("name", ["group_destroyed", "poison_zset_member", "events_refused"])
def test_the_shortest_of_them_break_nothing_of_ours(name: str) -> None:
    told = one(BY_NAME[name], OURS)
    assert told.problems == ()
    assert told.jobs >= 20


def test_every_careless_worker_is_to_be_caught_somewhere() -> None:
    caught = [subject for contest in CONTESTS for subject in contest.catches]
    assert {subject.name for subject in caught} == {subject.name for subject in CARELESS}
    assert all(subject in one.subjects for one in CONTESTS for subject in one.catches)


@pytest.mark.parametrize("contest", CONTESTS, ids=lambda contest: contest.name)
def test_the_page_shows_every_row_and_what_it_checks(contest: Contest) -> None:
    page = (ROOT / "docs/explanation/what-was-tested.md").read_text()
    for subject in contest.subjects:
        assert f"| `{contest.name}` | {subject.name} |" in page
    told = ", ".join(f"I{number}" for number in contest.invariants)
    assert f"- `{contest.name}` ({told}): " in page
