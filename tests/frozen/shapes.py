"""The shape of JSON documents: a line for each key, with the types of its values."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from tests.cli.kit import Ended

TYPES = {bool: "flag", int: "number", float: "number", str: "text", type(None): "null"}
ANYTHING = {
    "data",
    "example_payload",
    "packages",
}  # keys whose values depend on the user, or on the machine


def shape(title: str, documents: Iterable[Any]) -> Iterator[str]:
    """Lines as `title [].id: text | null`. Where several documents, or several objects of a list,
    do not all have a key, the line says so."""
    objects: dict[str, int] = defaultdict(int)  # how many there are at a path
    found: dict[str, list[str]] = defaultdict(list)  # the types of the values at a path

    def look(value: Any, path: str) -> None:
        if isinstance(value, list | tuple):
            for one in value:
                look(one, f"{path}[]")
        elif isinstance(value, dict):
            objects[path] += 1
            for key, one in value.items():
                found[f"{path}.{key}"].append(_type(key, one))
                if key not in ANYTHING:
                    look(one, f"{path}.{key}")
        elif path.endswith("[]"):
            found[path].append(_type("", value))

    for document in documents:
        look(document, "")
    for path, types in found.items():
        owner = path.rpartition(".")[0]
        always = path.endswith("[]") or len(types) == objects[owner]
        yield f"{title} {path}: {' | '.join(sorted({*types}))}{'' if always else ', not always'}"


def _type(key: str, value: Any) -> str:
    if key in ANYTHING:
        return "anything"
    return TYPES.get(type(value)) or ("object" if isinstance(value, dict) else "list")


class Printed:
    """What commands printed with `--json`, put together by command, and how each ended."""

    def __init__(self) -> None:
        self._documents: dict[str, list[Any]] = defaultdict(list)
        self._exits: list[str] = []

    def add(self, words: str, ended: Ended) -> None:
        """What a command printed: one document, or one a line."""
        self._exits.append(f"{words}: exits with {ended.code}")
        self.add_documents(name_of(words), map(json.loads, ended.out.splitlines()))

    def add_documents(self, title: str, documents: Iterable[Any]) -> None:
        self._documents[title] += documents

    def lines(self) -> list[str]:
        shapes = [shape(title, some) for title, some in self._documents.items()]
        return [*self._exits, *chain.from_iterable(shapes)]


def name_of(words: str) -> str:
    """A command without what it was given."""
    return re.split(r" (?:frozen|other|tests\.|--)", words)[0]
