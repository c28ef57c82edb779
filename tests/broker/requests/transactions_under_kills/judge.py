"""What librdkafka reads with read_committed, compared with the input."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Self

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as ConfluentPartition

if TYPE_CHECKING:
    from types import TracebackType

PARTITIONS = 6
KEYS = 40


def key_of(number: int) -> bytes:
    """The key of the record with this number."""
    return b"k%d" % (number % KEYS)


class Verdict(NamedTuple):
    """How many numbers occur more than once, are missing, or follow a larger one of their key."""

    doubled: int
    missing: int
    disordered: int


class CommittedResults:
    """Reads the results in a topic, in the order of each partition."""

    def __init__(self, servers: str, topic: str) -> None:
        self._reader = ConfluentConsumer(
            {
                "bootstrap.servers": servers,
                "group.id": "judge",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 2,
            }
        )
        self._reader.assign([ConfluentPartition(topic, number, 0) for number in range(PARTITIONS)])
        self.counts: Counter[int] = Counter()
        self._last: dict[bytes, int] = {}
        self._disordered = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._reader.close()

    def read(self, count: int, *, until: float, quiet: float) -> None:
        """Read until so many numbers are found and nothing follows for ``quiet`` seconds, or until
        this time of ``time.monotonic``."""
        last = time.monotonic()
        while (now := time.monotonic()) < until:
            if len(self.counts) >= count and now > last + quiet:
                return
            for message in self._reader.consume(500, 0.2):
                if message.error() is not None:
                    continue
                last = now
                value, key = message.value(), message.key()
                assert isinstance(value, bytes)
                assert isinstance(key, bytes)
                self._found(int(value), key)

    def _found(self, number: int, key: bytes) -> None:
        self.counts[number] += 1
        if number < self._last.get(key, -1):
            self._disordered += 1
        self._last[key] = max(number, self._last.get(key, -1))

    def verdict(self, count: int) -> Verdict:
        """The numbers up to ``count`` were written to the input."""
        doubled = sum(1 for times in self.counts.values() if times > 1)
        return Verdict(doubled, sum(n not in self.counts for n in range(count)), self._disordered)
