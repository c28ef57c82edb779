"""One group of processes of several clients, and what its coordinator and its members say of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from aiokafka import AIOKafkaProducer
from interop.java_member import JavaMember, Seen, java_command

from asyncrevoke import TopicPartition
from asyncrevoke.broker.process.supervisor import die_with_parent
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.groups.cluster import GroupsClient
from asyncrevoke.client.groups.errors import NoGroupError
from asyncrevoke.client.groups.observer import committed_offsets, describe_group

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncrevoke.client.groups.facts import GroupFacts

Client = Literal[
    "ours",
    "java",
    "aiokafka",
    "faststream",
    "kstreams",
    "librdkafka",
    "kafka-python",
    "franz-go",
    "sarama",
    "kafka-go",
    "kafkajs",
    "platformatic",
]

DEADLINE = 60.0
PARTITIONS = 6
_PROGRAM = Path(__file__).parent / "member.py"
_PAUSE = 0.02


class MixedMember(JavaMember):
    """Any client's member: they all speak as Java's does.

    ``committed`` exists only where the client says so; ours commits what counts by itself. After
    :meth:`MixedGroup.crash` it is what the coordinator knows.
    """

    def __init__(self, client: Client, name: str, process: asyncio.subprocess.Process) -> None:
        super().__init__(process)
        self.client: Client = client
        self.name = name
        self.crashed = False
        self.reading = asyncio.create_task(self.read())

    @property
    def uncommitted(self) -> set[tuple[int, int]]:
        """Places that this member has read and, being stopped in between, not committed. Another
        client's says so itself; ours commits all when it is stopped, unless it crashes."""
        if self.client == "ours" and not self.crashed:
            return set()
        return {
            (seen.partition, seen.offset)
            for seen in self.seen
            if seen.offset >= self.committed.get(seen.partition, 0)
        }


