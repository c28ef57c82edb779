"""JoinGroup and SyncGroup: composed, sent when the coordinator is known, and retried."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from asyncrevoke.client import log_events
from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.core.io.effects import Channel, Failed, FailureKind, Node, ResetConnection
from asyncrevoke.client.core.io.fatal_error import FATAL_FAILURES, fatal_error
from asyncrevoke.client.core.membership.classic.state_table import ClassicState
from asyncrevoke.client.core.membership.classic.user_data import subscription_user_data
from asyncrevoke.client.core.membership.fatal_errors import no_common_assignor
from asyncrevoke.client.protocol.messages import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ErrorCode,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from asyncrevoke.client.protocol.subscription import Subscription, encode_subscription

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.assignors.assignor import Assignor
    from asyncrevoke.client.core.io.outbox import OnReply, Outbox, Reply
    from asyncrevoke.client.core.membership.classic.member import ClassicMembership
    from asyncrevoke.client.core.membership.classic.owned_and_assigned import OwnedAndAssigned
    from asyncrevoke.client.core.metadata.coordinator import Coordinator

_RETRY_TIMER = "join-retry"
_FIRST_BACKOFF = 0.05
_LONGEST_BACKOFF = 1.0
# The coordinator may delay the response to a JoinGroup until the rebalance timeout. A JoinGroup
# that takes so long is sent again: the coordinator may have forgotten it, or responded on a dead
# connection, and removes members that have not joined by the rebalance timeout.
_SHARE_OF_REBALANCE = 0.75
_SHARE_OF_SESSION = 0.75
_LATE_TIMER = "join-late"
_LATE_AFTER = 1.0
_DESCRIBED_WITHIN = 2.0
# A coordinator stores an assignment before it responds to SyncGroup, and waits for the replicas
# for so long (offsets.commit.timeout.ms). Meanwhile it may respond to heartbeats.
LONGEST_STORE = 5.0


class JoinAndSync:
    """At most one JoinGroup or SyncGroup outstanding, on the join channel.

    A JoinGroup without a response is sent again with the same member id and metadata: the
    coordinator then responds with the running generation instead of starting another rebalance.
    """

    def __init__(
        self,
        outbox: Outbox,
        config: ConsumerConfig,
        coordinator: Coordinator,
        assignors: Mapping[str, Assignor],
        partitions: OwnedAndAssigned,
        member: ClassicMembership,
    ) -> None:
        self._outbox = outbox
        self._config = config
        self._group_id = config.group_id or ""
        self._coordinator = coordinator
        self._assignors = assignors
        self._partitions = partitions
        self._member = member
        self._request: JoinGroupRequest | None = None
        # Whether a JoinGroup is to be composed when the coordinator is known.
        self._due = False
        # The request that the running generation was joined with.
        self._joined_by: JoinGroupRequest | None = None
        self._outstanding: int | None = None
        # The request that asks for the group's assignor, after a rejected JoinGroup.
        self._description: int | None = None
        self.sent_to: Node | None = None
        # The term of the coordinator that was asked last.
        self._term = 0
        self._retried = False
        # JoinGroups without a response in time, since this member was assigned partitions last.
        self._without_response = 0
        # Connections in a row that were given up because the coordinator had moved on.
        self._given_up = 0
        # Whether the coordinator knows this member by a generation.
        self._known = False
        self._backoff = Backoff(_FIRST_BACKOFF, _LONGEST_BACKOFF)
        # The broker that may still delay the response to a cancelled request.
        self._forgotten: Node | None = None

    @property
    def outstanding(self) -> bool:
        """Whether a request has no response yet."""
        return self._outstanding is not None

    @property
    def offered(self) -> tuple[tuple[str, bytes], ...]:
        """Names and metadata of the assignors in the JoinGroup under way."""
        return () if self._request is None else self._request.protocols

    def join(self, now: float, *, known: bool, request: JoinGroupRequest | None = None) -> None:
        """Send JoinGroup when the coordinator is known. Without a ``request`` it is composed only
        then: partitions may be released or lost before. ``known``: with a generation."""
        self._forget_description()
        self._known = known
        self._request = request
        self._due = request is None
        self._retried = False
        self._coordinator.call_when_known("join", self._send_join, now)

    def join_with_id(self, now: float) -> None:
        """Send the same JoinGroup with the id that the coordinator has given (KIP-394)."""
        if self._request is not None:
            request = structs.replace(self._request, member_id=self._member.member_id)
            self.join(now, known=False, request=request)

    def join_again(self, now: float, why: str, *, at_once: bool) -> None:
        """The assignment was not received: request it by the same JoinGroup."""
        if self._joined_by is None:
            raise AssertionError("no JoinGroup has led to this SyncGroup")
        request = structs.replace(self._joined_by, member_id=self._member.member_id)
        if at_once:
            self.join(now, known=True, request=request)
        else:
            self._known = True
            self._request = request
            self.join_later(now, why)

    def join_elsewhere(self, now: float, why: str) -> None:
        """Send the same JoinGroup to the new coordinator."""
        self._coordinator.mark_unknown(now, f"JoinGroup: {why}", self.sent_to)
        self._coordinator.call_when_known("join", self._send_join, now)

    def join_later(self, now: float, why: str) -> None:
        """Send the same JoinGroup after a backoff."""
        self._outbox.emit(log_events.REJOINING, reason=why)
        delay = self._backoff.failed()
        self._outbox.set_timer(
            _RETRY_TIMER,
            now + delay,
            lambda later: self._coordinator.call_when_known("join", self._send_join, later),
            spread=delay,
        )

    def sync(
        self, now: float, protocol_name: str, assignments: tuple[tuple[str, bytes], ...]
    ) -> None:
        """Send SyncGroup to the coordinator that has responded to the JoinGroup. Another one knows
        only the generations that were assigned: then there is no response to report.

        ``assignments`` are those of all members by their ids, if this one leads; none if the group
        keeps its assignment (KIP-814)."""
        self._joined_by, self._request = self._request, None
        node = self._coordinator.node
        if node is None or self._coordinator.term != self._term:
            self._member.sync_response_received(now, now, None)
            return
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation=self._member.generation,
            member_id=self._member.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_name=protocol_name,
            assignments=assignments,
        )
        self.sent_to = node
        self._known = True
        # Heartbeats show meanwhile whether the coordinator responds and knows the member.
        timeout = min(
            self._longest, max(self._config.session_timeout, self._config.request_timeout)
        )
        self._outstanding = self._outbox.send(
            request,
            node,
            Channel.JOIN,
            timeout,
            lambda later, reply: self._sync_response_received(later, now, reply),
        )

    def describe_group(self, now: float) -> None:
        """The JoinGroup was rejected: ask the coordinator for the group's assignor."""
        self._request = None
        if self.sent_to is None:
            self._described(now, None)
            return
        self._description = self._outbox.send(
            DescribeGroupsRequest(group_id=self._group_id),
            self.sent_to,
            Channel.JOIN,
            min(_DESCRIBED_WITHIN, self._config.request_timeout),
            self._description_received,
        )

    def _description_received(self, now: float, reply: Reply) -> None:
        self._description = None
        if isinstance(reply, DescribeGroupsResponse) and reply.error is ErrorCode.none:
            self._described(now, reply)
        else:
            self._described(now, None)

    def _described(self, now: float, group: DescribeGroupsResponse | None) -> None:
        self._member.fail(now, no_common_assignor(self._group_id, self._assignors, group))

    def expect_response(self, now: float, seconds: float = _LATE_AFTER) -> None:
        """The coordinator has moved on, and the request has no response yet. It is on its way, or
        went to a dead connection. If it does not come in time, ask on a new connection.

        The time doubles after each such request: a slow coordinator may begin again with each."""
        if self._outstanding is not None and not self._outbox.has_timer(_LATE_TIMER):
            patience = min(seconds * 2.0 ** min(self._given_up, 16), self._longest)
            self._outbox.set_timer(_LATE_TIMER, now + patience, self._reconnect)

    def _reconnect(self, _now: float) -> None:
        if self._outstanding is not None and self.sent_to is not None:
            self._given_up += 1
            self._outbox.emit(log_events.COORDINATOR_SILENT)
            self._outbox.put(ResetConnection(self.sent_to, Channel.JOIN))

    def hand_over(self, on_reply: OnReply) -> bool:
        """Forget all but the response to a JoinGroup, for ``on_reply``. False without one."""
        outstanding = self._outstanding if self._request is not None else None
        if outstanding is not None:
            self._outbox.redirect(outstanding, partial(self._hand_over_response, on_reply))
            self._forgotten = self.sent_to
            self._outstanding = None
        self.cancel()
        return outstanding is not None

    def _hand_over_response(self, on_reply: OnReply, now: float, reply: Reply) -> None:
        self._forgotten = None
        on_reply(now, reply)

    def cancel(self) -> None:
        """Forget all that is outstanding or planned."""
        self._outbox.cancel_timer(_LATE_TIMER)
        self._request = self._joined_by = None
        self._due = False
        self._forget_description()
        if self._outstanding is not None:
            self._outbox.forget(self._outstanding)
            self._forgotten = self.sent_to
            self._outstanding = None
        self._outbox.cancel_timer(_RETRY_TIMER)

    def _forget_description(self) -> None:
        if self._description is not None:
            self._outbox.forget(self._description)
            self._description = None

    @property
    def _longest(self) -> float:
        """The longest that a member may wait and still join in time."""
        return self._config.rebalance_timeout * _SHARE_OF_REBALANCE

    @property
    def _timeout(self) -> float:
        session = self._config.session_timeout
        longest = self._longest
        if not self._known:
            # No heartbeat shows that a first JoinGroup was forgotten, or its response was lost. The
            # timeout doubles after each timeout, as the response may need longer. Without another
            # one the coordinator removes a member that it has added, or a static one that was
            # replaced (KIP-345), when its session ends.
            longest = min(max(longest, session / 2), session * _SHARE_OF_SESSION)
            return min(session / 2 * 2.0 ** min(self._without_response, 16), longest)
        return min(longest, session)

    def _send_join(self, _now: float) -> None:
        node = self._coordinator.node
        if node is None or self._outstanding is not None:
            return
        if self._due:
            self._request, self._due = self._compose_join(), False
        if self._request is None:
            return
        if self._forgotten is not None:
            # Brokers respond in order: the request would wait behind the forgotten one.
            self._outbox.put(ResetConnection(self._forgotten, Channel.JOIN))
            self._forgotten = None
        self.sent_to, self._term = node, self._coordinator.term
        self._outstanding = self._outbox.send(
            self._request, node, Channel.JOIN, self._timeout, self._join_response_received
        )

    def _compose_join(self) -> JoinGroupRequest:
        """The JoinGroup to send now, with what the member owns now."""
        member = self._member
        topics = () if member.is_leaving else tuple(sorted(member.topics))
        owned = self._partitions.report(member.topics)
        generation, last = member.generation, member.last_assignment
        protocols: list[tuple[str, bytes]] = []
        for name, assignor in self._assignors.items():
            subscription = Subscription(
                topics=topics,
                owned=owned,
                generation=generation,
                rack=self._config.client_rack,
                user_data=subscription_user_data(assignor, generation, owned, last, self._config),
            )
            protocols.append((name, encode_subscription(subscription)))
        return JoinGroupRequest(
            group_id=self._group_id,
            session_timeout=self._config.session_timeout,
            rebalance_timeout=self._config.rebalance_timeout,
            member_id=member.member_id,
            group_instance_id=self._config.group_instance_id,
            protocols=tuple(protocols),
            reason=member.join_reason,
        )

    def _join_response_received(self, now: float, reply: Reply) -> None:
        self._outstanding = None
        self._outbox.cancel_timer(_LATE_TIMER)
        if isinstance(reply, JoinGroupResponse):
            self._member.join_response_received(now, reply)
            return
        self._without_response += isinstance(reply, Failed) and reply.kind is FailureKind.TIMEOUT
        detail = self._failure(now, reply)
        if detail is None:
            return
        if self._member.is_leaving and self._member.state is ClassicState.AWAIT_ID:
            # No coordinator knows this member: there is nothing to leave.
            self._member.leave_ended(now)
        elif not self._retried:
            # Brokers close idle connections: try a new one at once.
            self._retried = True
            self._coordinator.call_when_known("join", self._send_join, now)
        else:
            self._coordinator.no_response(now, f"JoinGroup: {detail}", self.sent_to)
            self.join_later(now, detail)

    def _sync_response_received(self, now: float, sent_at: float, reply: Reply) -> None:
        self._outstanding = None
        self._outbox.cancel_timer(_LATE_TIMER)
        if isinstance(reply, SyncGroupResponse):
            if reply.error is ErrorCode.none:
                self._backoff.succeeded()
                self._given_up = self._without_response = 0
            self._member.sync_response_received(now, sent_at, reply)
            return
        detail = self._failure(now, reply)
        if detail is not None:
            self._coordinator.no_response(now, f"SyncGroup: {detail}", self.sent_to)
            self._member.sync_response_received(now, sent_at, None)

    def _failure(self, now: float, reply: Reply) -> str | None:
        """Why there is no response; None if the failure is fatal, and was reported."""
        if not isinstance(reply, Failed):
            return f"the response is a {type(reply).__name__}"
        if reply.kind in FATAL_FAILURES:
            self._member.fail(now, fatal_error(reply))
            return None
        return reply.detail or reply.kind.value
