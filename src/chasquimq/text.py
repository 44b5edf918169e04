"""Texts of strangers, fit to be shown: names, errors and keys hold whatever was sent to us."""

from __future__ import annotations

import re

# What stands between a colon and the last @ of a URL, and what a parameter calls a secret. It
# may take away too much; too little would be worse.
_IN_URL = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s:/@]*):[^ \t\n\v\f\r]*@", re.IGNORECASE)
_NAMED = re.compile(
    r"(\b(?:password|passwd|pwd|secret|api_?key|access_?token|auth_?token)\b"
    r"[\"']?\s*(?:=>|[=:])\s*)"
    r"(\"[^\"]*\"|'[^']*'|\{[^{}]*\}|\[[^\[\]]*\]|[^\s,;&\"')}\]]+)",
    re.IGNORECASE,
)
HIDDEN = "***"


def shown(text: str, widest: int | None = None) -> str:
    """One line without control characters (they are escaped), not longer than `widest`."""
    if not text.isprintable():
        text = "".join(one if one.isprintable() else _escaped(one) for one in text)
    return text if widest is None or len(text) <= widest else text[: widest - 1] + "…"


def shown_json(text: str) -> str:
    """The same JSON, in which all is escaped that is not printable and that JSON lets through: DEL
    and C1, line separators, marks that turn the direction of text, halves of characters. The ends
    of lines stay: inside of texts they are escaped already."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else _escaped16(one) for one in text)


def discreet(text: str) -> str:
    """The same text without the passwords in its URLs, and without what it calls a secret."""
    if "://" in text:
        text = _IN_URL.sub(rf"\1:{HIDDEN}@", text)
    return _NAMED.sub(rf"\1{HIDDEN}", text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def _escaped16(character: str) -> str:
    """As JSON has it: in UTF-16."""
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
