"""Member processes: started, stopped, killed and frozen."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# Seconds for a process to end, on a busy machine.
_PATIENCE = 60.0
_TRANSACTIONAL_ID = re.compile(r"transactional_id=(\S+)")
_ROOT = Path(__file__).parents[4]
_PROGRAM = Path(__file__).with_name("member.py")


class MemberProcess:
    """One process of ``member.py``, its output and log in files of ``folder``."""

    def __init__(self, folder: Path, name: str, topic: str, options: Mapping[str, object]) -> None:
        self.name = name
        self.processing = options["processing"]
        instance = options.get("group_instance_id")
        self.instance = None if instance is None else str(instance)
        self._out, self._log = folder / f"{name}.out", folder / f"{name}.log"
        with self._out.open("wb") as out, self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, _PROGRAM, topic, f"{topic}-out", json.dumps(options)],
                env={**os.environ, "PYTHONPATH": str(_ROOT)},
                stdout=out,
                stderr=log,
            )

    @property
    def handled(self) -> int:
        """How many records it has handled."""
        return self._out.read_bytes().count(b"\n")

    @property
    def log(self) -> str:
        """What it has logged."""
        return self._log.read_text()

    @property
    def transactional_id(self) -> str | None:
        """That of its transactions, None before the first one."""
        found = _TRANSACTIONAL_ID.search(self.log)
        return None if found is None else found[1]

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        """SIGSTOP."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    async def stop(self) -> int | None:
        """SIGTERM when it logs, as it drains then; the exit code, or None if it does not end."""
        return await asyncio.to_thread(self._stop)

    async def ended(self) -> int | None:
        """The exit code of a process that ends by itself, or None if it does not end."""
        return await asyncio.to_thread(self._ended)

    def _stop(self) -> int | None:
        while self.running and not self.log:
            time.sleep(0.05)
        self._process.terminate()
        return self._ended()

    def _ended(self) -> int | None:
        try:
            return self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            return None
