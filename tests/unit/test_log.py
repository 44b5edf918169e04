"""What a command logs: a record is one line that nobody else can forge, without a secret."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as some

from chasquimq.cli.crew.words import LONGEST as WHOLE
from chasquimq.cli.log import LONGEST, AsJson, AsText, set_up
from chasquimq.errors import ConfigError

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [A-Z]+ \S+ ")
FORGED = "mail\n2026-11-16T09:00:00.123Z ERROR root all is lost\x1b[2J\x9b1m\u2028\u202e"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    """What `set_up` changes belongs to the process: put it back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    hooks = sys.excepthook, threading.excepthook, sys.unraisablehook
    yield
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)
    sys.excepthook, threading.excepthook, sys.unraisablehook = hooks


def logged(format: str, level: str = "info", **how: object) -> tuple[logging.Logger, io.StringIO]:
    out = io.StringIO()
    set_up(format, level, out)  # type: ignore[arg-type]
    return logging.getLogger("chasquimq.worker"), out


def record(message: str, *args: object, **extra: object) -> logging.LogRecord:
    return logging.makeLogRecord(
        {"name": "x", "levelname": "INFO", "msg": message, "args": args, "created": 0.5, **extra}
    )


# -- text ------------------------------------------------------------------------------------------


def test_a_line_of_text_says_when_how_bad_and_who() -> None:
    line = AsText().format(record("reading failed: %s", "gone", levelname="WARNING"))
    assert line == "1970-01-01T00:00:00.500Z WARNING x reading failed: gone"


def test_extra_fields_stand_behind_the_message() -> None:
    line = AsText().format(record("read", queue="mail", job_id="a\nb"))
    assert line.endswith(r" read queue=mail job_id=a\nb")


def test_a_terminal_gets_colours_and_a_pipe_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    pipe, terminal = io.StringIO(), Terminal()
    for out in (pipe, terminal):
        set_up("text", "info", out)
        logging.getLogger("a").warning("b")
    assert "\x1b" not in pipe.getvalue()
    assert "\x1b[33mWARNING\x1b[0m" in terminal.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    set_up("text", "info", plain := Terminal())
    logging.getLogger("a").warning("b")
    assert "\x1b" not in plain.getvalue()


# -- JSON ------------------------------------------------------------------------------------------


def test_a_line_of_json_has_the_same_and_what_was_given_besides() -> None:
    row = json.loads(AsJson().format(record("read %d", 3, queue="mail", count=3, process=7)))
    assert row == {
        "ts": "1970-01-01T00:00:00.500Z",
        "level": "info",
        "logger": "x",
        "message": "read 3",
        "process": 7,
        "queue": "mail",
        "count": 3,
    }


def test_an_extra_field_does_not_take_the_place_of_ours() -> None:
    row = json.loads(AsJson().format(record("m", ts="then", level="fine", exc="none", logger="l")))
    assert (row["ts"], row["level"], row["logger"]) == ("1970-01-01T00:00:00.500Z", "info", "x")
    assert (row["extra_ts"], row["extra_level"], row["extra_exc"]) == ("then", "fine", "none")


class Sulky:
    def __str__(self) -> str:
        raise ValueError("no")


def test_whatever_an_extra_field_is_the_line_is_json() -> None:
    odd = {"a": float("nan"), "b": {1: b"\xff"}, "c": {3}, "d": Sulky(), "e": [1, ("x",)]}
    row = json.loads(AsJson().format(record("m", **odd)), parse_constant=pytest.fail)
    assert (row["a"], row["b"], row["c"]) == ("nan", {"1": r"b'\xff'"}, "{3}")
    assert (row["d"], row["e"]) == ("<Sulky>", [1, ["x"]])


# -- strangers' words ------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_name_cannot_forge_a_line_or_reach_the_terminal(format: str) -> None:
    log, out = logged(format)
    log.warning("job %s failed", FORGED, extra={"name_of_job": FORGED, FORGED: 1})
    text = out.getvalue()
    assert text.count("\n") == 1
    assert text.rstrip("\n").isprintable()


@given(some.text())
def test_whatever_is_logged_one_record_is_one_printable_line(text: str) -> None:
    for formatter in (AsText(), AsJson()):
        line = formatter.format(record("said %s", text, extra_field=text))
        assert line.isprintable()
    said = json.loads(line)["message"]
    assert said.startswith("said")
    if "=" not in text and ":" not in text:
        assert said == f"said {text}"  # escaped, and not taken away


