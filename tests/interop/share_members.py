"""Members of a share group by other clients, each a process, and what they say they do."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from interop.other_process import java_command, process_of

from asyncrevoke.broker.installation.jars import class_path

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

HERE = Path(__file__).parent

Client = Literal["java", "confluent"]
Mode = Literal["explicit", "implicit"]
Place = tuple[int, int]
"""Partition and offset."""


class OtherShareMember:
    """``delivered``: how often each record had been delivered by then, at most. ``confirmed``: how
    often the broker has confirmed an acknowledgement of each. ``unaccepted``: what it had been
    delivered and not accepted when it closed its consumer."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.delivered: dict[Place, int] = {}
        self.confirmed = Counter[Place]()
        self.refused = Counter[Place]()
        self.unaccepted: set[Place] = set()

    async def read(self) -> None:
        """Take in what it prints, until it ends."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            what, *numbers = line.split()
            partition, offset, *count = map(int, numbers)
            place = partition, offset
            match what:
                case b"delivered":
                    self.delivered[place] = max(self.delivered.get(place, 0), *count)
                case b"confirmed":
                    self.confirmed[place] += 1
                case b"refused":
                    self.refused[place] += 1
                case b"unaccepted":
                    self.unaccepted.add(place)
                case _:
                    raise AssertionError(line)

    async def leave(self) -> None:
        """Let it close its consumer and end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert await asyncio.wait_for(self.process.wait(), 60) == 0


def command(client: Client) -> list[str]:
    """What starts a member, without its arguments."""
    if client == "confluent":
        return [sys.executable, str(HERE / "confluent_share_member.py")]
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return java_command(class_path(), quiet, str(HERE / "java" / "ShareMember.java"))


def other_share_member(
    client: Client, mode: Mode, servers: str, topic: str, group: str
) -> AbstractAsyncContextManager[OtherShareMember]:
    """Start one; it is gone when the block ends."""
    return process_of(OtherShareMember, *command(client), servers, topic, group, mode)
