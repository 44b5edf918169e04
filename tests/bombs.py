"""Bytes made to hurt: few that claim to be many, deep ones, broken ones. By name."""

from __future__ import annotations

from chasquimq.wire.scan import MAX_DEPTH, MAX_NODES

KIB = 1024
MIB = 1024 * KIB

COUNTS = {2: (0xFFFF, 0x8000), 4: (0xFFFF_FFFF, 0x1000_0000, 0x0010_0000)}
HEADS = {"array": {2: 0xDC, 4: 0xDD}, "map": {2: 0xDE, 4: 0xDF}}
LENGTHS = {"str": {1: 0xD9, 2: 0xDA, 4: 0xDB}, "bin": {1: 0xC4, 2: 0xC5, 4: 0xC6}}
LENGTHS["ext"] = {1: 0xC7, 2: 0xC8, 4: 0xC9}


def declared(head: int, width: int, count: int) -> bytes:
    return bytes((head,)) + count.to_bytes(width, "big")


def colliding(count: int) -> bytes:
    """A map whose `count` keys are arrays of two numbers that Python gives the same hash: a dict of
    them compares each key with all before it."""
    p1, p2, p5, m = 11400714785074694791, 14029467366897019727, 2870177450012600261, 2**64
    inverse, found, a = pow(p2, -1, m), [], 0
    while len(found) < count:
        a += 1
        mixed = (p5 + a * p2) % m
        b = (12345 - (mixed << 31 | mixed >> 33) % m * p1) * inverse % m
        if b < 2**61 - 1:  # the hash of a larger number is another number
            found.append(b"\x92\xce%b\xcf%b\xc0" % (a.to_bytes(4, "big"), b.to_bytes(8, "big")))
    return declared(0xDF, 4, count) + b"".join(found)


def corpus() -> dict[str, bytes]:
    bombs: dict[str, bytes] = {}
    for kind, heads in HEADS.items():
        for width, head in heads.items():
            for count in COUNTS[width]:
                opening = declared(head, width, count)
                bombs[f"{kind} of {count}"] = opening
                bombs[f"{kind} of {count}, some there"] = opening + b"\xc0" * 100
                bombs[f"{kind} of {count} as a key"] = b"\x81" + opening
                bombs[f"{kind} of {count} in itself"] = opening * (64 * KIB // len(opening))
    for kind, heads in LENGTHS.items():
        for width, head in heads.items():
            longest = 256**width - 1
            bombs[f"{kind} of {longest}"] = declared(head, width, longest) + b"x"
            bombs[f"{kind} of {longest} in a map"] = b"\x81\xa1a" + declared(head, width, longest)
    for head in range(0xD4, 0xD9):
        bombs[f"fixext {head:x}"] = bytes((head, 5)) + bytes(16)
        bombs[f"fixext {head:x} of -1"] = bytes((head, 0xFF)) + b"\xff" * 16
    for length in (MAX_DEPTH + 1, 5_000, 300 * KIB):
        for name, opening in (
            ("arrays", b"\x91"),
            ("maps", b"\x81\xa1a"),
            ("keys", b"\x81"),
            ("pairs", b"\x92\x01"),
            ("wide arrays", b"\xdc\x00\x01"),
        ):
            # `keys` ends in the middle, but it is refused for its depth before that.
            bombs[f"{length} {name} deep"] = opening * length + b"\xc0"
    bombs["more values than allowed"] = declared(0xDD, 4, MAX_NODES) + b"\xc0" * MAX_NODES
    bombs["a mebibyte of empty maps"] = declared(0xDD, 4, MIB) + b"\x80" * MIB
    bombs["ten mebibytes of empty arrays"] = declared(0xDD, 4, 10 * MIB) + b"\x90" * 10 * MIB
    bombs["timestamp 96 out of range"] = b"\xc7\x0c\xff" + b"\xff" * 12
    bombs["timestamp 96"] = b"\xc7\x0c\xff" + bytes(12)
    bombs["timestamp in a map"] = b"\x81\xa1a\xd6\xff" + bytes(4)
    bombs["bad text"] = b"\xa4\xff\xfe\xfd\xfc"
    bombs["bad text as a key"] = b"\x81\xa1\xff\xc0"
    bombs["overlong text"] = b"\xa2\xc0\x80"
    bombs["a surrogate as text"] = b"\xa3\xed\xa0\x80"
    bombs["a map as a key"] = b"\x81\x80\xc0"
    bombs["an array as a key"] = b"\x81\x91\x01\xc0"
    bombs["an empty array as a key"] = b"\x81\x90\xc0"
    bombs["an array as a second key"] = b"\x82\xa1a\x90\x92\x01\x02\xc0"
    bombs["an array as a key, inside"] = b"\x91\x82\xa1a\xc4\x01b\xdc\x00\x01\x01\xc0"
    bombs["keys that share one hash"] = colliding(10_000)
    bombs["keys that share one hash, inside"] = b"\x82\x01\xc4\x01a\xa1a" + colliding(4_000)
    bombs["never used"] = b"\xc1" * 100
    bombs["never used, inside"] = b"\x93\x01\xc1\x01"
    bombs["nothing"] = b""
    bombs["half a float"] = b"\xcb\x00"
    bombs["half a number"] = b"\xcf\x00\x00"
    return bombs


BOMBS = corpus()

# Odd, and harmless: a handler gets them.
ODD = {
    "NaN": b"\xcb\x7f\xf8" + bytes(6),
    "infinity": b"\xca\x7f\x80\x00\x00",
    "one key twice": b"\x82\xa1a\x01\xa1a\x02",
    "a number as a key": b"\x81\x01\xc0",
    "keys of each kind": b"\x86\x01\xc0" + b"\xc0\xc0" + b"\xc3\xc0" + b"\xc4\x01a\xc0"
    b"\xca\x3f\xc0\x00\x00\xc0" + b"\xa1a\x91\x90",
    "a wide head for little": b"\xdd\x00\x00\x00\x01\xc0",
    "as deep as may be": b"\x91" * (MAX_DEPTH - 1) + b"\x90",
}


def inside(payload: bytes, job_id: bytes = b"i") -> bytes:
    """An envelope around it, as any program may write one."""
    return (
        b"\x94"
        + bytes((0xA0 + len(job_id),))
        + job_id
        + (declared(0xC6, 4, len(payload)) + payload + b"\x02\x00")
    )
