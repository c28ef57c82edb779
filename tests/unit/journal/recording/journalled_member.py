"""A member without a broker, which writes a strict journal; as a program it is there to be killed.

The program prints ``called N`` for each handler that it has called and ``committed N`` for each
commit that it would have sent. Arguments: folder, and the bytes of a segment.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, cast

from unit.journal.written_journal import RECORDS, TOPIC, facts, record

from asyncrevoke.client.core.io.effects import Notify, NotifyKind, Replied
from asyncrevoke.client.model import GroupMetadata, TopicPartition
from asyncrevoke.client.protocol.messages import (
    CommitEntry,
    ErrorCode,
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from asyncrevoke.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from asyncrevoke.client.core.core import Core
    from asyncrevoke.client.model import Record
    from asyncrevoke.journal.format.schema import Content
    from asyncrevoke.journal.recording.recorder import Recorder

PARTITION = TopicPartition(TOPIC, 0)


class Membership:
    """What a journal asks of a group."""

    def group_metadata(self) -> GroupMetadata:
        """The first member of its first generation."""
        return GroupMetadata("billing", 1, "a")

    def position(self, partition: TopicPartition) -> int | None:
        """Where it begins."""
        return 0


class JournalledMember:
    """Handles records of a topic, and says what a consumer says to its journal."""

    def __init__(
        self,
        folder: Path | str | Journal,
        *,
        segment_bytes: int = 2**20,
        content: Content | None = None,
        wall_clock: Callable[[], float] | None = None,
        strict: bool = True,
    ) -> None:
        journal = (
            folder
            if isinstance(folder, Journal)
            else Journal(folder, strict=strict, content=content, segment_bytes=segment_bytes)
        )
        known = facts(strict=strict, content=content)
        self.recorder: Recorder = journal.begin(known, wall_clock=wall_clock)
        self._done: list[Record] = []
        self.failures: list[BaseException] = []

    def fail(self, cause: BaseException) -> None:
        """The journal cannot be written."""
        self.failures.append(cause)

    async def begin(self) -> None:
        """Join, and be assigned the partition."""
        group = Membership()
        self.recorder.session_opened(cast("Core", group), self.fail, group.position)
        self.recorder.handler_registered(TOPIC, "bill", "key")
        self.recorder.watch_completed(self._done)
        self.recorder.partitions_changed(Notify(NotifyKind.ASSIGNED, frozenset({PARTITION})))
        if self.recorder.behind:
            await self.recorder.flush()

    async def handle(self, records: Sequence[Record], called: Callable[[int], None]) -> None:
        """Call a handler for each of them, all in one turn, and flush as a commit does."""
        await asyncio.gather(*(self.recorder.record_start([each]) for each in records))
        self.turn_began()
        for each in records:
            self.called([each])
            called(each.offset)
        self.turn_ended(records)
        await self.recorder.flush()

    def turn_began(self) -> None:
        """An iteration of the event loop begins."""
        self.recorder.loop_turn_began()

    def called(self, records: Sequence[Record]) -> None:
        """Handlers of these are called."""
        for each in records:
            self.recorder.handler_started(each)

    def put_done(self, done: Sequence[Record]) -> None:
        """The handlers of these return, within the iteration."""
        self._done += done

    def turn_ended(self, done: Sequence[Record]) -> None:
        """An iteration ends, in which the handlers of these returned."""
        self._done += done
        self.recorder.loop_turn_ended(self._done)
        self._done.clear()

    def committed(self, offset: int) -> None:
        """The broker has accepted it."""
        self.recorder.committed(commit_of(offset), self.recorder.now(), ACCEPTED)


def commit_of(offset: int) -> OffsetCommitRequest:
    """A commit of the member."""
    entry = CommitEntry(partition=PARTITION, offset=offset)
    return OffsetCommitRequest(
        group_id="billing",
        generation=1,
        member_id="a",
        group_instance_id=None,
        entries=(entry,),
    )


ACCEPTED = Replied(1, OffsetCommitResponse(errors=((PARTITION, ErrorCode.none),)))


async def main(folder: str, segment_bytes: str) -> None:
    """Handle all records, five at a time."""
    member = JournalledMember(folder, segment_bytes=int(segment_bytes))
    await member.begin()
    for first in range(0, RECORDS, 5):
        records = [record(offset) for offset in range(first, first + 5)]
        await member.handle(records, lambda offset: print(f"called {offset}", flush=True))  # noqa: T201
        print(f"committed {first + 5}", flush=True)  # noqa: T201
        member.committed(first + 5)
    await member.recorder.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
