"""What it takes to start: an import, a page of help, a command that finds no server.

    .venv/bin/python bench/startup.py                          # a minute; prints a page
    .venv/bin/python bench/startup.py --source DIR             # beside `src` of another version
    .venv/bin/python bench/startup.py --name 2026-11-18-startup   # ... into bench/reports/

Every round starts each program once, in fresh processes, one after another; the order turns round
with every round. Figures are multiples of `python -c pass` in the same round.
"""

from __future__ import annotations

import argparse
import compileall
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from arena import Load

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tools.reference_env import NotInstallableError, environment, interpreter  # noqa: E402 - found from the root only

REPORTS = Path(__file__).parent / "reports"
NOTHING = "python -c pass"
NOBODY = "redis://127.0.0.1:1"  # where no server listens
NO_SERVER = 3  # how the command ends then
IMPORTS = {
    "import chasquimq": "import chasquimq",
    "from chasquimq import Queue, Worker": "from chasquimq import Queue, Worker",
}
SCRIPT = "import sys; from chasquimq.cli import main; sys.exit(main())"  # as it is installed
COMMANDS = {
    "chasqui --version": 0,
    "chasqui --help": 0,
    "chasqui inspect --help": 0,
    "chasqui worker --help": 0,
    "chasqui spark --help": 0,
    "chasqui spark work --help": 0,
    f"chasqui inspect --redis-url {NOBODY}": NO_SERVER,
}


@dataclass(frozen=True)
class Side:
    name: str
    python: Path
    source: Path | None = None
    has_command: bool = True

    def environment(self) -> dict[str, str]:
        """Without what forbids compiled code, or makes a page of help another one."""
        kept = {key: value for key, value in environment().items() if key in ("PATH", "LANG")}
        return kept | ({"PYTHONPATH": str(self.source)} if self.source else {})


@dataclass
class Program:
    """Something that one side is started with, and what its runs took."""

    side: Side
    label: str
    argv: list[str]
    code: int = 0
    cpu_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)

    def run(self, keep: bool = True) -> None:
        began = time.perf_counter()
        process = subprocess.Popen(
            [self.side.python, *self.argv],
            env=self.side.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)  # so that nobody waits once more
        if process.returncode != self.code:
            sys.exit(f"{self.side.name}: {self.label} ended with {process.returncode}")
        if keep:
            self.cpu_s.append(usage.ru_utime + usage.ru_stime)
            self.wall_s.append(wall_s)


def main() -> None:
    told = arguments()
    with tempfile.TemporaryDirectory() as folder:
        sides = [Side("now", Path(sys.executable), compiled(ROOT / "src", Path(folder, "now")))]
        if told.source:
            source = compiled(told.source, Path(folder, "before"))
            sides.append(Side("before", Path(sys.executable), source))
        try:
            sides.append(Side("1.3.0", interpreter(), has_command=False))
        except NotInstallableError as error:
            print(f"without the reference: {error}", file=sys.stderr)
        programs = [one for side in sides for one in programs_of(side)]
        load = Load()
        measure(programs, told.rounds)
        lines = page(programs, told.rounds, load.of_others())
    print("\n".join(lines))
    if told.name:
        (REPORTS / f"{told.name}.md").write_text("\n".join((f"# {told.name}", "", *lines, "")))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--source", type=Path, help="`src` of another version, to compare with")
    parser.add_argument("--name", help="write the page to bench/reports/NAME.md")
    return parser.parse_args()


def compiled(source: Path, folder: Path) -> Path:
    """A copy of a tree as installers leave it: compiled."""
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(folder, quiet=1)
    return folder


def programs_of(side: Side) -> list[Program]:
    found = [Program(side, NOTHING, ["-c", "pass"])]
    found += [Program(side, label, ["-c", code]) for label, code in IMPORTS.items()]
    if side.has_command:
        for label, code in COMMANDS.items():
            found.append(Program(side, label, ["-c", SCRIPT, *label.split()[1:]], code))
    return found


def measure(programs: list[Program], rounds: int) -> None:
    for one in programs:
        one.run(keep=False)  # files are in memory from here on
    for number in range(rounds):
        for one in programs if number % 2 else reversed(programs):
            one.run()


def page(programs: list[Program], rounds: int, others: float) -> list[str]:
    sides = list(dict.fromkeys(one.side.name for one in programs))
    by_place = {(one.side.name, one.label): one for one in programs}
    head = ["", *(f"{side}: {what}" for side in sides for what in ("CPU", "min–max", "wall", "ms"))]
    lines = [row(head), row(["---", *["---:"] * (len(head) - 1)])]
    for label in dict.fromkeys(one.label for one in programs):
        cells = [f"`{label}`"]
        for side in sides:
            cells += figures(by_place.get((side, label)), by_place[side, NOTHING])
        lines.append(row(cells))
    return [
        "CPU (user and system) and wall time as multiples of `python -c pass` in the same round,",
        f"medians of {rounds} rounds, and the CPU in ms. Python {platform.python_version()},",
        f"{os.cpu_count()} cores, {others:.1f} of them busy with other things meanwhile.",
        "",
        *lines,
    ]


def figures(one: Program | None, nothing: Program) -> list[str]:
    if one is None:
        return [""] * 4
    cpu = [mine / bare for mine, bare in zip(one.cpu_s, nothing.cpu_s, strict=True)]
    wall = [mine / bare for mine, bare in zip(one.wall_s, nothing.wall_s, strict=True)]
    spread = f"{min(cpu):.1f}–{max(cpu):.1f}"
    return [f"{median(cpu):.2f}x", spread, f"{median(wall):.2f}x", f"{median(one.cpu_s) * 1e3:.1f}"]


def row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
