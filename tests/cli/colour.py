"""What a terminal shows, with its colours."""

from __future__ import annotations

import re


def cells(text: str) -> list[tuple[str, frozenset[str]]]:
    """Characters with their colours; that of a blank is not seen."""
    found, codes = [], frozenset({"0"})
    for part in re.split(r"(\x1b\[[0-9;]+m)", text):
        if part.startswith("\x1b"):
            codes = frozenset(part[2:-1].split(";"))
        else:
            found += [(one, codes if one.strip() else frozenset({"0"})) for one in part]
    return found
