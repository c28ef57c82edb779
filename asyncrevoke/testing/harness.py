"""A consumer under test: the real one, in a simulated group, in virtual time."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING

from asyncrevoke.errors import AsyncRevokeError, HandlerExitError, IllegalStateError
from asyncrevoke.runtime.loop.event_loop import check_event_loop
from asyncrevoke.runtime.session.open_session import Environment, in_environment
from asyncrevoke.testing.calls import Calls
from asyncrevoke.testing.cluster import (
    Cluster,
    Connections,
    LetterBox,
    Published,
    encode,
    encode_headers,
    to_partitions,
)
from asyncrevoke.testing.fake_kafka.group_state import GroupState
from asyncrevoke.testing.virtual_time import virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from asyncrevoke.consumer import Consumer
    from asyncrevoke.model import OffsetAndMetadata, Record, TopicPartition
    from asyncrevoke.runtime.session.session import Session
    from asyncrevoke.testing.calls import Call
    from asyncrevoke.testing.virtual_time import VirtualTime

# Virtual seconds that a group may need to do what a test asks for, beside its heartbeats.
_PATIENCE = 10.0


class TestConsumer:
    """Enters a consumer without a broker, without sockets, in virtual time.

    ::

        async with TestConsumer(consumer) as t:
            await t.publish("orders", {"id": 1}, key="a")
            await t.advance(1)
            assert t.committed("orders", 0) == 1

    The consumer is the real one, with its core, its handlers, task groups and iteration. What is
    simulated are the brokers: one partition log per partition, and a group in which another member
    leads, takes the partitions that are revoked, and gives the rest to the consumer.

    Time is virtual for the whole event loop while this is entered: ``asyncio.sleep``, ``timeout``,
    ``wait_for``, ``loop.call_later`` and ``loop.time`` of the consumer, of handlers and of the test
    stand still, and pass by :meth:`advance` (and, as far as a group needs it, by the other calls).
    Only while the test waits for something that is no call of this object, time passes as on the
    wall. ``time.time`` and ``time.sleep``, threads and sockets know nothing of it.

    Each call returns when nothing is left that could run without time passing. It raises what the
    consumer has failed with, once. Calls of several tasks wait for each other.

    Subscribed topics are created with ``partitions`` partitions, and others when something is
    published to them; ``topics`` says it for single ones. Needs asyncio's own event loop.

    Afterwards the consumer is as if it had never been entered, so that the one of a module can be
    tested many times (``resources`` made by ``@asynccontextmanager`` can be entered only once).
    """

    __test__ = False  # pytest: this is no test

    def __init__(
        self,
        consumer: Consumer,
        *,
        partitions: int = 4,
        topics: Mapping[str, int] | None = None,
    ) -> None:
        self.consumer = consumer
        self._partitions = partitions
        self._topics = dict(topics or {})
        self._calls = Calls()
        self._clients = 0
        self._raised: BaseException | None = None
        self._crashed = False
        self._entered: tuple[VirtualTime, Cluster, float] | None = None
        self._opened: tuple[Session, Connections] | None = None

    # --- entering and leaving --------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._entered is not None:
            raise IllegalStateError("this TestConsumer was entered before: make another one")
        check_event_loop()
        passing = virtual_time()
        passing.enter()
        try:
            offset = time.time() - passing.clock.now
            protocol = self.consumer.config.group_protocol
            cluster = Cluster(passing.clock, offset, self._partitions, self._topics, protocol)
            self._entered = passing, cluster, passing.clock.now
            await self._start()
            self._entered = passing, cluster, passing.clock.now
        except BaseException:
            passing.leave()
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the consumer as ``async with consumer`` does, with as much time as that takes.

        Raises what closing raises, unless a call has raised it before.
        """
        try:
            if not self._crashed:
                async with self._time_passes():
                    await self.consumer.__aexit__(exc_type, error, traceback)
        except BaseException as closing:
            if closing is not self._raised:
                raise
        finally:
            if not self._crashed:
                forget(self.consumer)
            self._time.leave()

    async def _start(self) -> None:
        cluster, consumer = self._cluster, self.consumer
        connections = Connections(cluster, self._clients)
        self._clients += 1

        def opened(session: Session) -> None:
            self._opened = session, connections

        world = Environment(
            bootstrap=cluster.bootstrap(),
            requests=connections,
            decode=cluster.decode,
            dead_letters=LetterBox(cluster),
            call_recorder=self._calls,
            jitter=Random(0),  # noqa: S311 - reproducible
            wall_clock=cluster.wall_time,
            opened=opened,
        )
        with in_environment(world):
            await consumer.start()
        # Nothing has reached a broker yet.
        for topic in sorted(consumer.subscription()):
            cluster.have(topic)
        for topic, number in sorted(consumer.assignment()):
            cluster.have(topic)
            cluster.create_topic(topic, number + 1)
        await self._until(self._has_its_share)

    @asynccontextmanager
    async def _time_passes(self) -> AsyncGenerator[None]:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        passing = loop.create_task(self._time.pass_while(ended))
        try:
            yield
        finally:
            ended.set_result(None)
            await passing

    # --- what happens ----------------------------------------------------------------------------

    async def publish(
        self,
        topic: str,
        value: object,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes | None] | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Published:
        """Write a record, as a producer would, and let the consumer have it.

        Bytes and None are taken as they are, text as UTF-8, everything else as JSON. Without
        ``partition`` the key decides as in Kafka's producers, and records without one go round.
        ``timestamp`` is in milliseconds since the epoch, by default the virtual now.
        """
        self._cluster.have(topic)
        encoded = encode(value), encode_headers(headers or {})
        published = self._cluster.write(
            topic, encode(key), *encoded, partition=partition, timestamp=timestamp
        )
        await self._settled()
        return published

    async def advance(self, seconds: float) -> None:
        """Let time pass: timers go off one by one, each with all that follows from it."""
        if seconds < 0:
            raise ValueError(f"advance({seconds}): time does not go back")
        passing = self._time
        async with passing.call():
            await passing.pass_until(passing.clock.now + seconds)
        self._raise_failure()

    async def until(self, condition: Callable[[], object], *, within: float = 5.0) -> None:
        """Wait until something holds that threads or sockets bring about, which know no time.

        ``within`` is in seconds on the wall, which also pass as virtual ones. Raises TimeoutError.
        """
        deadline = time.monotonic() + within
        await self._settled()
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the condition does not hold after {within:g} s")
            await self._time.tick()
            await self._settled()

    async def revoke(self, *partitions: tuple[str, int]) -> None:
        """Give partitions to the other member: a rebalance in which the consumer has to part.

        Returns when that was announced; what runs on them holds it back as in production, and
        ``advance`` lets it end. Takes up to ``heartbeat_interval`` of virtual time, by which a
        member learns of it.
        """
        wanted = self._existing(partitions)
        group, core = self._cluster.scripted, self._session.core
        group.taken.update(wanted)
        group.rebalance()
        await self._until(
            lambda: all(tp not in core.assignment() or core.is_revoking(tp) for tp in wanted)
        )

    async def withdraw(self, *partitions: tuple[str, int]) -> None:
        """Another rebalance, which leaves partitions with the consumer after all.

        They must have been announced and not released: ValueError if not, see :meth:`give`. With
        ``group_protocol="consumer"`` no group ever changes its mind: ValueError.
        """
        if self.consumer.config.group_protocol == "consumer":
            raise ValueError(
                'with group_protocol="consumer" no revoke is ever withdrawn: once it has been '
                "released, give() hands it out again"
            )
        wanted = self._existing(partitions)
        core = self._session.core
        for tp in wanted:
            if not core.is_revoking(tp):
                raise ValueError(
                    f"{tp} is not being revoked, so that nothing can be "
                    "withdrawn: it was released already, or never revoked; give() hands it out"
                )
        await self._hand_out(wanted)

    async def give(self, *partitions: tuple[str, int]) -> None:
        """The other member hands these partitions back to the consumer."""
        await self._hand_out(self._existing(partitions))

    async def _hand_out(self, wanted: list[TopicPartition]) -> None:
        group = self._cluster.scripted
        group.taken.difference_update(wanted)
        group.rebalance()
        await self._until(self._has_its_share)

    async def lose(self, *partitions: tuple[str, int]) -> None:
        """Put the consumer out of the group, as if its session had expired, and let it join again.

        As in Kafka all its partitions are lost by that. Those named stay with the other member, the
        rest comes back.
        """
        wanted = self._existing(partitions)
        group = self._cluster.scripted
        group.taken.update(wanted)
        group.evict()
        await self._until(self._has_its_share)

    async def crash(self) -> None:
        """End the consumer without a word: nothing of it reaches a broker, handlers are cancelled.

        :meth:`restart` lets another one take over what it had.
        """
        session, connections = self._session_and_connections
        connections.cut()
        self._crashed = True
        async with self._time_passes():
            try:
                await session.aclose(graceful=False)
            except AsyncRevokeError:
                session.log.debug("closing failed, as it should after a crash")
        forget(self.consumer)
        self._cluster.scripted.evict()
        await self._settled()

    async def restart(self, consumer: Consumer) -> None:
        """After a :meth:`crash`, enter a consumer, or the same again, on what is there."""
        if not self._crashed:
            raise IllegalStateError("the consumer still runs: await crash() first")
        self.consumer, self._crashed = consumer, False
        await self._start()

    # --- what can be seen ------------------------------------------------------------------------

    def committed(self, topic: str, partition: int) -> int | None:
        """The offset that the group has committed, that of the next record to read, or None."""
        found = self.committed_offset(topic, partition)
        return None if found is None else found.offset

    def committed_offset(self, topic: str, partition: int) -> OffsetAndMetadata | None:
        """Like :meth:`committed`, with what is stored beside the offset."""
        (tp,) = self._existing([(topic, partition)])
        return self._cluster.scripted.offsets.get(tp)

    def assignment(self) -> frozenset[TopicPartition]:
        """The consumer's partitions, those included that are being revoked."""
        return self._session.core.assignment()

    def dead_letters(self, topic: str) -> list[Record]:
        """What was written to a dead letter topic; their headers say why and where from."""
        return self.records(topic)

    def records(self, topic: str) -> list[Record]:
        """All records of a topic, by partition and offset."""
        return self._cluster.records(topic)

    @property
    def calls(self) -> list[Call]:
        """All calls of handlers, in the order in which they began; after a restart as well."""
        return list(self._calls.made)

    def calls_of(self, handler: Callable[..., object] | str) -> list[Call]:
        """The calls of one handler: the function, or its name."""
        if isinstance(handler, str):
            return [
                call
                for call in self._calls.made
                if call.handler == handler or call.handler.endswith(f".{handler}")
            ]
        return [call for call in self._calls.made if call.function is handler]

    @property
    def in_flight(self) -> int:
        """Records that the consumer has been given, and that are not done."""
        return self._session.in_flight

    @property
    def time(self) -> float:
        """The virtual seconds that have passed since this was entered."""
        passing, _, began = self._inside
        return passing.clock.now - began

    # --- time and states -------------------------------------------------------------------------

    def _has_its_share(self) -> bool:
        """Whether the consumer has what the other member leaves to it."""
        cluster, session = self._cluster, self._session
        if self.consumer.config.group_id is None or not session.core.subscription():
            return True
        share = {
            tp
            for tp in cluster.topics.partitions()
            if tp.topic in session.core.subscription() and tp not in cluster.scripted.taken
        }
        paused = session.core.paused()
        return (
            cluster.scripted.state is GroupState.STABLE
            and bool(cluster.scripted.others())
            and set(session.core.assignment()) == share
            and not any(session.core.is_revoking(tp) for tp in share)
            # And has begun to read it: before, a fetch of other partitions may be in the way.
            and all(session.core.highwater(tp) is not None for tp in share - paused)
        )

    async def _until(self, done: Callable[[], bool]) -> None:
        """Let the group have the time it needs, unless the consumer itself holds things up."""
        passing = self._time
        patience = self.consumer.config.heartbeat_interval + _PATIENCE
        async with passing.call():
            await passing.pass_until(
                passing.clock.now + patience,
                lambda: done() or self._session.failure is not None,
            )
        self._raise_failure()

    async def _settled(self) -> None:
        async with self._time.call():
            await self._time.settle()
        self._raise_failure()

    def _raise_failure(self) -> None:
        failure = None if self._crashed else self._session.failure
        if isinstance(failure, HandlerExitError):
            failure = failure.reason
        if failure is not None and failure is not self._raised:
            self._raised = failure
            raise failure

    def _existing(self, given: Sequence[tuple[str, int]]) -> list[TopicPartition]:
        partitions = to_partitions(given)
        for tp in partitions:
            if self._cluster.topics.log(tp) is None:
                raise ValueError(f"there is no partition {tp}")
        return partitions

    @property
    def _inside(self) -> tuple[VirtualTime, Cluster, float]:
        if self._entered is None:
            raise IllegalStateError("use `async with TestConsumer(consumer) as t:` first")
        return self._entered

    @property
    def _time(self) -> VirtualTime:
        return self._inside[0]

    @property
    def _cluster(self) -> Cluster:
        return self._inside[1]

    @property
    def _session_and_connections(self) -> tuple[Session, Connections]:
        if self._opened is None:
            raise IllegalStateError("use `async with TestConsumer(consumer) as t:` first")
        return self._opened

    @property
    def _session(self) -> Session:
        return self._session_and_connections[0]


def forget(consumer: Consumer) -> None:
    """Let a consumer that was left be as if it had never been entered."""
    consumer._session = consumer._handlers = None  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
