"""The exceptions that users catch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.printable import LONGEST_MESSAGE, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.model import TopicPartition, UnreadableRecord


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(str(tp) for tp in sorted(partitions))


class AsyncRevokeError(Exception):
    """Base of every error that this library raises on its own account.

    Messages quote names and text of brokers, members and records: they are one line without
    control characters, whatever was quoted.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(
            *(printable(arg, LONGEST_MESSAGE) if isinstance(arg, str) else arg for arg in args)
        )


class ConfigError(AsyncRevokeError, ValueError):
    """Options, or a combination of calls, that cannot work. The message names the fix."""


class IllegalStateError(AsyncRevokeError, RuntimeError):
    """A call that is right at another time: before closing, or on an assigned partition."""


class ConsumerClosedError(IllegalStateError):
    """The consumer was closed while this call waited."""


class FatalError(AsyncRevokeError):
    """The consumer cannot go on. Every further step raises it again; all partitions are lost."""


class AuthenticationError(FatalError):
    """The broker refused the credentials."""


class UnsupportedVersionError(FatalError):
    """The broker offers no version of a request that this library speaks."""


class InconsistentGroupError(FatalError):
    """The group shares no assignor with this member, or the broker refuses its group settings."""


class FencedInstanceError(FatalError):
    """Another member has joined with the same ``group_instance_id``."""


class JournalError(FatalError):
    """The journal cannot be written: nothing is committed beyond what it holds."""


class GroupAuthorizationError(FatalError):
    """The principal may not use this consumer group."""


class BrokerError(AsyncRevokeError):
    """A broker refused a request for good; ``code`` is Kafka's error code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class RequestTimeoutError(AsyncRevokeError, TimeoutError):
    """A look-up got no usable answer within ``request_timeout``; the message says what it waited
    for. It may be asked again."""


class PartitionsError(AsyncRevokeError):
    """Base of errors about single partitions; the others go on. ``partitions`` names them."""

    reason = "failed"

    def __init__(self, partitions: Iterable[TopicPartition], message: str = "") -> None:
        self.partitions = frozenset(partitions)
        super().__init__(message or f"{_names(self.partitions)}: {self.reason}")


class PartitionLostError(PartitionsError):
    """A commit is for partitions that are no longer ours: nothing of it was sent, or they went
    before it was acknowledged."""

    reason = "lost, so it cannot be committed by this consumer any more"


class TopicAuthorizationError(PartitionsError):
    """The principal may not read (or describe) these partitions' topics, nor commit for them."""

    reason = "not authorized to read this topic: grant READ on it to the principal"


class OffsetOutOfRangeError(PartitionsError):
    """The position is outside the log and ``auto_offset_reset="error"``; the position is kept."""

    reason = 'position outside the log, and auto_offset_reset="error": seek to a valid offset'


class LogTruncationError(OffsetOutOfRangeError):
    """An election has cut the log before our position (KIP-320), and ``auto_offset_reset="error"``;
    the position is kept.

    ``position`` is the next offset that would have been read, and ``truncated_to`` the one from
    which on the log differs from what was read, None if the leader does not know it.
    """

    def __init__(
        self, partition: TopicPartition, position: int | None, truncated_to: int | None
    ) -> None:
        self.position = position
        self.truncated_to = truncated_to
        where = "somewhere before it" if truncated_to is None else f"at offset {truncated_to}"
        super().__init__(
            [partition],
            f"{_names([partition])}: an election has cut the log {where}, and it was read up to"
            f" offset {position}; seek to go on",
        )


class NoOffsetError(PartitionsError):
    """The group has committed nothing here and ``auto_offset_reset="error"``."""

    reason = 'no committed offset, and auto_offset_reset="error": seek, or choose a reset policy'


class CorruptRecordError(PartitionsError):
    """A record batch fails its checksum or cannot be decoded; the position stays before it."""

    def __init__(self, partition: TopicPartition, offset: int, detail: str) -> None:
        self.offset = offset
        super().__init__(
            [partition],
            f"{_names([partition])} at offset {offset}: {detail}; seek past it to go on",
        )


class UnreadableRecordError(CorruptRecordError):
    """A producer has written what cannot be read: its checksum is right, and it is beyond a limit
    or contradicts itself. The position stays before it.

    ``offset`` is that of the record, and ``next_offset`` the one to seek to. If a whole batch
    cannot be read, these are the first offset of it that was to be read, and the one after it.
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
        """The error of what could not be read."""
        return cls(record.topic_partition, record.offset, record.next_offset, record.detail)


class DecodeError(AsyncRevokeError):
    """A record's value is not what its handler's annotation says, or its decoder or ``order_by``
    has failed.

    The message names the kind of error, the field and the position, and has nothing of the record.
    ``original`` is what was raised, whose message may have.
    """

    def __init__(
        self,
        partition: TopicPartition,
        offset: int,
        detail: str,
        *,
        original: BaseException | None = None,
    ) -> None:
        self.partition = partition
        self.offset = offset
        self.original = original
        super().__init__(f"{_names([partition])} at offset {offset}: {detail}")


class HandlerCancelledError(AsyncRevokeError):
    """A handler ended by a CancelledError that this library did not cause: it counts as failed."""


class HandlerTimeoutError(AsyncRevokeError, TimeoutError):
    """A handler was cancelled because it took longer than its ``max_handler_time``."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the handler took longer than max_handler_time={seconds:g} s")


class HandlerExitError(AsyncRevokeError):
    """A handler raised SystemExit or KeyboardInterrupt, which stops the consumer.

    ``reason`` is that exception; ``Consumer.run`` raises it when all has drained.
    """

    def __init__(self, reason: SystemExit | KeyboardInterrupt) -> None:
        self.reason = reason
        super().__init__(f"a handler raised {reason!r}")
