"""Oracles over what a member says to its group: I3, I4, I10, I12, I13, I16, and undue losses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.core.effects import Emit, Failed, Notify, NotifyKind, Replied, Send, StoodIn
from asyncrevoke.model import TopicPartition
from asyncrevoke.protocol.messages import (
    JOIN_EPOCH,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ErrorCode,
    FetchedOffset,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    ListOffsetsResponse,
    MetadataResponse,
    OffsetCommitRequest,
    OffsetFetchResponse,
    Request,
    Response,
    SyncGroupRequest,
    SyncGroupResponse,
)
from asyncrevoke.protocol.subscription import decode_assignment, decode_subscription
from asyncrevoke.testing.simulation.converting_group import ConvertingGroup
from asyncrevoke.testing.simulation.delivery_oracles import CONVERTED
from asyncrevoke.testing.simulation.epoch_member import topic_id
from asyncrevoke.testing.simulation.group import NO_SYNC
from asyncrevoke.testing.simulation.oracles import Books, Holding, View, Violation, name
from asyncrevoke.testing.simulation.staging_oracle import StagingOracle

if TYPE_CHECKING:
    from asyncrevoke.testing.simulation.delivery_oracles import DeliveryOracles
    from asyncrevoke.testing.simulation.group import Protocols

FOLLOW_UP_WITHIN = 1.0
_ORDER = {NotifyKind.LOST: 0, NotifyKind.REVOKED: 1, NotifyKind.ASSIGNED: 2}


class GroupOracles:
    """Follows joins, syncs, heartbeats and notices of every member."""

    def __init__(self, books: Books, deliveries: DeliveryOracles) -> None:
        self._books = books
        self._deliveries = deliveries
        # Who has what in the generation that is running at the coordinator.
        self._assigned: dict[TopicPartition, int] = {}
        # Released, and not yet missing from a JoinGroup's list of what is owned.
        self._owed: dict[int, dict[TopicPartition, None]] = {}
        self._due: dict[int, float] = {}
        self._staging = StagingOracle(books, self._owed)
        self._last_protocols: dict[int, Protocols] = {}
        # Members that the coordinator has put out, or whose generation it has forgotten.
        self._verdicts: dict[int, tuple[float, str]] = {}
        self._notices: list[NotifyKind] = []
        # When a JoinGroup of a client was last processed after the client had given up on it.
        self.late_joins: dict[int, float] = {}

    # --- requests --------------------------------------------------------------------------------

    def sent(self, view: View, send: Send) -> None:
        """A member sends a request."""
        message = send.message
        view.sent[send.request_id] = (self._books.clock.now, message)
        if isinstance(message, OffsetCommitRequest):
            self._commit_sent(view, send.request_id, message)
        elif isinstance(message, JoinGroupRequest):
            self._join_sent(view, send.request_id, message)
        elif isinstance(message, SyncGroupRequest):
            view.sync = send.request_id
        elif isinstance(message, LeaveGroupRequest):
            self._owed.pop(view.member.client, None)
        elif isinstance(message, ConsumerGroupHeartbeatRequest):
            self._heartbeat_sent(view, send.request_id, message)

    def emitted(self, view: View, emit: Emit) -> None:
        """A member writes a line into its log."""
        if emit.event == "joining":
            self._staging.decided(view, emit.fields["reason"])
        elif emit.event.startswith("the log was truncated"):
            raise Violation("undue truncation", f"client {view.member.client}: {emit.fields}")

    def _heartbeat_sent(
        self, view: View, request_id: int, message: ConsumerGroupHeartbeatRequest
    ) -> None:
        client = view.member.client
        if view.join is not None and view.join in view.sent:
            raise Violation("one heartbeat", f"client {client} has two heartbeats in flight")
        view.join = request_id
        if message.member_epoch <= JOIN_EPOCH:
            self._owed.pop(client, None)
            if view.held:
                raise Violation(
                    "I10",
                    f"client {client} sends epoch {message.member_epoch}, and still has "
                    f"{sorted(view.held)}",
                )
        elif message.owned is not None:
            owned = self._books.brokers.by_name(message.owned)
            self._owns(view, owned, full=message.rebalance_timeout is not None)

    def _owns(self, view: View, owned: frozenset[TopicPartition], *, full: bool) -> None:
        client = view.member.client
        held = {tp: holding for tp, holding in view.held.items() if not holding.former}
        if held.keys() - owned:
            raise Violation(
                "I10",
                f"client {client} says that it owns {sorted(owned)}, and has {sorted(held)}",
            )
        # An acknowledgement that was due when it closed lists what it gives up since it closes.
        until = view.closing_since if view.closing else float("inf")
        draining = sorted(
            tp
            for tp, holding in held.items()
            if holding.revoking_since is not None and holding.revoking_since < until
        )
        if draining and not full:
            raise Violation(
                "I10", f"client {client} acknowledges before it has released {draining}"
            )
        owed = self._owed.get(client, {})
        if again := owned & owed.keys():
            raise Violation(
                "I16", f"client {client} says that it owns {sorted(again)}, which it has released"
            )
        owed.clear()

    def _commit_sent(self, view: View, request_id: int, message: OffsetCommitRequest) -> None:
        client = view.member.client
        if view.commit is not None:
            raise Violation(
                "I13", f"client {client} sends a second OffsetCommit while one is in flight"
            )
        view.commit = request_id
        ids = message.topic_ids or {}
        for entry in message.entries:
            holding = view.held.get(entry.partition)
            topic = entry.partition.topic
            if holding is not None and holding.former and ids.get(topic) == self._id(topic):
                raise Violation(
                    "I20",
                    f"client {client} commits {name(entry.partition)}, of a topic that was "
                    "deleted, for another one of its name",
                )
            if entry.partition not in view.held:
                raise Violation(
                    "I3", f"client {client} commits {name(entry.partition)}, which it has not"
                )

    def _join_sent(self, view: View, request_id: int, message: JoinGroupRequest) -> None:
        client = view.member.client
        view.join, view.sync = request_id, None
        if not message.protocols:
            return
        subscription = decode_subscription(message.protocols[0][1])
        owned = frozenset(subscription.owned)
        held = {tp for tp, holding in view.held.items() if not holding.former}
        if not view.eager and held - owned:
            raise Violation(
                "I10",
                f"client {client} joins and lists {sorted(owned)} as owned, "
                f"but still has {sorted(held)}",
            )
        if view.eager and (view.held or owned):
            raise Violation(
                "I10", f"client {client} joins eagerly and still has {sorted(view.held)}"
            )
        if not subscription.topics and not view.closing:
            raise Violation("I10", f"client {client} joins with no topics at all")
        again = self._last_protocols.get(client) == message.protocols
        self._last_protocols[client] = message.protocols
        if not again:
            self._staging.joined(view, message)
        owed = self._owed.get(client, {})
        if not again and owned & owed.keys():
            raise Violation(
                "I16",
                f"client {client} lists {sorted(owned & owed.keys())} as owned, "
                "which it has released",
            )
        for partition in list(owed):
            if partition not in owned:
                del owed[partition]

    def answered(self, view: View, event: Replied | Failed) -> None:
        """A member is about to learn of an answer."""
        sent = view.sent.pop(event.request_id, None)
        request_id = event.request_id
        current_sync = request_id == view.sync
        if request_id == view.commit:
            view.commit = None
        if request_id == view.join:
            view.join = None
        if current_sync:
            view.sync = None
        if isinstance(event, Replied) and sent is not None:
            self._replied(view, sent[0], event.message, current_sync=current_sync)
            if isinstance(sent[1], ConsumerGroupHeartbeatRequest):
                self._epoch_answered(view, sent[0], sent[1], event.message)
            if isinstance(sent[1], HeartbeatRequest):
                self._heartbeat_answered(view, sent[0], sent[1], event.message)

    def _replied(
        self, view: View, sent_at: float, message: Response, *, current_sync: bool
    ) -> None:
        match message:
            case JoinGroupResponse(error=ErrorCode.none):
                view.generation = message.generation
                self._joined_again(view, sent_at, leaderless=not message.leader)
            case SyncGroupResponse(error=ErrorCode.none) if current_sync:
                view.confirmed_at = sent_at
                self._synced(view, frozenset(decode_assignment(message.assignment)[0]))
            case MetadataResponse():
                self._metadata_told(view, message)
            case OffsetFetchResponse(error=ErrorCode.none):
                for fetched in message.offsets:
                    self._offset_fetched(view, fetched)
            case ListOffsetsResponse():
                for listed in message.offsets:
                    if listed.error is ErrorCode.none:
                        self._deliveries.position_found(listed.partition, listed.offset)
            case _:
                pass

    def _joined_again(self, view: View, asked_at: float, *, leaderless: bool = False) -> None:
        """A JoinGroup that was sent after the verdict starts a new membership."""
        now, client = self._books.clock.now, view.member.client
        verdict = self._verdicts.get(client)
        if verdict is not None and asked_at >= verdict[0]:
            view.renewed = now, self._verdicts.pop(client)[1]
        elif leaderless and now - view.confirmed_at > view.member.config.session_timeout:
            # A coordinator that assigns does not tell a member that it has taken it for a new one.
            view.renewed = now, "joined again after more than a session without an answer"

    def _judged(self, client: int, cause: str) -> None:
        self._verdicts[client] = (self._books.clock.now, cause)

    def _offset_fetched(self, view: View, fetched: FetchedOffset) -> None:
        if fetched.error is ErrorCode.none:
            if fetched.offset < 0:
                view.unset.add(fetched.partition)
            else:
                view.unset.discard(fetched.partition)

    def _heartbeat_answered(
        self, view: View, sent_at: float, request: HeartbeatRequest, answer: Response
    ) -> None:
        if not isinstance(answer, HeartbeatResponse):
            return
        if answer.error is ErrorCode.none:
            view.confirmed_at = max(view.confirmed_at, sent_at)
        elif (
            answer.error is ErrorCode.rebalance_in_progress
            and view.eager
            and view.join is None
            and view.sync is None
            and request.generation == view.generation
        ):
            for holding in view.held.values():
                if holding.revoking_since is None:
                    holding.revoking_since = self._books.clock.now

    def _metadata_told(self, view: View, message: MetadataResponse) -> None:
        changed = False
        for topic in message.topics:
            former = view.topic_ids.get(topic.name, topic.topic_id)
            if former != topic.topic_id:
                changed = True
                view.gone_at[topic.name] = self._books.clock.now
            if any(topic.topic_id):
                view.topic_ids[topic.name] = topic.topic_id
            count = len(topic.partitions)
            changed |= view.partition_counts.get(topic.name, count) != count
            view.partition_counts[topic.name] = count
        if changed:
            view.changed_at = self._books.clock.now

    def stood_in(self, view: View, event: StoodIn) -> None:
        """A frozen member runs again, and is about to learn what its thread was answered."""
        request = view.standbys.get(event.standby_id)
        if isinstance(request, HeartbeatRequest) and not isinstance(event.reply, Failed):
            ahead = view.member.now - self._books.clock.now
            self._heartbeat_answered(view, event.sent_at - ahead, request, event.reply)

    def _epoch_answered(
        self,
        view: View,
        sent_at: float,
        request: ConsumerGroupHeartbeatRequest,
        answer: Response,
    ) -> None:
        if not isinstance(answer, ConsumerGroupHeartbeatResponse) or (
            answer.error is not ErrorCode.none or request.member_epoch < JOIN_EPOCH
        ):
            return
        before, view.confirmed_at = view.confirmed_at, max(view.confirmed_at, sent_at)
        view.generation = answer.member_epoch
        if request.member_epoch == JOIN_EPOCH:
            self._joined_again(view, sent_at)
        if answer.assignment is None:
            return
        view.granted = self._books.brokers.by_name(answer.assignment)
        # One of a former topic stays granted until the coordinator has noticed.
        granted = {(topic, number) for topic, numbers in answer.assignment for number in numbers}
        for partition, holding in view.held.items():
            wanted = (holding.topic_id, partition.partition) not in granted
            if wanted and holding.revoking_since is None:
                holding.revoking_since = self._books.clock.now
                holding.wanted_since = before

    def _synced(self, view: View, given: frozenset[TopicPartition]) -> None:
        view.granted = given
        self._staging.synced(view, given)
        owed = self._owed.get(view.member.client, {})
        for partition, holding in view.held.items():
            if partition not in given:
                if holding.revoking_since is None:
                    holding.revoking_since = self._books.clock.now
            elif not view.closing and partition.topic in view.member.core.subscription():
                holding.revoking_since = holding.dropped_since = None
        for partition in given:
            owed.pop(partition, None)

    # --- notices ---------------------------------------------------------------------------------

    def notified(self, view: View, notice: Notify) -> None:
        """A listener is called."""
        books, client = self._books, view.member.client
        if not notice.partitions:
            raise Violation("I12", f"client {client}: empty notice")
        self._notices.append(notice.kind)
        for partition in sorted(notice.partitions):
            if notice.kind is NotifyKind.ASSIGNED:
                if partition in view.held:
                    raise Violation("I12", f"client {client}: {name(partition)} is assigned twice")
                found = view.held[partition] = Holding(books.clock.now, partition in view.unset)
                # Of the topic that it knows of, which may be another one by now.
                current = self._id(partition.topic)
                found.topic_id = view.topic_ids.get(partition.topic, current)
                found.former = found.topic_id != current
                books.holders.setdefault(partition, []).append(view)
                self._deliveries.assigned(view, partition, found)
            elif notice.kind is NotifyKind.REVOKED:
                holding = self._give_up(view, partition)
                if holding is None:
                    raise Violation(
                        "I12", f"client {client}: {name(partition)} is revoked, and was not its"
                    )
                self._released(view, partition, holding)
            else:
                self._deliveries.lost(view, partition)
                self._lost(view, partition, self._give_up(view, partition))

    def _give_up(self, view: View, partition: TopicPartition) -> Holding | None:
        holding = view.held.pop(partition, None)
        if holding is not None:
            self._books.holders[partition].remove(view)
        return holding

    def _released(self, view: View, partition: TopicPartition, holding: Holding) -> None:
        self._deliveries.released(view, partition, holding)
        if holding.former:
            return
        if not view.closing and not view.eager and partition not in view.granted:
            self._owed.setdefault(view.member.client, {})[partition] = None

    def _lost(self, view: View, partition: TopicPartition, holding: Holding | None) -> None:
        books, client = self._books, view.member.client
        gone_now = view.gone_at.get(partition.topic) == books.clock.now
        if holding is None and partition not in view.granted and not gone_now:
            raise Violation("I12", f"client {client}: {name(partition)} is lost, and was not its")
        view.unreported[partition] += 1
        cause = self._verdicts[client][1] if client in self._verdicts else None
        if cause is None and view.renewed is not None and view.renewed[0] == books.clock.now:
            cause = view.renewed[1]
        overdue = holding is not None and self._overdue(view, partition, holding)
        if cause is None and overdue and not books.inexcusable:
            books.counts["lost partitions"] += 1
            books.overdue[client, partition] = "a revoke was not finished before its deadline"
            return
        config = view.member.config
        if (
            cause is None
            and view.closing
            and (books.clock.now >= view.closing_since + config.close_timeout - 0.001)
        ):
            cause = "closing took longer than close_timeout"
        former = gone_now if holding is None else holding.former
        if cause is None and former:
            # Nobody else can have anything of it.
            books.counts["lost with their topics"] += 1
            return
        if cause is None:
            raise Violation(
                "undue loss",
                f"client {client} has lost {name(partition)}, and nothing was done to it",
            )
        books.counts["lost partitions"] += 1
        books.excuse(client, cause)

    def _overdue(self, view: View, partition: TopicPartition, holding: Holding) -> bool:
        begun = holding.revoking_since
        if begun is not None and holding.dropped_since is not None:
            begun = min(begun, holding.dropped_since)
        if view.eager and view.changed_at >= holding.since:
            # It may have joined again for that, before which it gives everything up.
            begun = view.changed_at if begun is None else min(begun, view.changed_at)
        if begun is None:
            return False
        config = view.member.config
        slack = 1.1
        if self._books.disturbed(view.member.client, config.rebalance_timeout):
            slack = config.rebalance_timeout / 2 + 1
        elif not view.works_on(partition):
            return False
        own = begun + (config.revoke_timeout or config.rebalance_timeout)
        since = view.confirmed_at if holding.wanted_since is None else holding.wanted_since
        group = since + config.rebalance_timeout
        now = self._books.clock.now + self._books.client_jumped.get(view.member.client, 0.0)
        return now >= min(own, group) - slack

    def settled(self, view: View) -> None:
        """A call into a core has ended."""
        if self._notices:
            ranks = [_ORDER[kind] for kind in self._notices]
            self._notices.clear()
            if ranks != sorted(ranks):
                raise Violation(
                    "I12", f"client {view.member.client}: notices are out of order: {ranks}"
                )
        self._staging.settled(view)
        client = view.member.client
        if not self._owed.get(client):
            self._due.pop(client, None)
        elif client not in self._due and self._may_follow_up(view):
            due = self._books.clock.now + FOLLOW_UP_WITHIN
            self._due[client] = due
            self._books.clock.at(due + 0.001, lambda: self._follow_up_due(view, due))

    def _may_follow_up(self, view: View) -> bool:
        return (
            view.join is None
            and view.sync is None
            and not view.closing
            and all(holding.revoking_since is None for holding in view.held.values())
        )

    def _follow_up_due(self, view: View, due: float) -> None:
        client = view.member.client
        if self._due.get(client) != due:
            return
        del self._due[client]
        if not self._may_follow_up(view) or not view.member.alive or view.member.frozen:
            return
        owed = self._owed.get(client)
        if owed and not self._books.disturbed(client, 10.0) and client not in self._verdicts:
            raise Violation(
                "I16",
                f"client {client} has released {sorted(owed)}, and has not told the group "
                f"within {FOLLOW_UP_WITHIN} s",
            )

    # --- the coordinator -------------------------------------------------------------------------

    def commit_accepted(self, view: View, partition: TopicPartition) -> None:
        """The coordinator has stored an offset."""
        owner = self._assigned.get(self._key(partition))
        client = view.member.client
        overlooked = partition in view.held and view.held[partition].overlooked
        # What was sent over a dead connection may be read after the release: the epoch of a member
        # of a converted group is valid until it joins again.
        late = (
            self._books.network.processing_ghost
            and isinstance(self._books.brokers.group, ConvertingGroup)
            and partition not in view.held
        )
        if owner not in (None, client) and not (overlooked or late):
            raise Violation(
                "I3",
                f"client {client} has committed {name(partition)}, assigned to client {owner}",
            )

    def replaced(self, old: int, new: int) -> None:
        """A static member has come back, and has what its former self had."""
        if self._books.network.processing_ghost:
            # Not a return: the JoinGroup of a former self, which has arrived after its successor's.
            self._judged(old, "a JoinGroup was processed after a later one")
            self.late_joins[old] = self._books.clock.now
        for partition, client in self._assigned.items():
            if client == old:
                self._assigned[partition] = new

    def converted(self, owners: dict[TopicPartition, int], behind: tuple[int, ...]) -> None:
        """The group has become of another kind: what its coordinator does not know to be somebody's
        it gives away, and members in ``behind`` are no valid ones."""
        books = self._books
        books.counts["conversions"] += 1
        self._assigned = owners
        for view in books.views.values():
            client = view.member.client
            view.kept = False
            if client in behind:
                self._judged(client, CONVERTED)
                books.excuse(client, CONVERTED)
            for partition, holding in view.held.items():
                if owners.get(self._key(partition)) != client and view.member.alive:
                    holding.overlooked = True
                    books.counts["overlooked by a conversion"] += 1
                    books.excuse(client, CONVERTED)
                    self._deliveries.contested(partition)

    def deleted(self, topic: str) -> None:
        """A topic is deleted: what members have of it is nothing any more."""
        for view in self._books.views.values():
            for partition, holding in view.held.items():
                holding.former = holding.former or partition.topic == topic
            view.granted = frozenset(tp for tp in view.granted if tp.topic != topic)
            view.unset -= {tp for tp in view.unset if tp.topic == topic}
        for owed in self._owed.values():
            for partition in [tp for tp in owed if tp.topic == topic]:
                del owed[partition]

    def _id(self, topic: str) -> bytes:
        return topic_id(self._books.brokers.key(topic))

    def _key(self, partition: TopicPartition) -> TopicPartition:
        return TopicPartition(self._books.brokers.key(partition.topic), partition.partition)

    def owned(self, owners: dict[TopicPartition, int]) -> None:
        """A coordinator that assigns has changed who has which partition."""
        self._assigned = owners

    def stable(self, assignments: dict[int, bytes]) -> None:
        """A generation has its assignment."""
        self._assigned = {}
        for client, data in assignments.items():
            for partition in decode_assignment(data)[0]:
                key = self._key(partition)
                other = self._assigned.get(key)
                if other is not None:
                    raise Violation(
                        "I8", f"{name(partition)} is assigned to clients {other} and {client}"
                    )
                self._assigned[key] = client

    def removed(self, client: int, reason: str) -> None:
        """The coordinator has put a member out."""
        view = self._books.views.get(client)
        self._judged(client, f"put out of the group: {reason}")
        self._books.counts["members put out"] += 1
        if view is None or not view.member.alive:
            return
        config = view.member.config
        if view.kept and view.member.frozen and reason == "its session expired":
            raise Violation(
                "standby",
                f"client {client} was put out of the group ({reason}), and has a thread that "
                "keeps its membership while it is frozen",
            )
        unknowing = self._waits_for_sync(client, reason, config.rebalance_timeout)
        disturbed = self._books.disturbed(client, config.session_timeout + config.rebalance_timeout)
        if not disturbed and not unknowing:
            raise Violation(
                "undue removal",
                f"client {client} was put out of the group ({reason}), and is healthy",
            )
        self._books.excuse(client, f"put out of the group: {reason}")

    def _waits_for_sync(self, client: int, reason: str, rebalance_timeout: float) -> bool:
        """Whether a coordinator that assigns waited for the SyncGroup that follows a JoinGroup of a
        connection that was given up: heartbeats tell the member nothing of it."""
        since = self.late_joins.get(client)
        return (
            reason == NO_SYNC
            and since is not None
            and self._books.brokers.group.protocol == "consumer"
            and self._books.clock.now <= since + rebalance_timeout + 0.001
        )

    def processed_late(self, client: int, message: Request) -> None:
        """A broker has processed what a member sent over a connection that it has given up."""
        self._books.views[client].kept = False
        if isinstance(message, JoinGroupRequest):
            # The group may have moved on with a member that knows nothing of it.
            self._judged(client, "a JoinGroup was processed after a later one")
            self.late_joins[client] = self._books.clock.now
            if message.member_id in self._books.brokers.group.members:
                self._books.excuse(client, "a JoinGroup was processed after a later one")
        elif isinstance(message, ConsumerGroupHeartbeatRequest) and (
            # It may say what is not true any more: that it leaves, or what it owns.
            message.member_epoch <= JOIN_EPOCH or message.owned is not None
        ):
            cause = "a heartbeat was processed after a later one"
            self._judged(client, cause)
            if message.member_id in self._books.brokers.group.members:
                self._books.excuse(client, cause)

    def generation_forgotten(self, clients: tuple[int, ...]) -> None:
        """A coordinator was loaded that does not know these members' generation."""
        for client in clients:
            self._judged(client, "the coordinator has forgotten the generation")
            self._books.excuse(client, "the coordinator has forgotten the generation")
