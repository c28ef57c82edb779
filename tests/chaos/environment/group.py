"""The members of a chaos run: processes, what they have written down, and how they ended."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from chaos.environment.member import MemberConfig
from chaos.environment.proxied_brokers import HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from chaos.invariants.run_checker import Ending, Handling

from asyncrevoke.cli.demo.member.handler_log import (
    Abandoned,
    Assigned,
    Ended,
    LogReader,
    Released,
    Started,
)
from asyncrevoke.cli.demo.workload import now
from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.broker.listeners.security import ClientOptions
    from asyncrevoke.cli.demo.member.handler_log import Event
    from asyncrevoke.journal.format.schema import Content

ProtocolName: TypeAlias = Literal["cooperative", "eager", "consumer", "share"]
PROTOCOLS: tuple[ProtocolName, ...] = ("cooperative", "eager", "consumer")
"""Of consumer groups."""
CONCURRENCY = 64
CLOSE_TIMEOUT = 8.0
_PROGRAM = Path(__file__).parent / "member.py"


def options(protocol: ProtocolName) -> dict[str, Any]:
    """The options of every member; what is not here has its default."""
    common: dict[str, Any] = {"concurrency": CONCURRENCY, "close_timeout": CLOSE_TIMEOUT}
    if protocol == "share":
        return common | {"group_type": "share"}
    common |= {"order_by": "key", "heartbeat_interval": HEARTBEAT_INTERVAL}
    if protocol == "consumer":
        return common | {"group_protocol": "consumer"}
    assignor = "range" if protocol == "eager" else "cooperative-sticky"
    return common | {"assignors": [assignor], "session_timeout": SESSION_TIMEOUT}


class MemberProcess:
    """One process."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.process = process
        self.reader = LogReader(log)
        self.owned: set[int] = set()
        # When it got SIGTERM, and when it had ended.
        self.told_at: float | None = None
        self.ended_at: float | None = None
        self.killed = False
        self.frozen = False

    @property
    def running(self) -> bool:
        """Whether the process has neither ended nor got SIGTERM."""
        return self.ended_at is None and self.told_at is None


