"""The members that are not written in Python: builds those of the folders ``go`` and ``node``.

``python programs.py`` builds them into the folder that ``ASYNCREVOKE_NEIGHBOURS`` names. Without
Go or Node it says so, and the tests of these clients are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

VARIABLE = "ASYNCREVOKE_NEIGHBOURS"
_HERE = Path(__file__).parent
_GO = ("franz-go", "sarama", "kafka-go")
_NODE = ("kafkajs", "platformatic")


def program(client: str) -> list[str]:
    """The command that starts a member of this client. Skips the test if it was not built."""
    folder = os.environ.get(VARIABLE)
    if folder is None:
        pytest.skip(f"{VARIABLE} names no folder of programs: `tox -e neighbours` builds them")
    if client in _GO:
        built, started_by = Path(folder, "neighbour"), []
    else:
        built, started_by = Path(folder, "node", "member.mjs"), ["node"]
    if not built.exists():
        pytest.skip(f"{client} was not built: there is no {'Go' if client in _GO else 'Node'}")
    return [*started_by, str(built), client]


def build(folder: Path) -> None:
    """Build the members of all clients whose tools are there. Raises CalledProcessError."""
    folder.mkdir(parents=True, exist_ok=True)
    if go := shutil.which("go"):
        subprocess.run([go, "build", "-o", folder / "neighbour", "."], cwd=_HERE / "go", check=True)
    else:
        sys.stderr.write(f"There is no go: no tests of {', '.join(_GO)}.\n")
    npm = shutil.which("npm")
    if npm and shutil.which("node"):
        # Node looks for packages beside the file that imports them.
        shutil.copytree(_HERE / "node", folder / "node", dirs_exist_ok=True)
        install = [npm, "install", "--no-package-lock", "--no-audit", "--no-fund"]
        subprocess.run(install, cwd=folder / "node", check=True)
    else:
        sys.stderr.write(f"There is no node with npm: no tests of {', '.join(_NODE)}.\n")


if __name__ == "__main__":
    build(Path(os.environ[VARIABLE]))
