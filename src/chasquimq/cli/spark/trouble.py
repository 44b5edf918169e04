"""What went wrong inside of Spark, in one line: its own messages are pages of Java."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from chasquimq.cli.ask import refuse
from chasquimq.text import discreet

# An error of ours that passed through a Python process of Spark's, and through the JVM.
_OURS = re.compile(r"(?:chasquimq\.errors\.\w+Error: )(CMQ-\d+: [^\n]+|[^\n]+)")
_JAVA = re.compile(r"(?:Caused by: )?[\w.$]+(?:Exception|Error): ([^\n]+)")
MOST = 600


@contextmanager
def told() -> Iterator[None]:
    """An error of Spark's ends the command with one line, and exit code 1."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        refuse(plain(str(error)))


def plain(text: str) -> str:
    """The one line that tells: ours if there is one, else the first of Spark's."""
    ours = _OURS.findall(text)
    if ours:
        return discreet(ours[-1])[:MOST]
    java = _JAVA.findall(text)
    first = text.strip().partition("\n")[0]
    return (
        "Spark failed: " + discreet(first if first.startswith("[") or not java else java[0])[:MOST]
    )
