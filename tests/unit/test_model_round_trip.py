"""Whatever a model holds comes back equal: written by `wire.encode`, read by `Job.decode`."""

from __future__ import annotations

import dataclasses
import enum
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from ipaddress import IPv4Address
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pydantic.alias_generators
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq import Job, wire


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3


whole = st.integers(-(2**63), 2**63 - 1)
minutes = st.integers(-14 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m)))
seconds = st.integers(-50_000, 50_000).map(lambda s: timezone(timedelta(seconds=s)))
modern = {"min_value": datetime(1900, 1, 1), "max_value": datetime(2200, 1, 1)}  # noqa: DTZ001
moments = (
    st.datetimes()
    | st.datetimes(**modern, timezones=minutes)
    | st.datetimes(**modern, timezones=seconds)  # type: ignore[arg-type]
)

FIELDS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "flag": (bool, st.booleans()),
    "count": (int, whole),
    "ratio": (float, st.floats(allow_nan=False)),
    "text": (str, st.text(max_size=10)),
    "blob": (bytes, st.binary(max_size=10)),
    "maybe": (int | None, st.none() | whole),
    "items": (list[str], st.lists(st.text(max_size=3), max_size=3)),
    "table": (dict[str, float], st.dictionaries(st.text(max_size=3), st.floats(0, 1), max_size=3)),
    "by_number": (dict[int, bytes], st.dictionaries(whole, st.binary(max_size=3), max_size=3)),
    "by_day": (dict[date, int], st.dictionaries(st.dates(), whole, max_size=3)),
    "pair": (tuple[int, str], st.tuples(whole, st.text(max_size=3))),
    "moment": (datetime, moments),
    "day": (date, st.dates()),
    "clock": (time, st.times() | st.times(timezones=minutes)),
    "lasts": (timedelta, st.timedeltas()),
    "id": (UUID, st.uuids()),
    "money": (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    "colour": (Colour, st.sampled_from(Colour)),
    "level": (Level, st.sampled_from(Level)),
    "tags": (set[int], st.sets(whole, max_size=3)),
    "frozen": (frozenset[str], st.frozensets(st.text(max_size=3), max_size=3)),
    "path": (PurePosixPath, st.text("ab/.", min_size=1, max_size=5).map(PurePosixPath)),
    "address": (IPv4Address, st.ip_addresses(v=4)),
    "any": (Any, st.none() | whole | st.text(max_size=3) | st.lists(whole, max_size=3)),
}
KINDS = {name: kind for name, (kind, _) in FIELDS.items()}
VALUES = st.fixed_dictionaries({name: values for name, (_, values) in FIELDS.items()})

DataclassLine: Any = dataclasses.make_dataclass("DataclassLine", KINDS.items())
StructLine: Any = msgspec.defstruct("StructLine", KINDS.items())
PydanticLine: Any = pydantic.create_model("PydanticLine", **{n: (k, ...) for n, k in KINDS.items()})


@dataclasses.dataclass
class DataclassOrder:
    best: DataclassLine
    lines: list[DataclassLine]
    by_name: dict[str, DataclassLine]


class StructOrder(msgspec.Struct, tag=True, rename="kebab"):
    best: StructLine
    lines: list[StructLine]
    by_name: dict[str, StructLine]


class PydanticOrder(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(alias_generator=pydantic.alias_generators.to_camel)

    best: PydanticLine
    lines: list[PydanticLine]
    by_name: dict[str, PydanticLine]


@dataclasses.dataclass
class MixedOrder:
    best: PydanticLine
    lines: list[StructLine]
    by_name: dict[str, DataclassLine]


def back(model: Any, kind: Any) -> Any:
    return Job("id", "name", wire.decode(wire.encode(model))).decode(kind)


def written(line: Any) -> Any:
    data = wire.decode(wire.encode(line))
    # The order of a set depends on how it was made.
    return {**data, "tags": sorted(data["tags"]), "frozen": sorted(data["frozen"])}


@pytest.mark.parametrize("kind", [DataclassLine, StructLine, PydanticLine])
@given(values=VALUES)
def test_a_model_comes_back_equal(kind: Any, values: dict[str, Any]) -> None:
    model = kind(**values)
    assert back(model, kind) == model
    assert back([model], list[kind]) == [model]
    assert written(model) == written(DataclassLine(**values)), "all three alike"


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (DataclassOrder, DataclassLine),
        (StructOrder, StructLine),
        (PydanticOrder.model_construct, PydanticLine),
    ],
    ids=["dataclass", "struct", "pydantic"],
)
@given(lines=st.lists(VALUES, min_size=1, max_size=3))
def test_models_in_models_come_back_equal(
    kind: Any, line: Any, lines: list[dict[str, Any]]
) -> None:
    made = [line(**values) for values in lines]
    order = kind(best=made[0], lines=made, by_name={str(n): one for n, one in enumerate(made)})
    assert back(order, type(order)) == order


@given(first=VALUES, second=VALUES, third=VALUES)
def test_models_of_all_kinds_mix(
    first: dict[str, Any], second: dict[str, Any], third: dict[str, Any]
) -> None:
    order = MixedOrder(PydanticLine(**first), [StructLine(**second)], {"a": DataclassLine(**third)})
    assert back(order, MixedOrder) == order


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    moment: datetime
    day: date
    clock: time
    lasts: timedelta
    id: UUID
    money: Decimal
    colour: Colour
    tags: set[int]
    pair: tuple[int, str]
    ratio: float
    count: int


@given(values=st.fixed_dictionaries({name: FIELDS[name][1] for name in Strict.model_fields}))
def test_a_strict_model_comes_back_equal(values: dict[str, Any]) -> None:
    model = Strict(**values)
    assert back(model, Strict) == model
