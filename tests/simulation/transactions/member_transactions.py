"""The transactions of one member: the product's own writer and producer, over a simulated network.

Nothing of the product is replaced but the session around the core, the connections and the event
loop.
"""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, cast

from msgspec.structs import replace
from simulation.invariants.oracle_state import Violation
from simulation.transactions.member_loop import MemberLoop

from asyncrevoke.client.core.io.effects import Channel, ConnectionSilent, Failed, Replied
from asyncrevoke.client.producing.exactly_once.batch_transaction import BatchTransaction
from asyncrevoke.client.producing.exactly_once.finished_records import ResultTarget
from asyncrevoke.client.producing.exactly_once.record_transactions import RecordTransactions
from asyncrevoke.client.producing.message import PublishedRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from simulation.cluster.network import Network
    from simulation.members.member import SimulatedMember
    from simulation.members.pending_calls import PendingCalls
    from simulation.transactions.transactional_checker import TransactionalChecker

    from asyncrevoke.client.core.commit.transactional_committer import TransactionalCommitter
    from asyncrevoke.client.core.io.effects import CompleteRequest, Event, Node, Send
    from asyncrevoke.client.errors import PublishError
    from asyncrevoke.client.model import Record, TopicPartition
    from asyncrevoke.client.runtime.session.session import Session

Connection: TypeAlias = tuple[str, Channel]
"""The address of a broker, and what the connection is for."""
RESULTS: Final = "results"
# How many results a record has, by its offset.
RESULT_COUNTS: Final = (1, 2, 1, 0)
# Seconds for which closing waits for the transactions of what is finished.
_LONGEST_FLUSH: Final = 6.0


def result_count(offset: int) -> int:
    """How many results the record at this offset has."""
    return RESULT_COUNTS[offset % len(RESULT_COUNTS)]


class BlockError(Exception):
    """An exception of the application in the block of a batch."""


class _Connections:
    """Sends the requests of the producer, over connections that are not the consumer's."""

    beside = False

    def __init__(
        self, member: SimulatedMember, network: Network, checker: TransactionalChecker
    ) -> None:
        self.client = member.client
        self._member = member
        self._network = network
        self._checker = checker
        self.loop: MemberLoop
        self._ids = itertools.count(1)
        self._waiting: dict[int, tuple[Connection, Callable[[Replied | Failed], object]]] = {}
        # Over these connections the last request got a response.
        self._open: set[Connection] = set()

    def begin(self, send: Send, on_reply: Callable[[Replied | Failed], object]) -> bool:
        """Send a request if its connection is open; ``on_reply`` gets the response."""
        if (send.node.address, send.channel) not in self._open:
            return False
        self._send(send, partial(self.loop.call_soon, on_reply))
        return True

    async def request(self, send: Send) -> Replied | Failed:
        """Send a request and wait for the response."""
        reply: asyncio.Future[Replied | Failed] = self.loop.create_future()

        def on_reply(event: Replied | Failed) -> None:
            if not reply.done():
                reply.set_result(event)

        self._send(send, on_reply)
        return await reply

    def _send(self, send: Send, on_reply: Callable[[Replied | Failed], object]) -> None:
        # Two producers of one member, one after the other, number from 0.
        numbered = replace(send, request_id=next(self._ids))
        self._waiting[numbered.request_id] = (send.node.address, send.channel), on_reply
        self.loop.watch(self._checker.producer_sends, self._member, numbered)
        self._network.send(self, numbered)

    def receive(self, event: Event) -> None:
        """A response has come, or its connection is silent."""
        if isinstance(event, ConnectionSilent):
            self._member.receive(event)
        else:
            self._member.later(0.0, partial(self._received, event))

    def _received(self, event: Event) -> None:
        assert isinstance(event, (Replied, Failed))
        self._checker.producer_received(self._member, event)
        connection, on_reply = self._waiting.pop(event.request_id)
        if isinstance(event, Replied):
            self._open.add(connection)
        else:
            self._open.discard(connection)
        on_reply(event)


