"""Plan: "Spark error classes": the conditions in the messages of Spark's errors, and their classes.

Spark shows an error of Python as text, so its words `CHASQUI_...` are what programs look for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import chasquimq
from chasquimq import DataLossError, InputChangedError
from chasquimq.spark.source import ChasquiSource

SOURCES = Path(chasquimq.__file__).parent


def lines() -> Iterator[str]:
    for error in (DataLossError("mail", 3, "1-0"), InputChangedError(1, 2)):
        kind, names = type(error), ", ".join(sorted(vars(error)))
        yield f"{kind.__name__}({', '.join(one.__name__ for one in kind.__mro__[1:-3])}): {names}"
        yield f"{kind.__name__}: {str(error).partition(': ')[0]}: {_condition(str(error))}"
    texts = [path.read_text() for path in SOURCES.rglob("*.py")]
    for condition in {
        one for text in texts for one in re.findall(r"\bCHASQUI_[A-Z_]+(?=: )", text)
    }:
        yield f"condition {condition}"
    for make in (ChasquiSource.writer, ChasquiSource.streamWriter):
        try:
            make(ChasquiSource({"queue": "mail"}), None, overwrite=True)  # type: ignore[arg-type]
        except chasquimq.ChasquiError as error:
            yield f"{make.__name__} with overwrite: {type(error).__name__}"


def _condition(message: str) -> str:
    [found] = re.findall(r"\bCHASQUI_[A-Z_]+", message)
    return str(found)
