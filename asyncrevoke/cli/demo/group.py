"""A consumer group of the demo: its members' processes, its topic, and the members' logs."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from asyncrevoke.cli.demo.member.handler_log import (
    Abandoned,
    Assigned,
    Draining,
    Ended,
    Event,
    LogReader,
    MemberConfig,
    Released,
    Started,
)
from asyncrevoke.cli.demo.workload import Action, ScheduleStep, now
from asyncrevoke.client.errors import AsyncRevokeError
from asyncrevoke.client.printable import printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from asyncrevoke.cli.demo.group_result import Produced
    from asyncrevoke.client.model import TopicPartition


@dataclass(slots=True)
class MemberProgress:
    """A member, according to its log. ``state`` is shown to users."""

    name: str
    state: str = "starting"
    partitions: set[int] = field(default_factory=set[int])
    draining: int = 0
    in_flight: int = 0
    handled: int = 0

    @property
    def gone(self) -> bool:
        """Whether its process has ended."""
        return self.state in {"left", "killed"}


@dataclass(slots=True)
class PartitionProgress:
    """A partition: its last owner, the number of records without a call (``waiting``) and of
    running calls, and the time of the last call."""

    owner: str = ""
    waiting: int = 0
    in_flight: int = 0
    last_call: float = 0.0


class GroupProgress:
    """Counts records by the members' logs and the producer's acknowledgements."""

    def __init__(self, partitions: int) -> None:
        self.members: dict[str, MemberProgress] = {}
        self.partitions = {number: PartitionProgress() for number in range(partitions)}
        self.produced = 0
        self._begun: set[tuple[int, int]] = set()
        self._returned: set[tuple[int, int]] = set()
        self._running: dict[str, dict[tuple[int, int], int]] = defaultdict(dict)

    @property
    def handled(self) -> int:
        """The number of records whose handler has returned at least once."""
        return len(self._returned)

    def member(self, name: str) -> MemberProgress:
        """The member of this name. Added if it is new."""
        return self.members.setdefault(name, MemberProgress(name))

    def append(self, records: Iterable[Produced]) -> None:
        """Add records that a broker has acknowledged."""
        for record in records:
            self.produced += 1
            if (record.partition.partition, record.offset) not in self._begun:
                self.partitions[record.partition.partition].waiting += 1

    def ended(self, name: str, state: str) -> None:
        """A member's process has ended, with its running handlers."""
        member = self.member(name)
        for partition, _ in self._running.pop(name, {}):
            self.partitions[partition].in_flight -= 1
        member.state, member.in_flight, member.draining = state, 0, 0
        member.partitions.clear()

    def update(self, events: Iterable[Event]) -> None:
        """Add new events of a member's log."""
        for event in events:
            member = self.member(event.member)
            match event:
                case Started():
                    self._start(member, event)
                case Ended() | Abandoned():
                    self._end(member, event)
                case Assigned():
                    member.state = "running" if member.state == "starting" else member.state
                    member.partitions.update(event.partitions)
                    for number in event.partitions:
                        self.partitions[number].owner = member.name
                case Released():
                    member.partitions.difference_update(event.partitions)
                    for number in event.partitions:
                        if self.partitions[number].owner == member.name:
                            self.partitions[number].owner = ""
                case Draining():
                    member.draining = event.count

    def _start(self, member: MemberProgress, event: Started) -> None:
        record = (event.partition, event.offset)
        partition = self.partitions[event.partition]
        self._running[member.name][record] = 1
        member.in_flight += 1
        partition.in_flight += 1
        partition.last_call = max(partition.last_call, event.at)
        if record not in self._begun:
            self._begun.add(record)
            partition.waiting = max(0, partition.waiting - 1)

    def _end(self, member: MemberProgress, event: Ended | Abandoned) -> None:
        record = (event.partition, event.offset)
        if self._running[member.name].pop(record, None) is None:
            return
        member.in_flight -= 1
        self.partitions[event.partition].in_flight -= 1
        if isinstance(event, Ended):
            member.handled += 1
            self._returned.add(record)


LEAVE_TIMEOUT = 40.0
ERROR_LINES = 20
# How often a coordinator looks for transactions to abort, in seconds.
EXPIRY_CHECK = 10.0


class MemberFailedError(AsyncRevokeError):
    """A member's process ended unexpectedly. ``lines`` are the end of its output."""

    def __init__(self, message: str, lines: str) -> None:
        super().__init__(message)
        self._lines = printable_lines(lines)

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self._lines}"


