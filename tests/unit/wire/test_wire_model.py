"""Models are written as maps of their fields, with plain values only."""

from __future__ import annotations

import dataclasses
import enum
import ipaddress
import math
import re
import threading
from collections import deque
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from uuid import UUID

import msgspec
import pydantic
import pydantic.dataclasses
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq import wire
from chasquimq.errors import EncodeError
from tests.shown import shown

T = TypeVar("T")
ODD = timezone(timedelta(hours=1, minutes=23, seconds=45))


class Colour(enum.Enum):
    RED = "red"


class Odd(bytes, enum.Enum):  # whose value is not what it derives from
    def __new__(cls, value: int) -> Odd:
        made = bytes.__new__(cls, [value])
        made._value_ = value
        return made

    ONE = 1
    __repr__ = object.__repr__


class Moment(datetime):
    pass


@dataclasses.dataclass
class Box:
    content: Any


class Row(msgspec.Struct):
    content: Any


class Page(pydantic.BaseModel):
    content: Any


class Chain(pydantic.BaseModel):
    next: Chain | None = None


KINDS = [Box, Row, Page]
each_kind = pytest.mark.parametrize("kind", KINDS)

WRITTEN = [  # (a value inside of a model, how it is written)
    (None, None),
    (2**64 - 1, 2**64 - 1),
    ("ñ", "ñ"),
    (b"\xff", b"\xff"),
    (bytearray(b"\xff"), b"\xff"),
    (math.inf, math.inf),
    ([1, (2, {"a": b"b"})], [1, [2, {"a": b"b"}]]),
    ({1: "a", None: 2, b"k": 3}, {1: "a", None: 2, b"k": 3}),
    (datetime(2026, 1, 2, 3, 4, 5), "2026-01-02T03:04:05"),  # noqa: DTZ001
    (datetime(2026, 1, 2, 3, 4, 5, 6, UTC), "2026-01-02T03:04:05.000006Z"),
    (
        datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=-3))),
        "2026-01-02T00:00:00-03:00",
    ),
    (datetime(2026, 1, 2, tzinfo=ODD), "2026-01-01T22:36:15Z"),  # the same moment
    (Moment(2026, 1, 2), "2026-01-02T00:00:00"),
    (date(1, 2, 3), "0001-02-03"),
    (time(1, 2, 3), "01:02:03"),
    (time(1, 2, 3, tzinfo=UTC), "01:02:03+00:00"),
    (timedelta(days=1, seconds=2, microseconds=3), "P1DT2.000003S"),
    (-timedelta(days=1), "-P1D"),
    (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (Decimal("1.50"), "1.50"),
    (Path("a/b"), "a/b"),
    (ipaddress.ip_network("10.0.0.0/8"), "10.0.0.0/8"),
    (Colour.RED, "red"),
    (Odd.ONE, 1),
    ({1}, [1]),
    (frozenset("a"), ["a"]),
    (deque([1, Colour.RED]), [1, "red"]),
    ({date(2026, 1, 2): {Colour.RED}}, {"2026-01-02": ["red"]}),
    ({Colour.RED: 1, 1: 2}, {"red": 1, 1: 2}),
    (
        [Box(Row(Page(content={Box.__name__}))), 1],
        [{"content": {"content": {"content": ["Box"]}}}, 1],
    ),
]


@each_kind
@pytest.mark.parametrize(("content", "written"), WRITTEN, ids=shown)
def test_a_model_is_a_map_of_plain_values(kind: Any, content: Any, written: Any) -> None:
    expected = wire.encode({"content": written})
    assert wire.encode(kind(content=content)) == expected
    # ... wherever it is found.
    assert wire.decode(wire.encode([{"a": (kind(content=content),)}])) == [
        {"a": [wire.decode(expected)]}
    ]


@each_kind
def test_nan_is_no_null(kind: Any) -> None:
    assert math.isnan(wire.decode(wire.encode(kind(content=[math.nan])))["content"][0])


def itself(kind: Any) -> Any:
    model = kind(content=None)
    model.content = [model]
    return model


REFUSED = [  # (a value inside of a model, the place, what is said)
    (2**64, "data.content", "an int beyond 64 bits"),
    ([0, {"a b": -(2**63) - 1}], "data.content[1]['a b']", "an int beyond 64 bits"),
    ("\ud800", "data.content", "no valid text"),
    ([{"\ud800": 1}], "a key of data.content[0]", "no valid text"),
    ([object()], "data.content[0]", "is an object; send"),
    ([Box([Row({0: 2**64})])], "data.content[0].content[0].content[0]", "beyond 64 bits"),
    ([msgspec.Raw(b"\x01")], "data.content[0]", "msgspec.Raw"),
    ([msgspec.msgpack.Ext(1, b"")], "data.content[0]", "Ext"),
    (time(1, tzinfo=ODD), "data.content", "offset from UTC has seconds"),
    (datetime(1, 1, 1, tzinfo=ODD), "data.content", "no equal in UTC"),
    ({frozenset("a"): 1}, "a key of data.content", "frozenset"),
    ({"red": 1, Colour.RED: 2}, "data.content", "two keys"),
    (pydantic.SecretStr("s3cret"), "data.content", "asterisks"),
    ([pydantic.SecretBytes(b"s3cret")], "data.content[0]", "asterisks"),
]


