"""A gate: a file beside the ledger. Processes wait before it until a test opens it."""

from __future__ import annotations

from pathlib import Path


def _file(ledger: Path | str, name: str) -> Path:
    return Path(f"{ledger}.gate-{name}")


def open_gate(ledger: Path | str, name: str) -> None:
    _file(ledger, name).touch()


def is_open(ledger: Path | str, name: str) -> bool:
    return _file(ledger, name).exists()
