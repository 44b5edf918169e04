"""Whatever is done to a queue in whatever order, all servers hold what the model says.

python -m tests.model.run --examples 1000 --steps 80
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.care import Queue
from tests.model.site import Site
from tests.servers import DIALECTS, DialectServer, Servers

EXAMPLES, STEPS = 150, 40  # of the short form: many programs end early
RESTARTS = 1  # of the servers, in a program of the long form at the most
TELL_EVERY_S = 10.0


def explore(
    servers: Sequence[DialectServer],
    queue_name: str,
    examples: int,
    steps: int,
    *,
    restarts: bool = False,
    tell: Callable[[int], None] | None = None,
) -> None:
    """Raises what was found, with the shortest program of steps that shows it."""
    begun = 0

    def machine() -> Queue:
        nonlocal begun
        begun += 1
        if tell is not None:
            tell(begun)
        return Queue(runner, sites, restarts=RESTARTS if restarts else 0)

    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        print_blob=False,
    )
    with asyncio.Runner() as runner:
        sites = [Site(server, f"{queue_name}-{server.name}") for server in servers]
        try:
            for site in sites:
                runner.run(site.open())
            run_state_machine_as_test(machine, settings=chosen)
        finally:
            for site in sites:
                runner.run(site.shelf.close())


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--examples", type=int, default=1_000)
    options.add_argument("--steps", type=int, default=80)
    asked = options.parse_args()
    began = told = time.monotonic()

    def tell(begun: int) -> None:
        nonlocal told
        if time.monotonic() - told >= TELL_EVERY_S:
            told = time.monotonic()
            print(f"{begun:>6} of {asked.examples} examples, {told - began:.0f} s", flush=True)

    with ExitStack() as stack:
        servers = Servers()
        chosen = [stack.enter_context(servers.private(dialect)) for dialect in DIALECTS]
        try:
            explore(chosen, "model", asked.examples, asked.steps, restarts=True, tell=tell)
        except AssertionError as error:
            print("\n".join([*getattr(error, "__notes__", ()), f"failed: {error}"]))
            return 1
    seconds = time.monotonic() - began
    print(
        f"passed: {asked.examples} examples of up to {asked.steps} steps on {len(DIALECTS)} "
        f"dialects in {seconds:.0f} s, all places as the model says"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
