"""Progress of a running replay: tasks report to the driver over a socket, which may stop them.

Spark itself reports tasks only when they end. A task that cannot reach the driver (a client of
Spark Connect elsewhere) runs without reporting; its numbers count when its stage ends.
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
# Connections that have not sent the secret yet; one more closes the oldest.
_MOST_UNKNOWN = 64


class Address(NamedTuple):
    """Where a driver listens, and the secret that identifies its tasks."""

    host: str
    port: int
    secret: str

    @override
    def __repr__(self) -> str:
        return f"Address({self.host}:{self.port})"


class ReplayProgress(NamedTuple):
    """``records`` are done, of about ``total``: that counts offsets, some of which may be gaps.

    ``rate`` is records per second since the start of this run, ``seconds_left`` an estimate by it,
    None before the first record.
    """

    records: int
    errors: int
    total: int
    seconds: float

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """By the rate so far."""
        return max(0, self.total - self.records) / self.rate if self.rate else None


class ProgressServer:
    """The driver's side; a context manager. ``on_progress`` is called from its thread."""

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
        self._unknown: dict[socket.socket, None] = {}
        # By range: of a task that was started again, the last numbers count.
        self._reported: dict[str, tuple[int, int]] = {}
        self._settled = 0, 0
        self._began = time.monotonic()
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="asyncrevoke progress", daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._closed.set()
        self._listener.close()

    def settle(self, records: int, errors: int) -> None:
        """Replace what tasks have reported so far by these numbers, counted from the results."""
        with self._lock:
            self._reported.clear()
            self._settled = records, errors
        self._show()

    def progress(self) -> ReplayProgress:
        """The progress now."""
        with self._lock:
            records = self._settled[0] + sum(each[0] for each in self._reported.values())
            errors = self._settled[1] + sum(each[1] for each in self._reported.values())
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
            self._admit(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _admit(self, connection: socket.socket) -> None:
        with self._lock:
            oldest = next(iter(self._unknown), None)
            full = len(self._unknown) >= _MOST_UNKNOWN
            self._unknown[connection] = None
            if full and oldest is not None:
                del self._unknown[oldest]
                with suppress(OSError):  # it has gone by itself
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread ends

    def _is_task(self, connection: socket.socket) -> bool:
        """Whether the client sends the secret in time. Raises OSError."""
        word, heard = f"{self.address.secret}\n".encode(), b""
        until = time.monotonic() + _TIMEOUT
        while len(heard) < len(word) and b"\n" not in heard:
            left = until - time.monotonic()
            if left <= 0:
                return False
            connection.settimeout(left)
            part = connection.recv(len(word) - len(heard))
            if not part:
                return False
            heard += part
        connection.settimeout(None)
        return hmac.compare_digest(heard, word)

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                if self._is_task(connection):
                    with self._lock:
                        self._unknown.pop(connection, None)
                    self._listen(connection)
            except OSError:
                return  # it has sent nothing in time, or has gone
            finally:
                with self._lock:
                    self._unknown.pop(connection, None)

    def _listen(self, connection: socket.socket) -> None:
        with connection.makefile("rw", encoding="utf-8") as lines:
            try:
                while line := lines.readline(_LONGEST_LINE):
                    name, records, errors = cast("tuple[str, int, int]", json.loads(line))
                    with self._lock:
                        self._reported[name] = records, errors
                    lines.write(f"{self._limit_error()}\n")
                    lines.flush()
            except (OSError, ValueError):
                return  # its task has ended

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
                self._answers = self._connection.makefile("r", encoding="utf-8")
            except OSError:
                self._disconnect()
        return self

    def __exit__(self, *_error: object) -> None:
        self._disconnect()

    def report(self, records: int, errors: int, *, at_once: bool = False) -> None:
        """Report the numbers of this task, at most twice a second unless they are the last ones."""
        now = time.monotonic()
        if self._connection is None or (now < self._next and not at_once):
            return
        self._next = now + _INTERVAL
        try:
            self._connection.sendall(f"{json.dumps([self._name, records, errors])}\n".encode())
            self.stopped = self._answers.readline(_LONGEST_LINE).strip()
        except (OSError, ValueError):
            self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
