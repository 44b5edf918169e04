"""User data as bytes: the MessagePack document inside an envelope, and a stored result.

    None bool int float str bytes list tuple dict    written as msgpack-python's packb() does:
    c0   c2.. 00..cf d3 cb   a0.. c4..  90..  90..  80..     smallest form, bin for bytes

Types derived from these are written as what they derive from, and models as maps: `model`.
Everything else is refused: the encoder knows many more (datetime, set, UUID ...), but it writes
them as something else, and a worker would get a str or a list where a date went in.
Reading refuses extension types and whatever `scan` finds out of bounds. The keys of a dict must be
scalars, in both directions: tuples as keys can be made to collide. NaN and the infinities pass.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from chasquimq.errors import EncodeError, WireError
from chasquimq.wire.model import DUMP, FIELD, FIELDS, PLAIN, TEXTUAL, Unfit, a_kind, unwrap
from chasquimq.wire.scan import (
    LARGE_BYTES,
    LARGE_MAP,
    MAX_DEPTH,
    MAX_NODES,
    MAX_NUMBER_KEYS,
    UNREADABLE,
    scan,
    undisturbed,
)

_SCALARS = frozenset((str, int, float, bool, type(None), bytes, bytearray))
_CONTAINERS = frozenset((dict, list, tuple))
_PLAIN = _SCALARS | _CONTAINERS
_NEVER_WRONG = _SCALARS - {str, int}  # which may hold bad text, and more than 64 bits
_BELOW = MAX_DEPTH - 1
_TOO_DEEP = f"is nested deeper than {MAX_DEPTH}, or contains itself"
_SMALLER = "send less, or a reference to it; keys can be sent as str"
_SHOWN_STEPS = 6
_KEY = ""  # the step from a dict to one of its keys

_encode = msgspec.msgpack.Encoder().encode


def encode(data: Any) -> bytes:
    """`data` as bytes; EncodeError, naming the place, for what a worker could not read back."""
    try:
        # The walk comes first: data that contains itself must not reach the encoder, whose own
        # limit is as deep as the stack of a small thread is not.
        if type(data) in _SCALARS or (type(data) in _CONTAINERS and _is_plain(data)):
            encoded = _encode(data)
            return encoded if len(encoded) <= MAX_NODES else _counted(encoded)
    except (ValueError, OverflowError, RecursionError):
        pass  # rebuilding finds the place
    return _encode_rebuilt(data)


def encode_many(many: Sequence[Any]) -> list[bytes]:
    """`encode` for each. A bulk goes out when all of it was looked at: Redis waits for this."""
    encoded: list[bytes] = []
    try:
        for data in many:
            if type(data) is not dict:
                encoded.append(encode(data))
                continue
            for key, value in data.items():  # as `_is_plain` does, without a call for each
                kind = type(value)
                if type(key) is str and (kind is str or kind is int or kind in _SCALARS):
                    continue
                if type(key) is not str or kind not in _CONTAINERS or not _is_plain(value, _BELOW):
                    encoded.append(encode(data))
                    break
            else:
                document = _encode(data)
                encoded.append(document if len(document) <= MAX_NODES else _counted(document))
    except (ValueError, OverflowError, RecursionError):
        return [encode(data) for data in many]  # finds the one, and the place in it
    return encoded


def _encode_rebuilt(data: Any) -> bytes:
    """The long way: for models, for derived types, and for what is to be refused."""
    try:
        data, place = unwrap(data, PLAIN)
        try:
            plain = place != PLAIN and type(data) is dict and _is_plain(data)
            return _readable(_encode(data if plain else _rebuild(data, 1, place, _SCALARS)))
        except (ValueError, OverflowError):
            return _readable(_encode(_rebuild(data, 1, place, _NEVER_WRONG)))  # finds the place
    except Unfit as unfit:
        raise EncodeError(_sentence(unfit)) from unfit.__cause__
    except RecursionError:
        raise EncodeError(f"data {_TOO_DEEP}") from None


def _sentence(unfit: Unfit) -> str:
    path = "data"
    if unfit.what == _TOO_DEEP:
        way = "".join(reversed(unfit.path[-_SHOWN_STEPS:]))
        return f"data {_TOO_DEEP}: data{way}…"
    for step in reversed(unfit.path):
        path = f"a key of {path}" if step is _KEY else path + step
    return f"{path} {unfit.what}"


def _counted(encoded: bytes) -> bytes:
    """`encoded`, if a worker would not refuse it for the number of its values."""
    if len(encoded) > MAX_NODES:
        try:
            scan(encoded)
        except WireError as error:
            raise EncodeError(f"data {error.args[0]}; {_SMALLER}") from None
    return encoded


def _readable(encoded: bytes) -> bytes:
    """`encoded`, if a worker would not refuse it for its values, or for its keys that are numbers.
    `_is_plain` leaves large maps with such keys to this."""
    if len(encoded) > 2 * MAX_NUMBER_KEYS:  # a key and a value take a byte each at least
        try:
            decode(encoded)
        except WireError as error:
            what = error.args[0].removeprefix("not readable: ")
            raise EncodeError(f"data {what}; {_SMALLER}") from None
    return encoded


def _is_plain(node: Any, levels: int = MAX_DEPTH) -> bool:
    """Whether all in a container is exactly of a plain type, and not nested beyond `levels`, and
    large dicts have text keys only."""
    # Every add pays for this walk: it asks for types by identity, and calls nothing per value.
    if not levels:
        return False
    if type(node) is dict:
        for key, value in node.items():
            kind = type(value)
            if type(key) is not str and (type(key) not in _SCALARS or len(node) > LARGE_MAP):
                return False
            if (
                kind is not str
                and kind is not int
                and kind not in _SCALARS
                and (kind not in _CONTAINERS or not _is_plain(value, levels - 1))
            ):
                return False
        return True
    for value in node:
        kind = type(value)
        if kind not in _SCALARS and (kind not in _CONTAINERS or not _is_plain(value, levels - 1)):
            return False
    return True


def _rebuild(value: Any, depth: int, place: int, fine: frozenset[Any]) -> Any:
    """`value` made of exactly the plain types; Unfit where that is impossible.

    Values in it of a type that is `fine` are not looked at.
    """
    if type(value) not in _PLAIN:
        value, place = unwrap(value, place)
    if type(value) not in _CONTAINERS and (
        not isinstance(value, (dict, list, tuple)) or _is_msgpack_type(type(value))
    ):
        return _scalar(value)
    if depth > MAX_DEPTH:
        raise Unfit(_TOO_DEEP)
    # One frame per level of nesting, or the stack would end before our own limit: no function
    # for a container, no comprehension, and the path is put together when it is wanted.
    inner = FIELD if place == FIELDS else place
    at: Any = None
    plain: dict[Any, Any] = {}
    items: list[Any] = []
    try:
        if isinstance(value, dict):
            for at, item in value.items():
                key = at if type(at) in fine else _key(at, depth, inner, fine)
                if type(item) not in fine:
                    if item is UNSET and place == FIELDS:
                        continue
                    item = _rebuild(item, depth + 1, inner, fine)
                plain[key] = item
        else:
            for item in value:
                at = len(items)
                if type(item) not in fine:
                    item = _rebuild(item, depth + 1, inner, fine)
                items.append(item)
    except Unfit as unfit:
        unfit.path.append(_KEY if unfit.is_key else _step(at, place))
        unfit.is_key = False
        raise
    if isinstance(value, dict):
        if len(plain) < len(value) and place != FIELDS:
            raise Unfit("has two keys that would be written alike")
        return plain
    return tuple(items) if isinstance(value, tuple) else items


def _scalar(value: Any) -> Any:
    if value is None or value is True or value is False:
        return value
    # The types' own methods: a subclass may print itself differently (an Enum member does).
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise Unfit(f"is no valid text: {error.reason}") from error
        return str.__str__(value)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise Unfit("is an int beyond 64 bits; send it as a str")
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return memoryview(value).tobytes()
    raise Unfit(f"is {a_kind(value)}; {_advice(value)}")


def _key(key: Any, depth: int, place: int, fine: frozenset[Any]) -> Any:
    try:
        plain = _rebuild(key, depth + 1, place, fine)
        if type(plain) in _CONTAINERS:
            raise Unfit(
                f"is {a_kind(key)}, and a key cannot be an array or a map; send the key as a str, "
                "or a list of [key, value] pairs instead of the dict"
            )
    except Unfit as unfit:
        unfit.is_key = True
        raise
    return plain


def _step(at: Any, place: int) -> str:
    """One step of a path: `.name` of a field, `['key']` of a dict, `[3]` of a list."""
    is_field = place == FIELDS or (place == DUMP and isinstance(at, str) and at.isidentifier())
    return f".{at}" if is_field else f"[{at!r:.40}]"


def _is_msgpack_type(kind: type) -> bool:
    """msgpack's ExtType is a tuple by birth, but a tuple is not what it would be written as."""
    return kind.__module__.partition(".")[0] == "msgpack"


