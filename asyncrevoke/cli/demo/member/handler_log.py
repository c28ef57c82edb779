"""A member's log of handler calls and assignments: a file with one JSON object per line."""

from __future__ import annotations

import contextlib
import enum
import os
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from asyncrevoke.cli.demo.workload import now

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from pathlib import Path


class Client(enum.StrEnum):
    """The Kafka client of a member."""

    ASYNCREVOKE = "asyncrevoke"
    AIOKAFKA = "aiokafka"


class MemberConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in seconds."""

    client: Client
    name: str
    bootstrap_servers: str
    topic: str
    group: str
    log: str
    protocol: Literal["eager", "cooperative", "consumer"]
    concurrency: int
    session_timeout: float
    max_in_flight: int = 2000
    commit_interval: float = 1.0
    heartbeat_interval: float = 1.0
    # The folder of the member's journal, or None. ``strict`` is for members that may be killed.
    journal: str | None = None
    strict: bool = False
    # The topic of the results, which are written in transactions together with the offsets. None:
    # no results.
    results: str | None = None
    transaction_timeout: float = 5.0


class Handling(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a record; ``at`` is on the shared clock."""

    member: str
    topic: str
    partition: int
    offset: int
    key: str | None
    at: float


class Started(Handling, frozen=True, kw_only=True, tag="start"):
    """A handler was called."""


class Ended(Handling, frozen=True, kw_only=True, tag="end"):
    """A handler returned."""


class Abandoned(Handling, frozen=True, kw_only=True, tag="abandon"):
    """A handler was cancelled or raised."""


class Owning(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a member's assignment."""

    member: str
    partitions: tuple[int, ...]
    at: float


class Assigned(Owning, frozen=True, kw_only=True, tag="assigned"):
    """Partitions that were assigned to the member."""


class Released(Owning, frozen=True, kw_only=True, tag="released"):
    """Partitions that the member released or lost."""


class Draining(msgspec.Struct, frozen=True, kw_only=True, tag="draining"):
    """The number of partitions that are being revoked from a member."""

    member: str
    count: int
    at: float


Event: TypeAlias = Started | Ended | Abandoned | Assigned | Released | Draining

_decode = msgspec.json.Decoder(Event).decode


class HandlerLog:
    """Writes the log. Each line goes to the operating system at once, so that a killed member
    leaves a complete log."""

    def __init__(self, path: Path, member: str) -> None:
        self._member = member
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._encode = msgspec.json.Encoder().encode
        self._draining = 0

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    @contextlib.contextmanager
    def handling(
        self, topic: str, partition: int, offset: int, key: bytes | None
    ) -> Generator[None]:
        """Log the start and the end of the enclosed handler call."""
        name = None if key is None else key.decode("utf-8", "backslashreplace")

        def write(kind: type[Started | Ended | Abandoned]) -> None:
            self._write(
                kind(
                    member=self._member,
                    topic=topic,
                    partition=partition,
                    offset=offset,
                    key=name,
                    at=now(),
                )
            )

        write(Started)
        try:
            yield
        except BaseException:
            write(Abandoned)
            raise
        write(Ended)

    def assigned(self, partitions: Iterable[int]) -> None:
        """Log partitions that were assigned."""
        self._write(Assigned(member=self._member, partitions=tuple(sorted(partitions)), at=now()))

    def released(self, partitions: Iterable[int]) -> None:
        """Log partitions that were released or lost."""
        self._write(Released(member=self._member, partitions=tuple(sorted(partitions)), at=now()))

    def draining(self, count: int) -> None:
        """Log the number of partitions that are being revoked, if it has changed."""
        if count != self._draining:
            self._draining = count
            self._write(Draining(member=self._member, count=count, at=now()))

    def _write(self, event: Event) -> None:
        os.write(self._file, self._encode(event) + b"\n")


class LogReader:
    """Reads the log: each call of :meth:`read` returns the events since the previous one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> list[Event]:
        """New events in the order of the log. None of them while the file does not exist."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        # The next call reads an incomplete line.
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [_decode(line) for line in whole.splitlines()]
