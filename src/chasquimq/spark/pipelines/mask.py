"""Texts of dead jobs with what differs from job to job taken out, and what nobody should see.

    masked(column)        an error's words as all of its kind have them: `no user <n> in <path>`
    Redaction(pattern)    a payload or an error in which what the pattern calls a secret is `***`

Masks are expressions of Spark: they see every row. Redaction is Python, and sees one example for
each cluster: which value belongs to which key is told by a parser, not by an expression.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from chasquimq.errors import ConfigError
from chasquimq.text import HIDDEN, discreet

LONGEST = 1_000  # characters of an error that are looked at: the rest tells nobody its kind
SHOWN = 200  # ... of a masked one that are kept

DEFAULT_PATTERN = (
    r"(?i)passw|passphrase|passcode|pass\b|pwd|secret|token|credential|cookie|session|signature|jwt|"
    r"auth(?!or(?!iz))|(api|private|access|signing|encryption|client|ssh)[-_ ]?key|"
    r"card|cvv|cvc|iban|account[-_ ]?(no|num)|ssn|social[-_ ]?sec|(?<![a-z])(pin|otp)(?![a-z])"
)

# Each is tried on what the ones before it have left. Spark has Java's expressions.
_NAMED = r"(?i)(passw[a-z]*|pwd|secret|token|api_?key|authorization|credentials?)"
_START, _END = r"(?<![A-Za-z0-9_])", r"(?![A-Za-z0-9_])"
MASKS: tuple[tuple[str, str], ...] = (
    (r"\s+", " "),
    (r"(?i)(bearer|basic) [A-Za-z0-9+/=._~-]{6,}", "$1 <text>"),
    (_NAMED + r"([\"']? ?[:=] ?)(\"[^\"]*\"?|'[^']*'?|[^,;]+)", "$1$2<text>"),
    (r"[A-Za-z][A-Za-z0-9+.-]*://[^ \"'<>]*[^ \"'<>.,;:!?)\]}]", "<url>"),
    (r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+", "<email>"),
    # A text in quotes; one that nobody closed goes on to the end. An apostrophe opens none.
    (r"\"[^\"\\]*(\\.[^\"\\]*)*(\"|$)", "<text>"),
    (_START + r"'[^'\\]*((\\.|'(?=[A-Za-z0-9_]))[^'\\]*)*('|$)", "<text>"),
    (r"`[^`]*`|“[^”]*”|«[^»]*»|„[^“”]*[“”]", "<text>"),
    (_START + r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}" + _END, "<id>"),
    (
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)?"
        r" ?(Z|UTC|GMT|[+-][0-9]{2}:?[0-9]{2})?)?",
        "<time>",
    ),
    (_START + r"[0-9]{1,2}:[0-9]{2}:[0-9]{2}([.,][0-9]+)?", "<time>"),
    (_START + r"[0-9]{1,3}(\.[0-9]{1,3}){3}(:[0-9]{1,5})?" + _END, "<ip>"),
    (
        r"\[?" + _START + r"([0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{1,4}" + _END + r"(\]:[0-9]+)?",
        "<ip>",
    ),
    (_START + r"[A-Za-z]:\\[^ \"'<>|]+", "<path>"),
    # One slash alone is no path: and/or, text/html.
    (r"(?<![A-Za-z0-9_.<>/-])(~|\.{1,2})?(/[A-Za-z0-9_.@%+~=-]*[A-Za-z0-9_@%+~=-])+/?", "<path>"),
    (_START + r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.@%+~=-]*[A-Za-z0-9_@%+~=-]){2,}/?", "<path>"),
    # A word of many letters and digits is somebody's name for something.
    (_START + r"[0-7][0-9A-HJKMNP-TV-Z]{25}" + _END, "<id>"),
    (_START + r"0[xX][0-9a-fA-F]+" + _END, "<hex>"),
    (_START + r"(?=[a-fA-F]*[0-9])(?=[0-9]*[a-fA-F])[0-9a-fA-F]{8,}" + _END, "<hex>"),
    (_START + r"(?=[A-Za-z_-]*[0-9])(?=[0-9_-]*[A-Za-z])[A-Za-z0-9_-]{20,}" + _END, "<id>"),
    (r"([A-Za-z_]=)[^ ,;&)\]}<]+", "$1<text>"),
    (r"(" + _START + r"[-+])?[0-9]+([.,:][0-9]+)*([eE][-+]?[0-9]+)?", "<n>"),
    (r"(<[a-z]+>)(, ?\1)+", "$1, ..."),  # how many there were is of one job
)


def masked(text: Column) -> Column:
    """What all errors of this kind say; an empty text for none."""
    column = F.substring(F.coalesce(text, F.lit("")), 1, LONGEST)
    for pattern, instead in MASKS:
        column = F.regexp_replace(column, pattern, instead)
    return F.substring(F.trim(column), 1, SHOWN)


class Redaction:
    """Hides what stands under keys that a pattern finds, at any depth and in texts, too.

    `widest`: a payload has no more characters than this.
    """

    def __init__(self, pattern: str = DEFAULT_PATTERN, widest: int = 2_000) -> None:
        self._widest = widest
        try:
            self._names = re.compile(pattern)
            inner = re.sub(r"^\(\?[a-zA-Z]+\)", "", pattern)  # flags stand in front of all, or not
            self._pairs = re.compile(rf"((?:{inner}){_TO_VALUE}){_VALUE}", self._names.flags | re.S)
        except (re.error, TypeError, OverflowError) as error:
            raise ConfigError(f"the pattern of what to redact makes no sense: {error}") from None

    def payload(self, value: str | None) -> str | None:
        """JSON, cut to size. What is no JSON is not shown: nobody knows which keys it has."""
        if value is None:
            return None
        try:
            shown = _dump(self._of(json.loads(value)))
        except (ValueError, RecursionError):
            return HIDDEN
        # Half a character can stand in JSON, and nowhere else.
        shown = shown.encode(errors="backslashreplace").decode()
        return shown if len(shown) <= self._widest else shown[: self._widest - 1] + "…"

    def text(self, value: str | None) -> str | None:
        """An error's words: `password=x`, `"token": "x"`, `Bearer x`, `//user:x@host`."""
        if value is None:
            return None
        value = self._pairs.sub(rf"\1{HIDDEN}", value)
        return discreet(_BEARER.sub(rf"\1 {HIDDEN}", value))

    def _of(self, value: Any) -> Any:
        if isinstance(value, dict):
            return self._of_object(value)
        if isinstance(value, list):
            # ["authorization", "Bearer ..."] is how headers come, and rows of a map.
            if len(value) == 2 and self._is_secret(value[0]):
                return [value[0], HIDDEN]
            return [self._of(one) for one in value]
        return self._of_text(value) if isinstance(value, str) else value

    def _of_object(self, value: dict[str, Any]) -> dict[str, Any]:
        """{"name": "password", "value": "..."} tells the key by a value."""
        told = [key for key in value if key.lower() in _NAMING and self._is_secret(value[key])]
        if told:
            return {key: value[key] if key in told else HIDDEN for key in value}
        return dict(self._of_pair(key, one) for key, one in value.items())

    def _of_pair(self, key: str, value: Any) -> tuple[str, Any]:
        if self._names.search(key):
            return re.split("[:=]", key, maxsplit=1)[0], HIDDEN  # behind it stands a value
        return self._of_text(key), self._of(value)

    def _of_text(self, value: str) -> str:
        """JSON inside of a text has keys, too."""
        if value.lstrip()[:1] in ("{", "["):
            try:
                return _dump(self._of(json.loads(value)))
            except ValueError:
                pass
        # What is far behind the end of what is shown is not looked at. Not at once behind it: a key
        # stands in front of its value, but the @ of a URL tells that there was a password.
        return self.text(value[: self._widest + BEYOND]) or ""

    def _is_secret(self, value: Any) -> bool:
        return isinstance(value, str) and len(value) <= 64 and bool(self._names.search(value))


# From a key to its value, and that: in quotes, in brackets, or as far as a sentence goes. In JSON
# inside of JSON quotes have backslashes.
_TO_VALUE = r"[\w.-]{0,64}\\*[\"']?\s*(?:=>|[:=])\s*"
_VALUE = (
    r"(?:\\+[\"'].*?(?:\\+[\"']|$)|\"[^\"\\]*(?:\\.[^\"\\]*)*(?:\"|$)|"
    r"'[^'\\]*(?:\\.[^'\\]*)*(?:'|$)|[\[{(].*|[^,;\n\"'}\])]+)"
)
BEYOND = 4_096  # characters: longer than a password
_NAMING = frozenset(("name", "key", "field", "header", "property", "k"))
_BEARER = re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{6,}", re.IGNORECASE)
_dump: Callable[[Any], str] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
