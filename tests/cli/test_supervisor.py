"""The supervisor of `chasqui worker`: what it does when processes crash, grow, or shall change."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from chasquimq.cli.crew import supervisor
from chasquimq.cli.crew.backoff import Backoff
from chasquimq.cli.crew.member import Member
from chasquimq.cli.crew.message import Failed, Orders, Post, State
from chasquimq.cli.crew.report import Reports
from chasquimq.cli.crew.supervisor import Plan, Supervisor
from chasquimq.cli.crew.verdict import judge
from chasquimq.errors import AccessError, ConfigError, StoreUnavailableError
from tests.cli.crew import Crew, add, is_alive, page, problems, until
from tests.cli.kit import Chasqui
from tests.engine.desk import eventually
from tests.servers import DIALECTS, Servers

NAMED = "tests.cli.crew_app:named"
STALLS = "tests.cli.crew_stalled:worker"
COMPLETED = re.compile(r'^chasquimq_jobs_completed_total\{.*name="nap".*\} (\d+)', re.MULTILINE)


@pytest.fixture
def native(servers: Servers) -> Chasqui:
    return Chasqui(servers.shared(DIALECTS[0]))


def test_a_killed_process_is_started_again_and_no_count_goes_back(
    native: Chasqui, queue_name: str, tmp_path: Path
) -> None:
    args = ("--processes", "2", "--metrics", "127.0.0.1:0")
    with Crew(native, queue_name, *args, out=tmp_path) as crew:
        port = crew.begins().port()
        until(lambda: page(port, "/readyz")[0] == 200)
        ids = crew.add("nap", 100)
        until(lambda: _completed(port) >= 100)
        before = crew.children()
        assert len(before) == 2
        ids += crew.add("nap", 400)
        until(lambda: len(crew.seen) > 120)
        counts = [_completed(port)]
        os.kill(before[0], signal.SIGKILL)
        until(lambda: counts.append(_completed(port)) or "was killed by SIGKILL" in crew.said)
        assert page(port, "/livez")[0] == 200
        until(lambda: counts.append(_completed(port)) or {r.job_id for r in crew.ended} == set(ids))
        assert counts == sorted(counts), "a counter went back"
        until(lambda: page(port, "/readyz")[0] == 200)
        assert len(set(crew.children()) - set(before)) == 1
        crew.signal(signal.SIGTERM)
        assert crew.ends() == 0
        assert (crew.waiting(), crew.pending()) == (0, 0)
        assert "1 crash" in crew.said


def _completed(port: int) -> int:
    return sum(int(count) for count in COMPLETED.findall(page(port, "/metrics")[1]))


def test_the_last_words_of_a_crash_are_told_and_nobody_is_ready_meanwhile(
    native: Chasqui, queue_name: str, tmp_path: Path
) -> None:
    with Crew(native, queue_name, "--metrics", "127.0.0.1:0", out=tmp_path) as crew:
        port = crew.begins().port()
        until(lambda: not problems(port))
        crew.add("exit")
        said = until(lambda: [one for one in problems(port) if "exit code 7" in one])
        assert said == ["process 1: it ended with exit code 7: the very last words"]
        crew.hears("ended with exit code 7: the very last words; starting again in 0.5 s")
        until(lambda: len(crew.ended) == 1)  # its lease ran out; the successor ran it
        crew.add("hold")
        until(lambda: len(crew.seen) == 3)
        crew.signal(signal.SIGTERM)
        until(lambda: problems(port)[:1] == ["it is draining"])
        assert page(port, "/livez")[0] == 200
        crew.let_go()
        assert crew.ends() == 0


def _stops_with_jobs(port: int) -> bool:
    processes = json.loads(page(port, "/readyz")[1])["processes"]
    workers = [worker for one in processes for worker in one.get("workers", ())]
    return any(one["state"] == "stopping" and one["running"] for one in workers)


def test_nothing_is_left_when_the_supervisor_is_killed(
    native: Chasqui, queue_name: str, tmp_path: Path
) -> None:
    with Crew(native, queue_name, "--processes", "2", out=tmp_path) as crew:
        crew.begins().add("hold", 5)
        until(lambda: len(crew.seen) == 5)
        until(crew.reading)  # there is room for three more
        children = crew.children()
        os.kill(crew.process.pid, signal.SIGKILL)
        crew.ends()
        crew.nobody_reads()
        later = crew.add("nap", 2)
        assert all(map(is_alive, children)), "they let their jobs end"
        crew.let_go()
        until(lambda: not any(map(is_alive, children)))
        assert len(crew.ended) == 5
        assert not {run.job_id for run in crew.seen} & set(later)
        assert (crew.waiting(), crew.pending(), crew.consumers()) == (2, 0, set())


@pytest.mark.parametrize("args", [(), ("--metrics", "127.0.0.1:0")], ids=["alone", "served"])
def test_a_process_that_says_it_cannot_work_is_replaced(
    native: Chasqui, queue_name: str, tmp_path: Path, args: tuple[str, ...]
) -> None:
    with Crew(native, queue_name, *args, target=STALLS, out=tmp_path) as crew:
        crew.begins().add("hold")
        until(lambda: len(crew.seen) == 1)
        [first] = crew.children()
        crew.client.set(f"{queue_name}:stall", 1)
        crew.hears(f"process 1 (pid {first}) cannot work: all of its slots are dead")
        crew.let_go()  # it drains: its job comes to its end
        crew.hears("was stopped because it cannot work: all of its slots are dead; starting again")
        until(lambda: first not in crew.children() and crew.children())
        crew.add("nap")
        until(lambda: len(crew.ended) == 2)
        hold, nap = crew.ended
        assert (hold.pid, nap.name) == (first, "nap")
        assert nap.pid != first
        crew.signal(signal.SIGTERM)
        assert crew.ends() == 0
        assert (crew.waiting(), crew.pending(), len(crew.seen)) == (0, 0, 2)
        assert "1 crash" in crew.said


def test_one_of_two_that_cannot_work_is_replaced_and_the_other_goes_on(
    native: Chasqui, queue_name: str, tmp_path: Path
) -> None:
    with Crew(native, queue_name, "--processes", "2", target=STALLS, out=tmp_path) as crew:
        crew.begins()
        until(lambda: len(crew.consumers()) == 2)
        before = set(crew.children())
        crew.client.set(f"{queue_name}:stall", 1)
        crew.hears("starting again in 0.5 s")
        gone = int(crew.client.get(f"{queue_name}:stalled"))
        until(lambda: len(set(crew.children()) - {gone}) == 2)
        assert before - {gone} <= set(crew.children())
        ids = crew.add("nap", 50)
        until(lambda: {run.job_id for run in crew.ended} == set(ids))
        assert gone not in {run.pid for run in crew.ended}


async def test_a_process_that_answers_no_more_is_replaced(
    native: Chasqui, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its handler blocks its event loop; a minute of silence is shortened to three looks."""
    monkeypatch.setattr(supervisor, "SILENT_LOOKS", 3)
    client, said = native.server.client(), list[str]()
    add(native.server, queue_name, "block")
    orders = Orders(target="tests.cli.crew_app:worker", redis_url=native.server.url)
    env = {**native.env, "CREW_QUEUE": queue_name, "CHASQUI_REDIS_URL": native.server.url}
    crew = Supervisor(
        Plan(orders, env), lambda index, text: said.append(text.decode()), lambda member: None
    )
    running = asyncio.create_task(crew.run())
    try:
        await eventually(lambda: client.llen(f"{queue_name}:seen") == 1, 30)
        await eventually(lambda: crew.members[0].unfit is not None, 30)
        blocked = crew.members[0]
        assert "has not answered" in str(blocked.unfit) and blocked.told_to_stop
        client.set(f"{queue_name}:go", 1)  # or it would be killed at its deadline
        await eventually(lambda: crew.total.crashes == 1, 30)
        add(native.server, queue_name, "nap")
        await eventually(lambda: client.llen(f"{queue_name}:ended") == 2, 30)
        pids = [int(row.split()[0]) for row in client.lrange(f"{queue_name}:ended", 0, -1)]
        assert pids[0] == blocked.pid != pids[1]
    finally:
        crew._stop_all()
        assert await running == 0, said


