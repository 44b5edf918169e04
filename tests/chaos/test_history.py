"""The checker has teeth: every kind of wrong that is planted is reported, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from chasquimq import wire
from chasquimq.job import Envelope
from chasquimq.server import Server
from tests.chaos.kit.fleet import ROOT
from tests.chaos.kit.history import Verdict, check
from tests.chaos.kit.ledger import PAGE, Ledger, read, tally
from tests.chaos.kit.scan import Scan, scan

EMPTY = Scan()


def run(ledger: Ledger, job: str) -> None:
    ledger.end(job, ledger.start(job))


def good(ledger: Ledger, jobs: int = 3) -> None:
    for number in range(jobs):
        ledger.attempted(f"job-{number}")
        ledger.accepted(f"job-{number}")
        run(ledger, f"job-{number}")


def verdict(ledger: Ledger, seen: Scan = EMPTY) -> Verdict:
    return check(ledger.path, seen)


def kinds(problems: list[str]) -> list[str]:
    return [problem.partition(":")[0] for problem in problems]


def test_a_good_run_has_no_problems(ledger: Ledger) -> None:
    good(ledger)
    result = verdict(ledger)
    assert result.problems(charged_only=True, max_attempts=1) == []
    assert len(result.accepted) == len(result.completed) == 3


def test_a_lost_job_is_reported(ledger: Ledger) -> None:
    good(ledger)
    ledger.accepted("never-ran")
    ledger.accepted("began")
    ledger.start("began")
    result = verdict(ledger)
    assert result.lost == {"never-ran", "began"}
    assert result.problems() == ["I1 lost: 2 (began, never-ran)"]


@pytest.mark.parametrize(
    "place",
    [
        Scan(unread=("waits",)),
        Scan(pending=("waits",)),
        Scan(delayed=("waits",)),
        Scan(dead=("waits",)),
    ],
)
def test_a_job_that_lies_somewhere_is_not_lost(ledger: Ledger, place: Scan) -> None:
    ledger.accepted("waits")
    result = verdict(ledger, place)
    assert not result.lost
    assert result.problems(drained=False) == []
    assert kinds(result.problems()) == ([] if place.dead else ["I6 left to do"])


@pytest.mark.parametrize(
    "places",
    [
        Scan(pending=("a",), delayed=("a",)),
        Scan(unread=("a",), dead=("a",)),
        Scan(delayed=("a", "a")),
    ],
)
def test_a_job_in_two_places_is_reported(ledger: Ledger, places: Scan) -> None:
    ledger.accepted("a")
    result = verdict(ledger, places)
    assert result.in_two_places == {"a"}
    assert "I1 in two places" in kinds(result.problems(drained=False))


def test_inventions_are_reported(ledger: Ledger) -> None:
    good(ledger)
    run(ledger, "from-nowhere")
    result = verdict(ledger, Scan(dead=("also-from-nowhere",)))
    assert result.unexpected == {"from-nowhere", "also-from-nowhere"}
    assert kinds(result.problems()) == ["I2 never attempted"]


def test_a_refused_job_must_not_run_unless_it_was_accepted_later(ledger: Ledger) -> None:
    for job in ("refused", "refused-then-in", "refused-only"):
        ledger.refused(job)
    ledger.accepted("refused-then-in")
    run(ledger, "refused")
    run(ledger, "refused-then-in")
    result = verdict(ledger)
    assert result.refused == {"refused", "refused-only"}
    assert result.problems() == ["I2 refused, but ran: 1 (refused)"]


def test_unconfirmed_jobs_may_be_in_or_not(ledger: Ledger) -> None:
    ledger.unconfirmed("in")
    ledger.unconfirmed("out")
    ledger.attempted("producer-died")
    run(ledger, "in")
    result = verdict(ledger)
    assert result.unconfirmed == {"in", "out", "producer-died"}
    assert result.recovered == {"in"}
    assert result.problems() == []


def test_duplicates_are_counted_and_bounded(ledger: Ledger) -> None:
    good(ledger)
    run(ledger, "job-1")
    run(ledger, "job-1")
    result = verdict(ledger)
    assert result.duplicated == {"job-1": 3}
    assert kinds(result.problems()) == ["I3 duplicated, 0 allowed"]
    assert result.problems(duplicates_allowed=1) == []


def test_retries_are_not_duplicates(ledger: Ledger) -> None:
    ledger.accepted("a")
    ledger.failed("a", ledger.start("a"))
    run(ledger, "a")
    assert verdict(ledger).problems(max_attempts=2) == []
    assert kinds(verdict(ledger).problems(max_attempts=1)) == ["I5 run more than 1 times"]


def test_a_death_explains_a_duplicate_that_follows_it_and_no_other(ledger: Ledger) -> None:
    for job in ("ended", "cut-short", "later"):
        ledger.accepted(job)
    run(ledger, "ended")
    ledger.start("cut-short")
    ledger.dead(os.getpid())
    run(ledger, "ended")
    run(ledger, "cut-short")
    for _ in range(2):
        run(ledger, "later")
    ledger.dead(os.getpid())
    result = verdict(ledger)
    assert set(result.duplicated) == {"ended", "cut-short", "later"}
    assert result.uncharged == {"later": 1}
    problems = result.problems(duplicates_allowed=3, charged_only=True)
    assert kinds(problems) == ["I3 duplicated without a crash"]
    assert not result.overlaps, "a dead process runs nothing"


def test_overlapping_runs_are_reported_within_and_across_processes(ledger: Ledger) -> None:
    ledger.accepted("here")
    first, second = ledger.start("here"), ledger.start("here")
    ledger.end("here", first)
    ledger.end("here", second)
    ledger.accepted("there")
    mine = ledger.start("there")
    in_another_process(ledger.path, "run = ledger.start('there'); ledger.end('there', run)")
    ledger.end("there", mine)
    result = verdict(ledger)
    assert [overlap.job for overlap in result.overlaps] == ["here", "there"]
    assert result.overlaps[1].first_pid != result.overlaps[1].second_pid
    assert "I4 overlapping, 1 allowed" in kinds(
        result.problems(duplicates_allowed=2, overlaps_allowed=1)
    )
    assert result.problems(duplicates_allowed=2, overlaps_allowed=2) == []


def test_a_dead_job_is_dead_once_and_not_completed(ledger: Ledger) -> None:
    good(ledger)
    ledger.accepted("twice")
    result = verdict(ledger, Scan(dead=("job-1", "twice", "twice")))
    assert result.dead_and_completed == {"job-1"}
    assert kinds(result.problems()) == [
        "I1 in two places",
        "I5 dead twice",
        "I5 dead and completed",
    ]


def test_what_is_stuck_is_reported(ledger: Ledger) -> None:
    ledger.accepted("a")
    problems = verdict(ledger, Scan(stranded=("a",), ghosts=("1-1",), unreadable=2)).problems()
    assert kinds(problems) == ["I6 stranded", "I6 ghosts", "I6 unreadable"]


def in_another_process(path: Path, statements: str) -> subprocess.CompletedProcess[bytes]:
    code = f"""
