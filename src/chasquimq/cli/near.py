"""What to say of a word that nobody knows, where the known ones may be thousands of strangers'."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from chasquimq.text import shown

FEW = 10
WIDEST = 120


def near(word: str, known: Sequence[str]) -> str:
    """The nearest known word, or some of them; safe to show."""
    if not known:
        return "there is none"
    found = difflib.get_close_matches(word, known, n=1)
    found = found or ([one for one in known if word in one] if word else [])
    if found:
        return f"did you mean '{shown(found[0], WIDEST)}'?"
    more = f" and {len(known) - FEW:,} more" if len(known) > FEW else ""
    return f"known: {', '.join(shown(one, WIDEST) for one in known[:FEW])}{more}"
