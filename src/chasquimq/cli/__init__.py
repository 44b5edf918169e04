"""The `chasqui` command: one file per command or group, `sheet` and `render` pure.

What only asks for the version or for help is answered here, without the libraries that read a
command line: they take longer than the answer. Everything else goes to `app.py`.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # `typing` would take as long as the answer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_built: list[Any] = []  # the command; to build it takes longer than most commands run


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; answers how it ended, as `exits.py` has it."""
    from chasquimq.cli.brief import answered
    from chasquimq.cli.output import FULL, drop_stdout, spare_stderr

    _open_streams()
    spare_stderr()
    code = 0
    try:
        code = 0 if answered(sys.argv[1:] if argv is None else argv) else _run(argv)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read has had enough
        drop_stdout()
    except OSError as error:
        if error.errno not in FULL:
            print(f"chasqui: {_refusal(error)}", file=sys.stderr)
            return 1
        drop_stdout()
        where = error.filename or "stdout"
        print(f"chasqui: cannot write to {where}: {error.strerror}", file=sys.stderr)
        return 1  # as exits.py has it
    return code


def _refusal(error: OSError) -> str:
    """What the system refused, in one line: the user can repair it and needs no traceback."""
    from chasquimq.text import discreet, shown

    files = [shown(str(one), 200) for one in (error.filename, error.filename2) if one is not None]
    words = [*files, error.strerror or str(error) or type(error).__name__]
    return shown(discreet(": ".join(words)), 500)


def _open_streams() -> None:
    """Whoever calls us may have closed stdin, stdout or stderr. What is opened next would get its
    number: a socket as a process's stdin, and uvloop ends such a process."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, os.O_RDWR)  # the lowest that is free: its own
            os.set_inheritable(handle, True)
            setattr(sys, name, os.fdopen(handle, "r" if name == "stdin" else "w"))


def _run(argv: Sequence[str] | None) -> int:
    from chasquimq.cli.exits import Exit, exit_for
    from chasquimq.errors import ChasquiError

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


def _command() -> Any:
    if not _built:
        from chasquimq.cli.app import build  # not for workers' processes, which are in here, too

        _built.append(build())
    return _built[0]


def _code(end: SystemExit) -> int:
    from chasquimq.cli.exits import Exit

    if end.code is None:
        return Exit.DONE
    return end.code if isinstance(end.code, int) else Exit.FAILED
