"""A stop gives back what was read ahead: at once, free of charge, and to whoever waits for it."""

from __future__ import annotations

import pytest

from tests.chaos.kit.ledger import open_runs
from tests.chaos.kit.stage import Stage
from tests.chaos.kit.wait import eventually

AHEAD = 1_000
QUICK = 1_500
# Of itself it reads ahead what it starts in ten milliseconds, 256 at the most, and not before
# half of that is missing.
READS_FAR_AHEAD = {
    "chasquimq.engine.holdings.MAX_AHEAD": 2 * AHEAD + 500,
    "chasquimq.engine.holdings.AHEAD_S": 60.0,
}


def test_a_thousand_jobs_read_ahead_are_given_back_at_once(shared_stage: Stage) -> None:
    """I1, I3 and I10. Two long jobs keep the first worker's two places, so it starts none of the
    thousand behind them; the second one waits for jobs, on a queue that has none unread."""
    stage = shared_stage
    if stage.server.server.binary.version < (7, 2, 0):
        pytest.skip("before Redis 7.2 nobody is told who waits")
    long = ["long-0", "long-1"]
    ahead: dict[str, dict[str, str]] = {f"ahead-{n}": {} for n in range(AHEAD)}
    waiting = stage.sentry(60_000, consumer_id="waiting", sets_out="go", concurrency=50)
    stage.act({f"quick-{n}": {} for n in range(QUICK)})
    stage.act({**{job: {"gate": "over"} for job in long}, **ahead})
    leaving = stage.sentry(60_000, consumer_id="leaving", tune=READS_FAR_AHEAD, concurrency=2)
    eventually(lambda: len(stage.pending()) == AHEAD + 2)

    stage.open("go")
    eventually(lambda: "waiting" in stage.consumers())
    leaving.ask_to_stop()
    eventually(lambda: stage.ended() == QUICK + AHEAD)
    eventually(lambda: list(stage.pending().values()) == ["leaving"] * 2)
    assert open_runs(stage.ledger.path, leaving.pid) == 2  # it is still there, for these
    assert {end.pid for end in stage.facts("end") if end.job in ahead} == {waiting.pid}
    # A slow machine lets it share some before it is asked to stop, and read them once more.
    eventually(lambda: stage.counters(leaving)["given_back"] >= AHEAD)
    stage.open("over")
    assert stage.fleet.terminate(leaving) == 0

    assert stage.consumers() == ["waiting"]
    verdict = stage.verdict()
    assert verdict.problems() == [], str(verdict)
    assert len(verdict.completed) == QUICK + AHEAD + 2
    assert {row.fields["attempt"] for row in stage.events("active")} == {1}
