"""The exceptions that users catch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.printable import LONGEST_MESSAGE, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.client.model import TopicPartition, UnreadableRecord


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(str(tp) for tp in sorted(partitions))


class AsyncRevokeError(Exception):
    """Base of all errors of this library.

    Messages are one line without control characters, even if they quote a broker or a record.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(
            *(printable(arg, LONGEST_MESSAGE) if isinstance(arg, str) else arg for arg in args)
        )


class ConfigError(AsyncRevokeError, ValueError):
    """Invalid options, or an invalid combination of calls. The message has the fix."""


class IllegalStateError(AsyncRevokeError, RuntimeError):
    """A call in the wrong state: after closing, or for a partition that is not assigned."""


class ConsumerClosedError(IllegalStateError):
    """The consumer was closed while this call waited."""


class FatalError(AsyncRevokeError):
    """The consumer has failed and lost all partitions. Each further step raises this again."""


class AuthenticationError(FatalError):
    """The broker rejected the credentials."""


class UnsupportedVersionError(FatalError):
    """The broker offers no version of a request that this library supports."""


class InconsistentGroupError(FatalError):
    """The members have no common assignor, or the broker rejects this member's group settings."""


class FencedInstanceError(FatalError):
    """Another member has joined with the same ``group_instance_id``."""


class ProducerFencedError(FatalError):
    """Another producer uses the same ``transactional_id``: this one can begin no transaction."""


class JournalError(FatalError):
    """The journal cannot be written. No offset is committed of records that it does not have."""


class GroupAuthorizationError(FatalError):
    """The principal may not use this consumer group."""


class BrokerError(AsyncRevokeError):
    """A broker rejected a request permanently; ``code`` is Kafka's error code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class PublishError(AsyncRevokeError):
    """A value was not published to ``topic``, for this ``reason``.

    If it is the result of a handler, the handler's record is not done.

    ``in_doubt``: it may have been written, because a request got no usable response.
    ``of_record``: this record is refused, for example because of its size; others may be written.
    """

    def __init__(
        self, topic: str, reason: str, *, in_doubt: bool = False, of_record: bool = False
    ) -> None:
        super().__init__(f"not published to {topic}: {reason}")
        self.topic = topic
        self.reason = reason
        self.in_doubt = in_doubt
        self.of_record = of_record


class TransactionError(AsyncRevokeError):
    """A transaction was not committed: nothing of it is visible to readers that use
    ``read_committed``. With ``in_doubt``, it is unknown whether it was committed."""

    def __init__(self, message: str, *, in_doubt: bool = False) -> None:
        self.in_doubt = in_doubt
        super().__init__(message)


class RequestTimeoutError(AsyncRevokeError, TimeoutError):
    """A query got no usable response within ``request_timeout``, and can be repeated."""


class PartitionsError(AsyncRevokeError):
    """Base of errors about ``partitions``; other partitions are not affected."""

    reason = "failed"

    def __init__(self, partitions: Iterable[TopicPartition], message: str = "") -> None:
        self.partitions = frozenset(partitions)
        super().__init__(message or f"{_names(self.partitions)}: {self.reason}")


class PartitionLostError(PartitionsError):
    """The partitions are no longer assigned, so a commit for them was not sent or not acknowledged.

    A partition lifespan receives it at ``yield`` when its partition is lost.
    """

    reason = "lost, so it cannot be committed by this consumer any more"


class TopicAuthorizationError(PartitionsError):
    """The principal may not read (or describe) these partitions' topics, nor commit for them."""

    reason = "not authorized to read this topic: grant READ on it to the principal"


class OffsetOutOfRangeError(PartitionsError):
    """The position is outside the log and ``auto_offset_reset="error"``; the position is kept."""

    reason = 'position outside the log, and auto_offset_reset="error": seek to a valid offset'


class LogTruncationError(OffsetOutOfRangeError):
    """The log was truncated before the position (KIP-320), and ``auto_offset_reset="error"``.

    The position is kept: ``position`` is the next offset to read. ``truncated_to`` is the first
    offset at which the log differs from the records that were read; None if it is unknown.
    """

    def __init__(
        self, partition: TopicPartition, position: int | None, truncated_to: int | None
    ) -> None:
        self.position = position
        self.truncated_to = truncated_to
        where = "an unknown offset" if truncated_to is None else f"offset {truncated_to}"
        super().__init__(
            [partition],
            f"{_names([partition])}: the log was truncated to {where} in an election, and was read "
            f"up to offset {position}; seek to continue",
        )


