"""Break a copy of src/ in each known way, and see which test notices.

python -m tests.mutants.run [part of a name ...]
python -m tests.mutants.run --model [part of a name ...]    by random programs (tests/model) alone
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.mutants.table import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
TIMEOUT_S = 300
AT_ONCE = 2
PYTEST = (sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider")
MODEL = (sys.executable, "-m", "tests.model.run", "--short", "--examples", "400", "--steps", "40")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_FOUND = re.compile(r"^failed: (.*)", re.MULTILINE)


def broken(mutant: Mutant) -> str:
    """The file's text with the defect; raises where the table is out of date."""
    text = (SRC / "chasquimq" / mutant.file).read_text()
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.name}: {mutant.file} has {mutant.old!r} not exactly once")
    return text.replace(mutant.old, mutant.new)


def kill(mutant: Mutant) -> str | None:
    """The test that noticed; None: it survived."""
    return _notice(mutant, (*PYTEST, *mutant.tests), _FAILED)


def kill_by_model(mutant: Mutant) -> str | None:
    """What random programs found; None: nothing."""
    return _notice(mutant, MODEL, _FOUND)


def _notice(mutant: Mutant, program: tuple[str, ...], told: re.Pattern[str]) -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(SRC, copy, ignore=shutil.ignore_patterns("__pycache__"))
        (copy / "chasquimq" / mutant.file).write_text(broken(mutant))
        try:
            ended = subprocess.run(
                program,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(copy)},
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"no end within {TIMEOUT_S} s"
    if ended.returncode == 0:
        return None
    found = told.search(ended.stdout)
    if ended.returncode != 1 or found is None:
        said = ended.stdout[-2000:] + ended.stderr[-2000:]
        raise RuntimeError(f"{mutant.name}: the tests did not run\n{said}")
    return found[1]


def gate(chosen: list[Mutant], notice: Callable[[Mutant], str | None]) -> list[Mutant]:
    """Two at a time; answers those that nobody noticed."""
    began, survivors = time.monotonic(), []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        waits = {pool.submit(notice, mutant): mutant for mutant in chosen}
        for number, done in enumerate(as_completed(waits), 1):
            mutant, by = waits[done], done.result()
            if by is None:
                survivors.append(mutant)
            took_s = time.monotonic() - began
            place = f"{number:>3}/{len(chosen)} {took_s:5.0f} s"
            print(f"{place}  {mutant.name:<44} {by or 'SURVIVED':.120}", flush=True)
    return survivors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help="of names; all without")
    parser.add_argument("--model", action="store_true", help="let random programs alone notice")
    parser.add_argument("--all", action="store_true", help="with --model, those it need not, too")
    asked = parser.parse_args()
    parts = asked.parts
    chosen = [one for one in MUTANTS if not parts or any(part in one.name for part in parts)]
    if asked.model and not asked.all:
        chosen = [one for one in chosen if one.model]
    for mutant in chosen:
        broken(mutant)
    began = time.monotonic()
    survivors = gate(chosen, kill_by_model if asked.model else kill)
    must = [one for one in survivors if one.model or not asked.model]
    killed, took_s = len(chosen) - len(survivors), time.monotonic() - began
    by = " by the model" if asked.model else ""
    print(
        f"{killed} of {len(chosen)} mutants killed{by}, {len(survivors)} survived, {took_s:.0f} s"
    )
    return int(bool(must) or not chosen)


if __name__ == "__main__":
    sys.exit(main())
