"""What becomes of a payload, by the type of its column.

    STRING       JSON: see `text.py`. A payload of nil is the text `null`
    BINARY       the MessagePack bytes as they were sent; not looked into
    VARIANT      the value itself: see `variant.py`. nil is the null of variants
    STRUCT<..>   its fields, by name: see `typed.py`. nil is null

JSON and variants are of what a worker could read, `wire.decode`: no extension types, and not nested
without end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql.types import BinaryType, DataType, StringType, StructType, VariantType

from chasquimq import wire
from chasquimq.errors import ConfigError
from chasquimq.spark.decode.column import own_texts
from chasquimq.spark.decode.page import Build, Page, array
from chasquimq.spark.decode.text import to_json
from chasquimq.spark.decode.typed import fit
from chasquimq.spark.decode.variant import Variant, pack_variant, variants


class Form(NamedTuple):
    """`read` makes of bytes what `build` takes; None: it takes the bytes."""

    read: Callable[[bytes], Any] | None
    build: Build

    def values(self, page: Page, name: str, payloads: Sequence[bytes | None]) -> Sequence[Any]:
        return payloads if self.read is None else page.each(name, self.read, payloads)


def form_of(kind: DataType, name: str) -> Form | None:
    """How a column of this type is read. None: payloads have no such form; ConfigError: a struct
    has a field that they cannot have."""
    if isinstance(kind, StructType):
        try:
            fitted = fit(kind)
        except ConfigError as error:
            raise ConfigError(f"column {name}: {error.args[0]}") from None
        return Form(msgspec.msgpack.Decoder(fitted.python | None).decode, fitted.build)
    return _FORMS.get(type(kind))


def _to_variant(payload: bytes) -> Variant:
    return pack_variant(wire.decode(payload))


def _binary(values: Sequence[bytes | None]) -> pa.Array:
    return array(values, pa.binary())


BINARY = Form(None, _binary)
_FORMS: dict[type[DataType], Form] = {
    StringType: Form(to_json, own_texts),
    BinaryType: BINARY,
    VariantType: Form(_to_variant, variants),
}
