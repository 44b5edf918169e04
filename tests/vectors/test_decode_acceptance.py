"""What the reference's consumer takes and refuses, case by case, decided by `wire` alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chasquimq import wire
from chasquimq.errors import WireError

RECORDED = json.loads((Path(__file__).parent / "vectors.json").read_text())
CASES: dict[str, dict[str, Any]] = {
    case["name"]: case for case in RECORDED["decode_acceptance"]["cases"]
}
MAX_PAYLOAD_BYTES = 200
MAX_ATTEMPTS = 25

# Ours keeps the name where the reference's dead entry loses it: product difference 6.
DEVIATIONS = {"reserved_byte": 6}


def test_every_case_is_there() -> None:
    assert len(CASES) == len(RECORDED["decode_acceptance"]["cases"]) >= 42
    assert set(DEVIATIONS) <= set(CASES)


def outcome(fields: list[bytes]) -> tuple[str, Any]:
    """The reader's first steps, as far as bytes decide them."""
    split = wire.split_entry(fields)
    if isinstance(split, str):
        return "dlq:malformed", split
    body, name = split
    if len(body) > MAX_PAYLOAD_BYTES:
        return "dlq:oversize_payload", name
    try:
        envelope = wire.unpack_envelope(body)
    except WireError:
        return "dlq:decode_failed", name
    budget = MAX_ATTEMPTS
    if envelope.retry is not None and envelope.retry.max_attempts is not None:
        budget = envelope.retry.max_attempts
    if envelope.attempt + 1 > budget:
        return "dlq:retries_exhausted", name
    return "dispatched", (envelope, wire.decode_name(name))


@pytest.mark.parametrize("name", CASES)
def test_an_entry_ends_where_the_reference_puts_it(name: str) -> None:
    case = CASES[name]
    fields = [
        part for field, value in case["fields"] for part in (field.encode(), bytes.fromhex(value))
    ]
    found, what = outcome(fields)
    assert found == case["outcome"]
    if found == "dispatched":
        envelope, job_name = what
        job = case["job"]
        assert envelope.id == job["id"]
        assert envelope.created_at_ms == job["created_at_ms"]
        assert envelope.attempt == job["attempt"]
        if job["payload_hex"] != "len":
            assert envelope.payload.hex() == job["payload_hex"]
        expected = job["name"]
        assert f"len={len(job_name)}" == expected or job_name == expected
    elif found == "dlq:malformed":
        assert what == case["detail"]
    elif name in DEVIATIONS:
        assert not case["dlq_has_n"]
        assert what == b"nm"
    else:
        assert bool(what) == case["dlq_has_n"]
