"""A headless Chromium, and pages in it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import async_playwright

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from playwright.async_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture
async def browser() -> AsyncGenerator[Browser]:
    """Debian's, or whichever there is; none is downloaded."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    assert found is not None, f"no browser: apt-get install chromium (looked for {NAMES})"
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
