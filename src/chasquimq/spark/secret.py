"""Where the server is, found out on each node anew.

    url          the address itself; it travels with the plan, so put no password into it
    urlEnv       the *name* of an environment variable that holds the address
    secretFile   the *path* of a file that holds the address, or the password alone for `url`

Names and paths may be seen by anybody; what they lead to is read where it is needed and kept
nowhere.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from chasquimq.address import DEFAULT_URL, Address, Secret, hide, read_url
from chasquimq.config import Options
from chasquimq.errors import ConfigError


class Where(Options, frozen=True):
    url: str | None = None
    url_env: str | None = None
    secret_file: str | None = None

    def __post_init__(self) -> None:
        if self.url is not None and self.url_env is not None:
            raise ConfigError("give url or urlEnv, not both")
        if self.url_env is not None and self.secret_file is not None:
            raise ConfigError("give urlEnv or secretFile, not both")
        if self.url is not None:
            read_url(self.url)

    def __repr__(self) -> str:
        shown = None if self.url is None else hide(self.url)
        return f"Where(url={shown!r}, urlEnv={self.url_env!r}, secretFile={self.secret_file!r})"

    def address(self) -> Address:
        if self.url_env is not None:
            given = os.environ.get(self.url_env)
            if not given:
                raise ConfigError(
                    f"urlEnv names {self.url_env!r}, but this node ({os.uname().nodename}) has no "
                    "such environment variable; set it on the driver and on every executor"
                )
            return read_url(given)
        if self.secret_file is None:
            return read_url(self.url or DEFAULT_URL)
        secret = self._secret(self.secret_file)
        if "://" in secret:
            return read_url(secret)
        address = read_url(self.url or DEFAULT_URL)
        return msgspec.structs.replace(address, password=Secret(secret))

    def _secret(self, path: str) -> str:
        try:
            secret = Path(path).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise ConfigError(
                f"secretFile {path!r} cannot be read on this node ({os.uname().nodename}): "
                f"{reason}; put it on the driver and on every executor"
            ) from None
        if not secret:
            raise ConfigError(f"secretFile {path!r} is empty")
        return secret
