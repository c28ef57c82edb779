"""Brokers with a coordinator of transactions, and topics to which transactions write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from aiokafka.record.default_records import DefaultRecordBatch
from msgspec.structs import replace
from simulation.brokers.faulty_brokers import FaultyBrokers, SimulatedGroup
from simulation.transactions import transaction_responses as responses
from simulation.transactions.output_log import OutputLog
from simulation.transactions.transaction_coordinator import (
    Group,
    Participant,
    TransactionCoordinator,
)
from simulation.transactions.transactional_offsets import TransactionalOffsets

from asyncrevoke.client.producing.requests import ProduceRequest, produce_response, produced_batches
from asyncrevoke.client.producing.transactions.offset_requests import TxnOffsetCommitRequest
from asyncrevoke.client.producing.transactions.requests import EndTxnRequest
from asyncrevoke.client.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    EntityResponse,
    ErrorCode,
    FetchedOffset,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    PartitionMetadata,
    Request,
    TopicMetadata,
)
from asyncrevoke.testing.fake_kafka.brokers import PORT
from asyncrevoke.testing.fake_kafka.consumer_group import topic_id
from asyncrevoke.testing.fake_kafka.group_state import MAX_METADATA_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from simulation.transactions.transaction_coordinator import TransactionalId
    from simulation.transactions.transaction_events import TransactionEvents

    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.testing.fake_kafka.clock import Clock
    from asyncrevoke.testing.fake_kafka.group_state import Reply

# The versions that a client needs for transaction.version 2, and may have below: of Produce,
# AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, and TxnOffsetCommit.
_RANGES: Final = {0: (0, 13), 24: (0, 5), 25: (0, 4), 26: (0, 5), 28: (0, 5)}
# The first version of TxnOffsetCommit that adds the group to the transaction.
_IMPLICIT_OFFSETS: Final = 5
# Errors of EndTxn that do not say whether the coordinator has written it to its log.
_UNKNOWN_OUTCOME: Final = (
    ErrorCode.unknown_server_error,
    ErrorCode.request_timed_out,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
)
# A leader responds so when the coordinator does not: clients before Kafka 4 send the batch again.
_NOT_NOW: Final = (ErrorCode.coordinator_load_in_progress, ErrorCode.not_coordinator)


class TransactionalBrokers(FaultyBrokers):
    """``outputs`` has the logs of each topic to which transactions write. One broker, number
    ``transaction_node``, coordinates all transactional ids; it may be that of the group.

    ``marker_delay`` returns after how many seconds a marker is written.
    """

    def __init__(
        self,
        clock: Clock,
        rng: Random,
        count: int,
        group: SimulatedGroup,
        version: int,
        *,
        marker_delay: Callable[[], float] = lambda: 0.005,
        check_interval: float = 10.0,
        fences_expired: bool = False,
    ) -> None:
        super().__init__(clock, rng, count, group)
        self.outputs: dict[str, list[OutputLog]] = {}
        self.transaction_node = count - 1
        self.transactions = TransactionCoordinator(
            clock,
            self,
            version,
            marker_delay=marker_delay,
            check_interval=check_interval,
            fences_expired=fences_expired,
        )
        self.transactions.is_available = self._is_coordinating
        self.offsets = TransactionalOffsets(lambda: self.group.offsets)
        self._transaction_load_until = 0.0
        # The share of EndTxn with a response that does not say whether they are processed.
        self.unknown_outcomes = 0.0

    def follow(self, events: TransactionEvents) -> None:
        """Report to these events from now on."""
        self.transactions.events = events

    # --- topics ----------------------------------------------------------------------------------

    def create_output(self, name: str, partitions: int) -> None:
        """Create a topic to which transactions write."""
        self.outputs[name] = [OutputLog(number % self.count) for number in range(partitions)]

    def output(self, partition: TopicPartition) -> OutputLog | None:
        """The log of a partition of such a topic."""
        logs = self.outputs.get(partition.topic, [])
        return logs[partition.partition] if partition.partition < len(logs) else None

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its offsets, those of open transactions too."""
        super().delete_topic(name)
        self.offsets.forget(name)

    def _describe_anew(self, name: str) -> TopicMetadata:
        logs = self.outputs.get(name)
        if logs is None:
            return super()._describe_anew(name)
        return TopicMetadata(
            error=ErrorCode.none,
            name=name,
            topic_id=topic_id(name),
            partitions=tuple(
                PartitionMetadata(
                    error=ErrorCode.none if self._up[log.leader_id] else _NO_LEADER,
                    partition=number,
                    leader_id=log.leader_id if self._up[log.leader_id] else -1,
                    leader_epoch=log.leader_epoch,
                    replicas=tuple(range(self.count)),
                )
                for number, log in enumerate(logs)
            ),
        )

    # --- brokers come and go ---------------------------------------------------------------------

    def stop(self, broker: int) -> None:
        """Kill a broker. Other running brokers get what it leads and coordinates."""
        super().stop(broker)
        self._lead_again()
        if self.transaction_node == broker:
            others = [number for number in range(self.count) if self._up[number]]
            if others:
                self.transaction_node = self._rng.choice(others)
                self._load_transactions(0.3)

    def start(self, broker: int) -> None:
        """Start a broker again."""
        super().start(broker)
        self._lead_again()
        if self.transaction_node == broker:
            self._load_transactions(0.3)

    def _lead_again(self) -> None:
        others = [number for number in range(self.count) if self._up[number]]
        for logs in self.outputs.values():
            for log in logs:
                if not self._up[log.leader_id] and others:
                    self._described.clear()
                    log.leader_id = self._rng.choice(others)
                    log.begin_epoch()

    def upgrade_transactions(self) -> None:
        """The cluster's transaction.version becomes 2, while transactions may be open."""
        self.transactions.version = 2

    def move_transactions(self, load_time: float) -> None:
        """Another broker becomes the coordinator of transactions, if there is one; it loads their
        log for ``load_time`` seconds. Markers that are not written yet are written after that."""
        others = [n for n in range(self.count) if self._up[n] and n != self.transaction_node]
        if others:
            self.transaction_node = self._rng.choice(others)
        self._load_transactions(load_time)

    def _load_transactions(self, load_time: float) -> None:
        self._transaction_load_until = self._clock.now + load_time

    def _is_coordinating(self) -> bool:
        return self._up[self.transaction_node] and self._clock.now >= self._transaction_load_until

    # --- markers ---------------------------------------------------------------------------------

    def decided(self, known: TransactionalId, *, committed: bool) -> None:
        """The transaction of this id is committed or aborted; its markers follow."""
        offsets = self.offsets.of(known.producer_id)
        if committed and offsets:
            client = self.offsets.client_of(known.producer_id)
            self.transactions.events.offsets_decided(client, known.name, offsets)

    def mark(
        self, participant: Participant, producer_id: int, epoch: int, *, committed: bool
    ) -> bool:
        """Write the marker of a transaction; False if it cannot be written now."""
        events = self.transactions.events
        if isinstance(participant, Group):
            if not self._up[self.coordinator] or self.loads:
                return False
            client = self.offsets.client_of(producer_id)
            changed = self.offsets.mark(producer_id, committed=committed)
            if changed:
                events.offsets_committed(client, changed)
            return True
        log = self.output(participant)
        if log is None or not self._up[log.leader_id]:
            return log is None
        ended = log.mark(producer_id, epoch, committed=committed)
        events.batches_ended(participant, ended, committed=committed)
        return True

    # --- requests --------------------------------------------------------------------------------

    def handle(self, broker: int, client: int, message: Request, reply: Reply) -> None:
        """Process one request, including those of producers with transactions."""
        match message:
            case ProduceRequest():
                reply(EntityResponse(entity=self._produce(broker, message)))
            case ApiVersionsRequest():
                reply(self._versions())
            case FindCoordinatorRequest(transactional_id=str()):
                reply(self._find_transaction_coordinator())
            case TxnOffsetCommitRequest():
                reply(self._commit_in_transaction(broker, client, message))
            case _ if rejection := responses.rejected(message, ErrorCode.not_coordinator):
                if broker != self.transaction_node:
                    reply(rejection)
                elif not self._is_coordinating():
                    loading = ErrorCode.coordinator_load_in_progress
                    reply(responses.rejected(message, loading) or rejection)
                else:
                    reply(self._coordinate_transaction(client, message))
            case _:
                super().handle(broker, client, message, reply)

    def _coordinate_transaction(self, client: int, message: Request) -> EntityResponse:
        if isinstance(message, EndTxnRequest) and self._rng.random() < self.unknown_outcomes:
            if self._rng.random() < 0.5:
                self.transactions.handle(client, message)
            rejection = responses.rejected(message, self._rng.choice(_UNKNOWN_OUTCOME))
            assert rejection is not None
            return rejection
        return self.transactions.handle(client, message)

    def _versions(self) -> ApiVersionsResponse:
        version = self.transactions.version
        features = {"transaction.version": version} if version else {}
        return ApiVersionsResponse(error=ErrorCode.none, ranges=dict(_RANGES), features=features)

    def _find_transaction_coordinator(self) -> FindCoordinatorResponse:
        node = self.transaction_node
        if not self._up[node]:
            return FindCoordinatorResponse(error=ErrorCode.coordinator_not_available)
        return FindCoordinatorResponse(
            error=ErrorCode.none, node_id=node, host=f"broker-{node}", port=PORT
        )

    def _produce(self, broker: int, message: ProduceRequest) -> Any:
        errors: dict[TopicPartition, ErrorCode] = {}
        offsets: dict[TopicPartition, int] = {}
        for partition, records in produced_batches(message):
            log = self.output(partition)
            if log is None:
                errors[partition] = ErrorCode.unknown_topic_or_partition
            elif log.leader_id != broker:
                errors[partition] = ErrorCode.not_leader_or_follower
            else:
                error = self._may_write(message, partition, log, records)
                offset = -1
                if error is ErrorCode.none:
                    error, offset = log.append(records)
                errors[partition], offsets[partition] = error, offset
        return produce_response(errors, offsets)

    def _may_write(
        self, message: ProduceRequest, partition: TopicPartition, log: OutputLog, records: bytes
    ) -> ErrorCode:
        """As a leader asks the coordinator before the first batch of a transaction (KIP-890)."""
        batch = cast("Any", DefaultRecordBatch(records))
        producer_id, epoch = int(batch.producer_id), int(batch.producer_epoch)
        error = log.check(producer_id, epoch)
        if error is not ErrorCode.none or log.is_open(producer_id, epoch):
            return error
        assert message.transactional_id is not None
        # Only versions with topic ids are used for transaction.version 2.
        implicit = message.topic_ids is not None
        error = self.transactions.join(
            message.transactional_id, producer_id, epoch, partition, implicit=implicit
        )
        concurrent = error is ErrorCode.concurrent_transactions
        if error in _NOT_NOW or (concurrent and not implicit):
            return ErrorCode.not_enough_replicas
        return error

    def _commit_in_transaction(
        self, broker: int, client: int, message: TxnOffsetCommitRequest
    ) -> EntityResponse:
        entries = responses.offset_entries(message)
        error = self._may_commit_in_transaction(broker, message)
        errors = dict.fromkeys((entry.partition for entry in entries), error)
        if error is ErrorCode.none:
            asked = OffsetCommitRequest(
                group_id=message.group_id,
                generation=message.generation_id,
                member_id=message.member_id,
                group_instance_id=message.group_instance_id,
                entries=entries,
            )
            member_error = self.group.check_txn_commit(asked)
            denied = self._denied_commits(asked)
            for entry in entries:
                partition = entry.partition
                if len(entry.metadata) > MAX_METADATA_CHARACTERS:
                    errors[partition] = ErrorCode.offset_metadata_too_large
                errors[partition] = denied.get(partition, errors[partition])
                if member_error is not ErrorCode.none:
                    errors[partition] = member_error
                if partition in denied and member_error is ErrorCode.none:
                    self.group.events.commit_rejected(client, partition)
            accepted = [e for e in entries if errors[e.partition] is ErrorCode.none]
            self.offsets.add(message.producer_id, client, accepted)
            offsets = {entry.partition: entry.offset for entry in accepted}
            self.transactions.events.offsets_accepted(client, offsets)
        return responses.offsets_added(message, errors)

    def _may_commit_in_transaction(self, broker: int, message: TxnOffsetCommitRequest) -> ErrorCode:
        if broker != self.coordinator:
            return ErrorCode.not_coordinator
        if self.loads:
            return ErrorCode.coordinator_load_in_progress
        error = self.transactions.join(
            message.transactional_id,
            message.producer_id,
            message.producer_epoch,
            Group.OFFSETS,
            implicit=message.highest_version >= _IMPLICIT_OFFSETS,
        )
        return ErrorCode.coordinator_not_available if error in _NOT_NOW else error

    def _commit_and_report(self, client: int, message: OffsetCommitRequest) -> OffsetCommitResponse:
        response = super()._commit_and_report(client, message)
        for partition, error in response.errors:
            if error is ErrorCode.none:
                self.offsets.offset_committed(partition)
        return response

    def _committed(self, message: OffsetFetchRequest) -> OffsetFetchResponse:
        response = super()._committed(message)
        if not message.require_stable:
            return response
        unstable = ErrorCode.unstable_offset_commit
        return replace(
            response,
            offsets=tuple(
                FetchedOffset(partition=found.partition, error=unstable)
                if self.offsets.is_pending(found.partition)
                else found
                for found in response.offsets
            ),
        )


_NO_LEADER: Final = ErrorCode.leader_not_available
