"""The rows of accepted commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.core.io.effects import Failed, FailureKind, Replied
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from asyncrevoke.journal.format.schema import CallOutcome, RowKind
from asyncrevoke.journal.recording.entries import Fact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from asyncrevoke.client.model import GroupMetadata, TopicPartition


def commits_of(
    request: OffsetCommitRequest, sent: int, now: int, reply: Replied | Failed
) -> Iterator[Fact]:
    """Those of a commit that was sent at ``sent``: accepted, or of unknown outcome."""
    if isinstance(reply, Failed):
        if reply.kind is FailureKind.UNREACHABLE:
            return
        taken, outcome = {e.partition for e in request.entries}, CallOutcome.UNKNOWN
    else:
        response = reply.message
        if not isinstance(response, OffsetCommitResponse):
            return
        taken = {tp for tp, error in response.errors if error is ErrorCode.none}
        outcome = CallOutcome.OK
    member, generation = request.member_id or None, request.generation
    for entry in request.entries:
        if entry.partition in taken:
            fact = Fact(RowKind.COMMIT, now, *entry.partition, entry.offset, member, generation)
            yield fact._replace(outcome=outcome, started_us=sent)


def transactional_commits(
    offsets: Mapping[TopicPartition, int], identity: GroupMetadata, sent: int | None, now: int
) -> Iterator[Fact]:
    """Those of a transaction that is committed, and whose offsets were sent at ``sent``."""
    member, generation = identity.member_id or None, identity.generation
    for partition, offset in offsets.items():
        fact = Fact(RowKind.COMMIT, now, *partition, offset, member, generation)
        yield fact._replace(outcome=CallOutcome.OK, started_us=sent)
