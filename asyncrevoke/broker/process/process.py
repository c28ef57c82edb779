"""Starts and ends the process of a broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from asyncrevoke.broker.errors import BrokerStartError
from asyncrevoke.broker.process import supervisor

if TYPE_CHECKING:
    from collections.abc import Sequence

KILL_TIMEOUT = 10.0


class BrokerProcess:
    """A command under a supervisor, which ends the command when this process dies, even by SIGKILL.

    Its output is appended to the file ``log``. If this process dies, the supervisor also removes
    the folder ``remove``, unless this is None.
    """

    def __init__(self, command: Sequence[str], log: Path, remove: Path | None) -> None:
        if not sys.executable:
            raise BrokerStartError(
                "sys.executable is empty, and the supervisor that ends the broker with this "
                "process needs Python: start the broker from a plain Python process"
            )
        self._supervisor = subprocess.Popen(  # noqa: S603 - our own script
            [
                sys.executable, "-I", "-S", supervisor.__file__,
                str(os.getpid()), str(remove or "-"), str(log), *command,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        assert self._supervisor.stdout is not None
        with self._supervisor.stdout as output:
            line = output.readline()
        if not line:
            self._end()
            raise BrokerStartError(f"{command[0]} could not be started", tail(log))
        self.pid = int(line)

    @property
    def running(self) -> bool:
        """Whether the program still runs."""
        return self._supervisor.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The program's exit code; None while it runs."""
        return self._supervisor.poll()

    def send(self, number: int) -> None:
        """Send a signal to the program, if it still runs."""
        if self.running:
            os.kill(self.pid, number)

    def terminate(self, timeout: float) -> bool:
        """Send SIGTERM; after ``timeout`` seconds, send SIGKILL and return False."""
        if sys.platform == "win32":
            self.kill()
            return False
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        try:
            self._supervisor.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        self._end()
        return True

    def kill(self) -> None:
        """End the program at once; returns when it has ended."""
        if sys.platform == "win32":
            self._supervisor.kill()
        else:
            self.send(signal.SIGKILL)
        self._end()

    def _end(self) -> None:
        self._supervisor.wait(KILL_TIMEOUT)
        if self._supervisor.stdin is not None:
            self._supervisor.stdin.close()


def run_to_end(command: Sequence[str], log: Path, timeout: float) -> int:
    """Run a short program, append its output to ``log``, and return its exit code. Raises
    BrokerStartError if it could not be started, or took longer than ``timeout`` seconds."""
    with log.open("ab") as output:
        try:
            return subprocess.run(  # noqa: S603 - the command is ours
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=timeout,
                check=False,
            ).returncode
        except OSError as error:
            raise BrokerStartError(f"{command[0]} could not be started: {error}") from error
        except subprocess.TimeoutExpired as error:
            raise BrokerStartError(
                f"{Path(command[0]).name} took longer than {timeout:g} s", tail(log)
            ) from error


def tail(log: Path, lines: int = 30) -> str:
    """The last lines of a log file; empty if there is none."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 400 * lines))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
