"""Texts of strangers, fit to be shown: names, errors and keys hold whatever was sent to us."""

from __future__ import annotations


def shown(text: str, widest: int | None = None) -> str:
    """One line without control characters (they are escaped), not longer than `widest`."""
    if not text.isprintable():
        text = "".join(one if one.isprintable() else _escaped(one) for one in text)
    return text if widest is None or len(text) <= widest else text[: widest - 1] + "…"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