class _Session:
    """What :class:`RecordTransactions` uses of a session."""

    observers = None
    recorder = None
    uses_threads = False

    def __init__(
        self,
        member: SimulatedMember,
        calls: PendingCalls,
        checker: TransactionalChecker,
        requests: _Connections,
        bootstrap: Sequence[Node],
        loop: MemberLoop,
    ) -> None:
        self._member = member
        self._calls = calls
        self._checker = checker
        self._loop = loop
        self.core = member.core
        self.config = member.config
        self.requests = requests
        self.bootstrap = bootstrap
        self.log = self
        self.failure: Exception | None = None
        self.on_failed: Callable[[], None] = lambda: None

    @property
    def closed(self) -> bool:
        return not self._member.alive

    @property
    def has_failed(self) -> bool:
        return self.failure is not None

    def wall_clock(self) -> float:
        return 1_700_000_000.0 + self._member.now

    def write(self, _level: str, event: str, fields: Mapping[str, object]) -> None:
        """A line of the log."""
        self._checker.state.note(self._member.client, (event, dict(fields)))

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call the core, and carry out what it asks for."""
        return self._loop.watch(self._call, function, *arguments, **options)

    def _call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        result = function(self._member.now, *arguments, **options)
        if function == cast("TransactionalCommitter", self.core.committer).transaction_committed:
            seconds = self._member.now - arguments[0].composed_at
            self._checker.transaction_took(self._member, seconds)
        self._member.take_effects()
        return result

    async def ask(self, function: Callable[..., int], *arguments: Any) -> object:
        """Call the core, and wait for the result."""
        reply: asyncio.Future[object] = self._loop.create_future()

        def completed(complete: CompleteRequest) -> None:
            if reply.done():
                return
            if complete.error is not None:
                reply.set_exception(complete.error)
            else:
                reply.set_result(complete.result)

        def begin() -> None:
            call_id = function(self._member.now, *arguments)
            self._calls.expect(call_id, "committed", self.config.request_timeout, completed)

        self._loop.watch(begin)
        return await reply

    def abandon_all(self, records: Sequence[Record]) -> None:
        """No transaction can have these: whoever owns the partition next handles them."""
        self._loop.watch(self._abandon_all, records)

    def _abandon_all(self, records: Sequence[Record]) -> None:
        core, member = self.core, self._member
        by_partition: dict[TopicPartition, set[int]] = {}
        for record in records:
            if core.owns(record):
                by_partition.setdefault(record.topic_partition, set()).add(record.offset)
        for partition, offsets in by_partition.items():
            self._checker.dropped(member, partition, 2**62, frozenset(offsets))
        core.returned_records.abandon_all(member.now, records)
        member.take_effects()

    def drop_after(self, partition: TopicPartition, offset: int) -> None:
        """The block of a batch has failed: the records after ``offset`` are returned again."""
        self._loop.watch(self._drop_after, partition, offset)

    def _drop_after(self, partition: TopicPartition, offset: int) -> None:
        core, member = self.core, self._member
        self._checker.dropped(member, partition, offset, frozenset())
        core.returned_records.drop_after(member.now, partition, offset)
        member.take_effects()

    def fail(self, error: Exception) -> None:
        """The transactions have failed, and the consumer with them."""
        self.failure = error
        self._loop.watch(self._checker.failed, self._member, error)
        self.on_failed()


class MemberTransactions:
    """Results of records that a member has worked on, and their transactions."""

    def __init__(
        self,
        member: SimulatedMember,
        calls: PendingCalls,
        checker: TransactionalChecker,
        network: Network,
        bootstrap: Sequence[Node],
    ) -> None:
        self._member = member
        self._checker = checker
        requests = _Connections(member, network, checker)
        self._loop = requests.loop = MemberLoop(member)
        self._session = _Session(member, calls, checker, requests, bootstrap, self._loop)
        self._writer = self._loop.run(RecordTransactions, cast("Session", self._session))
        self._target = ResultTarget(RESULTS, "handler", self._refused)
        self._loop.run(self._writer.start)
        member.transaction_due = partial(self._loop.run, self._writer.transaction_due)
        member.partitions_lost = partial(self._loop.run, self._writer.partitions_lost)

    def on_failed(self, then: Callable[[], None]) -> None:
        """Call this when no further transaction can succeed."""
        self._session.on_failed = then

    def _refused(self, records: Sequence[Record], error: PublishError) -> None:
        def object_to_it() -> NoReturn:
            raise Violation("refused", f"the results of {records} are refused: {error}")

        self._loop.watch(object_to_it)

    def finished(self, record: Record) -> None:
        """The handler of a record has ended: its results are in the next transaction."""
        self._loop.run(self._finished, record)

    def _finished(self, record: Record) -> None:
        values = self._checker.results_of(self._member, record)
        finished = self._writer.finished
        if len(values) == 1:
            self._writer.add_result(record, self._target, values[0])
            return
        for value in values:
            results = finished.call_results(record, "handler", self._refused)
            results.append(PublishedRecord(RESULTS, None, value, value, [], None))
        self._writer.records_finished((record,))

    def work_on_batch(
        self,
        records: Sequence[Record],
        seconds: float,
        then: Callable[[BaseException | None], None],
        *,
        fails: bool,
    ) -> asyncio.Task[None]:
        """Work on the last batch for so many seconds, in a block ``async with transaction()``, and
        call ``then`` with its error, or None. ``fails``: it raises BlockError at the end."""
        block = self._loop.create_task(self._block(records, seconds, fails=fails))

        def ended(task: asyncio.Task[None]) -> None:
            then(None if task.cancelled() else task.exception())

        block.add_done_callback(ended)
        return block

    async def _block(self, records: Sequence[Record], seconds: float, *, fails: bool) -> None:
        member, checker = self._member, self._checker
        async with BatchTransaction(cast("Session", self._session), self._writer) as batch:
            await asyncio.sleep(seconds)
            for record in records:
                for value in checker.results_of(member, record):
                    batch.publish(RESULTS, value, key=value, record=record)
                self._loop.watch(checker.done, member, record)
            if fails:
                raise BlockError
        checker.block_committed(member)

    def has(self, partition: TopicPartition) -> bool:
        """Whether finished records of a partition are in no committed transaction."""
        return next(iter(self._writer.waiting_records((partition,))), None) is not None

    def waiting(self) -> Iterable[Record]:
        """All such records."""
        return self._writer.waiting_records(self._member.core.assignment.partitions())

    def flush(self, then: Callable[[], None]) -> None:
        """Call ``then`` when all that is finished is committed, or after some seconds."""
        flushing = self._loop.create_task(self._writer.flush())
        is_over = False

        def over() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                flushing.cancel()
                then()

        flushing.add_done_callback(lambda _task: over())
        self._member.later(_LONGEST_FLUSH, over)

    def end(self) -> None:
        """The run has ended."""
        self._loop.end()

    def close(self, then: Callable[[], None]) -> None:
        """Write nothing more; an open transaction is aborted, unless its commit was requested."""
        closing = self._loop.create_task(self._writer.aclose())
        closing.add_done_callback(lambda _task: then())
