"""Break a copy of src/ in each known way, and see which test notices.

python -m tests.mutants.run [part of a name ...]
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutants.table import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
TIMEOUT_S = 180
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


def broken(mutant: Mutant) -> str:
    """The file's text with the defect; raises where the table is out of date."""
    text = (SRC / "chasquimq" / mutant.file).read_text()
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.name}: {mutant.file} has {mutant.old!r} not exactly once")
    return text.replace(mutant.old, mutant.new)


def kill(mutant: Mutant) -> str | None:
    """The test that noticed; None: it survived."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(SRC, copy, ignore=shutil.ignore_patterns("__pycache__"))
        (copy / "chasquimq" / mutant.file).write_text(broken(mutant))
        program = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        try:
            ended = subprocess.run(
                [*program, *mutant.tests],
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
    found = _FAILED.search(ended.stdout)
    if ended.returncode != 1 or found is None:
        raise RuntimeError(f"{mutant.name}: the tests did not run\n{ended.stdout[-2000:]}")
    return found[1]


def main() -> int:
    parts = sys.argv[1:]
    chosen = [one for one in MUTANTS if not parts or any(part in one.name for part in parts)]
    for mutant in chosen:
        broken(mutant)
    survivors = 0
    for mutant in chosen:
        by = kill(mutant)
        survivors += by is None
        print(f"{mutant.name:<40} {by or 'SURVIVED'}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} mutants killed, {survivors} survived")
    return int(survivors > 0 or not chosen)


if __name__ == "__main__":
    sys.exit(main())
