"""Runs a consumer under test in a simulated group and in virtual time."""

from __future__ import annotations

import itertools
import time
import warnings
from random import Random
from typing import TYPE_CHECKING, Self

from asyncrevoke.client import log_events
from asyncrevoke.client.errors import AsyncRevokeError, HandlerExitError, IllegalStateError
from asyncrevoke.client.runtime.loop.entering import check_event_loop
from asyncrevoke.client.runtime.session.open_session import Environment, in_environment
from asyncrevoke.testing.calls import Call, Calls, NotHandled
from asyncrevoke.testing.cluster import Cluster, encode, encode_headers, to_partitions
from asyncrevoke.testing.connections import Connections
from asyncrevoke.testing.opened_session import NOT_ENTERED, OpenedSession
from asyncrevoke.testing.share_cluster import ShareCluster
from asyncrevoke.testing.tested_consumer_group import TestedConsumerGroup
from asyncrevoke.testing.tested_share_group import TestedShareGroup
from asyncrevoke.testing.virtual_time import VirtualTime, virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from asyncrevoke.client.model import OffsetAndMetadata, Record, TopicPartition
    from asyncrevoke.client.producing.message import Published
    from asyncrevoke.client.runtime.share.share_session import ConsumerSession
    from asyncrevoke.consumer import Consumer
    from asyncrevoke.dead_letters.replay import ReplayOptions, ReplayResult
    from asyncrevoke.testing.share_cluster import Acknowledgement

# Calls that have no meaning in a share group, and why.
_NOT_IN_SHARE_GROUPS = {
    **dict.fromkeys(
        ("revoke", "withdraw", "give", "lose"),
        "members of a share group own no partitions: use expire_locks(), disconnect() or "
        "move_leader()",
    ),
    **dict.fromkeys(
        ("committed", "committed_offset"),
        "a share group has no committed offsets: use acknowledged()",
    ),
    "partition_state": "members of a share group own no partitions, so there is no lifespan",
}

# Virtual seconds that a rebalance may take in addition to the heartbeat interval.
_CONDITION_TIMEOUT = 10.0


