"""Texts of strangers, fit to be shown: names, errors and keys hold whatever was sent to us."""

from __future__ import annotations

import re

# What stands between a colon and the last @ of a URL, and what a parameter calls a secret. It
# may take away too much; too little would be worse. Strangers choose the text, so nothing here
# may look at a part of it more than a few times: hence word by word, and no `.*` behind `.*`.
_WORD = re.compile(r"[^ \t\n\v\f\r]+")
_LOGIN = re.compile(r"(?<=[a-z0-9+.-])://[^\s:/@]*:", re.IGNORECASE)
_NAMED = re.compile(
    r"(\b(?:\w*_)?(?:password|passwd|pwd|secret|api_?key|access_?token|auth_?token)\b"
    r"[\"']?\s*(?:=>|[=:])\s*)"
    r"([bru]{0,2}\"[^\"\\]*(?:\\.[^\"\\]*)*\"|[bru]{0,2}'[^'\\]*(?:\\.[^'\\]*)*'"  # as repr has it
    r"|\{[^{}]*\}|\[[^\[\]]*\]|[\"']?[^\s,;&\"')}\]]+)",  # the last: also a text without an end
    re.IGNORECASE | re.DOTALL,
)
HIDDEN = "***"


def shown(text: str, widest: int | None = None) -> str:
    """One line without control characters (they are escaped), not longer than `widest`."""
    if not text.isprintable():
        text = text.translate(_SHOWN)
    return text if widest is None or len(text) <= widest else text[: widest - 1] + "…"


def shown_json(text: str) -> str:
    """The same JSON, in which all is escaped that is not printable and that JSON lets through: DEL
    and C1, line separators, marks that turn the direction of text, halves of characters. The ends
    of lines stay: inside of texts they are escaped already."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else _escaped16(one) for one in text)


def said(error: BaseException) -> str:
    """What an exception says of itself; nothing, where asking it only raises another one."""
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # no word of an error ends who asks for it
        return ""


def discreet(text: str) -> str:
    """The same text without the passwords in its URLs, and without what it calls a secret."""
    if "://" in text and "@" in text:
        text = _WORD.sub(_without_login, text)
    return _NAMED.sub(rf"\1{HIDDEN}", text)


def told(text: str, most: int) -> str:
    """The same, not longer than `most`. Cut last: half of a URL does not look like one, and would
    show half of its password."""
    text = discreet(text[: 4 * most])
    return text if len(text) <= most else f"{text[:most]}…"


def _without_login(word: re.Match[str]) -> str:
    text = word[0]
    last = text.rfind("@")
    login = _LOGIN.search(text, 0, last) if last > 0 else None
    return text if login is None else f"{text[: login.end()]}{HIDDEN}{text[last:]}"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


class _Shown(dict[int, str]):
    """Each character as it is shown; of those that were seen first, so that it stays small."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        text = character if character.isprintable() else _escaped(character)
        if len(self) < 4_096:
            self[code] = text
        return text


_SHOWN = _Shown()


def _escaped16(character: str) -> str:
    """As JSON has it: in UTF-16."""
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
