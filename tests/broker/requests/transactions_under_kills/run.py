"""One run: records trickle in while members are stopped, killed and frozen; then the results are
judged."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from broker.requests.transactions_under_kills.cluster_requests import (
    coordinator_of,
    set_transaction_version,
    transaction_version,
)
from broker.requests.transactions_under_kills.judge import (
    PARTITIONS,
    CommittedResults,
    Verdict,
    key_of,
)
from broker.requests.transactions_under_kills.processes import MemberProcess
from confluent_kafka import Producer as ConfluentProducer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from pathlib import Path

    from asyncrevoke.broker import KafkaBroker, RunningBroker
    from asyncrevoke.client.config import GroupProtocol
    from asyncrevoke.client.config.consumer_options import Processing

TRANSACTION_TIMEOUT = 5.0
SESSION_TIMEOUT = 2.0
# Both of the coordinator: sessions of KIP-848 groups, and how often it looks for old transactions.
PROPERTIES = {
    "group.consumer.session.timeout.ms": f"{SESSION_TIMEOUT * 1000:.0f}",
    "group.consumer.heartbeat.interval.ms": "300",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
# Of three replicas, so that no acknowledged record is lost with a broker.
CLUSTER_PROPERTIES = {"min.insync.replicas": "2", "transaction.state.log.min.isr": "2"}
# Seconds for the rest of the results after the last fault, on a busy machine.
_PATIENCE = 60.0


class Faults(NamedTuple):
    """How often each fault occurs in a run.

    ``twins``: another process with the group_instance_id of a member starts; ``frozen_twins``:
    while the member is frozen, which goes on when its twin handles records. Such a member has to
    fail; if it is not frozen, under KIP-848, its twin has to wait.
    ``restarts``: of a broker that coordinates the group or the transactions of a member, by SIGTERM
    or SIGKILL. ``levels``: changes of the cluster's transaction.version. ``switches``: a rolling
    restart with processing="at_least_once", the next one with "exactly_once" again; only members
    with exactly_once are killed and frozen. ``killed_switches``: the same, and one of them is
    killed while the group has members of both kinds.
    """

    kills: int = 3
    stops: int = 2
    freezes: int = 1
    twins: int = 0
    frozen_twins: int = 0
    restarts: int = 0
    levels: int = 0
    switches: int = 0
    killed_switches: int = 0


class Outcome(NamedTuple):
    """``problems``: members that did not end as they should."""

    inputs: int
    handled: int
    verdict: Verdict
    problems: list[str]
    seconds: float

    @property
    def is_good(self) -> bool:
        """Whether each input has exactly one result, in order."""
        return self.verdict == Verdict(0, 0, 0) and not self.problems


class Load(NamedTuple):
    """``rate``: records a second; ``pause``: the most seconds between two faults."""

    members: int = 3
    rate: int = 400
    pause: float = 2.5


class Run:
    """The members of one group, and what happens to them.

    ``brokers`` are those of the cluster; ``static``: members have a group_instance_id.
    """

    def __init__(
        self,
        broker: RunningBroker,
        topic: str,
        folder: Path,
        protocol: GroupProtocol,
        *,
        seed: int,
        brokers: Sequence[KafkaBroker] = (),
        static: bool = False,
        load: Load | None = None,
    ) -> None:
        self._broker = broker
        self._topic = topic
        self._folder = folder
        self._protocol = protocol
        self._random = random.Random(seed)
        self._brokers = {broker.node_id: broker for broker in brokers}
        self._static = static
        self._processing: Processing = "exactly_once"
        self._load = load or Load()
        self._members: list[MemberProcess] = []
        self._ended: list[MemberProcess] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._problems: list[str] = []
        self._started = 0
        self._written = 0

    def _start(self, instance: str | None = None) -> MemberProcess:
        self._started += 1
        options: dict[str, object] = {
            "bootstrap_servers": self._broker.bootstrap_servers,
            "group_protocol": self._protocol,
            "processing": self._processing,
            "concurrency": 16,
            "request_timeout": 5.0,
        }
        if self._processing == "exactly_once":
            options |= {"transaction_timeout": TRANSACTION_TIMEOUT, "transaction_interval": 0.05}
        if self._protocol == "classic":
            options |= {"session_timeout": SESSION_TIMEOUT, "heartbeat_interval": 0.3}
        name = f"{self._topic}-{self._started}"
        if self._static:
            options["group_instance_id"] = instance or name
        member = MemberProcess(self._folder, name, self._topic, options)
        self._members.append(member)
        return member

    @asynccontextmanager
    async def _trickling(self) -> AsyncGenerator[None]:
        """Write numbered records within the block."""
        producer = ConfluentProducer(
            {
                "bootstrap.servers": self._broker.bootstrap_servers,
                "enable.idempotence": True,
                "log_level": 2,
            }
        )

        async def write() -> None:
            while True:
                for _ in range(self._load.rate // 20):
                    number = self._written
                    producer.produce(self._topic, b"%d" % number, key=key_of(number))
                    self._written += 1
                producer.poll(0)
                await asyncio.sleep(0.05)

        writing = asyncio.create_task(write())
        try:
            yield
        finally:
            writing.cancel()
            await asyncio.wait((writing,))
            assert await asyncio.to_thread(producer.flush, 60) == 0

    async def _wait(self) -> None:
        await asyncio.sleep((0.1 + 0.9 * self._random.random()) * self._load.pause)

    async def execute(self, faults: Faults) -> Outcome:
        """Run with these faults, in random order."""
        began = time.monotonic()
        for name in (self._topic, f"{self._topic}-out"):
            self._broker.create_topic(name, PARTITIONS)
        try:
            with CommittedResults(self._broker.bootstrap_servers, f"{self._topic}-out") as results:
                async with self._trickling():
                    for _ in range(self._load.members):
                        self._start()
                    await self._first_records()
                    for fault in self._drawn(faults):
                        await self._inject(fault)
                        await self._wait()
                await asyncio.gather(*self._tasks)
                until = time.monotonic() + _PATIENCE
                await asyncio.to_thread(results.read, self._written, until=until, quiet=1.0)
                for member in self._members:
                    await self._stop(member)
                # What a member writes at its end would be doubled.
                until = time.monotonic() + 2.0
                await asyncio.to_thread(results.read, self._written, until=until, quiet=1.0)
                verdict = results.verdict(self._written)
        finally:
            for member in (*self._members, *self._ended):
                member.kill()
        handled = sum(member.handled for member in (*self._members, *self._ended))
        seconds = time.monotonic() - began
        return Outcome(self._written, handled, verdict, self._problems, seconds)

    async def _first_records(self) -> None:
        for member in self._members:
            await self._handles(member)

    @staticmethod
    async def _handles(member: MemberProcess) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not member.handled:
            assert time.monotonic() < deadline, f"{member.name} has handled nothing"
            await asyncio.sleep(0.05)

    def _drawn(self, faults: Faults) -> list[str]:
        drawn = [name for name, count in faults._asdict().items() for _ in range(count)]
        self._random.shuffle(drawn)
        return drawn

    async def _inject(self, fault: str) -> None:
        if fault == "restarts":
            await asyncio.to_thread(self._restart_a_coordinator)
            return
        if fault == "levels":
            await asyncio.to_thread(self._change_level)
            return
        if fault in ("switches", "killed_switches"):
            await self._switch(kills=fault == "killed_switches")
            return
        running = [m for m in self._members if m.running and m.processing == "exactly_once"]
        if not running:
            self._start()
            return
        member = self._random.choice(running)
        if fault == "freezes":
            member.freeze()
            # Beyond the session, and often beyond the transaction.
            await asyncio.sleep(SESSION_TIMEOUT + self._random.random() * TRANSACTION_TIMEOUT)
            member.go_on()
            return
        if fault in ("twins", "frozen_twins"):
            await self._replace(member, frozen=fault == "frozen_twins")
            return
        self._members.remove(member)
        self._ended.append(member)
        if fault == "kills":
            member.kill()
        else:
            self._tasks.append(asyncio.create_task(self._stop(member)))
        await asyncio.sleep(self._random.random())
        self._start()

    async def _switch(self, *, kills: bool) -> None:
        at_least_once = self._processing == "at_least_once"
        self._processing = "exactly_once" if at_least_once else "at_least_once"
        for member in self._members.copy():
            if member not in self._members:
                continue
            self._members.remove(member)
            self._ended.append(member)
            await self._stop(member)
            await self._handles(self._start())
            if kills:
                kills = False
                killed = self._random.choice(
                    [one for one in self._members if one.processing == "exactly_once"]
                )
                self._members.remove(killed)
                self._ended.append(killed)
                killed.kill()
                await self._handles(self._start())

    async def _replace(self, member: MemberProcess, *, frozen: bool) -> None:
        if frozen:
            member.freeze()
        twin = self._start(member.instance)
        if not frozen and self._protocol == "consumer":
            await self._wait()
            await self._stop(twin)
            self._members.remove(twin)
            self._ended.append(twin)
            if twin.handled:
                self._problems.append(f"{twin.name} has not waited for {member.name}")
            return
        self._members.remove(member)
        self._ended.append(member)
        if frozen:
            await self._handles(twin)
            member.go_on()
        self._tasks.append(asyncio.create_task(self._fails(member)))

    async def _fails(self, member: MemberProcess) -> None:
        code = await member.ended()
        if not code:
            self._problems.append(f"{member.name}, which has a twin: exit code {code}")

    def _restart_a_coordinator(self) -> None:
        ids = [found for member in self._members if (found := member.transactional_id)]
        of_group = not ids or self._random.random() < 0.5
        id_ = None if of_group else self._random.choice(ids)
        node_id = coordinator_of(self._broker, self._topic, id_)
        self._brokers[node_id].restart(orderly=self._random.random() < 0.5)

    def _change_level(self) -> None:
        # Level 0 stops the coordinator while transactions of level 2 end.
        set_transaction_version(self._broker, 1 if transaction_version(self._broker) == 2 else 2)

    async def _stop(self, member: MemberProcess) -> None:
        running = member.running
        code = await member.stop()
        if not running or code != 0:
            self._problems.append(f"{member.name}: exit code {code}")