class MixedGroup:
    """Members that come and go while records are produced all the time."""

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        topic: str,
        programs: Mapping[Client, Sequence[str]] | None = None,
    ) -> None:
        """``programs``: the commands of the members that are not written in Python or Java; the
        options are appended as JSON."""
        self._folder = folder
        self._programs = programs or {}
        self._bootstrap = bootstrap
        self.topic = topic
        self.name = f"group-of-{topic}"
        self.everything = {TopicPartition(topic, number) for number in range(PARTITIONS)}
        self.members: list[MixedMember] = []
        self.ended: list[MixedMember] = []
        self.sent = 0
        self._stack = contextlib.AsyncExitStack()
        self._enough = asyncio.Event()
        self._producing: asyncio.Task[None] | None = None
        self._cluster: GroupsClient | None = None

    async def __aenter__(self) -> Self:
        # Idempotent: a value that is sent again must not be in the topic twice.
        producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap, enable_idempotence=True)
        await self._stack.enter_async_context(producer)
        config = ConsumerConfig(bootstrap_servers=self._bootstrap)
        self._cluster = await self._stack.enter_async_context(GroupsClient(config))
        self._producing = asyncio.create_task(self._produce(producer))
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._enough.set()
        if self._producing is not None:
            await self._producing
        for member in (*self.members, *self.ended):
            member.kill()
            await member.reading
            await member.wait()
        await self._stack.aclose()

    async def _produce(self, producer: AIOKafkaProducer) -> None:
        while not self._enough.is_set():
            for partition in range(PARTITIONS):
                await producer.send_and_wait(self.topic, b"%d" % self.sent, partition=partition)
                self.sent += 1
            await asyncio.sleep(_PAUSE)

    # --- members ---------------------------------------------------------------------------------

    async def join(self, client: Client, *assignors: str) -> MixedMember:
        """Start a member; without assignors one by KIP-848."""
        number = len(self.members) + len(self.ended)
        name = f"{client}-{number}"
        if client == "java":
            properties = self._folder / f"{name}.properties"
            # By KIP-848 the broker says how often.
            often = "heartbeat.interval.ms=300\n" if assignors else ""
            properties.write_text(f"{often}client.id={name}\n", encoding="utf-8")
            command = java_command(properties, self._bootstrap, self.topic, self.name, assignors)
        else:
            options = {
                "bootstrap_servers": self._bootstrap,
                "group_id": self.name,
                "topic": self.topic,
                "client_id": name,
                "assignors": assignors,
            }
            program = self._programs.get(client, [sys.executable, str(_PROGRAM), client])
            command = [*program, json.dumps(options)]
        with (self._folder / f"{name}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                preexec_fn=die_with_parent if sys.platform == "linux" else None,
            )
        member = MixedMember(client, name, process)
        self.members.append(member)
        return member

    async def leave(self, member: MixedMember) -> None:
        """Stop a member gracefully, and wait for its end."""
        async with asyncio.timeout(DEADLINE):
            await member.leave()
            await member.reading
        member.owned.clear()
        self.members.remove(member)
        self.ended.append(member)

    async def crash(self, member: MixedMember) -> None:
        """Kill a member. What it has read beyond the committed offsets may be read again."""
        cluster = self._cluster
        assert cluster is not None
        member.kill()
        await member.wait()
        # Nobody else can commit for its partitions before its session ends.
        committed = await committed_offsets(cluster, self.name)
        async with asyncio.timeout(DEADLINE):
            await member.reading
        member.committed = {place.partition: offset for place, offset in committed.items()}
        member.crashed = True
        member.owned.clear()
        self.members.remove(member)
        self.ended.append(member)

    async def ends_by_itself(self, member: MixedMember) -> str:
        """Wait until a member fails; what it wrote to its log."""
        async with asyncio.timeout(DEADLINE):
            await member.reading
        self.members.remove(member)
        self.ended.append(member)
        return (self._folder / f"{member.name}.log").read_text("utf-8", "replace")

    # --- rolling restarts (KIP-429) ---------------------------------------------------------------

    async def bounce(self, *assignors: str, client: Client = "ours") -> list[str]:
        """Restart each member in turn, now as one of this client; the assignors that the group
        used."""
        used: list[str] = []
        for member in list(self.members):
            await self.leave(member)
            await self.join(client, *assignors)
            used.append((await self.until_balanced()).assignor)
        return used

    async def upgrade(self, members: int, client: Client, assignor: str, *others: str) -> int:
        """Make a group of so many members of this client ours in two rolling restarts. Returns
        what :meth:`ends_with_each_record_consumed_once` does."""
        for _ in range(members):
            await self.join(client, assignor, *others)
        assert (await self.until_balanced()).assignor == assignor
        first = await self.bounce(assignor, *others, "cooperative-sticky")
        assert first[:-1] == [assignor] * (members - 1)
        # When all offer both, members vote, each for what it prefers.
        assert first[-1] == assignor
        second = await self.bounce("cooperative-sticky")
        assert second == ["cooperative-sticky"] * members
        assert {member.client for member in self.members} == {"ours"}
        return await self.ends_with_each_record_consumed_once()

    async def join_and_leave(self, clients: Sequence[Client]) -> list[str]:
        """Let a member of each of these clients join by KIP-848, then let all but the last leave.
        The group is balanced after every step. Returns the assignor after each join."""
        used: list[str] = []
        for client in clients:
            await self.join(client)
            used.append((await self.until_balanced()).assignor)
        for member in self.members[:-1]:
            await self.leave(member)
            await self.until_balanced()
        return used

    # --- what must hold --------------------------------------------------------------------------

    async def until_balanced(self) -> GroupFacts:
        """Wait until each partition has exactly one owner, by the word of the coordinator and by
        that of the members, shares are as even as can be, and records flow from all of them."""
        facts: GroupFacts | None = None
        try:
            async with asyncio.timeout(DEADLINE):
                while facts is None or not self._agrees(facts):
                    self._all_live()
                    await asyncio.sleep(0.1)
                    facts = await self._described()
                await self._flows()
        except TimeoutError:
            said = {member.name: sorted(member.owned) for member in self.members}
            raise AssertionError(f"not settled: members say {said}, coordinator {facts}") from None
        return facts

    async def _described(self) -> GroupFacts | None:
        cluster = self._cluster
        assert cluster is not None
        try:
            return await describe_group(cluster, self.name)
        except NoGroupError:
            return None  # nobody has joined yet

    def _agrees(self, facts: GroupFacts) -> bool:
        told = {member.client_id: set(member.assigned) for member in facts.members}
        said = {member.name: member.owned for member in self.members}
        sizes = [len(owned) for owned in said.values()]
        return (
            facts.state == "Stable"
            and not facts.rebalance.in_progress
            and told == said
            and set().union(*told.values()) == self.everything
            and sum(sizes) == PARTITIONS
            and max(sizes) - min(sizes) <= 1
        )

    def _all_live(self) -> None:
        for member in self.members:
            if not member.running:
                log = (self._folder / f"{member.name}.log").read_text("utf-8", "replace")
                raise AssertionError(f"{member.name} has ended by itself:\n{log[-3000:]}")

    async def _flows(self) -> None:
        first = self.sent + PARTITIONS
        every = set(range(PARTITIONS))
        while every - {  # noqa: ASYNC110 - of another process
            s.partition for m in self.members for s in m.seen if s.value >= first
        }:
            await asyncio.sleep(0.05)

    async def ends_with_each_record_consumed_once(self) -> int:
        """Stop producing, let all be consumed, stop all members. Returns how many records were read
        twice because another client's member was stopped before it had committed: it says so
        itself, and nothing else may be read twice."""
        self._enough.set()
        assert self._producing is not None
        await self._producing
        wanted = set(range(self.sent))
        missing = wanted
        try:
            async with asyncio.timeout(DEADLINE):
                while missing := wanted - {seen.value for seen in self._seen()}:
                    self._all_live()
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"never consumed: {sorted(missing)[:20]} of {self.sent}") from None
        for member in list(self.members):
            await self.leave(member)
        times = Counter(seen.value for seen in self._seen())
        assert set(times) == wanted
        permitted = {place for member in self.ended for place in member.uncommitted}
        twice = {(s.partition, s.offset) for s in self._seen() if times[s.value] > 1}
        readers = {
            (place, member.name)
            for member in self.ended
            for seen in member.seen
            if (place := (seen.partition, seen.offset)) in twice - permitted
        }
        assert not readers, f"read twice: {sorted(readers)}"
        self._check_order()
        return len(twice)

    def _seen(self) -> list[Seen]:
        return [seen for member in (*self.members, *self.ended) for seen in member.seen]

    def _check_order(self) -> None:
        """Of one member: nothing of a partition comes twice or out of order."""
        for member in self.ended:
            if member.client == "ours":
                in_order = defaultdict[int, list[int]](list)
                for seen in member.seen:
                    in_order[seen.partition].append(seen.offset)
                assert all(offsets == sorted(set(offsets)) for offsets in in_order.values())
