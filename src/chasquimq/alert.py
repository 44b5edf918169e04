"""Why a server hung up on our greeting: it speaks TLS and we did not, or refuses our certificate.

Either is said by an alert of TLS, or by nothing at all. What it says of a certificate comes behind
the greeting, with TLS 1.3, and is lost where something of ours was on its way to it meanwhile. So
who was left without a word greets once more, sends nothing, and listens.
"""

from __future__ import annotations

import re
import socket
import ssl
from typing import TYPE_CHECKING

from chasquimq.errors import AccessError, StoreError

if TYPE_CHECKING:
    from chasquimq.address import Address, Endpoint

FIRST = b"\x15"  # how an alert begins, for those who speak plain TCP
LISTEN_S = 1.0
# What is said for the sake of a certificate. The last may be about other things, too.
_OURS = re.compile(
    r"alert ((?:bad |unsupported )?certificate[a-z ]*|unknown ca|access denied|handshake failure)"
)


def turned_away(address: Address, who: object, error: BaseException | None) -> AccessError | None:
    """That our certificate is refused, or the want of one; None: the error says no such thing."""
    alert = _OURS.search(str(error)) if isinstance(error, ssl.SSLError) else None
    if alert is None:
        return None
    said, unsure = alert[1].strip(), alert[1] == "handshake failure"
    if address.cert_file is None:
        return AccessError(
            f"{who} {'may want' if unsure else 'wants'} a certificate of ours, and none was "
            f"presented ({said}); name it by ?ssl_certfile=/path&ssl_keyfile=/path"
        )
    return AccessError(
        f"{who} {'may have refused' if unsure else 'refused'} our certificate {address.cert_file} "
        f"({said}); renew it, or have it signed by an authority that the server knows"
    )


def speaks_tls(address: Address, who: object) -> StoreError:
    return StoreError(f"{who} speaks TLS, and was greeted in plain TCP; write {_secured(address)}")


def listen(address: Address, endpoint: Endpoint, who: object) -> StoreError | None:
    """What a server has against us; None: nobody knows. It takes `LISTEN_S` or a few times that."""
    if endpoint.path is not None:
        return None
    context = address.ssl_context() or _trusting()
    try:
        with (
            socket.create_connection((endpoint.host, endpoint.port), LISTEN_S) as raw,
            context.wrap_socket(raw, server_hostname=endpoint.host) as line,
        ):
            if not address.tls:
                return speaks_tls(address, who)
            line.recv(1)
    except ssl.SSLError as error:
        if address.tls:
            return turned_away(address, who, error)
        if " alert " in str(error):  # it wants a certificate
            return speaks_tls(address, who)
    except OSError:
        pass
    return None


def silence(address: Address) -> str:
    """What may be the cause of a silence about which nothing was learned."""
    hint = f"; if it speaks TLS, write {_secured(address)}"
    if address.endpoint.path is not None:
        hint = ""
    elif address.cert_file is not None:
        hint = f"; it may have refused our certificate {address.cert_file}"
    elif address.tls:
        hint = "; it may want a certificate of ours, and none was presented"
    return f"it hung up without a word{hint}"


def _secured(address: Address) -> str:
    return "rediss://" if address.kind == "server" else f"rediss+{address.kind}://"


def _trusting() -> ssl.SSLContext:
    """For who only wants to know whether TLS is spoken there."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
