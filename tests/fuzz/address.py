"""Whatever text stands where a URL belongs: a ConfigError or an address, and its password shown by
neither."""

from __future__ import annotations

import traceback
from urllib.parse import quote

import msgspec

from chasquimq.address import hide, read_url
from chasquimq.errors import ConfigError
from tests.fuzz.draw import Draw

CANARY = "Kanarienvogel"  # not a secret, and in no host, option or message of ours


def check(data: bytes) -> None:
    draw = Draw(data)
    parts = [draw.blob().decode(errors="replace") for _ in range(3)]
    place = draw.rest().decode(errors="replace")
    front, before, behind = parts
    read(f"{front}{place}")
    said = read(f"{front}:{before}{CANARY}{behind}@{place}")
    # The place must not name it by itself, as a second user in front of a second `@` would.
    assert CANARY not in said and quote(CANARY) not in said, "a password is shown"


def read(url: str) -> str:
    """All that is said about a URL; one that can be read reads the same when written anew."""
    try:
        address = read_url(url)
    except ConfigError as error:
        said = "".join(traceback.format_exception(error)[-1:]) + repr(error)
        return said + hide(url)
    again = read_url(address.without_secret(address.username), secret_elsewhere=True)
    assert msgspec.structs.replace(again, password=address.password) == address
    return f"{address} {address!r} {address.password!r} {hide(url)}"
