"""Where the server is, found out on each node anew.

    url          the address itself, without a password
    urlEnv       the *name* of an environment variable that holds the address
    secretFile   the *path* of a file that holds the address, or the password alone for `url`

Names and paths may be seen by anybody; what they lead to is read where it is needed and kept
nowhere. What is in `url` everybody sees: Spark Connect writes every option into its log of events
and onto its pages, whatever it is called, so a password in it is refused.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from chasquimq.address import DEFAULT_URL, Address, Secret, read_url
from chasquimq.config import Options
from chasquimq.errors import ConfigError
from chasquimq.wire import Keys

MOST_BYTES = 65_536
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ADDRESS = re.compile(r"\s*(rediss?(\+\w+)?|unix)://")
_EVERYWHERE = "on the driver and on every executor"


class Where(Options, frozen=True):
    url: str | None = None
    url_env: str | None = None
    secret_file: str | None = None

    def __post_init__(self) -> None:
        """No message repeats what was given: it may be the secret itself, in the wrong place."""
        if self.url_env is not None and (self.url is not None or self.secret_file is not None):
            raise ConfigError("urlEnv holds the whole address: leave out url and secretFile")
        if self.url is not None:
            self._check(read_url(self.url, secret_elsewhere=True))
        if self.url_env is not None and not _VARIABLE.fullmatch(self.url_env):
            raise ConfigError(
                "urlEnv is the name of an environment variable that holds the address, as in "
                "urlEnv=CHASQUI_REDIS_URL; it is not the address"
            )
        if self.secret_file is not None and not self.secret_file.startswith("/"):
            raise ConfigError(
                "secretFile is the whole path of a file, as in /run/secrets/redis: each node looks "
                "for it by itself, in whatever folder it runs"
            )

    def _check(self, address: Address) -> None:
        what = "holds a password"
        if address.password is None:
            if address.username is None or self.secret_file is not None:
                return
            what = "names a user without a password, which may be a password without its colon"
        raise ConfigError(
            f"url {what}, and Spark shows options in logs and pages. Put the address "
            "into an environment variable and name that by urlEnv, or the password into a file "
            f"and name that by secretFile, {_EVERYWHERE}"
        )

    def address(self) -> Address:
        if self.url_env is not None:
            return _read(_variable(self.url_env), f"what the environment variable {self.url_env}")
        if self.secret_file is None:
            return read_url(self.url or DEFAULT_URL)
        secret = read_file(self.secret_file)
        if _ADDRESS.match(secret):
            if self.url is not None:
                raise ConfigError(
                    f"secretFile {self.secret_file!r} holds an address: leave out url, or let the "
                    "file hold the password alone"
                )
            return _read(secret.strip(), f"what secretFile {self.secret_file!r}")
        address = read_url(self.url or DEFAULT_URL, secret_elsewhere=True)
        return msgspec.structs.replace(address, password=Secret(secret))

    def address_of(self, queue: str) -> Address:
        """The same, for one that talks about this queue: of a cluster that is one of its nodes."""
        return self.address().of(Keys(queue).stream.decode())


def _read(url: str, which: str) -> Address:
    try:
        return read_url(url)
    except ConfigError as error:  # which hides what stands in front of an @
        raise ConfigError(f"{which} holds, on {_node()}, is no address: {error.args[0]}") from None


def _variable(name: str) -> str:
    held = os.environ.get(name, "").strip()
    if not held:
        trouble = "is empty" if name in os.environ else "is not set"
        raise ConfigError(
            f"urlEnv names the environment variable {name}, which {trouble} on {_node()}; "
            f"set it {_EVERYWHERE}"
        )
    return held


def read_file(path: str, named_by: str = "secretFile") -> str:
    """Its one line. A password may begin or end in blanks, so only the line's end is cut off."""
    trouble = "it is no plain file"
    try:
        if Path(path).is_file():  # a pipe would never end
            with open(path, "rb") as file:
                data = file.read(MOST_BYTES + 1)
            text = data.decode("utf-8-sig").rstrip("\r\n")
            if not text.strip():
                trouble = "it is empty"
            elif len(data) > MOST_BYTES or len(text.splitlines()) > 1:
                trouble = "it holds more than one line"
            else:
                return text
        elif not os.path.lexists(path):
            trouble = "there is none"
    except OSError as error:
        trouble = error.strerror or "it cannot be read"
    except UnicodeDecodeError:
        trouble = "it holds no text"
    raise ConfigError(
        f"{named_by} {path!r:.200} on {_node()}: {trouble}; put one that we may read {_EVERYWHERE}"
    )


def _node() -> str:
    return os.uname().nodename