def test_the_lines_of_an_error_are_indented_so_that_none_looks_like_a_record() -> None:
    log, out = logged("text")
    try:
        raise ValueError(FORGED)
    except ValueError:
        log.exception("it failed")
    first, *rest = out.getvalue().rstrip("\n").split("\n")
    assert LINE.match(first)
    assert len(rest) > 3
    assert all(line.startswith("    ") and line.isprintable() for line in rest)


def test_an_error_is_one_field_of_json() -> None:
    log, out = logged("json")
    try:
        raise ValueError(FORGED)
    except ValueError:
        log.exception("it failed")
    row = json.loads(out.getvalue())
    assert (row["message"], row["level"]) == ("it failed", "error")
    assert row["exc"].startswith("Traceback") and FORGED in row["exc"]


@pytest.mark.parametrize("format", ["text", "json"])
def test_no_line_holds_a_credential(format: str) -> None:
    log, out = logged(format)
    url = "redis://user:hunter22@host:6379/0"  # not a secret
    log.error("cannot reach %s", url, extra={"url": url, "password": "hunter22", "deep": [url]})
    try:
        raise OSError(f"AUTH to {url} failed, password=hunter22")  # not a secret
    except OSError:
        log.exception("connecting")
    assert out.getvalue().count("redis://user:***@host:6379/0") >= 3
    assert "hunter22" not in out.getvalue()


def test_arguments_that_do_not_fit_are_shown_all_the_same() -> None:
    assert "%d jobs" in AsText().format(record("%d jobs", "many"))


def test_a_long_message_is_cut() -> None:
    assert len(AsText().format(record("x" * 1_000_000))) < 20_000


@pytest.mark.parametrize("what", ["x", "漢", "🦙", "\x1b", "\U000e0001", '"'])
@pytest.mark.parametrize("step", [1, 7])
def test_no_line_is_so_long_that_a_supervisor_would_cut_it(what: str, step: int) -> None:
    """What follows a cut begins a line, and strangers choose what it is."""
    long = (what * step + "y") * 100_000
    error = ValueError(long)
    hostile = record(
        "%s", long, extra=long, other=[long] * 20, exc_info=(ValueError, error, None), name=long
    )
    for line in AsText().format(hostile).splitlines():
        assert len(line.encode()) <= WHOLE
    line = AsJson().format(hostile)
    assert len(line.encode()) <= WHOLE
    assert set(json.loads(line)) >= {"message", "exc", "extra", "other"}


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:hunter22hunter22@host",  # not a secret
        "password='hunter22hunter22'",  # not a secret
    ],
)
def test_a_cut_leaves_no_half_of_a_password(url: str) -> None:
    """Wherever in it the end of what is shown falls."""
    for beside in range(len(url) + 1):
        line = AsText().format(record("x" * (LONGEST - beside - 1) + " " + url))
        assert "hunter22" not in line


# -- set_up ----------------------------------------------------------------------------------------


def test_the_last_call_counts_and_nothing_is_said_twice() -> None:
    _, first = logged("text")
    log, second = logged("json", "warning")
    log.info("not this")
    log.warning("this")
    assert first.getvalue() == ""
    assert [json.loads(line)["message"] for line in second.getvalue().splitlines()] == ["this"]


@pytest.mark.parametrize(
    ("format", "level"), [("xml", "info"), ("text", "loud"), ("json", ""), ("", "info")]
)
def test_nonsense_is_refused(format: str, level: str) -> None:
    with pytest.raises(ConfigError, match=r"log (format|level) must be"):
        set_up(format, level)  # type: ignore[arg-type]


def test_warnings_and_what_nobody_caught_go_through_it() -> None:
    _, out = logged("json")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", DeprecationWarning, stacklevel=1)

    def fails() -> None:
        raise ValueError("in a thread")

    thread = threading.Thread(target=fails, name="t-1")
    thread.start()
    thread.join()
    rows = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(row["logger"], row["level"]) for row in rows] == [
        ("py.warnings", "warning"),
        ("chasquimq", "critical"),
    ]
    assert "DeprecationWarning: old" in rows[0]["message"]
    assert rows[1]["message"] == "uncaught in thread t-1"
    assert "ValueError: in a thread" in rows[1]["exc"]


def test_a_program_that_fails_says_so_in_a_line_of_json() -> None:
    program = (
        "from chasquimq.cli.log import set_up\n"
        "set_up('json', 'info')\n"
        "raise ValueError('to redis://u:hunter22@h\\n{}')\n"  # not a secret
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 1
    row = json.loads(done.stderr)
    assert (row["message"], row["level"]) == ("uncaught", "critical")
    assert "redis://u:***@h" in row["exc"]
    assert b"hunter22" not in done.stderr