class ChaosGroup:
    """Starts members, signals them, and collects what they wrote.

    ``endings`` are the kills and freezes; ``failures`` say which members ended by themselves.
    """

    def __init__(
        self,
        topic: str,
        protocol: ProtocolName,
        client: ClientOptions,
        folder: Path,
        more: Mapping[str, Any],
        content: Content,
        *,
        has_lifespans: bool = False,
    ) -> None:
        self.topic = topic
        self.name = f"group-of-{topic}"
        self.protocol: ProtocolName = protocol
        self.journal = folder / "journal"
        self.members: dict[str, MemberProcess] = {}
        self.events: list[Handling] = []
        self.handled: set[tuple[TopicPartition, int]] = set()
        self.endings: list[Ending] = []
        self.failures: list[str] = []
        # Of topics that were deleted.
        self.committed_before: dict[TopicPartition, int] = {}
        self._folder = folder
        self.states: Path | None = folder / "states" if has_lifespans else None
        if self.states is not None:
            self.states.mkdir()
        self._content: Content = content
        self._options = {**options(protocol), **client, **more, "group_id": self.name}

    # -- members

    async def join(self) -> MemberProcess:
        """Start a member."""
        name = f"member-{len(self.members) + 1}"
        log = self._folder / f"{name}.handlers"
        config = MemberConfig(
            name=name,
            topic=self.topic,
            log=str(log),
            journal=str(self.journal),
            content=self._content,
            options=self._options,
            states=None if self.states is None else str(self.states),
        )
        with (self._folder / f"{name}.log").open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                str(_PROGRAM),
                msgspec.json.encode(config).decode(),
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        member = self.members[name] = MemberProcess(name, process, log)
        return member

    @property
    def running(self) -> list[MemberProcess]:
        """Members that have neither ended nor got SIGTERM."""
        return [member for member in self.members.values() if member.running]

    def stop(self, member: MemberProcess) -> None:
        """Ask a member to leave (SIGTERM)."""
        member.told_at = now()
        self._signal(member, signal.SIGTERM)

    def kill(self, member: MemberProcess, committed: Mapping[TopicPartition, int]) -> None:
        """Kill a member; ``committed`` is what the group had committed just before."""
        member.told_at = now()
        member.killed = True
        self.endings.append(Ending("killed", member.name, now(), committed))
        self._signal(member, signal.SIGKILL)

    def freeze(self, member: MemberProcess, committed: Mapping[TopicPartition, int] | None) -> None:
        """Stop a member's process (SIGSTOP). ``committed`` is None if that is for less than a
        session, which permits no duplicate."""
        member.frozen = True
        if committed is not None:
            self.endings.append(Ending("frozen", member.name, now(), committed))
        self._signal(member, signal.SIGSTOP)

    def thaw(self, member: MemberProcess) -> None:
        """Let a frozen member go on."""
        member.frozen = False
        self._signal(member, signal.SIGCONT)

    def command(self, member: MemberProcess, line: str) -> None:
        """Make a member's next handler calls misbehave; see ``member.py``."""
        assert member.process.stdin is not None
        member.process.stdin.write(f"{line}\n".encode())

    def _signal(self, member: MemberProcess, number: int) -> None:
        if member.process.returncode is None:
            member.process.send_signal(number)

    # -- what they say

    def stored_offsets(self) -> list[tuple[TopicPartition, int]] | None:
        """What lifespans have stored, None without lifespans."""
        if self.states is None:
            return None
        stored: list[tuple[TopicPartition, int]] = []
        for path in sorted(self.states.iterdir()):
            topic, _, number = path.name.rpartition("-")
            place = TopicPartition(topic, int(number))
            for line in path.read_text().splitlines():
                stored.extend((place, offset) for offset in json.loads(line))
        return stored

    def refresh(self) -> None:
        """Read what members have written, and which have ended."""
        for member in self.members.values():
            for event in member.reader.read():
                self._take(member, event)
            if member.ended_at is None and member.process.returncode is not None:
                member.ended_at = now()
                code = member.process.returncode
                if member.told_at is None or (code != 0 and not member.killed):
                    cause = "by itself" if member.told_at is None else "after SIGTERM"
                    self.endings.append(Ending("closed", member.name, member.ended_at, {}))
                    self.failures.append(f"{member.name} ended {cause} with exit code {code}")

    def _take(self, member: MemberProcess, event: Event) -> None:
        match event:
            case Started() | Ended() | Abandoned():
                self.events.append(event)
                if isinstance(event, Ended):
                    place = TopicPartition(event.topic, event.partition)
                    self.handled.add((place, event.offset))
            case Assigned():
                member.owned.update(event.partitions)
            case Released():
                member.owned.difference_update(event.partitions)
            case _:
                pass

    def rename(self, topic: str, committed: Mapping[TopicPartition, int]) -> None:
        """The topic was deleted: what was handled and committed of it has this name from now on."""
        self.refresh()
        self.events = [msgspec.structs.replace(event, topic=topic) for event in self.events]
        self.handled = {(p._replace(topic=topic), offset) for p, offset in self.handled}
        for place, offset in committed.items():
            self.committed_before[place._replace(topic=topic)] = offset

    @property
    def died(self) -> dict[str, float]:
        """When members ended."""
        return {m.name: m.ended_at for m in self.members.values() if m.ended_at is not None}

    @property
    def longest_exit(self) -> float:
        """Seconds from SIGTERM to the end of the process, of the member that took longest."""
        return max(
            (
                m.ended_at - m.told_at
                for m in self.members.values()
                if m.ended_at is not None and m.told_at is not None and not m.killed
            ),
            default=0.0,
        )

    async def close(self) -> None:
        """Kill what is left."""
        for member in self.members.values():
            if member.process.returncode is None:
                member.process.kill()
            await member.process.wait()
            if member.process.stdin is not None:
                member.process.stdin.close()
