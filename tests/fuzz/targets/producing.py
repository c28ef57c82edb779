"""The producer against brokers that respond with anything, or not at all.

An input is operations of three bytes: a code, and the seed of what is drawn for it. Some responses
say that all was written; others have any errors for any partitions, several for one, or fields
that were changed.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

from aiokafka.record.default_records import DefaultRecordBatch
from fuzz.core_environment.damage import damage
from kio.schema.produce.v8.response import ProduceResponse
from kio.schema.types import ProducerId, TopicName
from kio.static.primitive import i16, i32

from asyncrevoke.client.core.io.effects import Failed, FailureKind, Node, Replied
from asyncrevoke.client.errors import PublishError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.producing.producer_core import ProducerCore
from asyncrevoke.client.producing.requests import (
    InitProducerIdRequest,
    Outgoing,
    ProduceRequest,
    produce_response,
    produced_batches,
    producer_id_response,
)
from asyncrevoke.client.protocol.messages import (
    BrokerMetadata,
    EntityResponse,
    ErrorCode,
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kio.schema.init_producer_id.v3.response import InitProducerIdResponse

OPERATION = 3
PARTITIONS = 3
TOPICS = ("orders", "bills")
# Requests that may be sent and get responses while no time passes, one at a time per broker.
_MOST_AT_ONCE = 200
_LONGEST = 40.0
_ERRORS = tuple(ErrorCode)
_ACKNOWLEDGES = (ErrorCode.none, ErrorCode.duplicate_sequence_number)


class ProducerBroke(AssertionError):  # noqa: N818 - it is one
    """A promise of the producer was broken."""


class Results:
    """Learns what became of results."""

    def __init__(self) -> None:
        self.ended: Counter[object] = Counter()
        self.acknowledged: set[object] = set()

    def results_acknowledged(
        self, tokens: Sequence[object], _partition: TopicPartition, _offset: int, /
    ) -> None:
        """They are in the log, the producer says."""
        self.ended.update(tokens)
        self.acknowledged.update(tokens)

    def results_failed(self, tokens: Sequence[object], error: Exception, /) -> None:
        """They are not."""
        if not isinstance(error, PublishError):
            raise ProducerBroke(f"failed by {error!r}")
        self.ended.update(tokens)


class World:
    """A producer, the requests that it waits for, and the values that brokers got."""

    def __init__(self, counts: Counter[str]) -> None:
        self.counts = counts
        self.now = 0.0
        self.draw = Random(0)
        self.results = Results()
        self.queued = 0
        self.waiting: list[Outgoing] = []
        self.core = ProducerCore(
            [Node(-1, "boot", 1)],
            request_timeout=10,
            delivery_timeout=30,
            metadata_max_age=300,
            compression=0,
            memory=1 << 14,
        )

    # --- operations ------------------------------------------------------------------------------

    def operate(self, code: int) -> None:
        """Run one operation."""
        match code % 8:
            case 0 | 1 | 2:
                self.append()
            case 3:
                self.now += self.draw.choice((0.01, 0.1, 1.0, 5.0, _LONGEST))
                self.core.expire(self.now)
            case 4 | 5:
                self.respond(honest=True)
            case _:
                self.respond(honest=False)
        self.send()

    def append(self) -> None:
        """Queue a result, or several."""
        for _ in range(self.draw.choice((1, 1, 5))):
            topic = self.draw.choice(TOPICS)
            number = self.draw.choice((None, None, 0, 1, 2, 99))
            value = self.draw.choice((0, 10, 2000)) * b"x"
            token = self.queued + 1
            try:
                taken = self.core.append(
                    self.now,
                    topic,
                    number,
                    None,
                    b"%d " % token + value,
                    [],
                    1,
                    self.results,
                    token,
                )
            except PublishError:
                continue
            if taken:
                self.queued = token
            else:
                why = self.core.why_not(topic, in_time=self.draw.random() < 0.5)
                self.counts["given up"] += why is not None

    def send(self) -> None:
        """What is due; each broker has one Produce to respond to."""
        self.core.expire(self.now)
        for _ in range(_MOST_AT_ONCE):
            found = self.core.requests(self.now)
            if not found:
                break
            self.waiting += found
        else:
            raise ProducerBroke("it sends without end")
        asked = [each for each in self.waiting if isinstance(each.message, ProduceRequest)]
        busy = [each.node.node_id for each in asked]
        if len(busy) > len(set(busy)):
            raise ProducerBroke("two Produce requests are under way to one broker")
        if self.core.next_at(self.now) <= self.now and not self.waiting:
            raise ProducerBroke("it is due now, and has nothing to send")

    def respond(self, *, honest: bool) -> None:
        """Respond to one request."""
        if not self.waiting:
            return
        outgoing = self.waiting.pop(self.draw.randrange(len(self.waiting)))
        self.counts["responses"] += 1
        if not honest and self.draw.random() < 0.3:
            kind = self.draw.choice(tuple(FailureKind))
            self._take(outgoing, Failed(0, kind, self.draw.choice(("", "a\x1b\n" * 3000))), set())
            return
        written: set[int] = set()
        match outgoing.message:
            case MetadataRequest():
                message: Any = self.metadata()
                if not honest:
                    for _ in range(self.draw.choice((1, 2, 5))):
                        message = damage(self.draw, message)
            case InitProducerIdRequest():
                message = EntityResponse(entity=self.producer_id(honest=honest))
            case ProduceRequest() as request:
                response = self.produced(request, honest=honest)
                written = self.said_by(request, response)
                message = EntityResponse(entity=response)
            case other:
                raise ProducerBroke(f"it sends {other!r}")
        if not honest and self.draw.random() < 0.05:
            message = self.draw.choice(
                (self.metadata(), EntityResponse(entity=producer_id_response(1)))
            )
            written = set()
        self._take(outgoing, Replied(0, message), written)

    def _take(self, outgoing: Outgoing, reply: Replied | Failed, written: set[int]) -> None:
        before = set(self.results.acknowledged)
        self.core.response_received(self.now, outgoing, reply)
        unproven = self.results.acknowledged - before - written
        if unproven:
            raise ProducerBroke(f"{len(unproven)} results are acknowledged without a response")

    # --- responses -------------------------------------------------------------------------------

    def metadata(self) -> MetadataResponse:
        """Two brokers, and topics with or without leaders."""
        return MetadataResponse(
            brokers=tuple(BrokerMetadata(node_id=n, host="h", port=1) for n in range(2)),
            topics=tuple(
                TopicMetadata(
                    error=ErrorCode.none,
                    name=name,
                    topic_id=self.draw.choice((bytes(16), b"a" * 16, b"b" * 16)),
                    partitions=tuple(
                        PartitionMetadata(
                            error=ErrorCode.none,
                            partition=n,
                            leader_id=self.draw.choice((0, 1, 1, -1)),
                        )
                        for n in range(self.draw.choice((PARTITIONS, PARTITIONS, 1, 5)))
                    ),
                )
                for name in TOPICS
            ),
        )

    def producer_id(self, *, honest: bool) -> InitProducerIdResponse:
        """A producer id, or any."""
        response = producer_id_response(self.draw.randrange(2**31))
        if honest:
            return response
        return dataclasses.replace(
            response,
            error_code=self.draw.choice((ErrorCode.none, self.draw.choice(_ERRORS))),
            producer_id=ProducerId(self.draw.choice((-(2**63), -1, 0, 2**63 - 1))),
            producer_epoch=i16(self.draw.choice((-1, 0, 2**15 - 1))),
        )

    def produced(self, request: ProduceRequest, *, honest: bool) -> ProduceResponse:
        """All were written; or a response with any errors for any partitions."""
        asked = [partition for partition, _ in produced_batches(request)]
        if honest:
            return produce_response(dict.fromkeys(asked, ErrorCode.none))
        chosen = [
            *self.draw.choices(asked, k=self.draw.randrange(3)),
            *self.draw.sample(asked, k=self.draw.randrange(len(asked) + 1)),
            *self.draw.choices([TopicPartition("orders", -1), TopicPartition("", 0)], k=1),
        ]
        errors = [ErrorCode.none, *self.draw.choices(_ERRORS, k=3), ErrorCode.message_too_large]
        topics: list[Any] = []
        for partition in chosen:
            (topic,) = produce_response({partition: self.draw.choice(errors)}).responses
            (one,) = topic.partition_responses
            one = dataclasses.replace(
                one, index=i32(partition.partition), error_message=self.draw.choice((None, "\x1b"))
            )
            topics.append(
                dataclasses.replace(
                    topic, name=TopicName(partition.topic), partition_responses=(one,)
                )
            )
        return ProduceResponse(responses=tuple(topics))

    def said_by(self, request: ProduceRequest, response: ProduceResponse) -> set[int]:
        """The results of which a response says nothing but that they are written."""
        said: dict[TopicPartition, set[ErrorCode]] = {}
        for topic in response.responses:
            for each in topic.partition_responses:
                partition = TopicPartition(topic.name, each.index)
                said.setdefault(partition, set()).add(each.error_code)
        found: set[int] = set()
        for partition, data in produced_batches(request):
            errors = said.get(partition, set())
            if errors and errors <= set(_ACKNOWLEDGES):
                found |= set(values_of(data))
        return found

    # --- the end ---------------------------------------------------------------------------------

    def end(self) -> None:
        """All results end, once, with no response more; late responses change nothing."""
        for _ in range(3):
            self.now += _LONGEST
            self.core.expire(self.now)
            while self.waiting:
                self._take(self.waiting.pop(), Failed(0, FailureKind.DISCONNECTED, ""), set())
            self.core.expire(self.now)
        if self.core.queued or self.core.queued_bytes:
            raise ProducerBroke(f"{self.core.queued} results have no end")
        if self.results.ended != Counter(range(1, self.queued + 1)):
            raise ProducerBroke("a result has ended twice, or never")
        self.counts["acknowledged"] += len(self.results.acknowledged)
        self.counts["results"] += self.queued


def values_of(data: bytes) -> list[int]:
    """The numbers that the values of a batch begin with."""
    return [int(record.value.split()[0]) for record in DefaultRecordBatch(data) if record.value]


class ProducingTarget:
    """Queues results, and responds to the producer's requests in any order and with anything."""

    name: ClassVar[str] = "producing"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def generate(self, random: Random) -> bytes:
        """Up to 80 operations."""
        return random.randbytes(OPERATION * random.randrange(5, 80))

    def check(self, data: bytes) -> None:
        """Run them; raises what the producer raises, and ``ProducerBroke``."""
        world = World(self.counts)
        for at in range(0, len(data) - OPERATION + 1, OPERATION):
            world.draw = Random(data[at + 1] << 8 | data[at + 2])
            world.operate(data[at])
        world.end()
