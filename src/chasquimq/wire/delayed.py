"""A member of the delayed set: the name in front of the envelope, in one string.

    04 00 00 00 | s e n d | 94 ba ...      length of the name, u32 little-endian: what is written
    04          | s e n d | 94 ba ...      length in one byte: documented by the reference, read too

Third and fourth byte both zero means four-byte length, else one byte. That is safe: a length
below 65536 always has those zeros, while in the short form these places hold the name (no
control characters in names) or the head of the envelope, never two zeros. `lua/promote.lua`
reads members by the same rule.
"""

from __future__ import annotations

from chasquimq.errors import EncodeError, WireError
from chasquimq.wire.envelope import str_header


def join_member(name: bytes, envelope: bytes) -> bytes:
    try:
        return len(name).to_bytes(2, "little") + b"\0\0" + name + envelope
    except OverflowError:
        raise EncodeError(f"a delayed job's name of {len(name)} bytes is too long") from None


def before_id(member: bytes, job_id: bytes) -> int:
    """How many bytes stand in front of the id, in a member that `join_member` made."""
    return 4 + (member[0] | member[1] << 8) + 1 + len(str_header(len(job_id)))


def split_member(member: bytes) -> tuple[bytes, bytes]:
    """(name, envelope); WireError when the member is too short for what it declares."""
    if member[2:4] == b"\0\0":
        start, end = 4, 4 + (member[0] | member[1] << 8)
    elif member:
        start, end = 1, 1 + member[0]
    else:
        raise WireError("not a delayed member: it is empty")
    if end >= len(member):
        raise WireError(
            f"not a delayed member: {len(member)} bytes, its name alone would end at {end}"
        )
    return member[start:end], member[end:]
