"""A headless Chromium, and pages in it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import chromium
from playwright.async_api import async_playwright

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from playwright.async_api import Browser


@pytest.fixture
async def browser() -> AsyncGenerator[Browser]:
    """Debian's, or whichever there is; none is downloaded here.

    ASYNCREVOKE_NEEDS_BROWSER, which `tox -e browser` sets, makes a missing one a failure.
    """
    found = await asyncio.to_thread(chromium.find)
    if found is None and not os.environ.get("ASYNCREVOKE_NEEDS_BROWSER"):
        pytest.skip(chromium.HOW)
    assert found is not None, chromium.HOW
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Where screenshots go: the folder ASYNCREVOKE_SCREENSHOTS, if that is set."""
    folder = Path(os.environ.get("ASYNCREVOKE_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
