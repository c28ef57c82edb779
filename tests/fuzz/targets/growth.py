"""How CPU time and memory grow with the numbers of partitions and headers.

An input is a case, and a size. What is promised: eight times as many cost at most three times eight
times as much, so that nothing is quadratic in what others choose.
"""

from __future__ import annotations

import gc
import struct
import time
import tracemalloc
from collections import Counter
from typing import TYPE_CHECKING, ClassVar, Final, cast

from wire.frames.corrupt_records import fetched
from wire.frames.raw_batches import Header, raw_batch, record

from asyncrevoke.client.core.io.effects import Node, Replied
from asyncrevoke.client.model import Record
from asyncrevoke.client.producing.producer_core import ProducerCore
from asyncrevoke.client.producing.requests import InitProducerIdRequest, producer_id_response
from asyncrevoke.client.protocol.messages import (
    BrokerMetadata,
    EntityResponse,
    ErrorCode,
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)
from asyncrevoke.client.protocol.records import decode_batches
from asyncrevoke.handlers.dead_letters import dead_letter, retry_message

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

_FORM: Final = struct.Struct(">BH")
_SMALLEST: Final = 150
_LARGEST: Final = 500
_TIMES: Final = 8
_SLACK: Final = 3
# Less than this is noise: seconds, and bytes.
_NO_TIME: Final = 0.002
_NO_MEMORY: Final = 1 << 18


class GrowthError(AssertionError):
    """A cost grows faster than linearly."""


class Unheard:
    """Ignores what becomes of results."""

    def results_acknowledged(self, *_: object) -> None:
        """They are written."""

    def results_failed(self, *_: object) -> None:
        """They are not."""


def partitions_of_results(count: int) -> Callable[[], object]:
    """A result for each partition of a topic, until the requests that carry them."""

    def run() -> object:
        core = ProducerCore(
            [Node(-1, "boot", 1)],
            request_timeout=10,
            delivery_timeout=30,
            metadata_max_age=300,
            compression=0,
            memory=1 << 28,
        )
        core.has_room(0.0, "orders")
        partitions = tuple(
            PartitionMetadata(error=ErrorCode.none, partition=n, leader_id=1) for n in range(count)
        )
        topic = TopicMetadata(error=ErrorCode.none, name="orders", partitions=partitions)
        broker = BrokerMetadata(node_id=1, host="h", port=1)
        for outgoing in core.requests(0.0):
            assert isinstance(outgoing.message, MetadataRequest)
            known = MetadataResponse(brokers=(broker,), topics=(topic,))
            core.response_received(0.0, outgoing, Replied(0, known))
        for number in range(count):
            assert core.append(0.0, "orders", number, None, b"1", [], 1, Unheard(), number)
        for outgoing in core.requests(0.0):
            if isinstance(outgoing.message, InitProducerIdRequest):
                response = EntityResponse(entity=producer_id_response(1))
                core.response_received(0.0, outgoing, Replied(0, response))
        return core.requests(0.0)

    return run


def _headers(count: int) -> list[Header]:
    return [(b"%d" % number, b"value") for number in range(count)]


def headers_of_a_record(count: int) -> Callable[[], object]:
    """A fetched record with many headers."""
    data = fetched(raw_batch(record(headers=_headers(count))))

    def run() -> Sequence[object]:
        (batch,) = decode_batches(data, read_committed=False)
        return batch.decode("orders", 0, 1, 0)

    return run


def headers_of_records(count: int) -> Callable[[], object]:
    """Many fetched records with a few headers."""
    data = fetched(raw_batch(*(record(number, headers=_headers(5)) for number in range(count))))

    def run() -> Sequence[object]:
        (batch,) = decode_batches(data, read_committed=False)
        return batch.decode("orders", 0, 1, 0)

    return run


def _with_headers(count: int) -> Record:
    added = [("asyncrevoke-error-message", b"no")] * count
    return Record("orders", 0, 1, 1, 0, b"k", b"v", (*added, ("own", b"1")))


def dead_letters(count: int) -> Callable[[], object]:
    """A dead letter of a record that has the headers of former failures."""
    failed = _with_headers(count)
    return lambda: dead_letter.DeadLetter(failed, ValueError("no"), 1)


def retries(count: int) -> Callable[[], object]:
    """The history of a record of a retry topic with many headers."""
    failed = retry_message.RetryHistory(_with_headers(count), 1, 0)
    headers = tuple(retry_message.RetryMessage(failed, ValueError("no"), 1.0).headers)
    read = Record("orders.retry", 0, 1, 1, 0, b"k", b"v", headers)
    return lambda: retry_message.retry_history(read)


CASES: Final[tuple[Callable[[int], Callable[[], object]], ...]] = (
    partitions_of_results,
    headers_of_a_record,
    headers_of_records,
    dead_letters,
    retries,
)


class Growth:
    """What other programs choose the number of."""

    name: ClassVar[str] = "growth"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def generate(self, random: random.Random) -> bytes:
        """A case and a size."""
        return _FORM.pack(random.randrange(len(CASES)), random.randrange(_SMALLEST, _LARGEST))

    def check(self, data: bytes) -> None:
        """Measure it at this size, and at eight times the size."""
        if len(data) != _FORM.size:
            return
        number, given = cast("tuple[int, int]", _FORM.unpack(data))
        case, size = CASES[number % len(CASES)], max(_SMALLEST, given % _LARGEST)
        self.counts[case.__name__] += 1
        small, large = case(size), case(_TIMES * size)
        most = _TIMES * _SLACK
        # Again, as another process may have taken the caches.
        if not any(_time(large) <= most * max(_NO_TIME, _time(small)) for _ in range(3)):
            raise GrowthError(f"{case.__name__}: CPU time grows faster than {size}")
        if _memory(large) > most * max(_NO_MEMORY / most, _memory(small)):
            raise GrowthError(f"{case.__name__}: memory grows faster than {size}")


def _time(run: Callable[[], object]) -> float:
    """Seconds of CPU of this thread, without garbage collection.

    A collection passes over what the process has kept so far, whatever the size of this case.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        began = time.thread_time()
        run()
        return time.thread_time() - began
    finally:
        if collects:
            gc.enable()


def _memory(run: Callable[[], object]) -> int:
    """The most bytes at once."""
    tracemalloc.start()
    try:
        kept = run()
        peak = tracemalloc.get_traced_memory()[1]
        del kept
    finally:
        tracemalloc.stop()
    return peak
