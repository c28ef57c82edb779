"""The command ``asyncrevoke``. Each of its commands has a file or folder here."""

from __future__ import annotations

import importlib.util
import sys

_NEEDED = ("rich", "typer")
_MISSING = "the command line needs {}: pip install 'asyncrevoke[cli]'"


def main() -> None:
    """Run the command line. Exit codes: 0 fine, 1 failed, 2 usage, 3 inconclusive."""
    for module in _NEEDED:
        if importlib.util.find_spec(module) is None:
            print(_MISSING.format(module), file=sys.stderr)
            raise SystemExit(2)
    from asyncrevoke.cli.app import app

    app(prog_name="asyncrevoke")
