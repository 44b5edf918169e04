"""The `chasqui` command: one file per command or group, `sheet` and `render` pure."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

from chasquimq.cli.exits import Exit, exit_for
from chasquimq.errors import ChasquiError


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; answers how it ended, as `exits.py` has it."""
    try:
        _command()(args=argv, prog_name="chasqui")
    except SystemExit as end:
        return _code(end)
    except ChasquiError as error:
        print(f"chasqui: {error}", file=sys.stderr)
        for note in getattr(error, "__notes__", ()):
            print(f"         {note}", file=sys.stderr)
        return exit_for(error)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    return Exit.DONE


@cache
def _command() -> Any:
    from chasquimq.cli.app import build  # not for the workers' processes, which are in here, too

    return build()


def _code(end: SystemExit) -> int:
    if end.code is None:
        return Exit.DONE
    return end.code if isinstance(end.code, int) else Exit.FAILED
