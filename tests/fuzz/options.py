"""Whatever stands where options of Spark or times of the command line belong: values, or a
ConfigError that is short and repeats no password."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from chasquimq.cli.moment import moment_ms, read_time
from chasquimq.errors import ConfigError
from chasquimq.spark.options import SINK, SOURCE, sink_options, source_options, where_options
from tests.fuzz.draw import Draw

CANARY = "Kanarienvogel"  # not a secret
NAMES = sorted({*SOURCE, *SINK, "url", "urlEnv", "secretFile", "queue", "path", "paths", "nothing"})
READERS: tuple[Callable[[Mapping[str, str]], Any], ...] = (
    source_options,
    sink_options,
    where_options,
)
LONGEST_CHARS = 2_000
NOW_MS = 1_790_000_000_000


def check(data: bytes) -> None:
    draw = Draw(data)
    read = draw.one_of((*READERS, *READERS, None))
    if read is None:
        read_text(draw.rest().decode(errors="replace"))
        return
    given = {"url": f"redis://u:{CANARY}@127.0.0.1", "queue": "q"}
    while draw:
        name = draw.one_of(NAMES)
        given[name] = draw.blob().decode(errors="replace")
    said, values = "", None
    try:
        values = read(given)
    except ConfigError as error:
        said = str(error)
    assert len(said) < LONGEST_CHARS, "an error that nobody reads"
    assert CANARY not in said + repr(values), "a password is shown"


def read_text(text: str) -> None:
    """A time as people type it, which is then counted with."""
    said = ""
    try:
        time = read_time(text, "--delay")
    except ConfigError as error:
        said = str(error)
    else:
        assert isinstance(moment_ms(time, NOW_MS), int)
    assert len(said) < LONGEST_CHARS, "an error that nobody reads"
