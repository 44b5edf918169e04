"""`Job.decode`: data become what a handler asks for, or an error that tells no data."""

from __future__ import annotations

import dataclasses
import enum
import gc
import subprocess
import sys
import weakref
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pydantic
import pydantic.dataclasses
import pydantic_core
import pytest

from chasquimq import Job, wire
from chasquimq.errors import ArgumentError, ModelError, UnrecoverableError
from chasquimq.model import MAX_MODELS, _msgspec_problems
from tests.house.tree import ROOT

T = TypeVar("T")
SECRET = "s3cret"


class Colour(enum.Enum):
    RED = "red"


class Text(str):
    __slots__ = ()


@dataclasses.dataclass
class Line:
    price: int
    day: date = date(2026, 1, 2)

    def __post_init__(self) -> None:
        if self.price < 0:
            raise ValueError(f"negative: {self.price} {SECRET}")


class Row(msgspec.Struct, rename="kebab", forbid_unknown_fields=True):
    unit_price: int
    lines: list[Line] = []


class Item(pydantic.BaseModel):
    price: int
    tags: dict[str, int] = {}

    @pydantic.field_validator("price")
    @classmethod
    def check(cls, price: int) -> int:
        if price < 0:
            raise ValueError(f"negative: {price} {SECRET}")
        if price == 0:
            raise pydantic_core.PydanticCustomError("no_price", f"costs {SECRET}")
        return price


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]
    age: int


class Zoo(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    animal: Cat | Dog = pydantic.Field(discriminator="kind")
    either: int | list[int] = 1
    by_number: dict[int, UUID] = {}
    first: int = pydantic.Field(default=1, validation_alias=pydantic.AliasPath("all", 0))


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    day: date
    count: int = 1
    anything: Any = None


@dataclasses.dataclass
class Basket:
    item: Item | None
    items: list[Item]
    name: Text


class Pair(NamedTuple):
    left: int
    day: date


class Options(TypedDict, total=False):
    day: date
    item: Item


@dataclasses.dataclass
class Held(Generic[T]):
    held: T


@pydantic.dataclasses.dataclass
class Made:
    price: int = pydantic.Field(alias="Price")


DAY = "2026-03-04"
FITS = [  # (data, the model, what it becomes)
    ({"price": 1}, Line, Line(1)),
    ({"price": 1, "day": DAY, "unknown": 2}, Line, Line(1, date(2026, 3, 4))),
    ({"unit-price": 1, "lines": [{"price": 2}]}, Row, Row(1, [Line(2)])),
    ({"price": 1}, Item, Item(price=1)),
    ([{"price": 1}], list[Line], [Line(1)]),
    ([{"price": 1}], list[Item], [Item(price=1)]),
    ({"a": None}, dict[str, Item | None], {"a": None}),
    ({"kind": "dog", "age": 1}, Annotated[Cat | Dog, pydantic.Field(discriminator="kind")], None),
    ({"held": {"price": 1}}, Held[Line], Held(Line(1))),
    ({"held": {"price": 1}}, Held[Item], Held(Item(price=1))),
    (
        {"item": None, "items": [{"price": 1}], "name": "n"},
        Basket,
        Basket(None, [Item(price=1)], Text("n")),
    ),
    ({"day": DAY, "item": {"price": 1}}, Options, {"day": date(2026, 3, 4), "item": Item(price=1)}),
    ([1, DAY], Pair, Pair(1, date(2026, 3, 4))),
    ({"Price": 1}, Made, Made(Price=1)),
    ({"price": 1}, Made, Made(Price=1)),
    ({"all": [7], "animal": {"kind": "cat"}}, Zoo, None),
    ({"day": DAY}, Strict, Strict(day=date(2026, 3, 4))),
    ({"day": DAY, "anything": {"a": [1.0, None]}}, Strict, None),
    (DAY, date, date(2026, 3, 4)),
    ("2026-03-04T05:06:07Z", datetime, datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)),
    ("red", Colour, Colour.RED),
    ("a/b", Path, Path("a/b")),
    (b"\xff", bytes, b"\xff"),
    (1, int, 1),
    (1, float, 1.0),
    ([1, "a"], tuple[int, str], (1, "a")),
    (None, int | None, None),
    ({1: 2}, dict[int, int], {1: 2}),
    ({"a": 1}, Annotated[dict[str, int], ["not hashable"]], {"a": 1}),
    ({"a": b"b"}, Any, {"a": b"b"}),
]


@pytest.mark.parametrize(("data", "model", "expected"), FITS, ids=lambda value: str(value)[:50])
def test_data_become_what_is_asked_for(data: Any, model: Any, expected: Any) -> None:
    for _ in range(2):  # made, and remembered
        found = Job("id", "name", data).decode(model)
        if expected is not None or data is None:
            assert found == expected
            assert type(found) is type(expected)


