"""`python -m chasquimq` is `chasqui`."""

from __future__ import annotations

import sys

from chasquimq.cli import main

if __name__ == "__main__":
    sys.exit(main())
