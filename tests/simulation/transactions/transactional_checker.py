"""The invariants X1 to X4, of results and offsets that are written in transactions."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from simulation.invariants.invariant_checker import InvariantChecker
from simulation.invariants.oracle_state import Holding, MemberView, OracleState, Violation, name
from simulation.transactions.member_transactions import RESULTS, result_count
from simulation.transactions.transaction_coordinator import TransactionState
from simulation.transactions.transaction_events import TransactionEvents
from typing_extensions import override

from asyncrevoke.client.core.io.effects import Effect, Notify, NotifyKind
from asyncrevoke.client.core.partition.completion_map import decode
from asyncrevoke.client.errors import ProducerFencedError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.producing.transactions.requests import (
    EndTxnRequest,
    InitProducerIdRequest,
)
from asyncrevoke.client.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from simulation.members.member import SimulatedMember
    from simulation.transactions.output_log import OutputBatch, OutputLog
    from simulation.transactions.transaction_coordinator import TransactionalId
    from simulation.transactions.transactional_brokers import TransactionalBrokers

    from asyncrevoke.client.core.io.effects import Failed, Replied, Send
    from asyncrevoke.client.model import OffsetAndMetadata, PollResult, Record

_REJECTED_EPOCH: Final = (
    ErrorCode.invalid_producer_epoch.name,
    ErrorCode.producer_fenced.name,
)
# Seconds for which a fault may have consequences.
_FORGIVEN: Final = 60.0
# Seconds that markers, and a look at the logs, may take beyond the deadline.
_SLACK: Final = 2.0


class _Result(NamedTuple):
    """A result of a record: which one of it, and in which assignment it was made."""

    partition: TopicPartition
    offset: int
    number: int
    client: int
    holding: Holding | None


class TransactionalChecker(InvariantChecker, TransactionEvents):
    """Follows results from the handlers to what readers with ``read_committed`` receive.

    ``longest``: seconds after which a coordinator has aborted each transaction that is left open.
    """

    def __init__(self, state: OracleState, brokers: TransactionalBrokers, longest: float) -> None:
        super().__init__(state)
        self._brokers = brokers
        self._longest = longest
        self._results: list[_Result] = []
        # In which assignment records of a client's tracker were returned; a position that is set
        # again has another tracker.
        self._of_tracker: dict[tuple[int, int], Holding | None] = {}
        # How often the results of each record are visible.
        self._visible: dict[tuple[TopicPartition, int], Counter[int]] = defaultdict(Counter[int])
        # Who has asked for the producer of a transactional id.
        self._clients: dict[str, int] = {}
        # Transactions of which EndTxn (commit) was sent, by producer, epoch, and when they began.
        self._end_sent: set[tuple[int, int, float]] = set()
        # The first open batch of each log of results, and since when it is the first one.
        self._open: dict[TopicPartition, tuple[OutputBatch, float]] = {}
        # The partitions whose offsets a committed transaction has, until its markers are written.
        self._decided: dict[str, tuple[TopicPartition, ...]] = {}
        # The clients that have left a transaction open for longer than its timeout.
        self._expired: set[int] = set()
        # Before which offset the results of all records were found visible.
        self._checked: dict[TopicPartition, int] = {}
        state.permits_repeats = "its transaction was not committed"
        state.is_decided = self._is_decided

    # --- handlers --------------------------------------------------------------------------------

    @override
    def returned(self, member: SimulatedMember, result: PollResult) -> None:
        """The step has returned this."""
        super().returned(member, result)
        held = self.state.views[member.client].held
        for partition, records in result.by_partition().items():
            for record in records:
                self._of_tracker[member.client, record.tracker_id] = held.get(partition)

    def results_of(self, member: SimulatedMember, record: Record) -> list[bytes]:
        """The results that a handler returns for a record, each with a number of its own."""
        partition, values = record.topic_partition, list[bytes]()
        holding = self._of_tracker[member.client, record.tracker_id]
        for number in range(result_count(record.offset)):
            values.append(str(len(self._results)).encode())
            self._results.append(_Result(partition, record.offset, number, member.client, holding))
        return values

    def block_committed(self, member: SimulatedMember) -> None:
        """The block of a batch has ended: its results and offsets are committed."""
        self.state.note(member.client, "block committed")
        self.state.counts["blocks committed"] += 1

    def block_failed(self, member: SimulatedMember, error: BaseException | None) -> None:
        """The block of a batch has ended without a commit; None: it was cancelled."""
        self.state.note(member.client, ("block failed", error))
        self.state.counts[f"blocks failed: {type(error).__name__}"] += 1

    def _results_in(self, batches: Sequence[OutputBatch]) -> Iterator[_Result]:
        for batch in batches:
            for value in batch.values:
                yield self._results[int(value)]

    # --- requests --------------------------------------------------------------------------------

    def producer_sends(self, member: SimulatedMember, send: Send) -> None:
        """The producer of a member sends a request."""
        message = send.message
        self.state.note(member.client, send)
        if isinstance(message, InitProducerIdRequest):
            self._clients[message.transactional_id] = member.client
        elif isinstance(message, EndTxnRequest) and message.committed:
            self._commit_sent(self.state.views[member.client], message)

    def producer_received(self, member: SimulatedMember, event: Replied | Failed) -> None:
        """The producer of a member receives a response. Its epoch is rejected only after a fault,
        or if a transaction has taken too long."""
        self.state.note(member.client, event)
        calm = not (self.state.lossy or self.state.disturbed(member.client, _FORGIVEN))
        if calm and any(name in repr(event) for name in _REJECTED_EPOCH):
            raise Violation("fenced", f"client {member.client} receives {event}")

    @override
    def failed(self, member: SimulatedMember, error: Exception) -> None:
        """A static member cannot tell that the coordinator has fenced it, and not another member
        with its transactional id."""
        is_expired = self._brokers.transactions.fences_expired and member.client in self._expired
        if is_expired and isinstance(error, ProducerFencedError):
            self.state.note(member.client, ("raised", error))
            self.state.counts["static members fenced after a transaction timeout"] += 1
            return
        super().failed(member, error)

    def transaction_took(self, member: SimulatedMember, seconds: float) -> None:
        """A transaction of a member is committed, after so many seconds."""
        view = self.state.views[member.client]
        view.slowest_commit = max(view.slowest_commit * 0.99, seconds)
        self.state.counts["transactions committed"] += 1

    def _commit_sent(self, view: MemberView, message: EndTxnRequest) -> None:
        """X2. A request that is repeated may be about what was lost since."""
        known = self._brokers.transactions.find(message.transactional_id)
        if known is None or known.state is not TransactionState.ONGOING:
            return
        key = known.producer_id, message.producer_epoch, known.began_at
        if key in self._end_sent:
            return
        self._end_sent.add(key)
        for result in self._open_results(known.producer_id):
            if result.holding is None or view.held.get(result.partition) is not result.holding:
                raise Violation(
                    "X2",
                    f"client {view.member.client} commits a result of {name(result.partition)} "
                    f"offset {result.offset}, which it has lost",
                )

    def _open_results(self, producer_id: int) -> Iterator[_Result]:
        for log in self._logs():
            yield from self._results_in(log.open_batches(producer_id))

    def _logs(self) -> list[OutputLog]:
        return self._brokers.outputs[RESULTS]

    # --- partitions ------------------------------------------------------------------------------

    @override
    def effect(self, member: SimulatedMember, effect: Effect) -> None:
        """An effect leaves a core."""
        held = dict(self.state.views[member.client].held)
        super().effect(member, effect)
        if isinstance(effect, Notify) and effect.kind is NotifyKind.REVOKED:
            for known in self._open_transactions(member.client):
                # One that is aborted, since a partition was lost, may be open when the member has
                # the partition again: it has nothing of that assignment.
                released = {
                    partition
                    for partition in effect.partitions
                    if partition not in held or held[partition].since <= known.began_at
                }
                self._released(member, known, released)

    def _open_transactions(self, client: int) -> list[TransactionalId]:
        return [
            known
            for known in self._brokers.transactions.ids()
            if known.state is TransactionState.ONGOING and self._clients.get(known.name) == client
        ]

    def _released(
        self, member: SimulatedMember, known: TransactionalId, released: set[TopicPartition]
    ) -> None:
        """X3."""
        written = {result.partition for result in self._open_results(known.producer_id)}
        written.update(self._brokers.offsets.of(known.producer_id))
        for partition in sorted(written & released):
            raise Violation(
                "X3",
                f"client {member.client} has released {name(partition)}, which is in its open "
                "transaction",
            )

    # --- the coordinator -------------------------------------------------------------------------

    @override
    def transaction_decided(self, transactional_id: str, *, committed: bool, why: str) -> None:
        """The coordinator has committed or aborted a transaction."""
        client = self._clients.get(transactional_id, -1)
        self.state.note(client, ("committed" if committed else "aborted", why))
        if why == "timeout":
            self._expired.add(client)
        self.state.counts[f"transactions {'committed' if committed else 'aborted'}: {why}"] += 1

    @override
    def offsets_accepted(self, client: int, offsets: Mapping[TopicPartition, int]) -> None:
        """The group's coordinator has accepted offsets of a transaction."""
        for partition in offsets:
            self._ownership.commit_accepted(self.state.views[client], partition)

    @override
    def offsets_decided(
        self,
        client: int,
        transactional_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        """A transaction with these offsets is committed."""
        self._decided[transactional_id] = tuple(offsets)
        for partition, offset in offsets.items():
            self._acknowledgements.stored(client, partition, offset.offset)

    @override
    def offsets_committed(
        self,
        client: int,
        offsets: Mapping[TopicPartition, tuple[OffsetAndMetadata | None, OffsetAndMetadata]],
    ) -> None:
        """The marker for the offsets of a transaction was written."""
        view = self.state.views[client]
        for partition, (old, new) in offsets.items():
            self.deliveries.committed(view, partition, None if old is None else old.offset, new)

    def _is_decided(self, partition: TopicPartition) -> bool:
        """Whether the offset of a partition is in a transaction that is committed."""
        return any(partition in decided for decided in self._decided.values())

    @override
    def batches_ended(
        self, partition: TopicPartition, batches: Sequence[OutputBatch], *, committed: bool
    ) -> None:
        """A marker was written after these batches. X1: no result is visible twice."""
        if not committed:
            return
        for result in self._results_in(batches):
            seen = self._visible[result.partition, result.offset]
            seen[result.number] += 1
            self.state.counts["results"] += 1
            # Kafka itself lets two members commit what it has overlooked at a conversion.
            if seen[result.number] > 1 and result.partition not in self.deliveries.shared:
                raise Violation(
                    "X1",
                    f"result {result.number} of {name(result.partition)} offset {result.offset} "
                    f"is visible twice; the second one is of client {result.client}",
                )

    @override
    def transaction_completed(self, transactional_id: str, *, committed: bool) -> None:
        """All markers of a transaction are written."""
        partitions = self._decided.pop(transactional_id, ())
        for partition in partitions:
            # A former owner's transaction may have markers that come later.
            if not self._is_decided(partition):
                self._check_results(partition)

    # --- time ------------------------------------------------------------------------------------

    @override
    def look(self) -> None:
        """Time has gone on: X4."""
        super().look()
        now = self.state.clock.now
        for number, log in enumerate(self._logs()):
            partition, first = TopicPartition(RESULTS, number), log.first_open
            before = self._open.get(partition)
            if first is None:
                self._open.pop(partition, None)
            elif before is None or before[0] is not first:
                self._open[partition] = first, now
            else:
                self._may_be_open(f"the last stable offset of {name(partition)}", before[1])

    def _may_be_open(self, what: str, since: float) -> None:
        since = max(since, self.state.disturbed_until)
        if self.state.clock.now > since + self._longest + _SLACK:
            raise Violation("X4", f"{what} has not moved since {since:.3f}")

    # --- the end ---------------------------------------------------------------------------------

    def check_results(self) -> None:
        """X1, when no transaction is open."""
        for partition in self._brokers.topics.partitions():
            self._check_results(partition, is_end=True)

    def _check_results(self, partition: TopicPartition, *, is_end: bool = False) -> None:
        """Each record below the committed offset, or in its map, has its results, no other has
        any. Before the end, a transaction whose markers are not all written yet may have some."""
        log = self._brokers.topics.log(partition)
        stored = self._brokers.group.offsets.get(partition)
        if log is None or partition in self.deliveries.shared:
            return
        progress = self.deliveries.of(partition)
        found = None if stored is None else decode(stored.offset, stored.metadata)
        committed = 0 if stored is None else stored.offset
        runs = () if found is None else found.runs
        begin = 0 if is_end else bisect_left(log.offsets, self._checked.get(partition, 0))
        for offset in log.offsets[begin:]:
            seen = self._visible.get((partition, offset))
            count = 0 if seen is None else len(seen)
            expected = result_count(offset)
            done = offset < committed or any(first <= offset < end for first, end in runs)
            if done and offset >= progress.skipped and count != expected:
                raise Violation(
                    "X1",
                    f"{name(partition)} offset {offset} is committed, and {count} of its "
                    f"{expected} results are visible",
                )
            if is_end and not done and count:
                raise Violation(
                    "X1", f"{name(partition)} offset {offset} has results, and is not committed"
                )
        if stored is not None:
            self._checked[partition] = stored.offset