def test_a_derived_type_comes_back_as_itself() -> None:
    basket = Job("id", "name", {"item": None, "items": [], "name": "n"}).decode(Basket)
    assert type(basket.name) is Text


@pytest.mark.parametrize("model", [Line(1), Row(1), Item(price=1), Made(Price=1)])
def test_the_very_object_that_was_added_is_given_back(model: Any) -> None:
    job = Job("id", "name", model)
    assert job.decode(type(model)) is model
    many = Job("id", "name", [model]).decode(list[type(model)])  # type: ignore[misc]
    assert many == [model]


@dataclasses.dataclass
class LongLine(Line):
    length: int = 1


class LongItem(Item):
    model_config = pydantic.ConfigDict(revalidate_instances="always")


@pytest.mark.parametrize(("model", "kind"), [(LongLine(1), Line), (LongItem(price=1), Item)])
def test_an_object_of_a_derived_class_is_good_enough(model: Any, kind: Any) -> None:
    assert Job("id", "name", model).decode(kind) is model
    assert Job("id", "name", model).decode(type(model)) is model


EXPECTED_INT = "Expected `int`, got `str`"
VALID_INT = "Input should be a valid integer"
UNFIT = [  # (data, the model, (path, what is said) of each problem)
    ({"price": SECRET}, Line, [("data.price", EXPECTED_INT)]),
    ({"day": DAY}, Line, [("data", "Object missing required field `price`")]),
    ({"price": -1}, Line, [("data", "refused by the model itself (ValueError)")]),
    ({"price": 1, "day": SECRET}, Line, [("data.day", "Invalid RFC3339 encoded date")]),
    ({"unit-price": 1, SECRET: 1}, Row, [("data", "Object contains unknown field")]),
    (
        {"unit-price": 1, "lines": [{"price": 1}, {"price": SECRET}]},
        Row,
        [("data.lines[1].price", EXPECTED_INT)],
    ),
    ({"unit-price": SECRET}, Row, [("data.unit-price", EXPECTED_INT)]),
    (SECRET, Colour, [("data", "Invalid enum value")]),
    ([SECRET], list[Literal["a"]], [("data[0]", "Invalid enum value")]),
    ({SECRET: SECRET}, dict[str, int], [("data[...]", EXPECTED_INT)]),
    ({SECRET: 1}, dict[int, int], [("a key of data", EXPECTED_INT)]),
    (SECRET, bytes, [("data", "Expected `bytes`, got `str`")]),
    ("5", int, [("data", EXPECTED_INT)]),
    (True, int, [("data", "Expected `int`, got `bool`")]),
    (5, Path, [("data", "Expected `Path`, got `int`")]),
    (5, Text, [("data", "Expected `Text`, got `int`")]),
    (Line(1), Row, [("data", "Expected `object`, got `Line`")]),
    (
        {"price": SECRET},
        Item,
        [("data.price", f"{VALID_INT}, unable to parse string as an integer")],
    ),
    ({}, Item, [("data.price", "Field required")]),
    ({"price": -1}, Item, [("data.price", "refused by the model itself (value_error)")]),
    ({"price": 0}, Item, [("data.price", "refused by the model itself (no_price)")]),
    ({"price": 1, "tags": {SECRET: [SECRET]}}, Item, [("data.tags[...]", VALID_INT)]),
    ([{"price": 1}, {"price": [SECRET]}], list[Item], [("data[1].price", VALID_INT)]),
    ({SECRET: {"price": [SECRET]}}, dict[str, Item], [("data[...].price", VALID_INT)]),
    ({"animal": {"kind": SECRET}}, Zoo, [("data.animal", "union_tag_invalid")]),
    ({"animal": {"kind": "dog", "age": [SECRET]}}, Zoo, [("data.animal.age", VALID_INT)]),
    (
        {"animal": {"kind": "cat"}, SECRET: SECRET},
        Zoo,
        [("data[...]", "Extra inputs are not permitted")],
    ),
    (
        {"animal": {"kind": "cat"}, "by_number": {77: SECRET}},
        Zoo,
        [("data.by_number[...]", "Input should be a valid UUID")],
    ),
    (
        {"animal": {"kind": "cat"}, "either": [1, {SECRET: 1}], "all": [{SECRET: 1}]},
        Zoo,
        [
            ("data.either", VALID_INT),
            ("data.either[1]", VALID_INT),
            ("data.all[0]", VALID_INT),
        ],
    ),
    (
        {"item": {"price": [SECRET]}, "items": [], "name": ""},
        Basket,
        [("data.item.price", VALID_INT)],
    ),
    (
        {"item": None, "items": [{"price": 1}, {}], "name": ""},
        Basket,
        [("data.items[1].price", "Field required")],
    ),
    (
        {"day": SECRET, "count": "5"},
        Strict,
        [
            ("data.day", "Input should be a valid date in the format YYYY-MM-DD"),
            ("data.count", VALID_INT),
        ],
    ),
    ({"day": SECRET, "anything": b""}, Strict, [("data.day", "Input should be a valid date")]),
]


