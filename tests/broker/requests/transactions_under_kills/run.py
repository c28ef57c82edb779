"""One run: records trickle in while members are stopped, killed and frozen; then the results are
judged."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from broker.requests.transactions_under_kills.judge import (
    PARTITIONS,
    CommittedResults,
    Verdict,
    key_of,
)
from broker.requests.transactions_under_kills.processes import MemberProcess
from confluent_kafka import Producer as ConfluentProducer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from asyncrevoke.broker import KafkaBroker, RunningBroker
    from asyncrevoke.client.config import GroupProtocol

TRANSACTION_TIMEOUT = 5.0
SESSION_TIMEOUT = 2.0
# Both of the coordinator: sessions of KIP-848 groups, and how often it looks for old transactions.
PROPERTIES = {
    "group.consumer.session.timeout.ms": f"{SESSION_TIMEOUT * 1000:.0f}",
    "group.consumer.heartbeat.interval.ms": "300",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
# Seconds for the rest of the results after the last fault, on a busy machine.
_PATIENCE = 60.0


class Faults(NamedTuple):
    """How often each fault occurs in a run."""

    kills: int = 3
    stops: int = 2
    freezes: int = 1
    twins: int = 0
    restarts: int = 0


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

    ``restarted`` is the broker that is restarted; ``static``: members have a group_instance_id.
    """

    def __init__(
        self,
        broker: RunningBroker,
        topic: str,
        folder: Path,
        protocol: GroupProtocol,
        *,
        seed: int,
        restarted: KafkaBroker | None = None,
        static: bool = False,
        load: Load | None = None,
    ) -> None:
        self._broker = broker
        self._topic = topic
        self._folder = folder
        self._protocol = protocol
        self._random = random.Random(seed)
        self._restarted = restarted
        self._static = static
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
            "transaction_timeout": TRANSACTION_TIMEOUT,
            "transaction_interval": 0.05,
            "concurrency": 16,
            "request_timeout": 5.0,
        }
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
        deadline = time.monotonic() + _PATIENCE
        while not all(member.handled for member in self._members):
            assert time.monotonic() < deadline, "a member has handled nothing"
            await asyncio.sleep(0.05)

    def _drawn(self, faults: Faults) -> list[str]:
        drawn = [name for name, count in faults._asdict().items() for _ in range(count)]
        self._random.shuffle(drawn)
        return drawn

    async def _inject(self, fault: str) -> None:
        if fault == "restarts":
            assert self._restarted is not None
            await asyncio.to_thread(self._restarted.restart, orderly=self._random.random() < 0.5)
            return
        running = [member for member in self._members if member.running]
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
        if fault == "twins":
            # The twin takes over, and the first one fails.
            self._members.remove(member)
            self._ended.append(member)
            self._start(member.name)
            return
        self._members.remove(member)
        self._ended.append(member)
        if fault == "kills":
            member.kill()
        else:
            self._tasks.append(asyncio.create_task(self._stop(member)))
        await asyncio.sleep(self._random.random())
        self._start()

    async def _stop(self, member: MemberProcess) -> None:
        running = member.running
        code = await member.stop()
        if not running or code != 0:
            self._problems.append(f"{member.name}: exit code {code}")
