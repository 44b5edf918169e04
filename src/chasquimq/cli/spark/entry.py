"""`chasqui spark entry`: what to hand to spark-submit."""

from __future__ import annotations

from importlib.util import find_spec

from chasquimq.cli.screen import Screen
from chasquimq.cli.shell import examples
from chasquimq.errors import ConfigError

EXAMPLES = examples(
    "chasqui spark entry",
    'spark-submit --master yarn "$(chasqui spark entry)" enqueue mail u.parquet',
)


def entry() -> None:
    """Print the path of the program that runs every `chasqui spark` command under spark-submit.

    What follows it is the command, without `chasqui spark` in front of it.
    """
    found = find_spec("pyspark_chasqui.submit") if find_spec("pyspark") else None
    if found is None or found.origin is None:
        raise ConfigError("Spark is not installed here: pip install 'chasquimq-py[spark]'")
    Screen().write(f"{found.origin}\n")
