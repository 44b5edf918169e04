"""What was said by `.option(...)`, as values.

Spark hands over texts whose names know no case. A table names each option as the documentation
writes it, beside what reads its text; `fetchSize` fills the field `fetch_size`. What is not in the
table is refused with the nearest name that is: an option that nobody heard is a wrong answer later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from chasquimq.config import MAX_MS, check_within, nearest
from chasquimq.errors import ArgumentError, ConfigError
from chasquimq.spark.place import Place, read_place

Reading = Callable[[str, str], Any]  # name, text -> value
Offsets = Literal["earliest", "latest"] | dict[str, Place]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OF_SPARK = frozenset(("checkpointlocation", "queryname"))  # Spark's own, beside a query's
# What other connectors call the parts of an address. Their values are never shown.
_OF_OTHERS = frozenset(
    ("host", "port", "user", "username", "auth", "password", "db", "dbnum", "ssl", "tls", "uri")
)


def read(given: Mapping[str, str], known: Mapping[str, Reading]) -> dict[str, Any]:
    """Values by the names of their fields."""
    table = {name.lower(): name for name in known}
    said: dict[str, Any] = {}
    for word, told in given.items():
        if word.lower() in _OF_SPARK:
            continue
        name = table.get(word.lower())
        if name is None:
            raise ArgumentError(
                f"format('chasqui') has no option {word!r:.80}; {_hint(word, known)}"
            )
        said[field_of(name)] = known[name](name, told)
    return said


def _hint(word: str, known: Mapping[str, Reading]) -> str:
    if word.lower() in _OF_OTHERS:
        return "the server is named by url, and with a password by urlEnv or secretFile"
    spelt = {name.lower(): name for name in sorted(known, key=str.lower)}
    return re.sub(
        r"\w+", lambda found: spelt.get(found[0], found[0]), nearest(word.lower(), [*spelt])
    )


def field_of(name: str) -> str:
    return re.sub(r"[A-Z]", lambda capital: f"_{capital[0].lower()}", name)


def name_of(field: str) -> str:
    return re.sub(r"_(\w)", lambda letter: letter[1].upper(), field)


# -- what reads a text -----------------------------------------------------------------------------


def text(name: str, told: str) -> str:
    if not told.strip():
        raise ConfigError(f"{name} must not be empty")
    return told


def listed(name: str, told: str) -> str:
    """A list, as Spark says it of load(["mail", "orders"])."""
    try:
        return ",".join(json.loads(told))
    except (ValueError, TypeError):
        raise ArgumentError(f"{name} is a JSON list of texts, got {told!r:.80}") from None


def lower(name: str, told: str) -> str:
    return text(name, told).strip().lower()


def upper(name: str, told: str) -> str:
    return text(name, told).strip().upper()


def whole(name: str, told: str) -> int:
    if not re.fullmatch(r"\s*[+-]?\d{1,18}\s*", told, re.ASCII):
        raise ArgumentError(f"{name} is a whole number, got {told!r:.80}")
    return int(told)


def number(name: str, told: str) -> float:
    if not re.fullmatch(r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?\s*", told, re.ASCII | re.I):
        raise ArgumentError(f"{name} is a number, got {told!r:.80}")
    return float(told)


def truth(name: str, told: str) -> bool:
    word = told.strip().lower()
    if word not in ("true", "false"):
        raise ArgumentError(f"{name} is true or false, got {told!r:.80}")
    return word == "true"


def offsets(name: str, told: str) -> Offsets:
    """earliest, latest, or `{"queue": "<entry id>"}`."""
    word = told.strip().lower()
    if word == "earliest":
        return "earliest"
    if word == "latest":
        return "latest"
    try:
        given = json.loads(told, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict) or not all(isinstance(one, str) for one in given.values()):
        raise ConfigError(
            f'{name} is earliest, latest or {{"queue": "<entry id>"}}, got {told!r:.80}'
        )
    try:
        return {queue: read_place(place) for queue, place in given.items()}
    except ConfigError as error:
        raise ConfigError(f"{name}: {error.args[0]}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of a queue that is named twice, one place would be forgotten."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name is there twice")
    return dict(pairs)


def moment(name: str, told: str) -> int:
    """Epoch milliseconds, as in Kafka's source, or ISO 8601; without a zone it is UTC."""
    word = told.strip()
    if re.fullmatch(r"\d{1,18}", word, re.ASCII):
        return check_within(name, int(word), 0, MAX_MS)
    try:
        read = datetime.fromisoformat(word)
    except ValueError:
        raise ConfigError(
            f"{name} is epoch milliseconds or like 2026-11-16T12:00:00Z, got {told!r:.80}"
        ) from None
    since = (read if read.tzinfo else read.replace(tzinfo=UTC)) - _EPOCH
    return check_within(name, since // timedelta(milliseconds=1), 0, MAX_MS)