class NoOffsetError(PartitionsError):
    """The group has no committed offset, and ``auto_offset_reset="error"``."""

    reason = 'no committed offset, and auto_offset_reset="error": seek, or choose a reset policy'


class CorruptRecordError(PartitionsError):
    """A record batch fails its checksum or cannot be decoded; the position stays before it."""

    def __init__(self, partition: TopicPartition, offset: int, detail: str) -> None:
        self.offset = offset
        super().__init__(
            [partition],
            f"{_names([partition])} at offset {offset}: {detail}; seek past it to continue",
        )


class UnreadableRecordError(CorruptRecordError):
    """A record with a correct checksum cannot be decoded: its producer wrote it inconsistently, or
    it exceeds a limit. The position stays before it.

    ``offset`` is the record's, ``next_offset`` the offset to seek to. If a whole batch cannot be
    decoded, they are the next offset to read in the batch and the first offset after it.
    """

    def __init__(
        self, partition: TopicPartition, offset: int, next_offset: int, detail: str
    ) -> None:
        self.next_offset = next_offset
        if next_offset > offset + 1:
            detail = f"{detail}, and the batch goes up to offset {next_offset - 1}"
        super().__init__(partition, offset, detail)

    @classmethod
    def of(cls, record: UnreadableRecord) -> UnreadableRecordError:
        """The error of an unreadable record."""
        return cls(record.topic_partition, record.offset, record.next_offset, record.detail)


class DecodeError(AsyncRevokeError):
    """A record's value does not match its handler's annotation, or a user's function failed.

    The function is a decoder, ``order_by`` or ``where``. The message names the kind of error, the
    field and the position, without content of the record. ``original`` is the exception, whose
    message may have content. ``temporary``: the same value may decode later, because a decoder
    could not ask its schema registry, for example; ``retry`` then applies. A decoder may raise it
    itself.
    """

    def __init__(
        self,
        partition: TopicPartition,
        offset: int,
        detail: str,
        *,
        original: BaseException | None = None,
        temporary: bool = False,
    ) -> None:
        self.partition = partition
        self.offset = offset
        self.original = original
        self.temporary = temporary
        super().__init__(f"{_names([partition])} at offset {offset}: {detail}")


class UnmatchedRecordError(AsyncRevokeError):
    """No handler of the topic takes the record, and ``unmatched`` is not given, or ``"stop"``."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        self.partition = partition
        self.offset = offset
        super().__init__(
            f"{_names([partition])} at offset {offset}: no handler of the topic takes the record: "
            'register one without where= for all others, or use unmatched="skip" or "dead_letter"'
        )


class HandlerCancelledError(AsyncRevokeError):
    """A handler raised CancelledError without being cancelled by this library: it has failed."""


class HandlerTimeoutError(AsyncRevokeError, TimeoutError):
    """A handler was cancelled at its ``max_handler_time``."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the handler took longer than max_handler_time={seconds:g} s")


class HandlerProcessError(AsyncRevokeError):
    """A call of a handler in a process or an interpreter failed: something could not be imported
    or pickled, or the process was killed."""


class CallbackTimeoutError(AsyncRevokeError, TimeoutError):
    """A lifespan or a listener took too long, and delivery or a revocation waited for it."""


class HandlerExitError(AsyncRevokeError):
    """A handler raised SystemExit or KeyboardInterrupt, which stops the consumer.

    ``reason`` is that exception; ``Consumer.run`` raises it when the consumer has drained.
    """

    def __init__(self, reason: SystemExit | KeyboardInterrupt) -> None:
        self.reason = reason
        super().__init__(f"a handler raised {reason!r}")


# Users import them from there: dead letters, logs and traces have this name.
for _name, _value in tuple(globals().items()):
    if isinstance(_value, type) and issubclass(_value, AsyncRevokeError):
        _value.__module__ = "asyncrevoke.errors"