import os, signal
from tests.chaos.kit.ledger import Ledger
ledger = Ledger({str(path)!r})
{statements}
"""
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)


def test_the_ledger_survives_kill_9_and_many_writers(ledger: Ledger) -> None:
    writers, lines = 4, 2000
    code = f"""
import os, signal, sys
from tests.chaos.kit.ledger import Ledger
ledger = Ledger({str(ledger.path)!r})
for number in range({lines}):
    ledger.accepted(f"{{sys.argv[1]}}-{{number}}" + "x" * 300)
os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", code]
    children = [subprocess.Popen([*command, str(n)], cwd=ROOT) for n in range(writers)]
    assert [child.wait() for child in children] == [-signal.SIGKILL] * writers
    assert len({record.job for record in read(ledger.path)}) == writers * lines
    assert tally(ledger.path)["accepted"] == writers * lines


def test_a_line_that_is_not_a_fact_is_an_error(ledger: Ledger) -> None:
    ledger.accepted("a")
    with ledger.path.open("a") as file:
        file.write('["accep')
    with pytest.raises(ValueError, match=":2 is not a fact"):
        list(read(ledger.path))
    with pytest.raises(ValueError, match="limit"):
        ledger.accepted("x" * PAGE)


def test_the_scan_finds_every_place(server: Server, queue_name: str) -> None:
    stream = f"{{chasqui:{queue_name}}}:stream"
    assert scan(server.url, queue_name) == EMPTY

    def packed(job: str) -> bytes:
        return wire.pack_envelope(Envelope(job, b"\x01", 1))

    with redis.Redis.from_url(server.url) as client:
        jobs = ("stranded", "pending", "ghost", "new")
        entries = [client.xadd(stream, {"d": packed(job)}) for job in jobs]
        client.xgroup_create(stream, "default", "0")
        client.xreadgroup("default", "c", {stream: ">"}, count=3)
        client.xack(stream, "default", entries[0])
        client.xdel(stream, entries[2])
        client.xadd(stream, {"d": b"\xc1 not an envelope"})
        for job, score in (("due", 1), ("far", 4_000_000_000_000)):
            client.zadd(f"{{chasqui:{queue_name}}}:delayed", {b"\0\0\0\0" + packed(job): score})
        client.xadd(f"{{chasqui:{queue_name}}}:dlq", {"d": packed("dead"), "reason": "malformed"})

    seen = scan(server.url, queue_name)
    assert seen == Scan(
        unread=("new",),
        pending=("pending",),
        delayed=("due", "far"),
        dead=("dead",),
        overdue=("due",),
        stranded=("stranded",),
        ghosts=(entries[2].decode(),),
        unreadable=1,
    )
    assert not seen.drained


def test_a_process_that_stood_still_is_excused_until_it_has_heard_of_it(ledger: Ledger) -> None:
    """It is charged with what it held, and with what it starts before it knows better."""
    sleeper, other = 1_001, 1_002
    for job in ("held", "late", "after"):
        ledger.accepted(job)
    _fact(ledger, "start", "held", sleeper)
    ledger.frozen(sleeper)
    _fact(ledger, "start", "held", other)
    _fact(ledger, "end", "held", other)
    _fact(ledger, "start", "late", other)
    _fact(ledger, "end", "late", other)
    _fact(ledger, "start", "late", sleeper)
    _fact(ledger, "end", "late", sleeper)
    _fact(ledger, "end", "held", sleeper)
    ledger.thawed(sleeper)
    run(ledger, "after")
    excused = verdict(ledger)
    assert [(one.job, one.first_pid) for one in excused.excused] == [("held", sleeper)]
    assert excused.problems(duplicates_allowed=2, charged_only=True) == []
    _fact(ledger, "start", "after", sleeper)
    assert kinds(verdict(ledger).problems(duplicates_allowed=9, charged_only=True)) == [
        "I3 duplicated without a crash"
    ]


def test_an_overlap_of_two_that_ran_on_is_none_of_a_sleeper_s(ledger: Ledger) -> None:
    ledger.accepted("a")
    ledger.frozen(1_001)
    _fact(ledger, "start", "a", 1_002)
    _fact(ledger, "start", "a", 1_003)
    result = verdict(ledger)
    assert len(result.overlaps) == 1 and not result.excused


def _fact(ledger: Ledger, event: str, job: str, pid: int) -> None:
    ledger._write(event, job, f"{pid}.{job}", pid)
