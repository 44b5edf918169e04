"""Whatever is done to a queue in whatever order, all servers hold what the model says.

python -m tests.model.run --examples 1000 --steps 80
python -m tests.model.run --short        no server is killed, and what is found is told as it is
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
NO_RULES = (".teardown", ".every_server_holds_what_the_book_says")


def explore(
    servers: Sequence[DialectServer],
    queue_name: str,
    examples: int,
    steps: int,
    *,
    long: bool = False,
    shrink: bool = True,
    tell: Callable[[int], None] | None = None,
) -> None:
    """Raises what was found, with the shortest program of steps that shows it; the long form
    kills servers, too."""
    begun = 0

    def machine() -> Queue:
        nonlocal begun
        begun += 1
        if tell is not None:
            tell(begun)
        return Queue(runner, sites, restarts=RESTARTS if long else 0)

    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, *[Phase.shrink] * shrink],
        database=None,
        report_multiple_bugs=False,
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


def last_step(notes: str) -> str:
    """The rule at which it was seen."""
    steps = [line.partition("(")[0] for line in notes.splitlines() if line.startswith("state.")]
    rules = [step.removeprefix("state.") for step in steps if not step.endswith(NO_RULES)]
    return rules[-1] if rules else "begin"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--examples", type=int, default=1_000)
    options.add_argument("--steps", type=int, default=80)
    options.add_argument("--short", action="store_true", help="kill no server, shrink nothing")
    asked = options.parse_args()
    long = not asked.short
    began = last = time.monotonic()

    def tell(begun: int) -> None:
        nonlocal last
        if time.monotonic() - last >= TELL_EVERY_S:
            last = time.monotonic()
            print(f"{begun:>6} of {asked.examples} examples, {last - began:.0f} s", flush=True)

    with ExitStack() as stack:
        servers = stack.enter_context(Servers())
        chosen = [
            stack.enter_context(servers.private(dialect)) if long else servers.shared(dialect)
            for dialect in DIALECTS
        ]
        try:
            explore(chosen, "model", asked.examples, asked.steps, long=long, shrink=long, tell=tell)
        except Exception as error:  # of a script that fails, too: the program that shows it is told
            notes = "\n".join(getattr(error, "__notes__", ()))
            print(f"{notes}\nfailed: {last_step(notes)}: {' '.join(str(error).split())}")
            return 1
    seconds = time.monotonic() - began
    print(
        f"passed: {asked.examples} examples of up to {asked.steps} steps on {len(DIALECTS)} "
        f"dialects in {seconds:.0f} s, all places as the model says"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
