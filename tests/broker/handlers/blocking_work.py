"""What a worker process does with a record."""

from __future__ import annotations

import os
import signal
from pathlib import Path

# Where the files are, and the number whose first call is killed.
FOLDER = "BLOCKING_WORK_FOLDER"
KILLED = 25


def append(number: int) -> None:
    """Note the number in the file of its key; the first call for one number kills its process."""
    folder = Path(os.environ[FOLDER])
    marker = folder / "killed"
    if number == KILLED and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    with (folder / f"key-{number % 7}").open("a", encoding="ascii") as file:
        file.write(f"{number}\n")
