"""The scripts, by file name: `retry.lua` runs as `lua.call("retry", keys, args)`."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1
from importlib.resources import files

Arg = bytes | str | int

SOURCES = {
    path.name.removesuffix(".lua"): path.read_text()
    for path in files(__name__).iterdir()
    if path.name.endswith(".lua")
}
SHA = {name: sha1(source.encode()).hexdigest() for name, source in SOURCES.items()}

BY_SHA = {SHA[name]: source for name, source in SOURCES.items()}


def call(name: str, keys: Sequence[Arg], args: Sequence[Arg] = ()) -> tuple[Arg, ...]:
    """The command that runs a script; whoever sends it answers NOSCRIPT by loading it."""
    return ("EVALSHA", SHA[name], len(keys), *keys, *args)
