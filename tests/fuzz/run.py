"""Feed every target with what atheris thinks of, one after another, and say what was found.

python -m tests.fuzz.run --seconds 60
python -m tests.fuzz.run --keep         what gave new coverage goes into tests/fuzz/corpus
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from chasquimq.server import Server
from tests.fuzz.delayed import URL
from tests.fuzz.kit import AGAIN
from tests.fuzz.seeds import CORPUS, corpus, seeds
from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).parents[2]
WORK = ROOT / "build" / "fuzz"
HANG_S = 20
GRACE_S = 60
MOST_KEPT_BYTES = 16_384  # per target: the corpus is replayed by every run of the tests
LONGEST_KEPT_BYTES = 1024
MOST_KEPT = 40
MOST_TRIES = 3
FOUND = re.compile(r"[0-9a-f]{12}\.bin")
RUNS = re.compile(r"^(?:runs:|stat::number_of_executed_units:)\s+(\d+)", re.MULTILINE)


class Outcome(NamedTuple):
    target: str
    runs: int
    seconds: float
    fresh: int
    findings: list[Path]
    code: int


@contextmanager
def surroundings(name: str) -> Iterator[dict[str, str]]:
    """The environment of a target's process, with a server where it needs one."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    if not TARGETS[name].needs_server:
        yield environment
        return
    with Server() as server:
        yield {**environment, URL: server.url}


def fuzz(name: str, seconds: int) -> Outcome:
    """One target for so long, or until its first finding."""
    grown, found = WORK / name, WORK / "findings"
    for folder in (grown, found):
        folder.mkdir(parents=True, exist_ok=True)
    for data in corpus(name):
        _store(grown, data)
    before = set(grown.iterdir())
    options = [
        f"-max_total_time={seconds}",
        f"-timeout={HANG_S}",
        f"-artifact_prefix={found}/{name}-",
        "-print_final_stats=1",
        "-rss_limit_mb=2048",
        str(grown),
    ]
    earlier, began, log = set(found.iterdir()), time.monotonic(), WORK / f"{name}.log"
    code = _watch(name, options, log, seconds)
    runs = [int(count) for count in RUNS.findall(log.read_text(errors="replace"))]
    fresh = len(set(grown.iterdir()) - before)
    findings = sorted(set(found.glob(f"{name}-*")) - earlier)
    took_s = time.monotonic() - began
    return Outcome(name, max(runs, default=0), took_s, fresh, findings, code)


def _watch(name: str, options: list[str], log: Path, seconds: int) -> int:
    command = [sys.executable, "-m", "tests.fuzz.one", name, *options]
    with surroundings(name) as environment, log.open("wb") as out:
        environment[AGAIN] = str(_program(name))
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd=ROOT)
        try:
            began = time.monotonic()
            while True:
                try:
                    return process.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    took_s = time.monotonic() - began
                    runs = RUNS.findall(log.read_text(errors="replace")) or ["0"]
                    print(f"  {name:10}{took_s:5.0f} s{int(runs[-1]):12,} runs", flush=True)
                    if took_s > seconds + GRACE_S:
                        return -1
        finally:
            process.kill()
            process.wait()


def _program(name: str) -> Path:
    """What libFuzzer starts for a merge: a file that can be run, without further words."""
    path = WORK / f"{name}.sh"
    path.write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tests.fuzz.one {name} "$@"\n'
    )
    path.chmod(0o755)
    return path


def keep(name: str) -> int:
    """Of all that was found worth running, a small set with the same coverage. What somebody gave
    a name of its own stays."""
    merged = WORK / "merge" / name
    shutil.rmtree(merged, ignore_errors=True)
    merged.mkdir(parents=True)
    known = {_store(merged, data) for data in seeds(name)}
    others = [folder for folder in (WORK / name, CORPUS / name) if folder.is_dir()]
    options = ["-merge=1", f"-max_len={LONGEST_KEPT_BYTES}", str(merged), *map(str, others)]
    log = WORK / f"{name}-merge.log"
    code = _watch(name, options, log, 600)
    # Each try ends at an input that breaks it, or where the program cannot be started at all.
    if code or log.read_text(errors="replace").count("MERGE-OUTER: attempt") > MOST_TRIES:
        raise SystemExit(f"merging {name} ended with {code}, and came to nothing: {log}")
    (CORPUS / name).mkdir(parents=True, exist_ok=True)
    for path in (CORPUS / name).glob("*.bin"):
        if FOUND.fullmatch(path.name):
            path.unlink()
    size = kept = 0
    for path in sorted(set(merged.iterdir()) - known, key=lambda one: one.stat().st_size):
        data = path.read_bytes()
        size += len(data)
        if size > MOST_KEPT_BYTES or kept == MOST_KEPT:
            break
        kept += 1
        (CORPUS / name / f"{hashlib.sha1(data).hexdigest()[:12]}.bin").write_bytes(data)
    return kept


def _store(folder: Path, data: bytes) -> Path:
    path = folder / hashlib.sha1(data).hexdigest()
    path.write_bytes(data)
    return path


def tell(outcomes: list[Outcome]) -> None:
    print(f"\n{'target':12}{'runs':>12}{'seconds':>9}{'new inputs':>12}{'findings':>10}")
    for one in outcomes:
        count = len(one.findings) or int(one.code != 0)
        print(f"{one.target:12}{one.runs:12,}{one.seconds:9.0f}{one.fresh:12,}{count:10}")
    for one in outcomes:
        if one.code or one.findings:
            print(f"\n{one.target}: ended with {one.code}; all it said: {WORK / one.target}.log")
            for path in one.findings:
                print(f"  the input: {path}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--target", action="append", choices=[*TARGETS], help="only this one")
    parser.add_argument("--keep", action="store_true", help="write the corpus anew")
    asked = parser.parse_args()
    names = asked.target or [*TARGETS]
    if asked.keep:
        for name in names:
            print(f"{name:12}{keep(name):6} inputs kept", flush=True)
        return 0
    outcomes = [fuzz(name, asked.seconds) for name in names]
    tell(outcomes)
    return int(any(one.code or one.findings for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
