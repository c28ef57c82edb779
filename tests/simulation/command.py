"""The command ``python -m simulation``, for tests that run it in a process of its own."""

import os
import sys
from pathlib import Path

COMMAND = (sys.executable, "-m", "simulation")


def command_environment() -> dict[str, str]:
    """This process's environment, with ``tests`` and the checkout on PYTHONPATH."""
    tests = Path(__file__).parents[1]
    search = [str(tests), str(tests.parent), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, search))}