class TestConsumer:
    """Enters a consumer without a broker, without sockets, in virtual time.

    ::

        async with TestConsumer(consumer) as t:
            await t.publish("orders", {"id": 1}, key="a")
            await t.advance(1)
            assert t.committed("orders", 0) == 1

    The consumer is the real one, with its core, its handlers, task groups and iteration. The
    brokers are simulated: one log per partition, and a group with another member, which is the
    leader. It owns the partitions that a test revokes, and assigns the others to the consumer.

    Time is virtual for the whole event loop while this is entered: ``asyncio.sleep``, ``timeout``,
    ``wait_for``, ``loop.call_later`` and ``loop.time`` of the consumer, of handlers and of the test
    advance only by :meth:`advance`, and by the other calls as far as a group needs it. While the
    test awaits something other than a call of this object, time passes as fast as real time.
    ``time.time``, ``time.sleep``, threads and sockets use real time.

    Each call returns when nothing can run without time passing. It raises the consumer's failure,
    once. Calls of several tasks wait for each other.

    Subscribed topics are created with ``partitions`` partitions, and others when a record is
    published to them; ``topics`` sets the numbers of single topics. Needs asyncio's event loop.

    Leaving resets the consumer, so that the consumer of a module can be tested many times. Then
    ``resources`` must be a function, because a context manager may be entered only once.
    """

    __test__ = False  # pytest must not collect it

    def __init__(
        self, consumer: Consumer, *, partitions: int = 4, topics: Mapping[str, int] | None = None
    ) -> None:
        self.consumer = consumer
        self._partitions = partitions
        self._topics = dict(topics or {})
        self._calls = Calls()
        self._clients = itertools.count()
        self._raised: BaseException | None = None
        self._crashed = False
        self._entered: tuple[VirtualTime, Cluster, float] | None = None
        self._tested: TestedConsumerGroup | TestedShareGroup | None = None

    # --- entering and leaving --------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._entered is not None:
            raise IllegalStateError("this TestConsumer was entered before: create another one")
        check_event_loop()
        passing = virtual_time()
        passing.enter()
        try:
            offset = time.time() - passing.clock.now
            cluster = self._new_cluster(passing, offset)
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
        """Leave the consumer like ``async with consumer``. Virtual time passes as needed.

        Raises the errors of closing, unless a call has raised them before.
        """
        try:
            if not self._crashed:
                async with self._time.passes():
                    await self.consumer.__aexit__(exc_type, error, traceback)
        except BaseException as closing:
            if closing is not self._raised:
                raise
        finally:
            if not self._crashed:
                forget(self.consumer)
            self._time.leave()

    def _new_cluster(self, passing: VirtualTime, offset: float) -> Cluster:
        clock, count, topics = passing.clock, self._partitions, self._topics
        config = self.consumer.config
        if config.group_type == "share":
            return ShareCluster(clock, offset, count, topics)
        return Cluster(clock, offset, count, topics, config.group_protocol)

    def _connect(self) -> Connections:
        return Connections(self._cluster, next(self._clients))

    async def _start(self) -> None:
        cluster, consumer = self._cluster, self.consumer
        opened = OpenedSession(self._connect())
        if isinstance(cluster, ShareCluster):
            self._tested = TestedShareGroup(cluster, opened, self._time)
        else:
            self._tested = TestedConsumerGroup(cluster, opened, self._until)
        with in_environment(self._environment(opened)):
            await consumer.start()
        # No request was sent yet.
        if isinstance(self._tested, TestedConsumerGroup):
            topics = consumer.subscription()
            for topic, number in sorted(consumer.assignment()):
                cluster.have(topic)
                cluster.create_topic(topic, number + 1)
        else:
            router = consumer.handler_host.router
            topics = frozenset[str]() if router is None else router.topics
        for topic in sorted(topics):
            cluster.have(topic)
        await self._until(self._group.reads_its_share)

    def _environment(self, opened: OpenedSession) -> Environment:
        return Environment(
            bootstrap=self._cluster.bootstrap(),
            requests=opened.connections,
            decode=self._cluster.decode,
            call_recorder=self._calls,
            jitter=Random(0),  # noqa: S311 - reproducible
            wall_clock=self._cluster.wall_time,
            opened=opened.session_opened,
        )

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
        """Write a record as a producer does, and let the consumer process it.

        Bytes and None are unchanged, text is encoded as UTF-8, other values as JSON. Without
        ``partition``, the key decides as in Kafka's producers; records without a key go to each
        partition in turn. ``timestamp`` is in milliseconds since the epoch; the default is the
        virtual time. Warns (UserWarning) if the consumer has handlers, and none reads the topic.
        """
        host = self.consumer.handler_host
        is_read = host.router is None or host.router.get(topic) is not None
        if not is_read and topic not in host.dead_letter_topics():
            warnings.warn(f'no handler reads the topic "{topic}"', stacklevel=2)
        self._cluster.have(topic)
        encoded = encode(value), encode_headers(headers or {})
        published = self._cluster.write(
            topic, encode(key), *encoded, partition=partition, timestamp=timestamp
        )
        await self._until_idle()
        return published

    async def replay_dead_letters(
        self, topic: str, options: ReplayOptions | None = None
    ) -> ReplayResult:
        """Write the dead letters of a topic back to the topics of their records, as the command
        ``dead-letters replay`` does, and let the consumer process them.

        There is no journal: a second call sends them again, unless they were replayed too often.
        """
        from asyncrevoke.dead_letters.dead_letter_topic import DeadLetterTopic
        from asyncrevoke.dead_letters.replay import Replay, ReplayOptions

        cluster = self._cluster
        opened = OpenedSession(self._connect())
        cluster.have(topic)
        with in_environment(self._environment(opened)):
            async with self._time.passes(), DeadLetterTopic(topic) as letters:
                running = Replay(letters, options or ReplayOptions(), with_journal=False)
                result = await running.run()
        await self._until_idle()
        return result

    async def advance(self, seconds: float) -> None:
        """Let virtual time pass. Timers expire one by one, and all effects of a timer run before
        the next."""
        if seconds < 0:
            raise ValueError(f"advance({seconds}): time cannot go back")
        passing = self._time
        async with passing.call():
            await passing.pass_until(passing.clock.now + seconds)
        self._raise_failure()

    async def until(self, condition: Callable[[], object], *, within: float = 5.0) -> None:
        """Wait for a condition that depends on threads or sockets, which do not use virtual time.

        ``within`` is in seconds of real time; the same virtual time passes. Raises TimeoutError.
        """
        deadline = time.monotonic() + within
        await self._until_idle()
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the condition is still false after {within:g} s")
            await self._time.tick()
            await self._until_idle()

    async def revoke(self, *partitions: tuple[str, int]) -> None:
        """Assign partitions to the other member, by a rebalance in which the consumer must release
        them.

        Returns when the revocation is announced to the consumer. As in production, running handlers
        delay the release; ``advance`` lets them end. Takes up to ``heartbeat_interval`` of virtual
        time, because a member learns of a rebalance by its heartbeat.
        """
        await self._consumer_group("revoke").revoke(self._existing(partitions))

    async def withdraw(self, *partitions: tuple[str, int]) -> None:
        """Assign partitions that are being revoked to the consumer again, by another rebalance.

        Raises ValueError for partitions that are not being revoked or were released (use
        :meth:`give`), and with ``group_protocol="consumer"``, where a revocation is never
        withdrawn.
        """
        await self._consumer_group("withdraw").withdraw(self._existing(partitions))

    async def give(self, *partitions: tuple[str, int]) -> None:
        """Assign these partitions of the other member to the consumer."""
        await self._consumer_group("give").give(self._existing(partitions))

    async def lose(self, *partitions: tuple[str, int]) -> None:
        """Remove the consumer from the group, as if its session had expired, and let it rejoin.

        All its partitions are lost. After the rejoin, the other member owns ``partitions``, and the
        consumer the rest.
        """
        await self._consumer_group("lose").lose(self._existing(partitions))

    async def expire_locks(self) -> None:
        """Let the locks of all records pass, as if the process had been suspended for that long.

        The records are delivered again. Virtual time passes; no handler runs meanwhile. Raises
        IllegalStateError if no record is locked.
        """
        group = self._share_group
        async with self._time.call():
            group.expire_locks()
        await self._until_idle()

    async def disconnect(self) -> None:
        """Close the consumer's connections to all brokers, which end its share sessions: what it
        has acquired is available again. It connects again after a fraction of a second."""
        self._share_group.disconnect()
        await self._until_idle()

    async def move_leader(self, topic: str, partition: int) -> None:
        """Let another broker lead a partition. Locks are not stored: it delivers again what is not
        acknowledged."""
        group = self._share_group
        (tp,) = self._existing([(topic, partition)])
        group.move_leader(tp)
        await self._until_idle()

    async def crash(self) -> None:
        """End the consumer as if its process were killed: it sends no more requests, and its
        handlers are cancelled. :meth:`restart` starts another consumer."""
        session, connections = self._session, self._group.opened.connections
        connections.cut()
        self._crashed = True
        async with self._time.passes():
            try:
                await session.aclose(graceful=False)
            except AsyncRevokeError:
                log_events.CLOSING_FAILED_AFTER_CRASH.write_to(session.log)
        forget(self.consumer)
        self._group.evict()
        await self._until_idle()

    async def restart(self, consumer: Consumer) -> None:
        """After a :meth:`crash`, enter the same or another consumer with the existing topics."""
        if not self._crashed:
            raise IllegalStateError("the consumer is running: await crash() first")
        self.consumer, self._crashed = consumer, False
        await self._start()

    # --- what can be seen ------------------------------------------------------------------------

    def committed(self, topic: str, partition: int) -> int | None:
        """The committed offset (of the next record to read); None if there is none."""
        self._consumer_group("committed")
        found = self.committed_offset(topic, partition)
        return None if found is None else found.offset

    def committed_offset(self, topic: str, partition: int) -> OffsetAndMetadata | None:
        """Like :meth:`committed`, with the metadata of the commit."""
        group = self._consumer_group("committed_offset")
        (tp,) = self._existing([(topic, partition)])
        return group.committed(tp)

    def acknowledged(self, topic: str, partition: int) -> dict[int, Acknowledgement]:
        """How the records of a partition were acknowledged, by their offsets: the last
        acknowledgement of each record that has one, ``"accept"``, ``"release"`` or
        ``"reject"``."""
        group = self._share_group
        (tp,) = self._existing([(topic, partition)])
        return group.acknowledged(tp)

    def deliveries(self, topic: str, partition: int) -> dict[int, int]:
        """How often each record of a partition was delivered, by its offset, as its leader counts:
        a new leader does not know of deliveries that were not acknowledged."""
        group = self._share_group
        (tp,) = self._existing([(topic, partition)])
        return group.deliveries(tp)

    def assignment(self) -> frozenset[TopicPartition]:
        """The consumer's partitions, including those that are being revoked. In a share group,
        other members may have them too."""
        return self._group.assignment()

    def dead_letters(self, topic: str) -> list[Record]:
        """The records of a dead letter topic. Their headers have the reason and the origin."""
        return self.records(topic)

    def records(self, topic: str) -> list[Record]:
        """All records of a topic, by partition and offset."""
        return self._cluster.records(topic)

    @property
    def calls(self) -> list[Call]:
        """All calls of handlers in the order of their start, including those before a restart."""
        return list(self._calls.made)

    def calls_of(self, handler: Callable[..., object] | str) -> list[Call]:
        """The calls of one handler, given as its function or its name."""
        made = self._calls.made
        if isinstance(handler, str):
            return [c for c in made if c.handler == handler or c.handler.endswith(f".{handler}")]
        return [c for c in made if c.function == handler]  # == for methods

    @property
    def not_handled(self) -> list[NotHandled]:
        """The records without a call of a handler, with the decision about them and the reason:
        records that match no handler, values that do not decode, records that cannot be read."""
        return list(self._calls.not_handled)

    def partition_state(self, topic: str, partition: int) -> object:
        """The value that the ``partition_lifespan`` of a partition has yielded; None if it is not
        entered."""
        session = self._consumer_group("partition_state").opened.in_consumer_group
        (tp,) = self._existing([(topic, partition)])
        return session.lifespans.state_of(tp)

    @property
    def in_flight(self) -> int:
        """The number of records that were delivered and are not completed."""
        return self._session.in_flight

    @property
    def time(self) -> float:
        """The virtual seconds since this was entered, in whole microseconds.

        Timers are at sums of fractions, so the clock itself may be off by a rounding error.
        """
        passing, _, began = self._inside
        return round(passing.clock.now - began, 6)

    # --- time and states -------------------------------------------------------------------------

    async def _until(self, done: Callable[[], bool]) -> None:
        """Let time pass until ``done()`` is true, at most for as long as a rebalance may take."""
        passing = self._time
        timeout = self.consumer.config.heartbeat_interval + _CONDITION_TIMEOUT
        async with passing.call():
            await passing.pass_until(
                passing.clock.now + timeout, lambda: done() or self._session.failure is not None
            )
        self._raise_failure()

    async def _until_idle(self) -> None:
        async with self._time.call():
            await self._time.run_until_idle()
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
            raise IllegalStateError(NOT_ENTERED)
        return self._entered

    @property
    def _time(self) -> VirtualTime:
        return self._inside[0]

    @property
    def _cluster(self) -> Cluster:
        return self._inside[1]

    @property
    def _group(self) -> TestedConsumerGroup | TestedShareGroup:
        if self._tested is None:
            raise IllegalStateError(NOT_ENTERED)
        return self._tested

    @property
    def _share_group(self) -> TestedShareGroup:
        if isinstance(self._group, TestedShareGroup):
            return self._group
        raise IllegalStateError(
            'only a consumer with group_type="share" acknowledges and locks single records'
        )

    def _consumer_group(self, call: str) -> TestedConsumerGroup:
        if isinstance(self._group, TestedConsumerGroup):
            return self._group
        raise IllegalStateError(f"{call}(): {_NOT_IN_SHARE_GROUPS[call]}")

    @property
    def _session(self) -> ConsumerSession:
        return self._group.opened.session


def forget(consumer: Consumer) -> None:
    """Reset a consumer that has closed, so that it can be entered again."""
    consumer._session = consumer._running = consumer._handlers = None  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
