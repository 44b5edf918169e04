"""The reference's interpreter, as tests ask for it: without it they skip, in CI they fail."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools import reference_env


def interpreter() -> Path:
    try:
        return reference_env.interpreter()
    except reference_env.NotInstallableError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
