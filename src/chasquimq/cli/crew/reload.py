"""Tell when Python files change, for `--reload`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from pathlib import Path

from chasquimq.errors import ConfigError
from chasquimq.text import shown

# An editor, or a checkout, writes several files: tell of them when nothing came for so long, or
# after so long at the latest.
QUIET_MS, LATEST_MS = 100, 1_500


def check_reload() -> None:
    """Raise where the library is not there that watches files."""
    try:
        import watchfiles  # noqa: F401
    except ImportError:
        raise ConfigError("--reload needs watchfiles: pip install 'chasquimq-py[reload]'") from None


async def changes(folders: Collection[str], stop: asyncio.Event) -> AsyncIterator[list[str]]:
    """The files that changed, each time some did, until `stop`."""
    from watchfiles import PythonFilter, awatch

    logging.getLogger("watchfiles").setLevel(logging.WARNING)  # the supervisor says it
    here = Path.cwd()
    watching = awatch(
        *folders,
        watch_filter=PythonFilter(),
        step=QUIET_MS,
        debounce=LATEST_MS,
        stop_event=stop,
        ignore_permission_denied=True,
    )
    while True:
        try:
            batch = await anext(watching, None)
        except (OSError, RuntimeError) as error:  # the library has one of its own
            where = ", ".join(map(shown, folders))
            raise ConfigError(
                f"cannot watch {where} for changes: {shown(str(error), 200)}; if the system allows "
                "too few watches, raise fs.inotify.max_user_instances and max_user_watches"
            ) from None
        if batch is None:
            return
        yield sorted({_short(path, here) for _, path in batch})


def _short(path: str, here: Path) -> str:
    try:
        return str(Path(path).relative_to(here))
    except ValueError:
        return path
