"""Refuse to run out of a folder into which another distribution was installed as well.

The released program has the same import name. Installed side by side, the files of both lie in
one folder, and which of them answers depends on who was installed last.
"""

from __future__ import annotations

import os

try:
    _beside = os.listdir(os.path.dirname(__file__))
except OSError:  # within an archive, into which nobody installs
    _beside = []
if any(name.startswith("_native") for name in _beside):
    raise ImportError(
        "two distributions share the import name 'chasquimq' here: uninstall both "
        "(pip uninstall chasquimq chasquimq-py), then install the one you want"
    )
