"""What an error reply means for us, decided in one place.

AWAY     the server cannot serve us now; it did nothing; try again
FULL     out of memory; it did nothing; reads and acks still work
SCRIPT   it forgot our scripts; load them, then try again
GROUP    the stream or its group is gone; create it, then try again
DIALECT  it does not know a command; ask again what it can do, then try again in its dialect
ACCESS   it does not know us or does not let us; a person must act
REFUSED  everything else: a wrong command or a wrong type; trying again will not help
"""

from __future__ import annotations

import re
from enum import Enum

from chasquimq.errors import (
    AccessError,
    ChasquiError,
    QueueFullError,
    StoreError,
    StoreUnavailableError,
)
from chasquimq.text import shown

MOST_CHARACTERS = 1_000


class Fault(Enum):
    AWAY = "away"
    FULL = "full"
    SCRIPT = "script"
    GROUP = "group"
    DIALECT = "dialect"
    ACCESS = "access"
    REFUSED = "refused"


_BY_WORD = {
    **dict.fromkeys(("LOADING", "READONLY", "BUSY", "TRYAGAIN", "CLUSTERDOWN"), Fault.AWAY),
    **dict.fromkeys(("MASTERDOWN", "NOREPLICAS", "MISCONF", "UNKILLABLE"), Fault.AWAY),
    # Of a cluster: the key lives elsewhere, or is on its way there. The connection is made anew
    # (`store/pipe.py`), and a move that is under way is waited out.
    **dict.fromkeys(("MOVED", "ASK"), Fault.AWAY),
    **dict.fromkeys(("NOAUTH", "WRONGPASS", "NOPERM"), Fault.ACCESS),
    "OOM": Fault.FULL,
    "NOSCRIPT": Fault.SCRIPT,
    "NOGROUP": Fault.GROUP,
    "UNBLOCKED": Fault.GROUP,
}


# In the words of newer servers, of Redis 7.0, and of Redis 7.0 about a command in a script.
_ONE_KEY = re.compile("access (a key|one of the keys|at least one of the keys)")


def classify(reply: Exception) -> Fault:
    text = str(reply)
    word = text.partition(" ")[0]
    found = _BY_WORD.get(word)
    if found is not None:
        return found
    # The second: a script asked for a key that is not here, as one is while its slot moves to
    # another node. Ours ask for all keys of the kind before they write.
    if "max number of clients" in text or "non local key" in text:
        return Fault.AWAY
    # A server that took the place of another at the same address. Servers differ in the words.
    if "nknown command" in text or "nknown Redis command" in text:
        return Fault.DIALECT
    # What an ACL forbids inside a script, in the words of newer servers and of Redis 7.0.
    if "ACL failure" in text or "user executing the script" in text:
        return Fault.ACCESS
    # A command that failed inside a script keeps its words, behind the script's own.
    for word, fault in _BY_WORD.items():
        if f"{word} " in text[:64]:
            return fault
    return Fault.REFUSED


def legible(text: str) -> str:
    """An error reply, made safe for logs and messages: escaped, and cut to a bounded length."""
    return shown(text, MOST_CHARACTERS)


def for_all(reply: Exception) -> bool:
    """Whether what an ACL refuses has nothing to do with one job's keys: a command, a password."""
    return classify(reply) is Fault.ACCESS and _ONE_KEY.search(str(reply)) is None


def misunderstood(reply: Exception) -> bool:
    """Whether a server does not know what an add is written in: a command, or IDMP, which others
    take for an entry's id."""
    text = str(reply)
    no_idmp = "Invalid stream ID" in text or "syntax error" in text
    return no_idmp or classify(reply) is Fault.DIALECT


def as_error(reply: Exception, doing: str) -> ChasquiError:
    """The error to raise for a reply nobody could repair. Redis's own words hold no secret:
    it never repeats a password."""
    fault = classify(reply)
    if fault is Fault.ACCESS:
        return AccessError(f"{doing}: {reply}; check the user, its password and its ACL rules")
    if fault is Fault.FULL:
        return QueueFullError(
            f"{doing}: the server is out of memory (oom); nothing was written. "
            "Let the workers drain, or raise maxmemory"
        )
    if fault in (Fault.REFUSED, Fault.DIALECT):
        return StoreError(f"{doing}: {reply}")
    return StoreUnavailableError(f"{doing}: {reply}")


def words(error: BaseException) -> str:
    """An error fit for a log: ours and the system's hold no secret, of others (a credential
    provider may raise anything) only the kind is told."""
    ours = isinstance(error, ChasquiError | OSError)
    return str(error) if ours else type(error).__name__
