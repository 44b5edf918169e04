"""The version, written here and nowhere else: `pyproject.toml` reads it from this file."""

from __future__ import annotations

__version__ = "0.1.0"


def version() -> str:
    return __version__
