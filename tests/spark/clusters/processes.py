"""Commands that start Spark or pip, as processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_TOLD = 6000


def run(words: Sequence[str], environment: Mapping[str, str], folder: Path, seconds: float) -> str:
    """What the command prints; AssertionError, with the end of all that it said, if it fails or has
    not ended after so many seconds.

    Afterwards nothing that it has started goes on. It can ask nobody anything.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as out:
        process = subprocess.Popen(
            words,
            env={**environment, "PIP_NO_INPUT": "1"},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | str = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = f"not ended after {seconds:g} s"
        finally:
            with suppress(ProcessLookupError):  # nothing is left of it
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        said = out.read()
    assert code == 0, f"{' '.join(words)}: {code}; it said last:\n{said[-_TOLD:]}"
    return said
