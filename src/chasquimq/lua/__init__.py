"""The scripts, by file name: `retry.lua` runs as `lua.call("retry", keys, args)`.

A script whose header says `-- With     part_x` is sent with `part_x.lua` in front of it: functions
that several scripts share.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha1
from importlib.resources import files

Arg = bytes | str | int

_FILES = {
    path.name.removesuffix(".lua"): path.read_text()
    for path in files(__name__).iterdir()
    if path.name.endswith(".lua")
}
_WITH = re.compile(r"^-- With +(part_\w+)$", re.MULTILINE)


def _whole(script: str) -> str:
    return "".join([_FILES[part] for part in _WITH.findall(script)]) + script


SOURCES = {name: _whole(text) for name, text in _FILES.items() if not name.startswith("part_")}
SHA = {name: sha1(source.encode()).hexdigest() for name, source in SOURCES.items()}

BY_SHA = {SHA[name]: source for name, source in SOURCES.items()}


def call(name: str, keys: Sequence[Arg], args: Sequence[Arg] = ()) -> tuple[Arg, ...]:
    """The command that runs a script; whoever sends it answers NOSCRIPT by loading it."""
    return ("EVALSHA", SHA[name], len(keys), *keys, *args)
