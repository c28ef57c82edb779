"""One transaction of a producer, as its user sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from asyncrevoke.client.errors import IllegalStateError, PublishError
from asyncrevoke.client.producing.encoding import encode_record
from asyncrevoke.client.producing.record_batch import record_bytes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from asyncrevoke.client.producing.message import Headers, PublishedRecord

# Most bytes of keys, values and headers in a transaction.
MOST_BYTES: Final = 32 * 1024 * 1024


class ProducerTransaction:
    """Records that readers with ``read_committed`` see together, or not at all; an async context
    manager.

    Records are kept until the block ends, and are then written and committed. If the block raises
    an exception, none is written.
    """

    def __init__(self, commit: Callable[[Sequence[PublishedRecord]], Awaitable[None]]) -> None:
        self._commit = commit
        self._records: list[PublishedRecord] = []
        self._bytes = 0
        self._state = "not entered"

    async def __aenter__(self) -> Self:
        if self._state != "not entered":
            raise IllegalStateError("a transaction is entered once: call transaction() again")
        self._state = "open"
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        self._state = "ended"
        records, self._records = self._records, []
        if kind is None and records:
            await self._commit(records)

    def publish(
        self,
        topic: str,
        value: object,
        *,
        key: bytes | str | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Add a record, which is written when the block ends.

        The arguments are those of :meth:`Producer.publish`. Raises PublishError if the value cannot
        be encoded, or the transaction would have more than 32 MiB, and IllegalStateError outside
        the block.
        """
        if self._state != "open":
            raise IllegalStateError(f"the transaction is {self._state}: publish inside its block")
        encoded = encode_record(topic, value, key, headers, partition, timestamp)
        size = record_bytes(encoded.key, encoded.value, encoded.headers)
        if self._bytes + size > MOST_BYTES:
            raise PublishError(
                topic, f"a transaction takes at most {MOST_BYTES} bytes: use several transactions"
            )
        self._bytes += size
        self._records.append(encoded)
