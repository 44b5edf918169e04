"""What a command logs: one line per record, for people or as JSON for programs.

Records hold strangers' words (names, errors). No such word begins a line of its own, reaches a
terminal as anything but text, or shows a password: control characters are escaped, lines of a
traceback are indented, secrets are starred out.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal, TextIO

from chasquimq.cli.crew.words import LONGEST as LONGEST_LINE
from chasquimq.errors import ConfigError
from chasquimq.text import HIDDEN, shown, shown_json, told

Format = Literal["text", "json"]

LEVELS = ("debug", "info", "warning", "error", "critical")
COLOURS = {"DEBUG": "2", "INFO": "32", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}
LONGEST = 16_384  # characters of a message or a traceback
_USUAL = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
_SECRETS = ("password", "passwd", "secret", "token", "credential", "authorization")


def set_up(format: Format, level: str, stream: TextIO | None = None) -> None:
    """Log everything from `level` on to stderr, warnings and what nobody caught included.

    May be called again: the last call is the one that counts.
    """
    if format not in ("text", "json"):
        raise ConfigError(f"the log format must be text or json, got {format!r}")
    if level.lower() not in LEVELS:
        raise ConfigError(f"the log level must be one of {', '.join(LEVELS)}; got {level!r}")
    out = sys.stderr if stream is None else stream
    handler = _Handler(out)
    handler.setFormatter(AsJson() if format == "json" else AsText(colour=_takes_colour(out)))
    root = logging.getLogger()
    for old in [one for one in root.handlers if isinstance(one, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.captureWarnings(True)
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread
    sys.unraisablehook = _unraisable


class _Handler(logging.StreamHandler[TextIO]):
    """Ours, so that a second `set_up` knows it."""


class AsText(logging.Formatter):
    """`2026-11-16T09:00:00.123Z WARNING chasquimq.worker reading failed`"""

    def __init__(self, *, colour: bool = False) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname
        if self._colour and level in COLOURS:
            level = f"\x1b[{COLOURS[level]}m{level}\x1b[0m"
        extras = "".join(
            f" {shown(name)}={shown(_word(value))}" for name, value in _extras(record).items()
        )
        line = _whole(f"{_moment(record)} {level} {shown(record.name)} {_said(record)}{extras}")
        trace = _trace(record)
        if trace:
            # Indented: what an error says over several lines must not look like a record.
            line += "".join(f"\n{_whole(f'    {shown(part)}')}" for part in trace.splitlines())
        return line


class AsJson(logging.Formatter):
    """One object per line; extra fields stand beside ours, and never instead of them."""

    def format(self, record: logging.LogRecord) -> str:
        row: dict[str, Any] = {
            "ts": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
            "process": record.process,
        }
        for name, value in _extras(record).items():
            row[name if name not in row and name != "exc" else f"extra_{name}"] = value
        trace = _trace(record)
        if trace:
            row["exc"] = trace
        row = _plain(row)
        for most in (LONGEST, LONGEST // 8, LONGEST // 64, LONGEST // 512):
            line = _json(row, most)
            if _fits(line):
                break
        return line


def _moment(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"


def _message(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except Exception:  # its arguments do not fit: better a rough line than none
        text = f"{record.msg} {record.args!r}"
    return _told(text)


def _said(record: logging.LogRecord) -> str:
    return shown(_message(record))


def _trace(record: logging.LogRecord) -> str:
    text = record.exc_text or ""
    if not text and record.exc_info and record.exc_info[1] is not None:
        text = "".join(traceback.format_exception(*record.exc_info))
    if record.stack_info:
        text += record.stack_info
    return _told(text.rstrip("\n"))


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    """What was given as `extra={...}`."""
    return {
        name: HIDDEN if any(word in name.lower() for word in _SECRETS) else value
        for name, value in vars(record).items()
        if name not in _USUAL
    }


def _plain(value: Any) -> Any:
    """Fit for JSON: texts discreet, keys text, nothing that JSON has no word for."""
    if isinstance(value, str):
        return _told(value)
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not float("-inf") < value < float("inf"):
        return str(value)
    return value


def _json(row: dict[str, Any], most: int) -> str:
    """With each text cut to this many characters."""

    def word(value: object) -> str:
        return _cut(_word(value), most)

    if most < LONGEST:
        row = _shorter(row, most)
    return shown_json(json.dumps(row, ensure_ascii=False, default=word))


def _shorter(value: Any, most: int) -> Any:
    if isinstance(value, str):
        return _cut(value, most)
    if isinstance(value, dict):
        return {_cut(key, most): _shorter(one, most) for key, one in value.items()}
    return [_shorter(one, most) for one in value] if isinstance(value, list) else value


def _fits(line: str) -> bool:
    """Whether a supervisor passes it on as one line. In the end of a longer one, which would begin
    a line of its own, strangers could say what they want."""
    return 4 * len(line) <= LONGEST_LINE or len(line.encode(errors="replace")) <= LONGEST_LINE


def _whole(line: str) -> str:
    if _fits(line):
        return line
    return line.encode(errors="replace")[: LONGEST_LINE - 3].decode(errors="ignore") + "…"


def _word(value: object) -> str:
    try:
        return _told(str(value))
    except Exception:
        return f"<{type(value).__name__}>"


def _told(text: str) -> str:
    return told(text, LONGEST)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "…"


def _takes_colour(out: TextIO) -> bool:
    try:
        return out.isatty() and not os.environ.get("NO_COLOR")
    except ValueError:  # closed
        return False


# -- what nobody caught ----------------------------------------------------------------------------


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        return
    logging.getLogger("chasquimq").critical("uncaught", exc_info=(kind, error, trace))


def _uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is None or args.exc_type is SystemExit:
        return
    name = args.thread.name if args.thread is not None else "?"
    info = (args.exc_type, args.exc_value, args.exc_traceback)
    logging.getLogger("chasquimq").critical("uncaught in thread %s", name, exc_info=info)


def _unraisable(args: Any) -> None:
    what = args.err_msg or "an error that nobody could be told"
    error = args.exc_value
    info = (type(error), error, args.exc_traceback) if error is not None else None
    logging.getLogger("chasquimq").error("%s: %r", what, args.object, exc_info=info)
