"""A member of a group written in Java, and what it says it does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from asyncrevoke.broker.installation.jars import class_path
from asyncrevoke.broker.installation.java import find_java
from asyncrevoke.broker.process.supervisor import die_with_parent
from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from pathlib import Path

_ASSIGNORS = {
    "cooperative-sticky": "CooperativeStickyAssignor",
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
}


class _Partition(TypedDict):
    topic: str
    partition: int
    offset: int


class _Line(TypedDict):
    """The fields that a line may have."""

    name: str
    partitions: list[_Partition]
    offsets: list[_Partition]
    success: bool
    partition: int
    offset: int
    value: str


class Seen(NamedTuple):
    """One record that somebody consumed."""

    partition: int
    offset: int
    value: int


class JavaMember:
    """Kafka's VerifiableConsumer: it commits after each of its polls.

    ``committed`` is the offset of each partition that its last successful commit covers.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.owned: set[TopicPartition] = set()
        self.ever_owned: set[TopicPartition] = set()
        self.seen: list[Seen] = []
        self.committed: dict[int, int] = {}

    async def read(self) -> None:
        """Take in what it prints, until it ends."""
        output = self._process.stdout
        assert output is not None
        async for line in output:
            self._take(json.loads(line))

    def _take(self, line: _Line) -> None:
        match line["name"]:
            case "partitions_assigned":
                added = {TopicPartition(p["topic"], p["partition"]) for p in line["partitions"]}
                self.owned |= added
                self.ever_owned |= added
            case "partitions_revoked":
                self.owned -= {
                    TopicPartition(p["topic"], p["partition"]) for p in line["partitions"]
                }
            case "record_data":
                self.seen.append(Seen(line["partition"], line["offset"], int(line["value"])))
            case "offsets_committed":
                if line["success"]:
                    self.committed |= {p["partition"]: p["offset"] for p in line["offsets"]}
            case _:
                pass

    async def leave(self) -> None:
        """Let it close its consumer and end."""
        self._process.terminate()
        await self._process.wait()
        self.owned.clear()

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        return self._process.returncode is None

    def kill(self) -> None:
        """End it at once, if it still runs."""
        if self._process.returncode is None:
            self._process.kill()

    async def wait(self) -> None:
        """Wait until its process has ended."""
        await self._process.wait()


def java_command(
    properties: Path, bootstrap_servers: str, topic: str, group_id: str, assignors: Sequence[str]
) -> list[str]:
    """What starts a VerifiableConsumer, without ``assignors`` one by KIP-848; ``properties`` is a
    file of client properties."""
    package = "org.apache.kafka.clients.consumer"
    strategies = ",".join(f"{package}.{_ASSIGNORS[assignor]}" for assignor in assignors)
    protocol = ["--group-protocol", "consumer"]
    if assignors:
        protocol = ["--assignment-strategy", strategies, "--session-timeout", "10000"]
    return [
        *(str(find_java().path), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        *("-cp", class_path(tools=True), "org.apache.kafka.tools.VerifiableConsumer"),
        *("--bootstrap-server", bootstrap_servers, "--topic", topic, "--group-id", group_id),
        *protocol,
        *("--reset-policy", "earliest", "--verbose"),
        *("--command-config", str(properties)),
    ]


@asynccontextmanager
async def java_member(
    folder: Path, bootstrap_servers: str, topic: str, group_id: str, assignor: str | None
) -> AsyncGenerator[JavaMember]:
    """Start one, without ``assignor`` one by KIP-848; it is gone when the block ends. Its log is
    ``java-*.log`` in ``folder``."""
    assignors = [] if assignor is None else [assignor]
    number = len(list(folder.glob("java-*.log")))
    # Members learn of a rebalance by their heartbeats, every 3 s unless told otherwise; with
    # KIP-848 the coordinator tells them how often.
    properties = folder / "java.properties"
    properties.write_text("heartbeat.interval.ms=300\n" if assignors else "", encoding="utf-8")
    with (folder / f"java-{number}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *java_command(properties, bootstrap_servers, topic, group_id, assignors),
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            preexec_fn=die_with_parent if sys.platform == "linux" else None,
        )
    member = JavaMember(process)
    reading = asyncio.create_task(member.read())
    try:
        yield member
    finally:
        member.kill()
        await process.wait()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
