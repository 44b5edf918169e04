"""Who takes part in the full benchmark, and how each is started."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from arena import Arena, CannotRunError, FailedRunError, Side
from contest import LIMIT, LOOP, OURS, OURS_UVLOOP, OURS_VALKEY, REFERENCE, TUNED, Case
from scenarios import PAYLOAD

ROOT = Path(__file__).parents[1]
CHILDREN = Path(__file__).parent / "peers"
sys.path[:0] = [str(ROOT), str(CHILDREN)]

import home  # noqa: E402 - it lies beside the children
from book import MEASURED, PEERS, Peer  # noqa: E402 - so does this

from tools.reference_env import NotInstallableError, interpreter  # noqa: E402 - found from the root

UVLOOP = "uvloop==0.23.0"
READS = {"read_count": 256}  # what the reference is fastest with
CORE = 0
Result = dict[str, Any]


@dataclass(frozen=True)
class Entrant:
    name: str
    side: Side
    server: str = "redis"
    peer: Peer | None = None
    problem: str = ""  # why it cannot take part

    def jobs(self, case: Case) -> int:
        """How many it gets in one run of a case; 0: it has no part in it."""
        if self.peer is None:
            return case.jobs.get(self.name, 0)
        return self.peer.jobs.get(case.key, 0) if case.key in MEASURED else 0

    def run(self, arena: Arena, case: Case) -> Result:
        jobs = self.jobs(case)
        if self.peer is not None:
            orders = {"payload": PAYLOAD, "jobs": jobs, **MEASURED[case.key]}
            result = arena.measure(self.side, orders, server=self.server)
            if result.get("handled", jobs) != jobs:
                raise FailedRunError(f"{result['handled']} of {jobs} jobs were handled")
            return result
        orders = case.orders_of(jobs)
        options = orders.get("options", {})
        orders |= {"uvloop": self.side.uvloop, "options": options | self.side.options}
        # An event loop alone does no jobs of a queue.
        fill = None if self.name == LOOP else case.fill(jobs)
        result = arena.measure(self.side, orders, server=self.server, fill=fill)
        if "added" in result:
            arena.confirm_added(self.server, result)
        elif orders["what"] == "worker" and self.name != LOOP:
            events = options.get("events_enabled", True)
            arena.confirm_worked(self.server, jobs, result, events=events)
        return result


def known() -> list[Entrant]:
    """All but other job queues; nothing is installed for this."""
    source = ROOT / "src"  # this tree, wherever the environment's package comes from
    return [
        Entrant(OURS, Side(OURS, source=source)),
        Entrant(REFERENCE, Side(REFERENCE, ours=False)),
        Entrant(OURS_UVLOOP, Side(OURS_UVLOOP, source=source, uvloop=True)),
        Entrant(TUNED, Side(TUNED, uvloop=True, options=READS, ours=False, core=CORE)),
        Entrant(LIMIT, Side(LIMIT, source=source, child=CHILDREN / "limit_child.py")),
        Entrant(LOOP, Side(LOOP, source=source, uvloop=True, child=CHILDREN / "loop_child.py")),
        Entrant(OURS_VALKEY, Side(OURS_VALKEY, source=source), server="valkey"),
    ]


def peers(names: str) -> list[Entrant]:
    """Those of the book that are named, separated by commas; `all`, or `none`."""
    wanted = {peer.name for peer in PEERS} if names == "all" else set(names.split(","))
    unknown = wanted - {peer.name for peer in PEERS} - {"none", ""}
    if unknown:
        raise LookupError(f"not in the book: {', '.join(sorted(unknown))}")
    return [
        Entrant(peer.name, Side(peer.name, ours=False), peer=peer)
        for peer in PEERS
        if peer.name in wanted
    ]


def installed(entrants: Iterable[Entrant]) -> list[Entrant]:
    """The same, each with the environment that it runs in; who has none says why."""
    return [_installed(entrant) for entrant in entrants]


def _installed(entrant: Entrant) -> Entrant:
    try:
        if entrant.peer is not None:
            side = replace(entrant.side, command=tuple(home.command(entrant.peer)))
        elif entrant.name == REFERENCE:
            side = replace(entrant.side, python=interpreter())
        elif entrant.name == TUNED:
            side = replace(entrant.side, python=interpreter("reference-uvloop", (UVLOOP,)))
        else:
            return entrant
    except NotInstallableError as error:
        return replace(entrant, problem=str(error))
    return replace(entrant, side=side)


def outcome(arena: Arena, entrant: Entrant, case: Case) -> Result:
    """Figures, or `{"failed": why}`, or `{"cannot": why}`."""
    if entrant.problem:
        return {"failed": entrant.problem}
    try:
        result = entrant.run(arena, case)
    except CannotRunError as error:
        return {"cannot": str(error)}
    except (FailedRunError, OSError) as error:  # what cannot even be started is the latter
        return {"failed": str(error)}
    if "ms" in result:
        result |= percentiles(result.pop("ms"))
    return result


def percentiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    at = {f"p{part}": ordered[min(len(ordered) * part // 100, len(ordered) - 1)] for part in _PARTS}
    return {**at, "most": ordered[-1]}


_PARTS = (50, 95, 99)