def test_a_stalled_process_is_not_alive_until_it_was_told_to_stop(
    crew_of_two: Supervisor,
) -> None:
    reports, member = Reports(crew_of_two), crew_of_two.slots[1].member
    assert member is not None
    crew_of_two.members.append(member)
    member.stalled = "all of its slots are dead"
    words = "process 2 is stalled: all of its slots are dead"
    assert (reports.live().ok, reports.live().details["problems"]) == (False, [words])
    member.told_to_stop = True
    assert reports.live().ok


def test_counts_that_cannot_be_read_do_not_end_the_supervisor(crew_of_two: Supervisor) -> None:
    """After an upgrade a process may be of another version than its supervisor."""
    reports, member = Reports(crew_of_two), crew_of_two.slots[0].member
    assert member is not None
    crew_of_two.members.append(member)
    member.state = State(metrics=[{"queues": 3}])
    reports.collect()
    assert crew_of_two.each_second == reports.collect


def test_who_cannot_work_is_decided_by_looks_in_a_row() -> None:
    member, why = Member(Orders(target="a:b"), print), "all of its slots are dead"
    stalled = State(posts=[Post("mail", False, [], {}, why)])
    well = State(posts=[Post("mail", True, [], {})])
    for states, expected in (
        ([stalled], None),
        ([stalled, well, stalled], None),
        ([stalled, well, stalled, stalled], why),
    ):
        member.stalls = 0
        for state in states:
            member._hear(state)
        assert member.cannot_work(2, 60) == expected
    member.unanswered = 60
    member.told_to_stop = True
    assert member.cannot_work(2, 60) is None
    member.told_to_stop, member.stalls = False, 0
    assert "has not answered 60 times" in (member.cannot_work(2, 60) or "")


