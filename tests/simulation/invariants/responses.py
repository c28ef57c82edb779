"""Responses that members receive: what they may know of their group and their topics.

It updates the views that the oracles compare with, and checks one invariant: that no added
partition begins at its end.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from simulation.invariants.oracle_state import Violation, name

from asyncrevoke.client.core.io.effects import BackgroundHeartbeatReply, Failed, Replied
from asyncrevoke.client.protocol.messages import (
    JOIN_EPOCH,
    LATEST_TIMESTAMP,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ErrorCode,
    FetchedOffset,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataResponse,
    OffsetFetchResponse,
    Response,
    SyncGroupResponse,
)
from asyncrevoke.client.protocol.subscription import decode_assignment

if TYPE_CHECKING:
    from simulation.invariants.evictions import Evictions
    from simulation.invariants.oracle_state import MemberView, OracleState
    from simulation.invariants.ownership.follow_up_oracle import FollowUpOracle
    from simulation.invariants.records.delivery_oracles import DeliveryOracles

    from asyncrevoke.client.model import TopicPartition


class Responses:
    """Follows the responses that reach each member: its membership, its assignment, and what it has
    to revoke."""

    def __init__(
        self,
        state: OracleState,
        evictions: Evictions,
        follow_ups: FollowUpOracle,
        deliveries: DeliveryOracles,
    ) -> None:
        self._state = state
        self._evictions = evictions
        self._follow_ups = follow_ups
        self._deliveries = deliveries

    def received(self, view: MemberView, event: Replied | Failed) -> None:
        """A member is about to receive a response."""
        sent = view.sent.pop(event.request_id, None)
        request_id = event.request_id
        current_sync = request_id == view.sync
        if request_id == view.commit:
            view.commit = None
            if sent is not None and isinstance(event, Replied):
                seconds = self._state.clock.now - sent[0]
                view.slowest_commit = max(view.slowest_commit * 0.99, seconds)
        if request_id == view.join:
            view.join = None
        if current_sync:
            view.sync = None
        if isinstance(event, Replied) and sent is not None:
            sent_at, request = sent
            self._replied(view, sent_at, event.message, current_sync=current_sync)
            if isinstance(request, ListOffsetsRequest) and isinstance(
                event.message, ListOffsetsResponse
            ):
                self._offsets_listed(view, request, event.message)
            if isinstance(request, ConsumerGroupHeartbeatRequest):
                self._epoch_response_received(view, sent_at, request, event.message)
            if isinstance(request, HeartbeatRequest):
                self._heartbeat_response_received(view, sent_at, request, event.message)

    def thread_received(self, view: MemberView, event: BackgroundHeartbeatReply) -> None:
        """A frozen member runs again, and is about to receive the responses to its thread."""
        request = view.background_heartbeats.get(event.heartbeat_id)
        sent_at = event.sent_at - (view.member.now - self._state.clock.now)
        if isinstance(request, HeartbeatRequest) and not isinstance(event.reply, Failed):
            self._heartbeat_response_received(view, sent_at, request, event.reply)
        elif (
            isinstance(event.reply, ConsumerGroupHeartbeatResponse)
            and event.reply.error is ErrorCode.none
        ):
            view.heard(sent_at)

    def _replied(
        self, view: MemberView, sent_at: float, message: Response, *, current_sync: bool
    ) -> None:
        match message:
            case JoinGroupResponse(error=ErrorCode.none):
                view.generation = message.generation
                self._evictions.joined_again(view, sent_at, leaderless=not message.leader)
            case SyncGroupResponse(error=ErrorCode.none) if current_sync:
                view.confirmed_at = sent_at
                view.heard(sent_at)
                self._synced(view, frozenset(decode_assignment(message.assignment)[0]))
            case MetadataResponse():
                self._metadata_told(view, message)
            case OffsetFetchResponse(error=ErrorCode.none):
                for fetched in message.offsets:
                    self._offset_fetched(view, fetched)
            case _:
                pass

    # --- the group -------------------------------------------------------------------------------

    def _synced(self, view: MemberView, given: frozenset[TopicPartition]) -> None:
        view.granted = given
        view.members = self._state.members_of(view.generation)
        view.changes.clear()
        self._follow_ups.synced(view, given)
        for partition, holding in view.held.items():
            if partition not in given:
                if holding.revoking_since is None:
                    holding.revoking_since = self._state.clock.now
            elif (
                not view.closing
                and partition.topic in view.member.core.subscription_state.subscription()
            ):
                holding.revoking_since = holding.dropped_since = holding.wanted_since = None

    def _heartbeat_response_received(
        self, view: MemberView, sent_at: float, request: HeartbeatRequest, response: Response
    ) -> None:
        if not isinstance(response, HeartbeatResponse):
            return
        if response.error in (ErrorCode.none, ErrorCode.rebalance_in_progress):
            view.heard(sent_at)
        if response.error is ErrorCode.none:
            view.confirmed_at = max(view.confirmed_at, sent_at)
        elif response.error is ErrorCode.rebalance_in_progress:
            asked = view.join is None and view.sync is None
            for holding in view.held.values():
                begins = view.eager and asked and request.generation == view.generation
                if holding.revoking_since is None and begins:
                    holding.revoking_since = self._state.clock.now
                if holding.revoking_since is not None and holding.wanted_since is None:
                    # That rebalance will not wait for it any longer, even if it comes to nothing.
                    holding.wanted_since = view.confirmed_at

    def _epoch_response_received(
        self,
        view: MemberView,
        sent_at: float,
        request: ConsumerGroupHeartbeatRequest,
        response: Response,
    ) -> None:
        if not isinstance(response, ConsumerGroupHeartbeatResponse):
            return
        if response.error is ErrorCode.fenced_member_epoch:
            self._evictions.fenced(view, request)
        if response.error is not ErrorCode.none or request.member_epoch < JOIN_EPOCH:
            return
        before, view.confirmed_at = view.confirmed_at, max(view.confirmed_at, sent_at)
        view.heard(sent_at)
        view.session = 9 * response.heartbeat_interval  # as Kafka's defaults are
        view.generation = response.member_epoch
        view.members = self._state.members_of(view.generation)
        if request.member_epoch == JOIN_EPOCH:
            self._evictions.joined_again(view, sent_at)
        if response.assignment is None:
            return
        view.granted = self._state.brokers.topics.by_name(response.assignment)
        # One of a former topic stays granted until the coordinator has noticed.
        granted = {(topic, number) for topic, numbers in response.assignment for number in numbers}
        for partition, holding in view.held.items():
            wanted = (holding.topic_id, partition.partition) not in granted
            if wanted and holding.revoking_since is None:
                holding.revoking_since = self._state.clock.now
                holding.wanted_since = before

    # --- topics and offsets ----------------------------------------------------------------------

    def _offsets_listed(
        self, view: MemberView, request: ListOffsetsRequest, response: ListOffsetsResponse
    ) -> None:
        ends = {query.partition for query in request.queries if query.timestamp == LATEST_TIMESTAMP}
        for partition in ends & view.unset - view.held.keys():
            self._state.counts["positions at the end"] += 1
            if partition.partition >= view.first_counts.get(partition.topic, math.inf):
                raise Violation(
                    "skipped",
                    f"client {view.member.client} begins at the end of {name(partition)}, which "
                    "was added after it had subscribed to the topic",
                )
        for listed in response.offsets:
            if listed.error is ErrorCode.none:
                self._deliveries.position_found(
                    view, listed.partition, listed.offset, is_end=listed.partition in ends
                )

    def _offset_fetched(self, view: MemberView, fetched: FetchedOffset) -> None:
        if fetched.error is ErrorCode.none:
            if fetched.offset < 0:
                view.unset.add(fetched.partition)
                view.fetched_offsets.pop(fetched.partition, None)
            else:
                view.unset.discard(fetched.partition)
                view.fetched_offsets[fetched.partition] = fetched.offset

    def _metadata_told(self, view: MemberView, message: MetadataResponse) -> None:
        changed = False
        for topic in message.topics:
            former = view.topic_ids.get(topic.name, topic.topic_id)
            if former != topic.topic_id:
                changed = True
                view.recreated.add(topic.name)
            view.described_at[topic.name] = self._state.clock.now
            if any(topic.topic_id):
                view.topic_ids[topic.name] = topic.topic_id
            count = len(topic.partitions)
            changed |= view.partition_counts.get(topic.name, count) != count
            view.partition_counts[topic.name] = count
            if topic.name in view.member.core.subscription_state.subscription():
                view.first_counts.setdefault(topic.name, count)
        if changed:
            view.changes.append(self._state.clock.now)
