"""Where each partition instance starts: at its committed offset, or by the reset policy.

The reset policy is used only if the group has committed nothing. After an error the coordinator is
asked again, because starting at the end of the log instead of the committed offset loses records.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

from asyncrevoke.client import log_events
from asyncrevoke.client.core.io.effects import Channel, Failed, Node
from asyncrevoke.client.core.io.fatal_error import FATAL_FAILURES, fatal_error
from asyncrevoke.client.core.io.wait_log import WaitLog
from asyncrevoke.client.core.partition.instance import InstanceState, PartitionInstance
from asyncrevoke.client.core.partition.record_buffer import SoughtTime
from asyncrevoke.client.core.position.search import (
    AwaitedOffset,
    PositionSearch,
    ResetCause,
    ResetLog,
)
from asyncrevoke.client.errors import (
    FatalError,
    GroupAuthorizationError,
    NoOffsetError,
    OffsetOutOfRangeError,
    PartitionsError,
    TopicAuthorizationError,
)
from asyncrevoke.client.model import OffsetAndMetadata
from asyncrevoke.client.protocol.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ErrorCode,
    FetchedOffset,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetQuery,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from asyncrevoke.client.config import ConsumerConfig, OffsetReset
    from asyncrevoke.client.core.commit.user_commits import RequestedOffsets
    from asyncrevoke.client.core.io.outbox import Outbox, Reply
    from asyncrevoke.client.core.io.wall_clock import WallClock
    from asyncrevoke.client.core.metadata.cluster import ClusterMetadata
    from asyncrevoke.client.core.metadata.coordinator import Coordinator
    from asyncrevoke.client.core.position.reactions import PositionReactions

_TIMER = "positions"
# Retries need a change of configuration or permissions first.
_SLOW = 10.0

# The coordinator is another broker now.
_MOVED = frozenset((ErrorCode.not_coordinator, ErrorCode.coordinator_not_available))
# Codes that Kafka does not call retriable, but that pass.
_PASSING = frozenset(
    (
        ErrorCode.unknown_server_error,
        ErrorCode.broker_not_available,
        ErrorCode.illegal_generation,
        ErrorCode.unknown_member_id,
        ErrorCode.stale_member_epoch,
        ErrorCode.rebalance_in_progress,
    )
)
_UNSTABLE = (
    "unstable_offset_commit: a transaction with offsets of this group has not ended; have the "
    "brokers abort it, or seek() to an offset"
)
_UNKNOWN = frozenset((ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id))
# Instances, the oldest search first.
_Searches: TypeAlias = "dict[PartitionInstance, PositionSearch]"


class PositionResolver:
    """Finds positions, many at a time, and asks again until they are found.

    The search ends without a result if the instance ends or gets another position. It waits while
    the instance is being revoked, and for a commit by the user: then the instance begins at the
    offset that was committed.
    """

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        cluster: ClusterMetadata,
        coordinator: Coordinator,
        requested: RequestedOffsets,
        wall_clock: WallClock,
        reactions: PositionReactions,
    ) -> None:
        self._outbox = outbox
        self._config = config
        self._cluster = cluster
        self._coordinator = coordinator
        self._requested = requested
        self._wall_clock = wall_clock
        self._reactions = reactions
        self._log = WaitLog(outbox)
        self._resets = ResetLog(outbox)
        self._complete_topics: Collection[str] = ()
        self._searches: _Searches = {}
        self._fetching_offsets = False
        self._due = float("inf")

    def set_complete_topics(self, topics: Collection[str]) -> None:
        """Skip no record of these topics, whatever ``auto_offset_reset`` says."""
        self._complete_topics = topics

    def find(self, now: float, instances: Sequence[PartitionInstance]) -> None:
        """Find the starting positions of these, unless they have one."""
        for instance in instances:
            if instance.state is not InstanceState.INIT:
                continue
            self._searches[instance] = PositionSearch(now, instance.tracker)
            if self._config.group_id is None:
                self._apply_policy(now, instance, "the consumer has no group")
        self._run(now)

    def reset(self, now: float, instance: PartitionInstance, timestamp: int | None) -> None:
        """Find the first record at or after ``timestamp`` (ms, or EARLIEST or LATEST); None: the
        position is outside the log, and the reset policy applies."""
        search = self._searches[instance] = PositionSearch(now, instance.tracker)
        if timestamp is None:
            self._apply_policy(now, instance, "the position is outside the log")
        else:
            search.by_time(timestamp)
        self._run(now)

    def policy(self, instance: PartitionInstance) -> OffsetReset:
        """Where it starts if nothing is committed, or the position is outside the log."""
        if instance.partition.topic in self._complete_topics:
            return "earliest"
        return self._config.auto_offset_reset

    def membership_known(self, now: float) -> None:
        """Ask again for committed offsets: the member epoch has changed."""
        for search in self._searches.values():
            if search.awaits is AwaitedOffset.COMMITTED and not search.error_reported:
                search.hasten(now)
        self._run(now)

    def leaders_known(self, now: float) -> None:
        """Ask again for positions that waited for their topic or its leader."""
        for search in self._searches.values():
            if (
                search.awaits is not AwaitedOffset.COMMITTED or search.topic_unknown
            ) and not search.error_reported:
                search.hasten(now)
        self._run(now)

    # --- asking ------------------------------------------------------------------------------

    def _run(self, now: float) -> None:
        """Ask for all that is due, and set the timer for the rest."""
        committed: list[PartitionInstance] = []
        by_leader: dict[Node, list[OffsetQuery]] = {}
        asked: dict[Node, _Searches] = {}
        for instance, search in list(self._searches.items()):
            if not self._is_current(instance, search):
                del self._searches[instance]
            elif search.asked or search.due > now:
                continue
            elif self._has_to_wait(instance):
                search.wait_until(now + 1.0)
            elif search.awaits is AwaitedOffset.COMMITTED:
                search.set_topic_unknown(not self._knows_topic(instance))
                if search.topic_unknown:
                    # The name alone may refer to another topic by then.
                    self._await_metadata(now, instance, search)
                else:
                    committed.append(instance)
            elif not self._knows_topic(instance):
                self._await_metadata(now, instance, search)
            elif (leader := self._cluster.leader(instance.partition)) is None:
                self._cluster.refresh(now, f"no leader for {instance.partition}")
                self._retry_later(now, instance, search, "its leader is unknown")
            else:
                node, epoch = leader
                timestamp = (
                    LATEST_TIMESTAMP if search.awaits is AwaitedOffset.END else search.timestamp
                )
                by_leader.setdefault(node, []).append(
                    OffsetQuery(
                        partition=instance.partition, timestamp=timestamp, leader_epoch=epoch
                    )
                )
                asked.setdefault(node, {})[instance] = search
                search.set_asked(True)
        if committed and not self._fetching_offsets:
            self._coordinator.call_when_known("positions", self._ask_committed, now)
        for node, queries in by_leader.items():
            self._list_offsets(node, queries, asked[node])
        self._set_timer(now)

    def _set_timer(self, now: float) -> None:
        due = min(
            (s.due for s in self._searches.values() if not s.asked and s.due > now),
            default=float("inf"),
        )
        if due != self._due:
            self._due = due
            if due == float("inf"):
                self._outbox.cancel_timer(_TIMER)
            else:
                self._outbox.set_timer(_TIMER, due, self._timer_fired, spread=(due - now) / 2)

    def _timer_fired(self, now: float) -> None:
        self._due = float("inf")
        self._run(now)

    @staticmethod
    def _is_current(instance: PartitionInstance, search: PositionSearch) -> bool:
        return not instance.terminal and instance.tracker is search.tracker

    def _has_to_wait(self, instance: PartitionInstance) -> bool:
        if instance.state is InstanceState.INIT:
            # A commit is under way: what the broker holds will change.
            return instance in self._requested
        return instance.revoking

    def _knows_topic(self, instance: PartitionInstance) -> bool:
        return self._cluster.partitions(instance.partition.topic) is not None

    def _await_metadata(
        self, now: float, instance: PartitionInstance, search: PositionSearch
    ) -> None:
        """Wait for the metadata of the topic. ClusterMetadata logs it if the topic is missing."""
        self._cluster.refresh(now, f"the topic of {instance.partition} is unknown")
        search.retry_later(now, None)

    def _retry_later(
        self,
        now: float,
        instance: PartitionInstance,
        search: PositionSearch,
        why: str,
        *,
        slow: bool = False,
    ) -> None:
        search.retry_later(now, _SLOW if slow else None)
        self._log.waiting(
            now,
            "position",
            log_events.WAITING_FOR_POSITION,
            partition=str(instance.partition),
            waiting_for=search.awaits.value,
            reason=why,
        )

    def _ask_committed(self, now: float) -> None:
        node = self._coordinator.node
        asked = {
            instance: search
            for instance, search in self._searches.items()
            if search.awaits is AwaitedOffset.COMMITTED
            and not search.asked
            and search.due <= now
            and not self._has_to_wait(instance)
            and self._is_current(instance, search)
            and self._knows_topic(instance)
        }
        if not asked or node is None or self._fetching_offsets:
            return
        self._fetching_offsets = True
        for search in asked.values():
            search.set_asked(True)
        member_id, epoch = self._reactions.offset_fetch_identity
        partitions = tuple(instance.partition for instance in asked)
        self._outbox.send(
            OffsetFetchRequest(
                group_id=self._config.group_id or "",
                partitions=partitions,
                require_stable=True,
                member_id=member_id,
                member_epoch=epoch,
                topic_ids=self._cluster.topic_ids(partitions),
            ),
            node,
            Channel.COMMIT,
            self._config.request_timeout,
            lambda later, reply: self._committed(later, node, asked, reply),
        )

    def _list_offsets(self, node: Node, queries: list[OffsetQuery], asked: _Searches) -> None:
        self._outbox.send(
            ListOffsetsRequest(
                queries=tuple(queries),
                read_committed=self._config.isolation_level == "read_committed",
            ),
            node,
            Channel.METADATA,
            self._config.request_timeout,
            lambda later, reply: self._listed(later, node, asked, reply),
        )

    def _still(self, asked: _Searches) -> _Searches:
        """The searches that are still current and need not wait."""
        current: _Searches = {}
        for instance, search in asked.items():
            if self._searches.get(instance) is not search:
                continue
            search.set_asked(False)
            if not self._is_current(instance, search):
                del self._searches[instance]
            elif not self._has_to_wait(instance):
                current[instance] = search
        return current

    # --- committed offsets -------------------------------------------------------------------

    def _committed(self, now: float, node: Node, asked: _Searches, reply: Reply) -> None:
        self._fetching_offsets = False
        current = self._still(asked)
        match reply:
            case OffsetFetchResponse(error=ErrorCode.none):
                offsets = {offset.partition: offset for offset in reply.offsets}
                for instance, search in current.items():
                    found = offsets.get(instance.partition)
                    self._handle_committed(now, node, instance, search, found)
            case OffsetFetchResponse(error=error):
                self._group_error(now, node, current, error)
            case Failed() as failed if failed.kind in FATAL_FAILURES:
                self._fail(now, current, fatal_error(failed))
            case Failed(kind=kind, detail=detail):
                why = detail or kind.value
                self._coordinator.no_response(now, f"offset fetch: {why}", node)
                for instance, search in current.items():
                    self._retry_later(now, instance, search, why)
            case _:
                for instance, search in current.items():
                    self._retry_later(now, instance, search, f"unexpected {type(reply).__name__}")
        self._run(now)

    def _group_error(self, now: float, node: Node, current: _Searches, error: ErrorCode) -> None:
        if error is ErrorCode.group_authorization_failed:
            problem = GroupAuthorizationError(
                f"not authorized to read the offsets of group {self._config.group_id!r}: "
                "grant READ on the group, or choose another group_id"
            )
            self._fail(now, current, problem)
            return
        if error in _MOVED:
            self._coordinator.mark_unknown(now, f"offset fetch: {error.name}", node)
        for instance, search in current.items():
            self._partition_error(now, instance, search, error)

    def _handle_committed(
        self,
        now: float,
        node: Node,
        instance: PartitionInstance,
        search: PositionSearch,
        found: FetchedOffset | None,
    ) -> None:
        if found is None:
            self._retry_later(now, instance, search, "the response leaves it out")
        elif found.error is ErrorCode.none and found.offset >= 0:
            committed = OffsetAndMetadata(found.offset, found.metadata, found.leader_epoch)
            self._found(now, instance, committed, from_reset=False)
        elif found.error is ErrorCode.none and found.offset == -1:
            self._apply_policy(now, instance, "the group has committed nothing")
        elif found.error is ErrorCode.none:
            self._retry_later(now, instance, search, f"{found.offset} is not an offset")
        else:
            if found.error in _MOVED:
                self._coordinator.mark_unknown(now, f"offset fetch: {found.error.name}", node)
            self._partition_error(now, instance, search, found.error)

    # --- reset -------------------------------------------------------------------------------

    def _apply_policy(self, now: float, instance: PartitionInstance, why: str) -> None:
        policy = self.policy(instance)
        out_of_range = instance.state is not InstanceState.INIT
        if policy == "error":
            del self._searches[instance]
            error = OffsetOutOfRangeError if out_of_range else NoOffsetError
            self._reactions.failed(now, error([instance.partition]))
            return
        if (
            policy != "earliest"
            and not out_of_range
            and self._reactions.is_added(instance.partition)
        ):
            # All its records were written since: none is to be skipped.
            policy, why = "earliest", "the partition was created after the subscription began"
        if isinstance(policy, timedelta):
            timestamp = max(
                0, self._wall_clock.milliseconds(now) - int(policy.total_seconds() * 1000)
            )
        else:
            timestamp = EARLIEST_TIMESTAMP if policy == "earliest" else LATEST_TIMESTAMP
        cause = ResetCause(out_of_range, str(policy), why)
        self._searches[instance].by_policy(timestamp, cause)
        self._searches[instance].wait_until(now)

    def _listed(self, now: float, node: Node, asked: _Searches, reply: Reply) -> None:
        current = self._still(asked)
        match reply:
            case ListOffsetsResponse():
                offsets = {offset.partition: offset for offset in reply.offsets}
                for instance, search in current.items():
                    self._handle_listed(now, instance, search, offsets.get(instance.partition))
                self._resets.write()
            case Failed() as failed if failed.kind in FATAL_FAILURES:
                self._fail(now, current, fatal_error(failed))
            case _:
                why = f"unexpected {type(reply).__name__}"
                if isinstance(reply, Failed):
                    why = reply.detail or reply.kind.value
                    self._cluster.brokers.note_failure(node)
                self._cluster.refresh(now, f"list offsets: {why}")
                for instance, search in current.items():
                    self._retry_later(now, instance, search, why)
        self._run(now)

    def _handle_listed(
        self,
        now: float,
        instance: PartitionInstance,
        search: PositionSearch,
        found: ListedOffset | None,
    ) -> None:
        if found is None:
            self._retry_later(now, instance, search, "the response leaves it out")
        elif found.error is not ErrorCode.none:
            self._partition_error(now, instance, search, found.error)
        elif search.awaits is AwaitedOffset.END and found.offset >= 0:
            search.end_found(now, (found.offset, found.leader_epoch))
        elif found.offset >= 0:
            listed = OffsetAndMetadata(found.offset, "", found.leader_epoch)
            self._found(now, instance, listed, from_reset=True)
            if search.timestamp >= 0 and instance.buffer is not None:
                instance.buffer.set_time_sought(SoughtTime(search.timestamp, found.offset))
        elif search.end is not None and search.awaits is AwaitedOffset.TIMESTAMP:
            offset, leader_epoch = search.end
            end = OffsetAndMetadata(offset, "", leader_epoch)
            self._found(now, instance, end, from_reset=True)
        else:
            self._retry_later(now, instance, search, f"{found.offset} is not an offset")

    # --- both --------------------------------------------------------------------------------

    def _fail(self, now: float, current: _Searches, error: FatalError) -> None:
        for instance in current:
            del self._searches[instance]
        self._reactions.failed(now, error)

    def _partition_error(
        self, now: float, instance: PartitionInstance, search: PositionSearch, error: ErrorCode
    ) -> None:
        if error.retriable or error in _PASSING:
            if search.awaits is not AwaitedOffset.COMMITTED or error in _UNKNOWN:
                self._cluster.refresh(now, f"{instance.partition}: {error.name}")
            why = error.name
            if error is ErrorCode.unstable_offset_commit:
                why = _UNSTABLE
                search.offset_pending(now, self._outbox, instance.partition, self._config)
            self._retry_later(now, instance, search, why)
            return
        if search.report_error():
            problem = PartitionsError(
                [instance.partition],
                f"{instance.partition}: the broker rejects the request for {search.awaits.value}: "
                f"{error.name}",
            )
            if error is ErrorCode.topic_authorization_failed:
                problem = TopicAuthorizationError([instance.partition])
            self._reactions.failed(now, problem)
        self._retry_later(now, instance, search, error.name, slow=True)

    def _found(
        self,
        now: float,
        instance: PartitionInstance,
        found: OffsetAndMetadata,
        *,
        from_reset: bool,
    ) -> None:
        search = self._searches.pop(instance)
        if search.reset_cause is not None:
            self._resets.found(search.reset_cause, instance.partition, found.offset)
        if not self._searches:
            self._log.over(now, "position", log_events.POSITIONS_KNOWN)
        self._reactions.position_found(now, instance, found, from_reset)
