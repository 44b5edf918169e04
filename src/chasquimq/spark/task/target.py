"""A handler by its name, `package.module:name`, imported where it runs.

The name is what a Worker would get: a function, a mapping of names to functions, a Router. The
driver looks only at the form of it: the module may be on the executors alone.
"""

from __future__ import annotations

import importlib
import re
from types import ModuleType
from typing import Any

from chasquimq.config import nearest
from chasquimq.errors import ConfigError
from chasquimq.handler import read_handler

_FORM = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def check_target(target: str) -> None:
    if not _FORM.fullmatch(target):
        raise ConfigError(
            f"{target!r:.200} names no handler: write it as package.module:name, as in "
            "app.tasks:handle"
        )


def load(target: str) -> Any:
    """What it names; ConfigError where that is nothing a Worker could run."""
    check_target(target)
    path, _, name = target.partition(":")
    module = _imported(path)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = [one for one in dir(found) if not one.startswith("_")]
            holder = f"module {path}" if found is module else f"{type(found).__name__} in {path}"
            raise ConfigError(f"{holder} has no {part!r}; {nearest(part, known)[:500]}")
        found = getattr(found, part)
    if isinstance(found, type) or hasattr(found, "adjust"):
        what = "a class" if isinstance(found, type) else f"a {type(found).__name__}"
        raise ConfigError(
            f"{target} is {what}; name the handler itself: a function of a job, a mapping of names "
            "to functions, or a Router"
        )
    read_handler(found)
    return found


def _imported(path: str) -> ModuleType:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        missing = error.name or path
        if path == missing or path.startswith(f"{missing}."):
            raise ConfigError(
                f"there is no module {missing!r} where tasks run; install it there, or send it "
                "with --py-files (chasqui spark work --py-file)"
            ) from None
        raise ConfigError(f"importing {path} failed: {error}") from error
    except Exception as error:
        raise ConfigError(f"importing {path} failed: {type(error).__name__}: {error}") from error
