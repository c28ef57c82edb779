"""A member whose event loop can be blocked. It runs in a thread, so that a test can look on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

from broker.records.numbered_records import DEADLINE, Numbers, place, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self, Unpack

    from asyncrevoke import TopicPartition
    from asyncrevoke.client.config import ConsumerOptions

SESSION = 3.0
BLOCKED = 1.4 * SESSION


class BlockedMember:
    """Handles records; when told to, its loop body blocks the event loop until it is told not to,
    or for ever so long as ``block`` takes. ``async with`` runs it, and ends it whatever happens."""

    def __init__(
        self,
        numbers: Numbers,
        block: Callable[[], None] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self._numbers = numbers
        self._block = block or self._wait
        if options.get("group_protocol") != "consumer":  # there it is the broker's
            options.setdefault("session_timeout", SESSION)
        options.setdefault("heartbeat_interval", 0.5)
        self._consumer = numbers.consumer(**options)
        self.handled: Counter[tuple[int, int]] = Counter()
        self.lost: frozenset[TopicPartition] = frozenset()
        self.members: set[str] = set()
        self.coordinator: str | None = None
        self.blocked = threading.Event()
        self.runs_again = threading.Event()
        self._shall_block = threading.Event()
        self._may_go = threading.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(self._run())))
        return self

    async def __aexit__(self, failed: type[BaseException] | None, *_: object) -> None:
        assert self._task is not None
        # A thread that stays blocked would outlive a test that has failed.
        self.release()
        self._consumer.stop()
        await asyncio.wait((self._task,), timeout=DEADLINE)
        if failed is None:
            assert self._task.done(), "it does not end"
            self._task.result()

    def release(self) -> None:
        """Its event loop may run again."""
        self._may_go.set()

    def _wait(self) -> None:
        assert self._may_go.wait(DEADLINE)

    def block(self) -> None:
        self._shall_block.set()

    async def _run(self) -> None:
        async with self._consumer as consumer:
            async for batch in consumer:
                self.handled.update(map(place, batch.records))
                self.lost |= batch.lost
                self.members |= {consumer.group_metadata().member_id} - {""}
                self.coordinator = consumer.health().coordinator
                if self._shall_block.is_set() and not self.blocked.is_set():
                    self.blocked.set()
                    self._block()
                    self.runs_again.set()


def sleep() -> None:
    time.sleep(BLOCKED)


def compute() -> None:
    until = time.monotonic() + BLOCKED
    while time.monotonic() < until:
        sum(range(1000))


async def blocked_once(
    numbers: Numbers, block: Callable[[], None], **options: Unpack[ConsumerOptions]
) -> BlockedMember:
    """A member that was blocked, then handled what had come meanwhile, and left."""
    async with BlockedMember(numbers, block, **options) as member:
        await numbers.send(20)
        await until(lambda: member.handled.total() >= 20, "the first records are handled")
        member.block()
        await numbers.send(20)
        await until(member.blocked.is_set, "its loop is blocked")
        await numbers.send(20)
        await until(member.runs_again.is_set, "its loop runs again")
        await until(lambda: len(member.handled) >= 60, "all records are handled")
        # One more heartbeat each way, so that a loss would have been heard of.
        await numbers.send(20)
        await until(lambda: len(member.handled) >= 80, "records are handled afterwards")
    return member


def threads() -> list[threading.Thread]:
    """Heartbeat threads that run."""
    return [thread for thread in threading.enumerate() if thread.name == "asyncrevoke heartbeat"]
