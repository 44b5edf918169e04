"""Error codes with their classes, DLQ reasons, doctor codes and exit codes.

Guards "error codes, DLQ reasons, doctor codes, exit codes" of what must not change.
`docs/reference/errors.md` and `doctor.md` explain each: other tests require it.
"""

from __future__ import annotations

from collections.abc import Iterator

import chasquimq
from chasquimq.cli.check import spark
from chasquimq.cli.check.catalog import CATALOG
from chasquimq.cli.exits import Exit, exit_for
from chasquimq.errors import ChasquiError
from chasquimq.job import Reason


def lines() -> Iterator[str]:
    public = [getattr(chasquimq, name) for name in chasquimq.__all__]
    for kind in public:
        if isinstance(kind, type) and issubclass(kind, ChasquiError):
            yield f"error {kind.code} {kind.__name__}: a command exits with {_exit(kind)}"
    for reason in Reason:
        yield f"reason {reason.code} {reason}"
    for code, severity in (CATALOG | spark.KINDS).items():
        yield f"finding {code}: {severity.word}"
    for code in Exit:
        yield f"exit {int(code):3} {code.name.lower()}"


def _exit(kind: type[ChasquiError]) -> int:
    make = OSError.__new__ if issubclass(kind, OSError) else RuntimeError.__new__
    return int(exit_for(make(kind)))  # without arguments: the class decides
