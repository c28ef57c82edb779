"""Oracle over the requests that a member sends to its group: what it says that it owns is what it
has (I10), it commits nothing else (I3, I20), and one thing at a time (I13, "one heartbeat")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.invariants.oracle_state import MemberView, OracleState, Violation, name

from asyncrevoke.client.protocol.messages import (
    JOIN_EPOCH,
    ConsumerGroupHeartbeatRequest,
    DescribeGroupsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    MetadataRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from asyncrevoke.client.protocol.subscription import decode_subscription

if TYPE_CHECKING:
    from simulation.invariants.liveness.call_oracle import CallOracle
    from simulation.invariants.ownership.follow_up_oracle import FollowUpOracle

    from asyncrevoke.client.core.io.effects import Send
    from asyncrevoke.client.model import TopicPartition


# Of these a broker has one in flight on each channel of a member at most.
_ONE_AT_A_TIME = (
    ConsumerGroupHeartbeatRequest,
    DescribeGroupsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    MetadataRequest,
    SyncGroupRequest,
)


class RequestOracle:
    """Compares what is sent with what its view has. What is in flight is noted there too, until
    it has its response."""

    def __init__(self, state: OracleState, follow_ups: FollowUpOracle, calls: CallOracle) -> None:
        self._state = state
        self._follow_ups = follow_ups
        self._calls = calls

    def sent(self, view: MemberView, send: Send) -> None:
        """A member sends a request."""
        message = send.message
        client = view.member.client
        # Each look-up of the application asks for itself.
        own = not (isinstance(message, MetadataRequest) and self._calls.is_looking_up(client))
        if (
            own
            and isinstance(message, _ONE_AT_A_TIME)
            and self._state.network.in_flight(client, send)
        ):
            raise Violation(
                "one at a time",
                f"client {client} has two {type(message).__name__} in flight to one "
                f"broker on channel {send.channel.value}",
            )
        view.sent[send.request_id] = (self._state.clock.now, message)
        if isinstance(message, OffsetCommitRequest):
            self._commit_sent(view, send.request_id, message)
        elif isinstance(message, JoinGroupRequest):
            self._join_sent(view, send.request_id, message)
        elif isinstance(message, SyncGroupRequest):
            view.sync = send.request_id
        elif isinstance(message, LeaveGroupRequest):
            view.left_as = message.member_id
            self._follow_ups.parted(view.member.client)
        elif isinstance(message, ConsumerGroupHeartbeatRequest):
            self._heartbeat_sent(view, send.request_id, message)

    def _heartbeat_sent(
        self, view: MemberView, request_id: int, message: ConsumerGroupHeartbeatRequest
    ) -> None:
        client = view.member.client
        if view.join is not None and view.join in view.sent:
            raise Violation("one heartbeat", f"client {client} has two heartbeats in flight")
        view.join = request_id
        if message.member_epoch <= JOIN_EPOCH:
            self._follow_ups.parted(client)
            if view.held:
                raise Violation(
                    "I10",
                    f"client {client} sends epoch {message.member_epoch}, and still has "
                    f"{sorted(view.held)}",
                )
        elif message.owned is not None:
            owned = self._state.brokers.topics.by_name(message.owned)
            self._owns(view, owned, full=message.rebalance_timeout is not None)

    def _owns(self, view: MemberView, owned: frozenset[TopicPartition], *, full: bool) -> None:
        client = view.member.client
        held = {tp: holding for tp, holding in view.held.items() if not holding.former}
        if held.keys() - owned:
            raise Violation(
                "I10",
                f"client {client} says that it owns {sorted(owned)}, and has {sorted(held)}",
            )
        # An acknowledgement that was due when it closed lists what closing revokes.
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
        self._follow_ups.acknowledged(client, owned)

    def _commit_sent(self, view: MemberView, request_id: int, message: OffsetCommitRequest) -> None:
        client, brokers = view.member.client, self._state.brokers
        if view.commit is not None:
            raise Violation(
                "I13", f"client {client} sends a second OffsetCommit while one is in flight"
            )
        view.commit = request_id
        ids = message.topic_ids or {}
        for entry in message.entries:
            holding = view.held.get(entry.partition)
            topic = entry.partition.topic
            former = holding is not None and holding.former
            if former and ids.get(topic) == brokers.topics.id_of(topic):
                raise Violation(
                    "I20",
                    f"client {client} commits {name(entry.partition)}, of a topic that was "
                    "deleted, for another one of its name",
                )
            # An application that commits by itself may do so before the position is known.
            manual = view.member.config.commit_mode == "manual"
            unplaced = manual and entry.partition in view.granted | view.granted_before
            if entry.partition not in view.held and not unplaced:
                raise Violation(
                    "I3", f"client {client} commits {name(entry.partition)}, which it has not"
                )

    def _join_sent(self, view: MemberView, request_id: int, message: JoinGroupRequest) -> None:
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
        self._follow_ups.joined(view, message, owned)