@each_kind
@pytest.mark.parametrize(("content", "place", "said"), REFUSED, ids=shown)
def test_what_a_model_cannot_hold_is_refused_with_its_place(
    kind: Any, content: Any, place: str, said: str
) -> None:
    with pytest.raises(EncodeError) as refused:
        wire.encode(kind(content=content))
    assert str(refused.value).startswith(f"CMQ-002: {place} ") and said in str(refused.value)
    assert "s3cret" not in str(refused.value)
    inside = place.replace("data", "data['a'][0]", 1)
    with pytest.raises(EncodeError, match=re.escape(f"CMQ-002: {inside} ")):
        wire.encode({"a": [kind(content=content)]})


@pytest.mark.parametrize("kind", [Box, Row])
def test_a_model_that_contains_itself_is_refused(kind: Any) -> None:
    with pytest.raises(EncodeError, match=r"contains itself: data\.content\[0\]\.content\[0\]"):
        wire.encode(itself(kind))
    with pytest.raises(EncodeError, match=r"contains itself: data\['a'\]\.content\[0\]\.content"):
        wire.encode({"a": itself(kind)})


def test_a_pydantic_model_that_contains_itself_is_refused() -> None:
    for data in (itself(Page), {"a": itself(Page)}):
        with pytest.raises(EncodeError, match=r"contains itself: data|Circular reference"):
            wire.encode(data)
    alone = Page(content=None)
    alone.content = alone
    with pytest.raises(EncodeError, match=r"contains itself: data|Circular reference"):
        wire.encode([alone])


def test_a_pydantic_model_deeper_than_it_dumps_is_refused() -> None:
    chain = Chain()
    for _ in range(300):
        chain = Chain.model_construct(next=chain)
    with pytest.raises(EncodeError, match=r"data\[0\] is a .*Chain that .*depth exceeded"):
        wire.encode([chain])


def test_a_small_thread_is_enough_to_refuse_it() -> None:
    refused: list[EncodeError] = []

    def write() -> None:
        for kind in (Box, Row):
            try:
                wire.encode(itself(kind))
            except EncodeError as error:
                refused.append(error)

    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert len(refused) == 2


@each_kind
def test_models_nest_as_deep_as_dicts_do(kind: Any) -> None:
    deepest: Any = None
    same: Any = None
    for _ in range(512):
        deepest = kind(content=deepest)
        same = {"content": same}
    assert wire.encode(deepest) == wire.encode(same)
    with pytest.raises(EncodeError, match="nested deeper than 512"):
        wire.encode(kind(content=deepest))


# -- dataclasses -----------------------------------------------------------------------------------


@dataclasses.dataclass(slots=True, frozen=True)
class Base:
    first: int
    _hidden: int = 2


@dataclasses.dataclass(slots=True, frozen=True)
class Derived(Base):
    made: int = dataclasses.field(default=3, init=False)
    unset: Any = msgspec.UNSET


def test_all_fields_of_a_dataclass_are_written() -> None:
    assert wire.decode(wire.encode(Derived(1))) == {"first": 1, "_hidden": 2, "made": 3}


@dataclasses.dataclass
class Late:
    first: int
    second: int = dataclasses.field(init=False)


def test_a_field_that_was_never_set_is_not_written() -> None:
    assert wire.decode(wire.encode(Late(1))) == {"first": 1}


def test_a_class_is_no_model() -> None:
    for kind in KINDS:
        with pytest.raises(EncodeError):
            wire.encode(kind)


# -- structs ---------------------------------------------------------------------------------------


class Tagged(msgspec.Struct, tag="t", tag_field="kind", rename="camel", kw_only=True):
    some_name: int
    other_name: int | msgspec.UnsetType = msgspec.UNSET


class Sparse(msgspec.Struct, omit_defaults=True, tag=7, kw_only=True):
    a: int = 1
    b: list[int] = []
    c: dict[str, int] = {}
    d: set[int] = msgspec.field(default_factory=set)
    e: Any = None
    f: tuple[int, ...] = msgspec.field(default_factory=tuple)
    g: int
    h: str = msgspec.field(default="", name="H")


class Flat(msgspec.Struct, array_like=True):
    a: int = 1


def test_a_struct_is_written_as_msgspec_would() -> None:
    for model in (
        Tagged(some_name=1),
        Tagged(some_name=1, other_name=2),
        Sparse(g=1),
        Sparse(g=1, a=True, f=[]),  # equal to the default, or as empty, but something else
        Sparse(a=2, b=[1], c={"a": 1}, d={1}, e=0, f=(1,), g=1, h="h"),
    ):
        assert wire.encode(model) == wire.encode(msgspec.to_builtins(model))


@given(
    values=st.fixed_dictionaries(
        {"g": st.integers(0, 1)},
        optional={
            "a": st.integers(0, 2),
            "b": st.lists(st.integers(0, 1), max_size=2),
            "c": st.dictionaries(st.text(max_size=2), st.integers(0, 9), max_size=2),
            "d": st.sets(st.integers(0, 9), max_size=2),
            "e": st.none() | st.integers(0, 1) | st.just([]) | st.just({}),
            "f": st.tuples() | st.tuples(st.integers(0, 1)),
            "h": st.text(max_size=2),
        },
    )
)
def test_omitted_defaults_are_those_that_msgspec_omits(values: dict[str, Any]) -> None:
    model = Sparse(**values)
    assert wire.encode(model) == wire.encode(msgspec.to_builtins(model))


@pytest.mark.parametrize("data", [Flat(), [Flat()], Box(Flat()), Page(content={"a": Flat()})])
def test_a_struct_that_is_a_list_is_refused(data: Any) -> None:
    with pytest.raises(EncodeError, match="array_like"):
        wire.encode(data)


def test_paths_have_no_machine_in_them() -> None:
    assert wire.encode(Box(PurePosixPath("/a"))) == wire.encode({"content": "/a"})