class DemoGroup:
    """Starts and ends members, and reads their logs.

    Args:
        template: the configuration of all members, without name and log.
        folder: of the members' logs.
        partitions: of the topic.
    """

    def __init__(self, template: MemberConfig, folder: Path, partitions: int) -> None:
        self.client = template.client
        self.topic = template.topic
        self.results = template.results
        self.name = template.group
        self.produced: list[Produced] = []
        self.events: list[Event] = []
        self.died: dict[str, float] = {}
        self.killed: dict[str, Mapping[TopicPartition, int]] = {}
        self.steps: list[ScheduleStep] = []
        self.partitions = partitions
        self.progress = GroupProgress(partitions)
        self._template = template
        self._folder = folder
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._readers: dict[str, LogReader] = {}
        self._signalled: set[str] = set()

    @property
    def pending_offsets(self) -> float:
        """Seconds that the offsets of a killed member may be pending in its transaction."""
        if self.results is None:
            return 0.0
        return self._template.transaction_timeout + EXPIRY_CHECK

    @property
    def handled(self) -> list[Started | Ended | Abandoned]:
        """Events of handler calls."""
        return [event for event in self.events if isinstance(event, Started | Ended | Abandoned)]

    @property
    def processes(self) -> Mapping[str, int]:
        """The process ids of all members by name. May be read by another thread."""
        return {name: process.pid for name, process in list(self._processes.items())}

    def acknowledged(self, record: Produced) -> None:
        """Add a record that a broker has acknowledged."""
        self.produced.append(record)
        self.progress.append((record,))

    async def take(
        self, step: ScheduleStep, begin: float, committed: Mapping[TopicPartition, int]
    ) -> None:
        """Start, stop or kill a member, and record the time. ``committed``: the group's committed
        offsets, which are needed if the member is killed."""
        self.steps.append(ScheduleStep(now() - begin, step.action, step.member))
        match step.action:
            case Action.JOIN:
                await self._join(step.member)
            case Action.STOP:
                self._signal(step.member, signal.SIGTERM, "leaving")
            case Action.KILL:
                self.killed[step.member] = committed
                # Windows has no SIGKILL; there SIGTERM kills.
                self._signal(step.member, getattr(signal, "SIGKILL", signal.SIGTERM), "killed")

    def refresh(self) -> None:
        """Read new events of the members' logs. Raises MemberFailedError if a member's process
        ended unexpectedly."""
        for reader in self._readers.values():
            events = reader.read()
            self.events += events
            self.progress.update(events)
        for name, process in self._processes.items():
            if process.returncode is None or name in self.died:
                continue
            self.died[name] = now()
            killed = self.progress.member(name).state == "killed"
            self.progress.ended(name, "killed" if killed else "left")
            if name not in self._signalled or (process.returncode != 0 and not killed):
                raise MemberFailedError(
                    f"member {name} ({self.client}) ended with exit code {process.returncode}:",
                    self._errors(name),
                )

    def is_starting(self, *members: str) -> bool:
        """Whether one of these members, by default of all, has not been assigned partitions yet:
        SIGTERM may end such a process at once."""
        names = members or self._processes
        return any(self.progress.member(name).state == "starting" for name in names)

    @property
    def all_handled(self) -> bool:
        """Whether every acknowledged record was handled."""
        return self.progress.handled >= len(self.produced)

    @property
    def all_gone(self) -> bool:
        """Whether the processes of all members have ended."""
        return len(self.died) == len(self._processes)

    def stop(self) -> None:
        """Send SIGTERM to the members that are running."""
        for name in self._processes:
            if name not in self._signalled:
                self._signal(name, signal.SIGTERM, "leaving")

    async def close(self) -> None:
        """Kill the processes that are running."""
        for process in self._processes.values():
            if process.returncode is None:
                process.kill()
            await process.wait()
            if process.stdin is not None:
                process.stdin.close()

    async def _join(self, name: str) -> None:
        config = msgspec.structs.replace(
            self._template, name=name, log=str(self._folder / f"{self.client}-{name}.log")
        )
        self.progress.member(name)
        with self._error_file(name).open("wb") as errors:
            self._processes[name] = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "asyncrevoke.cli.demo.member.main",
                msgspec.json.encode(config).decode(),
                stdin=asyncio.subprocess.PIPE,
                stdout=errors,
                stderr=errors,
                # Ctrl-C must not reach members: the demo ends them itself.
                start_new_session=True,
            )  # fmt: skip
        self._readers[name] = LogReader(self._folder / f"{self.client}-{name}.log")

    def _signal(self, name: str, number: int, state: str) -> None:
        self._signalled.add(name)
        self.progress.member(name).state = state
        process = self._processes[name]
        if process.returncode is None:
            process.send_signal(number)

    def _error_file(self, name: str) -> Path:
        return self._folder / f"{self.client}-{name}.err"

    def _errors(self, name: str) -> str:
        lines = self._error_file(name).read_text("utf-8", "replace").splitlines()
        return "\n".join(lines[-ERROR_LINES:])