def test_sighup_exchanges_processes_without_a_gap(
    native: Chasqui, queue_name: str, tmp_path: Path
) -> None:
    with Crew(native, queue_name, "--processes", "2", out=tmp_path) as crew:
        before = set(crew.begins().children())
        until(lambda: len(crew.consumers()) == 2)
        ids = crew.add("nap", 300)
        crew.signal(signal.SIGHUP)
        fewest = [2]
        until(lambda: fewest.append(len(crew.consumers())) or not before & set(crew.children()))
        assert min(fewest) == 2, "a successor was ready before its predecessor left"
        until(lambda: len(crew.ended) == 300)
        assert Counter(run.job_id for run in crew.ended) == Counter(ids), "each ran once"
        crew.signal(signal.SIGTERM)
        assert crew.ends() == 0


def test_a_stop_in_the_middle_of_an_exchange_is_no_failed_exchange(
    native: Chasqui, queue_name: str, tmp_path: Path
) -> None:
    with Crew(native, queue_name, out=tmp_path) as crew:
        crew.begins().signal(signal.SIGHUP)
        crew.hears("exchanging 1 processes")  # its successor is being started
        crew.signal(signal.SIGTERM)
        assert crew.ends() == 0
        assert "ERROR" not in crew.said


def test_a_process_is_replaced_after_so_many_jobs(
    native: Chasqui, queue_name: str, tmp_path: Path
) -> None:
    ids = add(native.server, queue_name, "nap", 25)
    with Crew(native, queue_name, "--burst", "--max-jobs", "10", out=tmp_path) as crew:
        assert crew.ends() == 0
        per_process = Counter(run.pid for run in crew.ended)
        assert sorted(per_process.values()) == [5, 10, 10]
        assert Counter(run.job_id for run in crew.ended) == Counter(ids)
        assert "(--max-jobs)" in crew.said and "25 jobs done" in crew.said


def test_a_process_that_grew_is_replaced(native: Chasqui, queue_name: str, tmp_path: Path) -> None:
    with Crew(native, queue_name, "--max-memory", "250", out=tmp_path) as crew:
        [before] = crew.begins().children()
        crew.add("grow", data=220 * 1024)
        crew.hears("(--max-memory)")
        until(lambda: not is_alive(before))
        crew.add("nap")
        until(lambda: len(crew.ended) == 2)
        assert crew.ended[1].pid != before
        crew.signal(signal.SIGTERM)
        assert crew.ends() == 0


