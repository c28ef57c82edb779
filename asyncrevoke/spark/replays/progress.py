"""Progress of a running replay: tasks report to the driver over a socket.

Spark reports a task only when it ends. The driver's responses can stop a task. A task that cannot
reach the driver (with a remote client of Spark Connect) runs without reporting; its records count
when its stage ends.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Self, cast

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.spark.reading.offsets import OffsetRange

_INTERVAL = 0.5
_TIMEOUT = 2.0
_LONGEST_LINE = 4096
# Connections that have not sent the secret yet. One more closes the oldest of them.
_MOST_UNAUTHENTICATED = 64


class Address(NamedTuple):
    """Where a driver listens, and the secret by which it recognizes its tasks."""

    host: str
    port: int
    secret: str

    @override
    def __repr__(self) -> str:
        return f"Address({self.host}:{self.port})"


class ReplayProgress(NamedTuple):
    """The progress of a replay. ``records`` of about ``total`` are done: ``total`` counts offsets,
    some of which may be gaps. ``seconds`` is the time since the start of this run."""

    records: int
    errors: int
    total: int
    seconds: float

    @property
    def rate(self) -> float:
        """Records per second since the start of this run."""
        return self.records / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """An estimate by the rate so far; None before the first record."""
        return max(0, self.total - self.records) / self.rate if self.rate else None


class ProgressServer:
    """The driver's side; a context manager. Calls ``on_progress`` from another thread."""

    def __init__(
        self,
        host: str,
        total: int,
        on_progress: Callable[[ReplayProgress], None] | None,
        max_errors: int | None,
    ) -> None:
        self._listener = socket.create_server((host, 0))
        self._listener.settimeout(_INTERVAL)
        self.address = Address(
            host, cast("int", self._listener.getsockname()[1]), secrets.token_hex(16)
        )
        self._total = total
        self._on_progress = on_progress
        self._max_errors = max_errors
        self._lock = threading.Lock()
        self._unauthenticated: dict[socket.socket, None] = {}
        # By range: a task that Spark starts again replaces its numbers.
        self._reported: dict[str, tuple[int, int]] = {}
        self._counted = 0, 0
        self._began = time.monotonic()
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="asyncrevoke progress", daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._closed.set()
        self._listener.close()

    def set_counted(self, records: int, errors: int) -> None:
        """Replace the numbers that tasks have reported by those counted from the results."""
        with self._lock:
            self._reported.clear()
            self._counted = records, errors
        self._show()

    def progress(self) -> ReplayProgress:
        """The progress now."""
        with self._lock:
            records = self._counted[0] + sum(counted[0] for counted in self._reported.values())
            errors = self._counted[1] + sum(counted[1] for counted in self._reported.values())
        return ReplayProgress(records, errors, self._total, time.monotonic() - self._began)

    def _show(self) -> None:
        if self._on_progress is not None and not self._closed.is_set():
            self._on_progress(self.progress())

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                self._show()
                continue
            except OSError:
                return  # closed
            self._limit_unauthenticated(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _limit_unauthenticated(self, connection: socket.socket) -> None:
        with self._lock:
            oldest = next(iter(self._unauthenticated), None)
            full = len(self._unauthenticated) >= _MOST_UNAUTHENTICATED
            self._unauthenticated[connection] = None
            if full and oldest is not None:
                del self._unauthenticated[oldest]
                with suppress(OSError):  # already disconnected
                    oldest.shutdown(socket.SHUT_RDWR)  # ends its thread

    def _is_task(self, connection: socket.socket) -> bool:
        """Whether the client sends the secret in time. Raises OSError."""
        expected, received = f"{self.address.secret}\n".encode(), b""
        until = time.monotonic() + _TIMEOUT
        while len(received) < len(expected) and b"\n" not in received:
            left = until - time.monotonic()
            if left <= 0:
                return False
            connection.settimeout(left)
            part = connection.recv(len(expected) - len(received))
            if not part:
                return False
            received += part
        connection.settimeout(None)
        return hmac.compare_digest(received, expected)

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                if self._is_task(connection):
                    with self._lock:
                        self._unauthenticated.pop(connection, None)
                    self._listen(connection)
            except OSError:
                return  # timed out or disconnected
            finally:
                with self._lock:
                    self._unauthenticated.pop(connection, None)

    def _listen(self, connection: socket.socket) -> None:
        with connection.makefile("rw", encoding="utf-8") as lines:
            try:
                while line := lines.readline(_LONGEST_LINE):
                    name, records, errors = cast("tuple[str, int, int]", json.loads(line))
                    with self._lock:
                        self._reported[name] = records, errors
                    lines.write(f"{self._limit_error()}\n")
                    lines.flush()
            except (OSError, ValueError, TypeError, RecursionError):
                return  # its task has ended, or it is not a task

    def _limit_error(self) -> str:
        errors = self.progress().errors
        if self._max_errors is not None and errors > self._max_errors:
            return (
                f"all tasks together have {errors} errors, more than max_errors={self._max_errors}"
            )
        return ""


class ProgressReporter:
    """The task's side; a context manager. ``stopped`` is the driver's reason to stop, or empty."""

    def __init__(self, address: Address | None, wanted: OffsetRange) -> None:
        self._address = address
        self._name = f"{wanted.topic}-{wanted.partition}-{wanted.start}"
        self._connection: socket.socket | None = None
        self._next = 0.0
        self.stopped = ""

    def __enter__(self) -> Self:
        if self._address is not None:
            try:
                self._connection = socket.create_connection(self._address[:2], _TIMEOUT)
                self._connection.sendall(f"{self._address.secret}\n".encode())
                self._responses = self._connection.makefile("r", encoding="utf-8")
            except OSError:
                self._disconnect()
        return self

    def __exit__(self, *_error: object) -> None:
        self._disconnect()

    def report(self, records: int, errors: int, *, at_once: bool = False) -> None:
        """Report the numbers of this task, at most twice a second unless ``at_once``."""
        now = time.monotonic()
        if self._connection is None or (now < self._next and not at_once):
            return
        self._next = now + _INTERVAL
        try:
            self._connection.sendall(f"{json.dumps([self._name, records, errors])}\n".encode())
            self.stopped = self._responses.readline(_LONGEST_LINE).strip()
        except (OSError, ValueError):
            self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