@pytest.mark.parametrize(("data", "model", "problems"), UNFIT, ids=lambda value: str(value)[:50])
def test_data_that_do_not_fit_say_where_and_why_but_not_what_they_are(
    data: Any, model: Any, problems: list[tuple[str, str]]
) -> None:
    with pytest.raises(ModelError) as refused:
        Job("the-id", "name", data).decode(model)
    error = refused.value
    assert [tuple(problem) for problem in error.problems] == problems
    assert error.job_id == "the-id"
    assert str(error).startswith("CMQ-014: job 'the-id' does not fit ")
    assert all(f"{path}: {what}" in str(error) for path, what in problems)
    assert SECRET not in str(error) and SECRET not in repr(error)
    # Nor is it in what a log would show besides: the libraries' own errors.
    assert error.__cause__ is None and error.__context__ is None
    assert isinstance(error, UnrecoverableError)


def test_words_that_are_new_to_us_are_not_repeated() -> None:
    """A later msgspec may say more."""
    said = msgspec.ValidationError(f"Found the value {SECRET!r} - at `$.a[0]`")
    assert _msgspec_problems(said) == [("data.a[0]", "does not fit")]
    own = msgspec.ValidationError(f"Bad {SECRET}")  # raised so by a __post_init__
    assert _msgspec_problems(own) == [("data", "does not fit")]


def test_an_error_is_as_long_as_can_be_read() -> None:
    long_name = "n" * 500
    model = pydantic.create_model(long_name, **{f"{long_name}{n}": (int, ...) for n in range(9)})
    with pytest.raises(ModelError) as refused:
        Job("i" * 1024, "name", {}).decode(model)
    assert len(refused.value.problems) == 5
    assert str(refused.value).endswith("; and 4 more")
    assert len(str(refused.value)) < 1300


class Unknown:
    pass


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("Line", "is not supported"),
        (Line(1), "is not supported"),
        (Unknown, "no type that data can have"),
        (list[Unknown], "no type that data can have"),
        (Line | Row, "more than one dict-like type"),
        (list[Item | Unknown], "Unknown"),
    ],
)
def test_a_model_that_no_data_could_fit_is_the_callers_mistake(model: Any, said: str) -> None:
    """No ModelError: the job is not to blame, and must not be buried for it."""
    with pytest.raises(ArgumentError, match=said) as refused:
        Job("id", "name", [{}]).decode(model)
    assert "cannot decode into" in str(refused.value)


def test_models_are_remembered_but_not_without_end() -> None:
    def use(kind: Any) -> None:
        assert Job("id", "name", wire.decode(wire.encode(kind(a=1)))).decode(kind) == kind(a=1)

    first = dataclasses.make_dataclass("First", [("a", int)])
    use(first)
    gone = weakref.ref(first)
    del first
    for n in range(MAX_MODELS + 1):
        use(dataclasses.make_dataclass(f"Another{n}", [("a", int)]))
    gc.collect()
    assert gone() is None


def python(code: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_pydantic_is_not_imported_by_us() -> None:
    assert (
        python(
            "import sys, dataclasses, msgspec, chasquimq\n"
            "from chasquimq import Job, wire\n"
            "@dataclasses.dataclass\n"
            "class Line:\n"
            "    price: int\n"
            "data = wire.decode(wire.encode([Line(1)]))\n"
            "assert Job('', '', data).decode(list[Line]) == [Line(1)]\n"
            "print([name for name in sys.modules if name.startswith('pydantic')])"
        )
        == "[]"
    )


def test_what_decode_returns_is_known_to_type_checkers(tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text(
        "from dataclasses import dataclass\n"
        "from chasquimq import Job\n"
        "@dataclass\n"
        "class Line:\n"
        "    price: int\n"
        "job = Job('id', 'name', {})\n"
        "reveal_type(job.decode(Line))\n"
        "reveal_type(job.decode(list[Line]))\n"
    )
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", "typed.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert '"typed.Line"' in run.stdout and 'list[typed.Line]"' in run.stdout
    assert run.returncode == 0, run.stdout
