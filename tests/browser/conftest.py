"""A real browser for the tests of what people open in one.

Playwright keeps an event loop running as long as it is there, and tests of coroutines cannot run
beside that: so the browser belongs to a file of tests, and ends with it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.chromium import chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        yield browser
        browser.close()
