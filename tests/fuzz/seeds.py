"""What each target starts from: the recorded bytes of the reference, and a few odd ones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.fuzz.draw import put
from tests.fuzz.options import NAMES

CORPUS = Path(__file__).parent / "corpus"
HEX = re.compile(r"(?:[0-9a-f]{2})*")  # what is large is recorded in other ways
VECTORS = Path(__file__).parents[1] / "vectors" / "vectors.json"

REPLIES = (
    b"+OK\r\n$-1\r\n",
    b":1\r\n*-1\r\n*2\r\n$1\r\na\r\n*0\r\n",
    b"-ERR no\r\n_\r\n#t\r\n,1.5\r\n",
    b"%1\r\n+a\r\n:1\r\n~1\r\n:2\r\n>1\r\n:3\r\n",
    b"%1\r\n*0\r\n:1\r\n",
    b"=5\r\ntxt:a\r\n(12\r\n|1\r\n+a\r\n:1\r\n",
)
URLS = (
    ("redis://u", "h:1234/5"),
    ("rediss://", "[::1]?ssl_ca_certs=/a&insecure=1"),
    ("unix://u", "/tmp/a%20b.sock?db=3"),
    ("u", "h/x"),
    ("redis://", "h/" + "9" * 5000),
    ("redis://[", "h?db=3"),
    ("redis+sentinel://u", "a:26379,b/m/1?sentinel_password_env=W"),
    ("rediss+cluster://u", "a,[::1]:7000"),
)
OPTIONS: tuple[tuple[Any, ...], ...] = (
    (0, ("view", "dlq"), ("startingOffsets", '{"q": "1-0"}'), ("mode", "failfast")),
    (0, ("startingTimestamp", "2026-11-16T09:00Z"), ("endingTimestamp", "1794819600000")),
    (0, ("payloadSchema", "a BIGINT"), ("fetchSize", "9"), ("pushdown", "true")),
    (0, ("paths", '["a", "b"]'), ("endingOffsets", "earliest"), ("minPartitions", "3")),
    (1, ("commitMode", "staged"), ("runId", "r-1"), ("rowsPerSecond", "1e3")),
    (1, ("chunkRows", "0"), ("onFull", "fail"), ("maxDelayMs", "99999999999999999999")),
    (2, ("urlEnv", "NOTHING"), ("secretFile", "/nothing")),
)
KEYS = (
    b"\x82\xa1a\x01\x92\x01\x02\xc0",
    b"\x81\xc4\x01a\x81\x90\x01",
    b"\x82\x01\xc0\xcb" + bytes(9),
)
TIMES = ("1h30m", "2026-11-16 09:00 Europe/Berlin", "1794819600000", "9" * 400 + "w", "20261116")


def corpus(target: str) -> list[bytes]:
    """Seeds, and what fuzzing found worth keeping."""
    kept = sorted((CORPUS / target).glob("*.bin"))
    return [*seeds(target), *[path.read_bytes() for path in kept]]


def seeds(target: str) -> list[bytes]:
    recorded = json.loads(VECTORS.read_text())
    return [seed for seed in _SEEDS[target](recorded) if len(seed) < 8192]


def _entries(recorded: Any) -> list[list[bytes]]:
    found = [
        [part for pair in one["fields"] for part in (pair["f"].encode(), _hex(pair))]
        for one in recorded["vectors"]
        if one["type"] == "stream-entry"
    ]
    cases = recorded["decode_acceptance"]["cases"]
    found += [
        [part for name, value in case["fields"] for part in (name.encode(), bytes.fromhex(value))]
        for case in cases
        if all(isinstance(value, str) for _, value in case["fields"])
    ]
    return found


def _hex(pair: dict[str, str]) -> bytes:
    return bytes.fromhex(pair.get("v_hex", ""))


def _envelopes(recorded: Any) -> list[bytes]:
    return sorted({fields[at + 1] for fields in _entries(recorded) for at in _places(fields)})


def _places(fields: list[bytes]) -> list[int]:
    return [at for at in range(0, len(fields) - 1, 2) if fields[at] == b"d"]


def _payloads(recorded: Any) -> list[bytes]:
    decoded = [one.get("decoded", {}) for one in recorded["vectors"]]
    return sorted({bytes.fromhex(one["payload_bin_hex"]) for one in decoded if _has_data(one)})


def _has_data(decoded: Any) -> bool:
    data = decoded.get("payload_bin_hex") if isinstance(decoded, dict) else None
    return isinstance(data, str) and HEX.fullmatch(data) is not None


def _members(recorded: Any) -> list[bytes]:
    kinds = ("zset-member", "string")
    found = [one for one in recorded["vectors"] if one["type"] in kinds and "value_hex" in one]
    whole = [bytes.fromhex(one["value_hex"]) for one in found]
    short = [b"\x01n" + envelope for envelope in _envelopes(recorded)[:20]]
    return [flag + b"\0" + member for member in whole + short for flag in (b"\0", b"\1")]


def _specs(recorded: Any) -> list[bytes]:
    hashes = [one for one in recorded["vectors"] if one["type"] == "hash"]
    packed = [_hex(pair) for one in hashes for pair in one["fields"] if pair["f"] == "spec"]
    return [put(one) + extra for one in packed for extra in (b"", put(b"\x92\x03\xc0") + b"\1" * 5)]


def _crons(recorded: Any) -> list[bytes]:
    cases = recorded["cron_next_fire"]["cases"]
    texts = sorted({f"{case['expr']}|{case['tz'] or ''}" for case in cases})
    return [bytes([place % 256, 16]) + text.encode() for place, text in enumerate(texts)]


def _urls(recorded: Any) -> list[bytes]:
    return [put(front.encode()) + put(b"a") + put(b"b") + place.encode() for front, place in URLS]


def _options(reader: int, *given: tuple[str, str]) -> bytes:
    """As `tests/fuzz/options.py` draws them: names by their place in the order of all."""
    pairs = [bytes([NAMES.index(name)]) + put(value.encode()) for name, value in given]
    return bytes([reader]) + b"".join(pairs)


def _times() -> list[bytes]:
    return [b"\x06" + text.encode() for text in TIMES]


_SEEDS = {
    "envelope": _envelopes,
    "delayed": _members,
    "entry": lambda recorded: [
        b"\1" + put(b"1-0") + b"".join([b"\x80" + put(part) for part in fields])
        for fields in _entries(recorded)
    ],
    "spec": _specs,
    "cron": _crons,
    "resp": lambda recorded: [put(b) + bytes([cut]) + b"\3" * 9 for b in REPLIES for cut in (1, 9)],
    "address": _urls,
    "options": lambda recorded: [_options(*pairs) for pairs in OPTIONS] + _times(),
    "payload": lambda recorded: [*_payloads(recorded), *KEYS],
}
