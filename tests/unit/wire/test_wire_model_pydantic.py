"""A Pydantic model is written by its own dump, so that it reads back what it wrote."""

from __future__ import annotations

import dataclasses
import enum
import re
from datetime import date
from typing import Any, Generic, TypeVar

import pydantic
import pydantic.dataclasses
import pytest

from chasquimq import wire
from chasquimq.errors import EncodeError
from tests.shown import shown

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Box:
    content: Any


class Aliased(pydantic.BaseModel):
    price: int = pydantic.Field(alias="Price")
    inner: list[Aliased] = pydantic.Field(default=[], alias="Inner")


class OneWay(pydantic.BaseModel):
    both: int = pydantic.Field(alias="Both")
    out: int = pydantic.Field(serialization_alias="Out")


class Chosen(pydantic.BaseModel):
    first: int = pydantic.Field(
        validation_alias=pydantic.AliasChoices("a", pydantic.AliasPath("b", 0)),
        serialization_alias="a",
    )


class Pathed(pydantic.BaseModel):
    first: int = pydantic.Field(
        validation_alias=pydantic.AliasPath("b", 0), serialization_alias="b"
    )


class Computed(pydantic.BaseModel):
    side: int = 2

    @pydantic.computed_field
    def area(self) -> int:
        return self.side**2

    @pydantic.field_serializer("side")
    def as_text(self, side: int) -> str:
        return str(side)


class Careful(Computed):
    model_config = pydantic.ConfigDict(extra="forbid")


class Parsed(pydantic.BaseModel):
    text: pydantic.Json[list[int]]


class Puzzling(pydantic.BaseModel):
    """Its defaults look like a schema, its names like the keys of one."""

    default: int = pydantic.Field(default=1, alias="Default")
    fields: Any = {"type": "model-fields", "fields": {"a": {"serialization_alias": "b"}}}


class PuzzlingOneWay(pydantic.BaseModel):
    metadata: int = pydantic.Field(default=1, serialization_alias="Metadata")


class Deferred(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(defer_build=True, extra="forbid")

    side: int = pydantic.Field(default=2, alias="Side")

    @pydantic.computed_field
    def area(self) -> int:
        return self.side**2


class Held(pydantic.BaseModel, Generic[T]):
    held: T


class Days(pydantic.RootModel[list[date]]):
    pass


class Web(pydantic.BaseModel):
    url: pydantic.AnyUrl
    pattern: re.Pattern[str]
    address: pydantic.IPvAnyAddress


class Revealed(pydantic.BaseModel):
    password: pydantic.SecretStr

    @pydantic.field_serializer("password")
    def reveal(self, password: pydantic.SecretStr) -> str:
        return password.get_secret_value()


@pydantic.dataclasses.dataclass
class Made:
    price: int = pydantic.Field(alias="Price")
    day: date = date(2026, 1, 2)


@dataclasses.dataclass
class MadeOn(Made):
    more: int = 3


DUMPED = [  # (a Pydantic model, how it is written)
    (
        Aliased(Price=1, Inner=[Aliased(Price=2)]),
        {"Price": 1, "Inner": [{"Price": 2, "Inner": []}]},
    ),
    (OneWay(Both=1, out=2), {"both": 1, "out": 2}),  # it would not read `Out`
    (Held[OneWay](held=OneWay(Both=1, out=2)), {"held": {"both": 1, "out": 2}}),
    (Chosen(a=1), {"a": 1}),
    (Pathed(b=[1]), {"first": 1}),
    (Computed(), {"side": "2", "area": 4}),
    (Careful(), {"side": "2"}),  # it would not read `area`
    (Held[Careful](held=Careful()), {"held": {"side": "2"}}),
    (Parsed(text="[1, 2]"), {"text": "[1,2]"}),
    (Deferred.model_construct(), {"Side": 2}),
    (Puzzling(fields=[]), {"Default": 1, "fields": []}),
    (PuzzlingOneWay(), {"metadata": 1}),
    (Held[set[date]](held={date(2026, 1, 2)}), {"held": ["2026-01-02"]}),
    (Days([date(2026, 1, 2)]), ["2026-01-02"]),
    (pydantic.RootModel[Colour](Colour.RED), "red"),
    (pydantic.RootModel[bytes](b"\xff"), b"\xff"),
    (
        Web(url="http://a.example/", pattern="a.*", address="::1"),
        {"url": "http://a.example/", "pattern": "a.*", "address": "::1"},
    ),
    (Revealed(password="hunter2"), {"password": "hunter2"}),  # not a secret
    (Made(Price=1), {"Price": 1, "day": "2026-01-02"}),
    (MadeOn(1), {"price": 1, "day": "2026-01-02", "more": 3}),
]


@pytest.mark.parametrize(("model", "written"), DUMPED, ids=shown)
def test_a_pydantic_model_is_dumped_as_it_is_read(model: Any, written: Any) -> None:
    assert wire.decode(wire.encode(model)) == written
    assert wire.decode(wire.encode([Box(model)])) == [{"content": written}]


def test_a_model_that_cannot_be_dumped_says_so() -> None:
    class Stubborn(pydantic.BaseModel):
        side: int = 1

        @pydantic.field_serializer("side")
        def refuse(self, side: int) -> str:
            raise ValueError("not today")

    with pytest.raises(EncodeError, match=r"data\[0\] is a .*Stubborn that .*not today"):
        wire.encode([Stubborn()])
