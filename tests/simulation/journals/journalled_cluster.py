"""A simulated group whose members write journals, by the recorder that real consumers have."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from simulation.cluster.large_batches import decode_some_large
from simulation.cluster.simulated_cluster import SimulatedCluster
from simulation.invariants.invariant_checker import InvariantChecker
from simulation.members.consumer_style import ConsumerStyle

from asyncrevoke.audit.audited_group import AuditSettings
from asyncrevoke.audit.local_engine import audit
from asyncrevoke.audit.offsets import (
    ALL_USED,
    AuditedGroupOffsets,
    Bounds,
    Range,
    UnusedHashes,
)
from asyncrevoke.audit.topic.batch_reader import BATCHES
from asyncrevoke.client.core.core import Core
from asyncrevoke.client.core.io.effects import Emit, Failed, Notify, Replied, Send
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.messages import ErrorCode, FetchedPartition, OffsetCommitRequest
from asyncrevoke.journal import Journal
from asyncrevoke.journal.format.arrow import pa, pc
from asyncrevoke.journal.format.hashing import key_hash, key_hashes, record_hashes
from asyncrevoke.journal.reading import JournalContent, read_journal
from asyncrevoke.testing.fake_kafka.topics import SimulatedBatch, decode_simulated

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from pathlib import Path

    from simulation.invariants.oracle_state import OracleState
    from simulation.members.member import SimulatedMember
    from simulation.schedules.schedule import Schedule

    from asyncrevoke.audit.results.audit_result import AuditResult
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.io.effects import Effect, Event
    from asyncrevoke.client.model import PollResult, Record
    from asyncrevoke.client.protocol.records import RecordBatch
    from asyncrevoke.journal.format.schema import Content
    from asyncrevoke.journal.recording.recorder import Recorder

_EPOCH = 1_800_000_000


class Scribe(InvariantChecker):
    """Judges, and writes down what each member would have written."""

    def __init__(self, state: OracleState, folder: Path, *, content: Content | None) -> None:
        super().__init__(state)
        self._journal = Journal(folder, content=content)
        self._recorders: dict[int, Recorder] = {}
        self._tracked: dict[int, bool] = {}
        # Of the member that is about to come.
        self.next_style = ConsumerStyle.LOOP
        # Requests in flight, and when they were sent.
        self._commits: dict[tuple[int, int], tuple[OffsetCommitRequest, int]] = {}

    def admit(self, member: SimulatedMember) -> None:
        """A member comes into the world, and its consumer is entered."""
        super().admit(member)
        config = member.config
        facts = {
            "group": config.group_id,
            "commit_mode": config.commit_mode,
            "isolation_level": "read_committed",
            "order_by": None,
            "null_keys": config.null_keys,
            "revoke_budget": config.revoke_timeout or config.rebalance_timeout,
        }
        recorder = self._journal.begin(facts, wall_clock=lambda: _EPOCH + self.state.clock.now)
        recorder.session_opened(member.core, self.fail, member.core.position)
        self._recorders[member.client] = recorder
        self._tracked[member.client] = self.next_style.tracked

    def fail(self, cause: BaseException) -> None:
        """The journal of a member cannot be written."""
        raise cause

    def decode(
        self, client: int, fetched: FetchedPartition, read_committed: bool
    ) -> Sequence[RecordBatch]:
        """A response to a member."""
        return self._recorders[client].decoder(decode_some_large)(fetched, read_committed)

    def before(self, member: SimulatedMember, event: Event) -> None:
        """An event is about to enter a core."""
        if isinstance(event, (Replied, Failed)):
            commit = self._commits.pop((member.client, event.request_id), None)
            if commit is not None:
                self._recorders[member.client].committed(*commit, event)
        super().before(member, event)

    def effect(self, member: SimulatedMember, effect: Effect) -> None:
        """An effect leaves a core."""
        recorder = self._recorders[member.client]
        if isinstance(effect, Send) and isinstance(effect.message, OffsetCommitRequest):
            _now(recorder.flush())
            self._commits[member.client, effect.request_id] = (effect.message, recorder.now())
        elif isinstance(effect, Notify):
            recorder.partitions_changed(effect)
        elif isinstance(effect, Emit):
            recorder.core_reported(effect)
        super().effect(member, effect)

    def asked(self, member: SimulatedMember) -> None:
        """A step begins."""
        if not self._tracked[member.client]:
            self._recorders[member.client].step_begun(counts=True)
        super().asked(member)

    def returned(self, member: SimulatedMember, result: PollResult) -> None:
        """A step has returned this."""
        self._recorders[member.client].batch_returned(result)
        super().returned(member, result)

    def done(self, member: SimulatedMember, record: Record) -> None:
        """The application has worked on a record."""
        if self._tracked[member.client]:
            self._recorders[member.client].record_completed(record)
        super().done(member, record)

    def changed_style(self, member: SimulatedMember, tracked: bool) -> None:
        """From the next step on it takes records in another way; ``tracked``: in a task group."""
        if tracked:
            # What it has worked on counts with that step.
            self._recorders[member.client].step_begun(counts=True)
        self._tracked[member.client] = tracked
        super().changed_style(member, tracked)

    def sought(self, member: SimulatedMember, partition: TopicPartition, offset: int) -> None:
        """It has sought back to what it was given, and has not worked on."""
        self._recorders[member.client].step_begun(counts=False)
        super().sought(member, partition, offset)

    def left_uncounted(self, member: SimulatedMember) -> None:
        """It left the loop with work that does not count."""
        self._recorders[member.client].step_begun(counts=False)
        super().left_uncounted(member)

    def closed(self, member: SimulatedMember) -> None:
        """The consumer has closed."""
        _now(self._recorders[member.client].aclose())
        super().closed(member)


class JournalledCluster(SimulatedCluster):
    """Writes a journal into ``folder``."""

    def __init__(
        self, schedule: Schedule, folder: Path, *, content: Content | None = "batches"
    ) -> None:
        super().__init__(schedule)
        self.scribe = self.checker = Scribe(self.state, folder, content=content)
        self.group.events = self.checker
        self.network.processed_late = self.checker.processed_late
        self._folder = folder

    def join(self, style: ConsumerStyle, *more: Any, **named: Any) -> Any:
        """Let a new member join."""
        self.scribe.next_style = style
        return super().join(style, *more, **named)

    def make_core(self, config: ConsumerConfig, client: int) -> Core:
        """What its responses hold is written down."""
        return Core(
            config,
            self.brokers.bootstrap(),
            lambda fetched, read_committed: self.scribe.decode(client, fetched, read_committed),
            member_id=f"client{client}",
        )

    def audited(self, without: str | None = None) -> list[AuditResult]:
        """One audit for each topic that somebody has read, as if this session had no journal."""
        content = read_journal(self._folder)
        if without is not None:
            others = pc.not_equal(content.table["session_id"], without)
            sessions = tuple(session for session in content.sessions if session.name != without)
            content = JournalContent(content.table.filter(others), sessions)
        known = set(content.table["topic"].to_pylist()) - {None}
        return [self._audited(content, name) for name in sorted(cast("set[str]", known))]

    def _audited(self, content: JournalContent, topic: str) -> AuditResult:
        committed = {
            tp.partition: stored.offset
            for tp, stored in self.group.offsets.items()
            if tp.topic == topic
        }
        offsets = AuditedGroupOffsets(committed, "broker", int((_EPOCH + self.clock.now) * 1e6))
        source, settings = _Topic(self, topic), AuditSettings(exact=True)
        return asyncio.run(audit(content, source, topic, group_offsets=offsets, settings=settings))


class _Topic:
    """What the simulated brokers have."""

    compacted = False
    has_batches = True

    def __init__(self, world: SimulatedCluster, name: str) -> None:
        self._name = name
        partitions = [tp for tp in world.brokers.topics.partitions() if tp.topic == name]
        self._logs = {tp.partition: world.brokers.topics.log(tp) for tp in partitions}
        self.bounds = {
            number: Bounds(log.start, log.end)
            for number, log in self._logs.items()
            if log is not None
        }

    def _read_headers(self, ranges: Sequence[Range], take: Callable[[Any], None]) -> None:
        for offset_range in ranges:
            log = self._logs[offset_range.partition]
            assert log is not None
            where = TopicPartition(self._name, offset_range.partition)
            records = log.read(offset_range.lo, 2**62)
            response = FetchedPartition(partition=where, error=ErrorCode.none, records=records)
            rows = [
                (offset_range.partition, b.base_offset, b.next_offset, b.count, b.checksum, 0)
                for b in decode_simulated(response, True)
                if b.count
            ]
            columns = map(list, zip(*rows, strict=True))
            if rows:
                take(pa.RecordBatch.from_pydict(dict(zip(BATCHES, columns, strict=True))))

    async def read(
        self,
        ranges: Sequence[Range],
        take: Callable[[Any], None],
        take_headers: Callable[[Any], None] | None = None,
        unused: UnusedHashes = ALL_USED,
    ) -> None:
        """See :class:`asyncrevoke.audit.compared_topic.AuditedTopic`."""
        if take_headers is not None:
            self._read_headers(ranges, take_headers)
        for offset_range in ranges:
            log = self._logs[offset_range.partition]
            assert log is not None
            records = [
                record
                for offset in log.offsets
                if max(offset_range.lo, log.start) <= offset < offset_range.hi
                for record in SimulatedBatch(offset, offset + 1, 1, 0).decode(
                    self._name, offset_range.partition, -1, offset
                )
            ]
            keys, values = [r.key for r in records], [r.value for r in records]
            hashes = pa.array(record_hashes(keys, values, key_hashes(keys)), pa.uint64())
            of_keys = [None if key is None else key_hash(key) for key in keys]
            if offset_range.partition in unused.of_records:
                hashes = pa.nulls(len(records), pa.uint64())
            if offset_range.partition in unused.of_keys:
                of_keys = [None] * len(records)
            take(
                pa.RecordBatch.from_pydict(
                    {
                        "part": pa.array([offset_range.partition] * len(records), pa.int32()),
                        "off": pa.array([r.offset for r in records], pa.int64()),
                        "timestamp_us": pa.array([0] * len(records), pa.int64()),
                        "key_hash": pa.array(of_keys, pa.uint64()).view(pa.int64()),
                        "record_hash": hashes.view(pa.int64()),
                    }
                )
            )


def _now(work: Coroutine[object, object, None]) -> None:
    """In virtual time nothing is waited for."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("the journal has waited for something")