def test_names_that_last_are_numbered_and_take_back_what_they_left_at_once(
    native: Chasqui, queue_name: str, tmp_path: Path
) -> None:
    args = ("--processes", "2", "--metrics", "127.0.0.1:0")
    with Crew(native, queue_name, *args, target=NAMED, out=tmp_path) as crew:
        port = crew.begins().port()
        until(lambda: crew.consumers() == {"desk-0", "desk-1"})
        crew.add("kill")
        until(lambda: len(crew.ended) == 1)  # within a lease of a minute: nobody else took it
        assert len({run.pid for run in crew.seen}) == 2
        # Its successor may not use the name before it has left it.
        before = set(crew.children())
        crew.add("hold", 4)
        until(lambda: len(crew.seen) == 6)
        crew.signal(signal.SIGHUP)
        until(lambda: _stops_with_jobs(port))  # so its successor is loaded, and waits
        crew.let_go()
        until(lambda: not before & set(crew.children()) and len(crew.children()) == 2)
        until(lambda: len(crew.ended) == 5)
        assert len(crew.seen) == 6, "no job was run by two of the same name"
        crew.signal(signal.SIGTERM)
        assert crew.ends() == 0
        assert crew.pending() == 0


# -- the rules ----------------------------------------------------------------------------------


def test_the_wait_doubles_to_half_a_minute_and_a_minute_of_health_forgives() -> None:
    backoff = Backoff()
    waits = [backoff.crashed(well_s=0) for _ in range(8)]
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert backoff.hopeless
    assert backoff.crashed(well_s=60) == 0.5
    assert not backoff.hopeless


def test_a_server_that_is_away_is_nobodys_crash() -> None:
    backoff = Backoff()
    assert [backoff.refused() for _ in range(8)][-1] == 30
    assert not backoff.hopeless
    backoff.well()
    assert backoff.refused() == 0.5


@pytest.mark.parametrize(
    ("kind", "started", "burst", "watching", "follows"),
    [
        (None, False, False, False, "crash"),
        ("error", False, False, False, "crash"),
        ("config", False, False, False, ConfigError),
        ("config", True, False, False, "crash"),
        ("config", False, False, True, "await change"),
        ("config", True, False, True, "await change"),
        ("access", False, False, False, AccessError),
        ("access", True, False, False, "crash"),
        ("unavailable", False, False, False, "retry"),
        ("unavailable", True, False, False, "retry"),
        ("unavailable", False, True, False, StoreUnavailableError),
        ("unavailable", True, True, False, "retry"),
    ],
)
def test_what_follows_from_an_end(
    kind: str | None, started: bool, burst: bool, watching: bool, follows: str | type
) -> None:
    failure = None if kind is None else Failed(kind, "why")  # type: ignore[arg-type]
    verdict = judge(failure, started=started, burst=burst, watching=watching)
    assert verdict == follows if isinstance(follows, str) else isinstance(verdict, follows)


# -- what it reports -----------------------------------------------------------------------------


@pytest.fixture
def crew_of_two() -> Supervisor:
    """As it is a moment after both processes have answered; there are none."""
    crew = Supervisor(Plan(Orders(target="a:b", processes=2), {}), print, print)
    for slot in crew.slots:
        member = slot.member = Member(Orders(target="a:b", index=slot.index), print)
        member.ready_at = member.stated_at = time.monotonic()
        member.state = State(3, 1, 9, [Post("mail", True, [], {"state": "running"})])
    return crew


def test_all_is_well_while_all_are(crew_of_two: Supervisor) -> None:
    reports = Reports(crew_of_two)
    assert reports.live().ok and reports.ready().ok
    assert reports.ready().details["processes"][1]["jobs"] == 3


def test_it_says_which_part_is_not_well(crew_of_two: Supervisor) -> None:
    reports = Reports(crew_of_two)
    first, second = (slot.member for slot in crew_of_two.slots)
    assert first is not None and second is not None
    first.stated_at -= 7
    second.state = State(0, 0, 0, [Post("mail", False, ["the pool has ended"], {})])
    ready = reports.ready()
    assert not ready.ok
    assert [one[:36] for one in ready.details["problems"]] == [
        "process 1: it has not answered for 7",
        "process 2: the pool has ended",
    ]
    assert reports.live().ok, "that is no reason to start it anew"


def test_it_lives_until_nothing_in_it_does(crew_of_two: Supervisor) -> None:
    reports = Reports(crew_of_two)
    first, second = crew_of_two.slots
    for _ in range(5):
        first.backoff.crashed(0)
    assert reports.live().ok
    for _ in range(5):
        second.backoff.crashed(0)
    assert not reports.live().ok
    second.backoff.crashed(60)
    assert reports.live().ok
    crew_of_two.beat_at -= 11
    assert "stuck" in reports.live().details["problems"][0]
