"""The same invoice as a dataclass, a Struct and a Pydantic model, and how it looks on the wire."""

from __future__ import annotations

import dataclasses
import enum
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pydantic


class State(enum.Enum):
    OPEN = "open"


@dataclasses.dataclass
class DataclassLine:
    text: str
    price: Decimal


@dataclasses.dataclass
class DataclassInvoice:
    id: UUID
    at: datetime
    lines: list[DataclassLine]
    state: State = State.OPEN
    seal: bytes = b"\xff\x00"
    ratio: float = float("inf")


class StructLine(msgspec.Struct):
    text: str
    price: Decimal


class StructInvoice(msgspec.Struct):
    id: UUID
    at: datetime
    lines: list[StructLine]
    state: State = State.OPEN
    seal: bytes = b"\xff\x00"
    ratio: float = float("inf")


class PydanticLine(pydantic.BaseModel):
    text: str
    price: Decimal


class PydanticInvoice(pydantic.BaseModel):
    id: UUID
    at: datetime
    lines: list[PydanticLine]
    state: State = State.OPEN
    seal: bytes = b"\xff\x00"
    ratio: float = float("inf")


WRITTEN = {
    "id": "00000000-0000-0000-0000-000000000007",
    "at": "2026-01-02T03:04:05Z",
    "lines": [{"text": "ñandú", "price": "1.50"}],
    "state": "open",
    "seal": b"\xff\x00",
    "ratio": float("inf"),
}
KINDS: list[tuple[Any, Any]] = [
    (DataclassInvoice, DataclassLine),
    (StructInvoice, StructLine),
    (PydanticInvoice, PydanticLine),
]


def invoice(kind: Any, line: Any) -> Any:
    return kind(
        id=UUID(int=7),
        at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        lines=[line(text="ñandú", price=Decimal("1.50"))],
    )


INVOICES = [invoice(kind, line) for kind, line in KINDS]
