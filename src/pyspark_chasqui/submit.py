"""Every `chasqui spark` command as an application of Spark; `chasqui spark entry` prints its path.

spark-submit [options] "$(chasqui spark entry)" enqueue mail s3a://exports/today.parquet
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def run(argv: Sequence[str]) -> int:
    from chasquimq.cli import main

    return main(["spark", *argv])


if __name__ == "__main__":
    # Python looks for modules beside a script first. Beside this one lies a package, of which no
    # module shall be taken for one of the same name elsewhere. A copy of it, as a cluster makes,
    # lies in a folder that others rely on.
    here = os.path.dirname(os.path.abspath(__file__))
    if os.path.basename(here) == "pyspark_chasqui":
        sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != here]
    sys.exit(run(sys.argv[1:]))
