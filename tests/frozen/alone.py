"""Try each line of stdin, an import, in a process in which nothing of ours is imported yet.

Spark and pandas, which take most of the time, are imported once, before the processes part.
"""

from __future__ import annotations

import os
import sys
import traceback

import pandas  # noqa: F401
import pyspark.sql.streaming  # noqa: F401


def fails(line: str) -> bool:
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        return status != 0
    try:
        exec(line, {})
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def main() -> int:
    assert not [name for name in sys.modules if name.startswith("chasquimq")]
    failed = [line for line in sys.stdin.read().splitlines() if fails(line)]
    print(*failed, sep="\n", end="")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
