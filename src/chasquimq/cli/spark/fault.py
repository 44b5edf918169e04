"""What Spark says went wrong, in one line, and the exit code that belongs to it.

An error of a task comes to us as text: the traceback of Python, inside the trace of Java, inside
the message of Spark. What people need of it is its last line, and the row it names.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from chasquimq import errors
from chasquimq.cli.ask import refuse
from chasquimq.cli.exits import Exit, exit_for
from chasquimq.errors import ChasquiError
from chasquimq.text import discreet, shown

WIDEST = 600
# Loggers of Spark's Python that tell each error, or a Ctrl-C, once more, with all of its trace.
# The root's own, which Py4J uses, passes on what others say all the same.
_CHATTY = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "")
# What messages of tasks call the options of the sink, and people at a terminal do not.
_SAID: dict[str, str] = {
    "onFull=wait": "--on-full wait",
    "maxStreamLen": "--max-stream-len",
    "waitTimeoutMs": "--timeout",
    "markerTtlMs": "--remember",
    "rowsPerSecond": "--rate",
    "runId": "--run-id",
    "idColumn": "--id-column",
    "commitMode=staged": "--commit staged",
    "commitMode=direct": "--commit direct",
}
_OURS = re.compile(r"\bchasquimq\.errors\.(\w+): (.+)")
_MALFORMED = re.compile(r"Malformed records are detected in record parsing: (.*)\.\s*$", re.M)
_FILE = re.compile(r"while reading file (\S+?)\.\s")
_SPARK = re.compile(r"\[([A-Z][A-Z_]+(?:\.[A-Z_]+)?)\] (.*?)(?=\s*SQLSTATE|$)", re.S)
_JAVA = re.compile(r"^: ([\w.$]+(?:Exception|Error)): (.*)$", re.M)
# Deep down in the trace, where Spark itself says no more than that a task failed.
_FULL = re.compile(r"No space left on device|Disk quota exceeded|File too large")
# Errors of the command line, as Spark finds them when it plans.
_USAGE = re.compile(r"UNRESOLVED|PARSE_|INVALID_|DATATYPE_MISMATCH|UNSUPPORTED")


@contextmanager
def plainly(afterwards: Callable[[], str | None] = lambda: None) -> Iterator[None]:
    """End the command with one line on stderr, whatever Spark has to say in a hundred; and one more
    that says how things stand. Ctrl-C is told as such, though Spark may say anything after it."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    before = [(logger, logger.disabled) for logger in map(logging.getLogger, _CHATTY)]
    for logger, _ in before:
        logger.disabled = True
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        stopped = _was_stopped(error)
        if isinstance(error, OSError) and error.filename and not stopped:
            refuse(f"{error.filename}: {error.strerror}")
        if not (stopped or isinstance(error, PySparkException | Py4JError)):
            raise
        words, code = ("stopped", Exit.INTERRUPTED) if stopped else told(str(error))
        for line in (*getattr(error, "__notes__", ()), words, afterwards()):
            if line is not None:
                print(f"chasqui: {line}", file=sys.stderr)
        raise typer.Exit(code) from None
    finally:
        for logger, was in before:
            logger.disabled = was


def _was_stopped(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def told(text: str) -> tuple[str, Exit]:
    """In one line, without passwords; and how the command ends."""
    ours = _OURS.search(text)
    if ours:
        kind = getattr(errors, ours[1], ChasquiError)
        return _line(said(ours[2])), exit_for(kind.__new__(kind))
    malformed = [*_MALFORMED.finditer(text)]
    if malformed:
        return _line(_malformed(malformed[-1][1], _FILE.search(text))), Exit.FAILED
    spark = _SPARK.search(text)
    if spark:
        words = spark[2].strip().split("\n")[0]
        full = _FULL.search(text)
        if full:
            words = f"{words.rstrip('.')}: {full[0]}"
        if _USAGE.match(spark[1]):
            return _line(words), Exit.USAGE
        return _line(f"Spark failed: [{spark[1]}] {words}"), Exit.FAILED
    java = _JAVA.search(text)
    words = f"{java[1]}: {java[2]}" if java else text.strip().split("\n")[0]
    return _line(f"Spark failed: {words}"), Exit.FAILED


def said(words: str) -> str:
    """The same, with options as the command line has them."""
    for option, flag in _SAID.items():
        words = re.sub(rf"\b{option}\b", flag, words)
    return words


def _malformed(row: str, file: re.Match[str] | None) -> str:
    where = file[1] if file else "a file"
    return (
        f"{where}: the row {row} does not fit; mend it, or read on by --option mode=DROPMALFORMED "
        "(without such rows) or mode=PERMISSIVE (nulls in their place)"
    )


def _line(text: str) -> str:
    return shown(discreet(" ".join(text.split())), WIDEST)
