"""stdout and stderr where they cannot be written to: a full disk, a reader that has gone."""

from __future__ import annotations

import errno
import io
import os
import sys

TYPE_CHECKING = False  # `typing` would take as long as the answer to --version

if TYPE_CHECKING:
    from typing import Any

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def drop_stdout() -> None:
    """Write no more to it. Python writes what is left at its end, and would complain then."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def spare_stderr() -> None:
    """What cannot be written to stderr is lost: there is no other place to tell an error, and the
    exit code is still right."""
    old = sys.__stderr__
    if old is not None and sys.stderr is old:
        raw = io.BufferedWriter(_Lossy(old.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, old.encoding, old.errors, line_buffering=True)


class _Lossy(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or 0
        except OSError:
            return len(data)
