"""Where a Chromium is; as a script, installs one where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
HOW = "no Chromium: `tox -e browser` installs one, as does `apt-get install chromium`"


def find() -> str | None:
    """The system's, or the one that playwright has downloaded."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is not None:
        return found
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    return own if Path(own).exists() else None


def install() -> None:
    """By Debian's packages where that is allowed, else by playwright."""
    if shutil.which("apt-get") is not None and hasattr(os, "geteuid") and os.geteuid() == 0:
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(
            ["apt-get", "install", "-qq", "-y", "--no-install-recommends", "chromium"], check=True
        )
    else:
        subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=True)


if __name__ == "__main__":
    if find() is None:
        install()
    sys.exit(0 if find() is not None else HOW)
