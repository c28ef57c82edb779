"""The Produce requests of a transaction, and what follows from their responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kio.schema.produce.v8.response import ProduceResponse

from asyncrevoke.client.core.io.effects import Failed, FailureKind
from asyncrevoke.client.core.io.fatal_error import FATAL_FAILURES
from asyncrevoke.client.errors import PublishError
from asyncrevoke.client.producing.error_table import (
    TOO_LARGE,
    ProduceAction,
    action_for,
    rejection,
)
from asyncrevoke.client.producing.requests import partition_responses, produce_request
from asyncrevoke.client.producing.transactions.coordinator import TransactionRequest
from asyncrevoke.client.producing.transactions.error_table import PRODUCE_ERRORS, Action, gravest
from asyncrevoke.client.producing.transactions.transaction import RecordsRefusedError
from asyncrevoke.client.protocol.messages import EntityResponse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from asyncrevoke.client.core.io.effects import Node
    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.client.producing.queueing.result_topics import ResultTopics
    from asyncrevoke.client.producing.requests import PartitionResponse
    from asyncrevoke.client.producing.transactions.transaction import (
        PartitionBatches,
        Transaction,
    )

_ZSTD: Final = 4
_RETRIES: Final = (ProduceAction.RETRY, ProduceAction.RETRY_IN_DOUBT, ProduceAction.REFRESH)
# Most bytes of one Produce request.
_REQUEST_BYTES: Final = 4 * 1024 * 1024


class Produced(NamedTuple):
    """What follows from one response: ``action`` for the transaction, the last failure, and whether
    a batch may still be written later."""

    action: Action = Action.DONE
    failure: str | None = None
    is_late: bool = False


class TransactionProduce:
    """One request at a time to each leader, with one batch of each partition."""

    def __init__(
        self, topics: ResultTopics, transactional_id: str, *, request_timeout: float
    ) -> None:
        self._topics = topics
        self._transactional_id = transactional_id
        self._request_timeout = request_timeout
        self._busy: set[int] = set()

    def requests(
        self, now: float, transaction: Transaction, identity: tuple[int, int], *, by_id: bool
    ) -> Iterator[TransactionRequest]:
        """The requests to send now, of the producer id and epoch; ``by_id``: with topic ids."""
        by_leader: dict[Node, list[PartitionBatches]] = {}
        sizes: dict[Node, int] = {}
        for partition, batches in transaction.partitions.items():
            if batches.in_flight or batches.retry_at > now or not batches.left:
                continue
            leader = self._topics.leader(self._topics[partition.topic], partition.partition)
            if leader is None:
                self._topics.refresh(now)
                continue
            if leader.node_id in self._busy:
                continue
            size = sizes.get(leader, 0)
            if size and size + batches.left[0].size > _REQUEST_BYTES:
                continue
            sizes[leader] = size + batches.left[0].size
            by_leader.setdefault(leader, []).append(batches)
        for leader, parts in by_leader.items():
            self._busy.add(leader.node_id)
            message = produce_request(
                [(batches.partition, batches.content(*identity)) for batches in parts],
                self._request_timeout,
                self._topics.ids(batches.partition for batches in parts) if by_id else None,
                transactional_id=self._transactional_id,
            )
            for batches in parts:
                batches.in_flight = message
            yield TransactionRequest(leader, message, tuple(parts))

    def waits_for(self, transaction: Transaction) -> str:
        """Why the first partition is not written, for an error; empty if all are."""
        for partition, batches in transaction.partitions.items():
            if batches.left:
                leader = self._topics.leader(self._topics[partition.topic], partition.partition)
                if leader is None:
                    return f"{partition} has no leader"
                return f"{partition} is not written at its leader {leader.address}"
        return ""

    def ended(
        self,
        now: float,
        outgoing: TransactionRequest,
        transaction: Transaction | None,
        reply: object,
    ) -> Produced:
        """A request has a response or has failed. Of a batch whose transaction has ended, or was
        begun again since, nothing follows."""
        self._busy.discard(outgoing.node.node_id)
        responses: Mapping[TopicPartition, PartitionResponse] = {}
        if isinstance(reply, EntityResponse) and isinstance(reply.entity, ProduceResponse):
            responses = partition_responses(reply.entity)
        found: list[Produced] = []
        for batches in outgoing.batches:
            if transaction is None or batches.in_flight is not outgoing.message:
                continue
            response = responses.get(batches.partition)
            if response is not None:
                found.append(self._batch_ended(now, transaction, batches, response))
                continue
            batches.retry(now)
            self._topics.refresh(now)
            unsent = isinstance(reply, Failed) and reply.kind is FailureKind.UNREACHABLE
            found.append(Produced(Action.AGAIN, is_late=not unsent))
        if found and isinstance(reply, Failed) and reply.kind in FATAL_FAILURES:
            assert transaction is not None
            topic = outgoing.batches[0].partition.topic
            transaction.error = PublishError(topic, reply.detail or reply.kind.value)
            found.append(Produced(Action.REFUSED))
        return Produced(
            gravest(part.action for part in found),
            next((part.failure for part in reversed(found) if part.failure), None),
            any(part.is_late for part in found),
        )

    def _batch_ended(
        self,
        now: float,
        transaction: Transaction,
        batches: PartitionBatches,
        response: PartitionResponse,
    ) -> Produced:
        error, detail, offset = response
        action = action_for(error)
        if action is ProduceAction.ACKNOWLEDGED:
            batches.written(offset)
            return Produced()
        batches.retry(now)
        failure = f"the broker responds with {error.name}"
        if (of_transaction := PRODUCE_ERRORS.get(error)) is not None:
            return Produced(of_transaction, failure, of_transaction is Action.REDO)
        if action in _RETRIES:
            if action is ProduceAction.REFRESH:
                self._topics.refresh(now)
            return Produced(Action.AGAIN, failure, action is ProduceAction.RETRY_IN_DOUBT)
        # A broker commits a transaction even after it has refused one of its batches.
        batch, of_record = batches.left[0], action is ProduceAction.SPLIT
        if of_record and batch.count > 1:
            batches.replace_first(batch.halves())
        elif error in TOO_LARGE and batch.compression != _ZSTD:
            batches.replace_first([batch.with_compression(_ZSTD)])
        else:
            tokens, why = batches.first_tokens, rejection(error, detail)
            topic = batches.partition.topic
            transaction.error = RecordsRefusedError(topic, why, tokens, of_record=of_record)
        return Produced(Action.REFUSED, failure)
