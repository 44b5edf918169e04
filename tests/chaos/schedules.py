"""Stop schedulers past their locks, hundreds of times, and account for every window.

python -m tests.chaos.schedules --pauses 200

Several crews, each with a queue of its own, share a server. Of each crew the process that leads is
stopped in the middle of firing and woken when another has fired; each fifth time it is killed as
well. One crew more has two processes of the same name, whom no lock tells apart. In the end the
server is killed, too.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tests.chaos.kit.crew import BEFORE, PLACES, SENT, Crew
from tests.chaos.kit.fleet import Fleet
from tests.chaos.kit.ledger import Ledger
from tests.chaos.kit.windows import Line
from tests.servers import Dialect, DialectServer, Servers, offer_dialects, startable

KILL_EVERY = 5
SERVER_KILLS = 2
PAUSE_S = 2.5  # about, and what comes with it
TELL_EVERY_S = 5.0
COLUMNS = "{:<14} {:<8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}"


class Run:
    """One dialect: its crews, and what became of their windows."""

    def __init__(self, server: DialectServer, pauses: int, crews: int, folder: Path) -> None:
        self.lines: dict[str, Line] = {}
        self.server_kills = 0
        self.refused = 0  # fires that came too late
        self.seconds = 0.0
        self._server = server
        self._folder = folder
        self._each = -(-pauses // crews)
        self._count = crews
        self._crews: list[Crew] = []
        self._twins: list[Crew] = []
        self._failed = False

    @property
    def pauses(self) -> int:
        return sum(crew.pauses for crew in self._crews)

    @property
    def kills(self) -> int:
        return sum(crew.kills for crew in (*self._crews, *self._twins))

    @property
    def twin_pauses(self) -> int:
        return sum(crew.pauses for crew in self._twins)

    def run(self) -> None:
        began = time.monotonic()
        with ExitStack() as stack:
            self._crews = [self._crew(stack, number) for number in range(self._count)]
            self._twins = [self._crew(stack, self._count)]
            all_crews = self._crews + self._twins
            over = threading.Event()
            telling = threading.Thread(target=self._tell, args=(over,))
            telling.start()
            stack.callback(telling.join)
            stack.callback(over.set)
            with ThreadPoolExecutor(len(all_crews)) as threads:
                list(threads.map(self._faults, all_crews))
                for _ in range(SERVER_KILLS):
                    self._server.server.kill()
                    self._server.server.start()
                    self.server_kills += 1
                    list(threads.map(Crew.fires_on, all_crews))
                for lines in threads.map(Crew.account, all_crews):
                    for name, line in lines.items():
                        self.lines.setdefault(name, Line()).add(line)
            self.refused = sum(crew.refused() for crew in all_crews)
            self.seconds = time.monotonic() - began

    def _crew(self, stack: ExitStack, number: int) -> Crew:
        ledger = Ledger(self._folder / f"{self._server.name}-{number}")
        stack.callback(ledger.close)
        fleet = stack.enter_context(Fleet(ledger))
        dialect = self._server.forced_dialect
        crew = Crew(self._server.url, dialect, f"schedules-{number}", fleet)
        stack.callback(crew.close)
        return crew

    def _faults(self, crew: Crew) -> None:
        try:
            crew.begin(round(self._each * PAUSE_S), twins=crew in self._twins)
            for number in range(self._each):
                if self._failed:
                    return
                crew.pause(PLACES[number % len(PLACES)], crew.pass_by())
                if number % KILL_EVERY == 0:
                    crew.kill(SENT if number % 2 else BEFORE)
        except BaseException:
            self._failed = True  # the others need not go on
            raise

    def _tell(self, over: threading.Event) -> None:
        began = time.monotonic()
        while not over.wait(TELL_EVERY_S):
            passed = time.monotonic() - began
            wanted = self._each * self._count
            print(
                f"{self._server.name:<14} {passed:5.0f} s  {self.pauses} of {wanted} pauses, "
                f"{self.kills} kills, {self.server_kills} kills of the server",
                flush=True,
            )


def table(name: str, run: Run) -> list[str]:
    rows = [
        COLUMNS.format(
            name,
            kind,
            line.expected,
            line.fired,
            line.left_out,
            len(line.doubled),
            len(line.lost),
            len(line.wrong),
        )
        for kind, line in run.lines.items()
    ]
    return [
        *rows,
        f"{name}: {run.pauses} pauses past the lock, {run.twin_pauses} beside a twin, "
        f"{run.kills} kills, {run.server_kills} of the server; {run.refused} fires came too late "
        f"and were refused; {run.seconds:.0f} s",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pauses", type=int, default=200, help="on each server")
    parser.add_argument("--crews", type=int, default=4)
    offer_dialects(parser)
    options = parser.parse_args()
    dialects, problems = startable(options.on)
    told = []
    for dialect in dialects:
        run = one(dialect, options.pauses, options.crews)
        told += table(dialect.name, run)
        problems += [f"{dialect.name}: {it}" for line in run.lines.values() for it in line.problems]
    head = ("", "policy", "expected", "fired", "left out", "doubled", "lost", "wrong")
    print("", COLUMNS.format(*head), *told, "", sep="\n")
    print("\n".join(problems[:100]) or "every window exactly once")
    return bool(problems)


def one(dialect: Dialect, pauses: int, crews: int) -> Run:
    with tempfile.TemporaryDirectory() as folder, Servers().private(dialect) as server:
        run = Run(server, pauses, crews, Path(folder))
        run.run()
        return run


if __name__ == "__main__":
    sys.exit(main())
