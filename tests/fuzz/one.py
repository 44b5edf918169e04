"""One target under atheris, in a process of its own: `tests/fuzz/run.py` starts it.

python -m tests.fuzz.one <target> <options and folders of libFuzzer>
"""

from __future__ import annotations

import os
import sys
import time

import atheris

with atheris.instrument_imports(include=["chasquimq"], enable_loader_override=False):
    from tests.fuzz.kit import AGAIN, timed
    from tests.fuzz.targets import TARGETS

TELL_S = 5.0


def main() -> None:
    name, *options = sys.argv[1:]
    target = TARGETS[name]
    runs, told = 0, time.monotonic()
    with target.opened() as check:
        checked = timed(check)

        def run(data: bytes) -> None:
            nonlocal runs, told
            runs += 1
            if (now := time.monotonic()) - told > TELL_S:
                told = now
                print(f"runs: {runs}", flush=True)
            checked(data)

        # libFuzzer starts itself again for a merge, as the program that is named here.
        again = os.environ.get(AGAIN, sys.argv[0])
        atheris.Setup([again, f"-max_len={target.max_bytes}", *options], run)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
