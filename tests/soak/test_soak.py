"""A worker under load stays as it is: memory, handles, threads, connections, keys.

This is the short form; `make soak FAULTS=no` runs for ten minutes, with MINUTES=60 for an hour.
"""

from __future__ import annotations

from tests.servers import DialectServer
from tests.soak.calm import Outcome, Sample, judge, soak

SECONDS = 8.0


async def test_nothing_grows_under_load(own_server: DialectServer) -> None:
    lines: list[str] = []
    outcome = await soak(own_server.url, own_server.forced_dialect, SECONDS, lines.append)
    assert outcome.jobs > 2_000
    assert judge(outcome) == [], "\n".join(lines)


def test_a_leak_is_seen() -> None:
    flat = Sample(40_000, 20, 10, 8, 3_000, 1, 1_000, 5_000)

    def grown(**by: int) -> list[str]:
        rows = [
            flat._replace(**{name: getattr(flat, name) + more * at for name, more in by.items()})
            for at in range(100)
        ]
        return judge(Outcome(1, 1.0, rows, {"pending": 0}))

    assert grown() == []
    for leak in ({"rss_kb": 60}, {"handles": 1}, {"threads": 1}, {"clients": 1}, {"consumers": 1}):
        assert len(grown(**leak)) == 1
    assert grown(dataset_kb=200) != []
    assert judge(Outcome(1, 1.0, [flat] * 9, {"pending": 3})) == ["pending: 3 left"]