def _advice(value: Any) -> str:
    if hasattr(value, "isoformat"):
        return "send its isoformat() or a number, or a model that holds it"
    if isinstance(value, (set, frozenset)):
        return "send a list, or a model that holds it"
    if isinstance(value, enum.Enum):
        return "send its value, or a model that holds it"
    if isinstance(value, TEXTUAL):
        return "send it as a str, or a model that holds it"
    return "send None, bool, int, float, str, bytes, list, tuple, dict or a model of these"


_decode = msgspec.msgpack.Decoder().decode
_LEVELS = 6  # of containers inside each other; each more doubles the time that the import takes


def _common_decoder() -> Callable[[bytes], Any]:
    """Reads the data of most jobs as fast as `_decode` does, and refuses the rest: bytes, keys that
    are not text, extension types, and containers nested beyond `_LEVELS`."""
    kind: Any = None | bool | int | float | str
    for _ in range(_LEVELS):
        kind = None | bool | int | float | str | list[kind] | dict[str, kind]
    return msgspec.msgpack.Decoder(kind).decode


_decode_common = _common_decoder()


def decode(data: bytes) -> Any:
    """What `encode` was given; WireError for anything that is not exactly one harmless value."""
    try:
        if len(data) < LARGE_BYTES:  # nearly all of them, read without one more call
            try:
                return _decode_common(data)
            except msgspec.ValidationError:
                pass  # it may be fine all the same
        elif len(data) <= MAX_NODES:
            try:
                return undisturbed(_decode_common, data)
            except msgspec.ValidationError:
                pass  # it may be fine all the same
        scan(data)
        return undisturbed(_decode, data)
    except WireError as error:
        raise WireError(f"not readable: {error.args[0]}") from None
    except UNREADABLE as error:
        raise WireError(f"not readable: {error}") from error
