"""Specs, with real processes that fire them: each window exactly once, whoever leads.

The one that leads is stopped past its lock, in the middle of firing, and woken when another has
fired; or it is killed; or the server is. `make chaos-schedules` does so hundreds of times.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.chaos.conftest import EACH_SERVER
from tests.chaos.kit.crew import BEFORE, PLACES, SENT, Crew
from tests.chaos.kit.stage import Stage
from tests.chaos.kit.windows import Line


@contextmanager
def crew_on(stage: Stage, seconds: int, **members: Any) -> Iterator[Crew]:
    crew = Crew(stage.server.url, stage.server.forced_dialect, stage.queue, stage.fleet)
    crew.begin(seconds, **members)
    yield crew
    crew.close()


def problems(lines: dict[str, Line]) -> list[str]:
    return [problem for line in lines.values() for problem in line.problems]


@pytest.mark.timeout(180)
def test_every_window_fires_once_while_leaders_are_stopped_and_killed(shared_stage: Stage) -> None:
    """Fewer of them where another dialect has been tried with the same scripts and server."""
    few = shared_stage.server.name == "redis-portable"
    seconds = 4 if few else 8
    with crew_on(shared_stage, seconds) as crew:
        for where in PLACES:
            crew.pause(where, crew.pass_by())
        for where in () if few else (BEFORE, SENT):
            crew.kill(where)
            crew.pause(where, crew.pass_by())
        lines = crew.account()
        assert problems(lines) == []
        assert lines["all"].fired > 10 * len(PLACES)  # a lock lasts a second
        assert lines["limited"].fired == 15 * seconds
        assert lines["skip"].left_out > 0, "nobody was away for long: nothing was tried"
        assert crew.refused() > 0, "nobody woke up too late: nothing was tried"
        jobs, done = crew.run_all()
        assert jobs <= done


@pytest.mark.timeout(180)
def test_every_window_fires_once_though_two_processes_go_by_one_name(lone_stage: Stage) -> None:
    """Both hold the lock. One dialect is enough: what fires is the same script in all."""
    with crew_on(lone_stage, 3, schedulers=2, workers=0, twins=True) as crew:
        for where in (BEFORE, SENT, BEFORE):
            crew.pause(where, crew.pass_by())
        crew.kill(BEFORE)
        lines = crew.account()
        assert problems(lines) == []
        assert lines["all"].fired > 20
        assert crew.refused() > 0, "nobody woke up too late: nothing was tried"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("own_server", EACH_SERVER, indirect=True)
def test_every_window_fires_once_though_the_server_is_killed(stage: Stage) -> None:
    """A fire is on its disk whole or not at all, whether anybody heard of it or not."""

    def away() -> None:
        stage.server.server.kill()
        stage.server.server.start()

    with crew_on(stage, 4) as crew:
        crew.fires_on()
        for where in (SENT, BEFORE):
            crew.pause(where, away)
        away()
        crew.fires_on()
        lines = crew.account()
        assert problems(lines) == []
        assert lines["all"].fired > 20
