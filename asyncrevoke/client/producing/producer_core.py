"""Decides what a producer sends, and what it does after each response. No I/O and no clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.init_producer_id.v3.response import InitProducerIdResponse
from kio.schema.produce.v8.response import ProduceResponse

from asyncrevoke.client.core.io.effects import Failed, FailureKind, Node, Replied
from asyncrevoke.client.core.io.fatal_error import FATAL_FAILURES
from asyncrevoke.client.errors import PublishError
from asyncrevoke.client.producing.error_table import (
    REFUSED_COMPRESSION,
    REJECTED_IN_DOUBT,
    TOO_LARGE,
    ProduceAction,
    action_for,
    rejection,
)
from asyncrevoke.client.producing.queueing.active_queues import ActiveQueues
from asyncrevoke.client.producing.queueing.producer_id import ProducerIdState
from asyncrevoke.client.producing.queueing.result_group import GroupAppender
from asyncrevoke.client.producing.queueing.result_topics import ResultTopics
from asyncrevoke.client.producing.record_batch import ResultBatch, record_bytes
from asyncrevoke.client.producing.requests import (
    InitProducerIdRequest,
    Outgoing,
    find_producer_contradiction,
    partition_responses,
    produce_request,
)
from asyncrevoke.client.protocol.messages import (
    EntityResponse,
    ErrorCode,
    MetadataRequest,
    MetadataResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.client.producing.encoded_records import EncodedRecords
    from asyncrevoke.client.producing.queueing.partition_queue import PartitionQueue
    from asyncrevoke.client.producing.queueing.result_group import QueuedResult, ResultGroup
    from asyncrevoke.client.producing.queueing.result_topics import OutputPartitions, ResultTopic
    from asyncrevoke.client.producing.record_batch import ResultSink, SinkRun
    from asyncrevoke.client.producing.requests import PartitionResponse

# Most bytes of one request.
_REQUEST_BYTES: Final = 4 * 1024 * 1024
# Bytes of a record; brokers close the connection above socket.request.max.bytes (100 MiB).
LARGEST_RECORD: Final = 100 * 1024 * 1024 - 64 * 1024
_RETRIES: Final = (
    ProduceAction.RETRY,
    ProduceAction.RETRY_IN_DOUBT,
    ProduceAction.REFRESH,
    ProduceAction.NEW_SEQUENCE,
)

NO_RESPONSE: Final = "no broker has responded"
_GZIP: Final = 1
_ZSTD: Final = 4


class ProducerCore:
    """Queues results by partition, and sends one Produce at a time to each broker.

    ``topics`` are shared with transactions, ``active`` has the batches, and ``queued_bytes`` are
    those of records that have not ended. ``last_failure`` is why the last request failed (or
    ``NO_RESPONSE``), and ``failing_since`` when requests began to fail, None after a response. With
    ``compress_separately``, the caller compresses the large batches that :meth:`to_compress`
    returns, and they are sent after that. Without ``idempotent``, a batch whose response is lost
    may be written twice.
    """

    def __init__(
        self,
        bootstrap: Sequence[Node],
        *,
        request_timeout: float,
        delivery_timeout: float,
        metadata_max_age: float,
        compression: int,
        memory: int,
        compress_separately: bool = False,
        idempotent: bool = True,
    ) -> None:
        self.topics = ResultTopics(
            bootstrap, metadata_max_age=metadata_max_age, request_timeout=request_timeout
        )
        self._request_timeout = request_timeout
        self._delivery_timeout = delivery_timeout
        self._compression = compression
        # Of batches that are too large without it, or with another one.
        self._smallest = _ZSTD
        self.memory = memory
        self._compress_separately = compress_separately
        self._uncompressed: list[ResultBatch] = []
        self.active = ActiveQueues()
        self._busy: set[int] = set()
        self._producer_id = ProducerIdState(idempotent=idempotent)
        self.last_failure = NO_RESPONSE
        self.failing_since: float | None = None
        self.queued_bytes = 0

    # --- results are queued ----------------------------------------------------------------------

    def append(
        self,
        now: float,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
        timestamp: int,
        sink: ResultSink,
        token: object,
    ) -> bool:
        """Queue a record; ``sink`` receives its acknowledgement or error.

        Returns False if it has to wait for the topic or for memory. Raises PublishError.
        """
        known = self.topics.by_name.get(topic)
        if known is None or not known.count or self.queued_bytes >= self.memory:
            return self.has_room(now, topic)
        number = known.partitioner.cache.get(key) if partition is None else partition
        if number is None:
            number = known.partition_of(key)
        elif not 0 <= number < known.count:
            raise self._no_partition(now, topic, number, known.count)
        queue = known.queues.get(number)
        if partition is None and queue is not None and queue.batches:
            batch = queue.batches[-1]
            if batch.open and (size := batch.append(timestamp, key, value, headers, sink, token)):
                self.queued_bytes += size
                return True
        result = token, key, value, headers
        batch = self._append_to(now, known, number, result, timestamp, sink)
        if partition is not None:
            batch.chosen.add(batch.count - 1)
        return True

    def append_group(self, now: float, group: ResultGroup, timestamp: int) -> None:
        """Queue the results of a group; :meth:`has_room` has returned True for its topic."""
        known, sink = self.topics[group.topic], group.sink
        appender = GroupAppender(known, sink)
        failed: list[tuple[object, PublishError]] = []
        for partition, result in appender.append(group, timestamp):
            try:
                batch = self._append_to(now, known, partition, result, timestamp, sink)
            except PublishError as rejected:
                failed.append((result[0], rejected))
            else:
                appender.use(partition, batch)
        self.queued_bytes += appender.end()
        group.clear()
        for token, error in failed:
            sink.results_failed((token,), error)

    def has_room(self, now: float, topic: str) -> bool:
        """Whether the topic is known and there is memory for results. Raises PublishError."""
        if not self.topics.is_known(topic):
            self.topics.want(now, topic)
            return False
        return self.queued_bytes < self.memory

    def _append_to(
        self,
        now: float,
        topic: ResultTopic,
        partition: int,
        result: QueuedResult,
        timestamp: int,
        sink: ResultSink,
    ) -> ResultBatch:
        """Append a record to a partition's open batch, or to a new one. Raises PublishError."""
        token, key, value, headers = result
        queue = topic.queue(partition)
        if queue.batches and (batch := queue.batches[-1]).open:
            size = batch.append(timestamp, key, value, headers, sink, token)
            if size:
                self.queued_bytes += size
                return batch
            self._close(batch, topic, partition)
        if (length := record_bytes(key, value, headers)) > LARGEST_RECORD:
            why = f"the record has {length} bytes: a request takes at most {LARGEST_RECORD}"
            raise PublishError(topic.name, why, of_record=True)
        compression = self._compression if length < topic.too_large else self._smallest
        batch = ResultBatch(now + self._delivery_timeout, compression)
        self.queued_bytes += batch.append(timestamp, key, value, headers, sink, token)
        queue.batches.append(batch)
        self.active[queue] = topic
        return batch

    def append_batch(
        self,
        now: float,
        partition: TopicPartition,
        records: EncodedRecords,
        sink: ResultSink,
        tokens: Sequence[object],
    ) -> bool:
        """Queue records as one batch; ``sink`` receives their acknowledgement or error.

        Returns False if they have to wait, as :meth:`append` does. Raises PublishError.
        """
        topic, number = partition
        if not self.has_room(now, topic):
            return False
        known = self.topics[topic]
        if not 0 <= number < known.count:
            raise self._no_partition(now, topic, number, known.count)
        queue = known.queue(number)
        if queue.batches and queue.batches[-1].open:
            self._close(queue.batches[-1], known, number)
        expires_at = now + self._delivery_timeout
        batch = ResultBatch.of_encoded(expires_at, self._compression, records, sink, tokens)
        queue.batches.append(batch)
        self.active[queue] = known
        self.queued_bytes += batch.size
        if self._compress_separately:
            self._begin_compression(batch)
        return True

    def partitions(self, now: float, topic: str) -> OutputPartitions | None:
        """The partitions of a topic; None while they are unknown. Raises PublishError."""
        if not self.topics.is_known(topic):
            self.topics.want(now, topic)
            return None
        return self.topics[topic].partitions()

    @property
    def queued(self) -> int:
        """Records that are neither acknowledged nor have failed."""
        return self.active.records

    def prepare(self, now: float, topic: str) -> None:
        """Request what the first record for this topic would wait for. Raises PublishError."""
        self.topics.want(now, topic)
        self._producer_id.wanted = True

    def is_known(self, topic: str) -> bool:
        """Whether the partitions of a topic are known."""
        return self.topics.is_known(topic)

    def why_not(
        self, topic: str, *, in_time: bool, others_wait: bool = False
    ) -> PublishError | None:
        """The error of a result that waits to be queued; None if it may wait longer (``in_time``).

        After an error of a topic, its metadata is not requested again unless ``others_wait``.
        """
        if not self.topics.is_known(topic):
            return self.topics.why_unknown(
                topic, self.last_failure, in_time=in_time, others_wait=others_wait
            )
        if in_time:
            return None
        return PublishError(topic, f"the producer's memory stays full: {self.last_failure}")

    # --- requests --------------------------------------------------------------------------------

    def requests(self, now: float) -> list[Outgoing]:
        """The requests to send now. Call :meth:`response_received` for each."""
        outgoing: list[Outgoing] = []
        if (request := self.topics.request(now)) is not None:
            outgoing.append(Outgoing(self.topics.any_node(), request))
        if self._producer_id.known is not None:
            outgoing += self._produce_requests(now, self._producer_id.known)
        elif self._producer_id.due(has_batches=bool(self.active)) <= now:
            self._producer_id.requested()
            outgoing.append(Outgoing(self.topics.any_node(), InitProducerIdRequest()))
        return outgoing

    def _produce_requests(self, now: float, producer_id: int) -> Iterator[Outgoing]:
        moving = [queue for queue, topic in self.active.items() if topic.is_to_move(queue)]
        for queue in moving:
            self._move(now, queue, self.active[queue])
        by_leader: dict[Node, list[PartitionQueue]] = {}
        sizes: dict[Node, int] = {}
        for queue, topic in self.active.items():
            if queue.in_flight or queue.retry_at > now or topic.is_to_move(queue):
                continue
            number = queue.partition.partition
            leader = self.topics.leader(topic, number)
            if leader is None:
                self.topics.refresh(now)
                continue
            if leader.node_id in self._busy:
                continue
            batch = queue.batches[0]
            if self._compress_separately and batch.is_slow_to_compress:
                if batch.open:
                    topic.partitioner.batch_closed(number, topic.led, topic.count)
                self._begin_compression(batch)
                continue
            size = sizes.get(leader, 0)
            if size and size + batch.size > _REQUEST_BYTES:
                continue
            sizes[leader] = size + batch.size
            if batch.open:
                topic.partitioner.batch_closed(number, topic.led, topic.count)
            by_leader.setdefault(leader, []).append(queue)
        for leader, queues in by_leader.items():
            self._busy.add(leader.node_id)
            batches = [(queue.partition, queue.start(producer_id)) for queue in queues]
            ids = self.topics.ids(queue.partition for queue in queues)
            message = produce_request(batches, self._request_timeout, ids)
            yield Outgoing(leader, message, tuple(queues))

    def _move(self, now: float, queue: PartitionQueue, topic: ResultTopic) -> None:
        """Partition records anew that were queued before their topic was created again.

        They are sent before newer ones. No broker may still write them: the partition was deleted.
        Records for a partition that the caller has chosen fail if it is gone.
        """
        if queue.in_flight or any(batch.is_being_compressed for batch in queue.batches):
            return
        number = queue.partition.partition
        present = None if topic.moves(queue) else number
        moved: dict[int, list[ResultBatch]] = {}
        left: list[SinkRun] = []
        while queue.batches:
            batch = self._ended(queue, queue.batches.popleft())
            parts, chosen = batch.by_partition(topic.partition_of, present)
            left += chosen
            for to, part in parts.items():
                moved.setdefault(to, []).append(part)
        for to, batches in moved.items():
            target = topic.queue(to)
            target.put_first(batches)
            self.active[target] = topic
            self.queued_bytes += sum(batch.size for batch in batches)
        for sink, tokens in left:
            error = self._no_partition(now, topic.name, number, topic.count)
            sink.results_failed(tokens, error)

    def to_compress(self) -> list[ResultBatch]:
        """The batches to compress before the next :meth:`requests`; each is returned once."""
        batches, self._uncompressed = self._uncompressed, []
        return batches

    def _close(self, batch: ResultBatch, topic: ResultTopic, partition: int) -> None:
        """Append no more records to the last batch of a partition."""
        batch.close()
        if self._compress_separately:
            self._begin_compression(batch)
        topic.partitioner.batch_closed(partition, topic.led, topic.count)

    def _begin_compression(self, batch: ResultBatch) -> None:
        if batch.is_slow_to_compress and batch.begin_compression():
            self._uncompressed.append(batch)

    def next_at(self, now: float) -> float:
        """When to call :meth:`requests` and :meth:`expire` again if no response comes before."""
        due = min(self.topics.due, self._producer_id.due(has_batches=bool(self.active)))
        return min(due, self.active.next_at(now))

    def expire(self, now: float) -> None:
        """Fail the batches that were not acknowledged in time."""
        for queue in list(self.active):
            while queue.batches and not queue.in_flight and queue.batches[0].expires_at <= now:
                why = f"not acknowledged within {self._delivery_timeout:g} s: {self.last_failure}"
                self._fail_first(queue, why)

    # --- responses -------------------------------------------------------------------------------

    def response_received(self, now: float, outgoing: Outgoing, reply: Replied | Failed) -> None:
        """Process the response of a request, or its failure."""
        if isinstance(reply, Replied):
            wrong = find_producer_contradiction(outgoing.message, reply.message)
            if wrong is not None:
                detail = f"a broker has sent an impossible response: {wrong}"
                reply = Failed(reply.request_id, FailureKind.MALFORMED, detail)
        message = reply.message if isinstance(reply, Replied) else None
        entity = message.entity if isinstance(message, EntityResponse) else None
        if (failed := reply if isinstance(reply, Failed) else None) is not None:
            self.last_failure = failed.detail or failed.kind.value
            self.failing_since = now if self.failing_since is None else self.failing_since
        elif self.failing_since is not None:
            self.failing_since = None
            self.topics.responded(now, outgoing.node)
        if isinstance(outgoing.message, MetadataRequest):
            metadata = message if isinstance(message, MetadataResponse) else None
            self.topics.received(now, outgoing.node, metadata, self.active, failed)
        elif isinstance(outgoing.message, InitProducerIdRequest):
            given = entity if isinstance(entity, InitProducerIdResponse) else None
            self._producer_id_received(now, given, failed)
        else:
            self._busy.discard(outgoing.node.node_id)
            if isinstance(entity, ProduceResponse):
                self._produced(now, outgoing.queues, partition_responses(entity))
            elif failed is not None and failed.kind in FATAL_FAILURES:
                for queue in (queue for queue in outgoing.queues if queue.in_flight):
                    self._fail_first(queue, self.last_failure)
            else:
                unsent = failed is not None and failed.kind is FailureKind.UNREACHABLE
                self._no_response(now, outgoing.queues, unsent=unsent)

    def fail_all(self, error: Exception) -> None:
        """Fail all batches with this error."""
        for queue in list(self.active):
            while queue.batches:
                self._ended(queue, queue.failed()).failed(error)

    def _producer_id_received(
        self, now: float, response: InitProducerIdResponse | None, failed: Failed | None
    ) -> None:
        why, denied = self._producer_id.received(now, response, failed)
        self.last_failure = why or self.last_failure
        if denied:
            # The queued records fail. The next ones request a producer id again.
            for queue in list(self.active):
                while queue.batches:
                    self._fail_first(queue, self.last_failure)

    def _produced(
        self,
        now: float,
        queues: Sequence[PartitionQueue],
        responses: Mapping[TopicPartition, PartitionResponse],
    ) -> None:
        for queue in queues:
            if not queue.in_flight:
                continue
            response = responses.get(queue.partition)
            if response is None:
                self._no_response(now, (queue,), unsent=False)
                continue
            error, detail, offset = response
            action = self._action_for(error, queue.batches[0])
            if action in _RETRIES:
                self.last_failure = f"the broker responds with {error.name}"
            match action:
                case ProduceAction.ACKNOWLEDGED:
                    self._ended(queue, queue.acknowledged()).acknowledged(queue.partition, offset)
                case ProduceAction.RETRY:
                    queue.retry(now, in_doubt=False)
                case ProduceAction.RETRY_IN_DOUBT:
                    queue.retry(now, in_doubt=True)
                case ProduceAction.REFRESH:
                    queue.retry(now, in_doubt=False)
                    self.topics.refresh(now)
                case ProduceAction.NEW_SEQUENCE:
                    queue.begin_epoch(now)
                    if queue.needs_producer_id():
                        self._producer_id.forget()
                case ProduceAction.SPLIT:
                    self.queued_bytes += queue.split()
                case ProduceAction.COMPRESS:
                    self._compress(queue, error)
                case ProduceAction.REJECTED:
                    self._reject(queue, error, detail)

    def _reject(self, queue: PartitionQueue, error: ErrorCode, detail: str | None) -> None:
        if error in REJECTED_IN_DOUBT:
            queue.batches[0].may_be_written()
        of_record = action_for(error) is ProduceAction.SPLIT
        self._fail_first(queue, rejection(error, detail), of_record=of_record)

    def _compress(self, queue: PartitionQueue, error: ErrorCode) -> None:
        if error in TOO_LARGE:
            self.active[queue].learn_too_large(queue.batches[0].size)
        self.queued_bytes += queue.compress(self._smallest)

    def _action_for(self, error: ErrorCode, batch: ResultBatch) -> ProduceAction:
        action = action_for(error)
        if error in REFUSED_COMPRESSION and batch.compression == _ZSTD != self._compression:
            # The consumer's option does not ask for zstd: gzip is what more brokers accept.
            self._smallest = _GZIP
            return ProduceAction.COMPRESS
        if action is not ProduceAction.SPLIT or batch.count > 1:
            return action
        # Topics limit the compressed size: a failed record may have been compressed in its own.
        compresses = error in TOO_LARGE and batch.compression not in (_ZSTD, self._smallest)
        return ProduceAction.COMPRESS if compresses else ProduceAction.REJECTED

    def _no_response(self, now: float, queues: Sequence[PartitionQueue], *, unsent: bool) -> None:
        for queue in queues:
            if queue.in_flight:
                queue.retry(now, in_doubt=not unsent)
        self.topics.refresh(now)

    def _fail_first(self, queue: PartitionQueue, why: str, *, of_record: bool = False) -> None:
        batch = self._ended(queue, queue.failed())
        topic, in_doubt = queue.partition.topic, batch.in_doubt
        batch.failed(PublishError(topic, why, in_doubt=in_doubt, of_record=of_record))

    def _ended(self, queue: PartitionQueue, batch: ResultBatch) -> ResultBatch:
        self.queued_bytes -= batch.size
        if not queue.batches:
            self.active.pop(queue, None)
        return batch

    def _no_partition(self, now: float, topic: str, number: int, count: int) -> PublishError:
        self.topics.refresh(now)
        return PublishError(topic, f"there is no partition {number}: it has {count}")
