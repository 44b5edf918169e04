"""Values as people read them, and texts of strangers as no browser obeys them."""

from __future__ import annotations

import html
import json
import math
from datetime import UTC, datetime
from typing import Any

from chasquimq.text import shown

NOTHING = "–"
NAMELESS = "(no name)"
_WIDEST_LABEL = 46  # of a row in a plot, at 360 px
_WIDEST_TEXT = 600
_STEPS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"))


def number(value: Any) -> float | None:
    """A finite number, or None: libraries write what is missing as NaN, and JSON has none."""
    if value is None:
        return None
    found = float(value)
    return found if math.isfinite(found) else None


def count(value: Any) -> str:
    return f"{int(value):,}"


def percent(share: Any) -> str:
    found = number(share)
    if found is None:
        return NOTHING
    if found == 0:
        return "0 %"
    return f"{found * 100:.2f} %" if found < 0.1 else f"{found * 100:.1f} %"


def duration(ms: Any) -> str:
    """Two or three digits and a unit: 0.4 ms, 12 ms, 1.25 s, 3.3 min."""
    found = number(ms)
    if found is None:
        return NOTHING
    unit_ms, unit = next(((size, name) for size, name in _STEPS if abs(found) >= size), (1, "ms"))
    scaled = found / unit_ms
    digits = 0 if abs(scaled) >= 100 else 1 if abs(scaled) >= 10 else 2
    text = f"{scaled:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"


def moment(at: datetime | None) -> str:
    return NOTHING if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def ms_of(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def text(value: Any, widest: int = _WIDEST_TEXT) -> str:
    """Any text, as HTML: one line, control characters shown, nothing left to interpret."""
    return html.escape(shown(str(value), widest))


def clipped(value: Any, widest: int = _WIDEST_LABEL) -> str:
    """Any text, short enough for a plot: one line, control characters shown."""
    return shown(str(value), widest) or NAMELESS


def label(value: Any, widest: int = _WIDEST_LABEL) -> str:
    """The same as a label of the library, which reads tags, entities, %{...} and $...$ there."""
    escaped = html.escape(clipped(value, widest), quote=False)
    return escaped.replace("%", "&#37;").replace("$", "&#36;")


def script_json(value: Any) -> str:
    """JSON that may stand in a <script>: no character in it can end or open anything."""
    plain = json.dumps(value, separators=(",", ":"), allow_nan=False)  # ASCII: no U+2028 either
    return plain.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
