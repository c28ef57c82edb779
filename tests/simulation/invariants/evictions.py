"""Members that the coordinator has removed from the group or has forgotten, and why.

It may remove neither a healthy member ("undue removal") nor a frozen one whose heartbeat thread
keeps its membership ("background heartbeat"). A member whose consumer has ended with a fatal error
is not healthy: it sends no heartbeats, and its session expires.
"""

from __future__ import annotations

from typing import Final

from simulation.brokers.coordinator_events import NO_SYNC
from simulation.invariants.oracle_state import MemberView, OracleState, Violation

from asyncrevoke.client.protocol.messages import (
    JOIN_EPOCH,
    ConsumerGroupHeartbeatRequest,
    JoinGroupRequest,
    Request,
    SyncGroupRequest,
)
from asyncrevoke.testing.fake_kafka.consumer_group import ConsumerGroupMember, by_key
from asyncrevoke.testing.fake_kafka.group_state import GroupState

LATE_JOIN: Final = "a JoinGroup was processed after a later one"
_LATE_SYNC = "a SyncGroup was processed after a later one"
_LATE_HEARTBEAT = "a heartbeat was processed after a later one"
_LOST_RESPONSE = "the response to a heartbeat was lost that asked for more partitions"
_LOST_RESPONSES = "the responses to two heartbeats were lost that moved its epoch on"
_FORGOTTEN = "the coordinator has forgotten the generation"
_OUT_OF_TOUCH = "joined again after more than a session without a response"


class Evictions:
    """The clients that were evicted and have not joined again: each may lose its partitions, and
    owes the group no request.

    ``late_joins``: when a JoinGroup of a client was last processed after the client had stopped
    waiting for it.
    """

    def __init__(self, state: OracleState) -> None:
        self._state = state
        self.late_joins: dict[int, float] = {}
        self._evictions: dict[int, tuple[float, str]] = {}
        # When a client last received that a join may have made another member of it, and why.
        self._renewed: dict[int, tuple[float, str]] = {}
        # The broker that loaded the group last, and the one before.
        self._loaded_on = self._loaded_before = state.brokers.coordinator
        # The members of a generation that another broker has not loaded: the broker that had it,
        # and since when it is forgotten.
        self._forgotten: dict[int, tuple[int, float]] = {}

    # --- who is evicted --------------------------------------------------------------------------

    def is_evicted(self, client: int) -> bool:
        """Whether this client was evicted and has not joined again."""
        return client in self._evictions

    def why_lost(self, client: int) -> str | None:
        """Why the client may lose its partitions now, or None if it may not."""
        if client in self._evictions:
            return self._evictions[client][1]
        at, cause = self._renewed.get(client, (None, None))
        return cause if at == self._state.clock.now else None

    def late_joiners(self) -> list[int]:
        """The clients that were evicted because a JoinGroup of theirs was processed late."""
        return [client for client, (_, cause) in self._evictions.items() if cause == LATE_JOIN]

    # --- what evicts a client, and ends its eviction ---------------------------------------------

    def evict(self, client: int, cause: str) -> None:
        """The coordinator has removed a client from the group, or has forgotten it."""
        self._evictions[client] = (self._state.clock.now, cause)
        self._state.evicted.add(client)

    def joined_again(self, view: MemberView, asked_at: float, *, leaderless: bool = False) -> None:
        """A JoinGroup that was sent after the eviction starts a new membership."""
        now, client = self._state.clock.now, view.member.client
        eviction = self._evictions.get(client)
        if eviction is not None and asked_at >= eviction[0]:
            self._renewed[client] = now, self._evictions.pop(client)[1]
            self._state.evicted.discard(client)
        elif leaderless and self._out_of_touch(view):
            # A KIP-848 coordinator does not report to a member that it made a new one of it.
            self._renewed[client] = now, _OUT_OF_TOUCH

    def _out_of_touch(self, view: MemberView) -> bool:
        state, config = self._state, view.member.config
        theirs = state.clock.now + state.client_jumped.get(view.member.client, 0.0)
        return theirs - view.confirmed_at > min(config.session_timeout, config.rebalance_timeout)

    def fenced(self, view: MemberView, request: ConsumerGroupHeartbeatRequest) -> None:
        """A member receives that its epoch is not the current one."""
        if self._lacks_a_response(request):
            self.evict(view.member.client, _LOST_RESPONSE)
        elif self._lacks_two_responses(view, request):
            self.evict(view.member.client, _LOST_RESPONSES)

    def _lacks_two_responses(
        self, view: MemberView, request: ConsumerGroupHeartbeatRequest
    ) -> bool:
        """Whether two responses were lost since its last one, and the coordinator moved its epoch
        on with each: it knows no epoch before the previous one."""
        state, client = self._state, view.member.client
        member = state.brokers.group.members.get(request.member_id)
        lost = sum(at >= view.confirmed_at for at in state.lost_requests.get(client, ()))
        return (
            isinstance(member, ConsumerGroupMember)
            and request.member_epoch < member.previous_epoch
            and lost >= 2
        )

    def _lacks_a_response(self, request: ConsumerGroupHeartbeatRequest) -> bool:
        """Whether the response was lost that moved its epoch on and asked for more partitions. The
        coordinator lets who repeats the epoch before own nothing but what is left to it."""
        member = self._state.brokers.group.members.get(request.member_id)
        return (
            isinstance(member, ConsumerGroupMember)
            and request.owned is not None
            and request.member_epoch == member.previous_epoch
            and not by_key(request.owned) <= member.assigned
            and by_key(request.owned) <= member.assigned | member.pending
        )

    def replaced(self, old: int) -> None:
        """A static member has come back in place of this one."""
        if self._state.network.processing_ghost:
            # Not a return: the JoinGroup of a former self, which has arrived after its successor's.
            self._joined_late(old)

    def _joined_late(self, client: int) -> None:
        self.evict(client, LATE_JOIN)
        self.late_joins[client] = self._state.clock.now

    def processed_late(self, client: int, message: Request) -> None:
        """A broker has processed a request of a connection that its member had closed."""
        state = self._state
        state.views[client].kept = False
        if isinstance(message, JoinGroupRequest):
            # The group may have moved on with a member that knows nothing of it.
            self._joined_late(client)
            if message.member_id in state.brokers.group.members:
                state.permit_duplicates(client, LATE_JOIN)
        elif isinstance(message, SyncGroupRequest):
            # It has taken the response to the one that its member waits for.
            if state.brokers.group.state is GroupState.COMPLETING:
                self.evict(client, _LATE_SYNC)
        elif isinstance(message, ConsumerGroupHeartbeatRequest) and (
            # It may say what is not true any more: that it leaves, or what it owns.
            message.member_epoch <= JOIN_EPOCH or message.owned is not None
        ):
            self.evict(client, _LATE_HEARTBEAT)
            if message.member_id in state.brokers.group.members:
                state.permit_duplicates(client, _LATE_HEARTBEAT)

    def generation_forgotten(self, clients: tuple[int, ...]) -> None:
        """A coordinator was loaded that does not know these members' generation. They notice if it
        is another one; of the same they may have a response under way that holds no more."""
        state = self._state
        for client in clients:
            view = state.views.get(client)
            frozen = view is not None and view.member.frozen
            if not state.brokers.loads_again:
                self._forgotten[client] = self._loaded_before, state.clock.now
            elif frozen or not state.brokers.was_away:
                self._evict_unaware(client)

    def loaded(self) -> None:
        """A coordinator was loaded. If it is again the one that had a generation which another has
        forgotten, its responses from then may be under way, and hold no more."""
        broker = self._state.brokers.coordinator
        self._loaded_before, self._loaded_on = self._loaded_on, broker
        for client, (had_it, since) in list(self._forgotten.items()):
            if had_it == broker:
                del self._forgotten[client]
                if self._awaits_response_from_before(client, since):
                    self._evict_unaware(client)

    def _awaits_response_from_before(self, client: int, at: float) -> bool:
        view = self._state.views.get(client)
        if view is None:
            return False
        awaited = (view.sent[each] for each in (view.join, view.sync) if each in view.sent)
        return any(sent_at < at for sent_at, _ in awaited)

    def _evict_unaware(self, client: int) -> None:
        self.evict(client, _FORGOTTEN)
        self._state.permit_duplicates(client, _FORGOTTEN)

    # --- removals --------------------------------------------------------------------------------

    def removed(self, client: int, member_id: str, reason: str) -> None:
        """The coordinator has put a member out."""
        state, view = self._state, self._state.views.get(client)
        cause = f"put out of the group: {reason}"
        self.evict(client, cause)
        state.counts["members put out"] += 1
        if view is None or not view.member.alive:
            return
        if view.failed:
            # Whether it had to fail is checked by the error that its application gets.
            state.permit_duplicates(client, cause)
            return
        config = view.member.config
        if view.kept and view.member.frozen and reason == "its session expired":
            raise Violation(
                "background heartbeat",
                f"client {client} was put out of the group ({reason}), and has a thread that "
                "keeps its membership while it is frozen",
            )
        unknowing = self._waits_for_sync(client, reason, config.rebalance_timeout)
        disturbed = state.disturbed(client, config.session_timeout + config.rebalance_timeout)
        former = self._left_unheard(view, member_id)
        if (state.strict or not disturbed) and not unknowing and not former:
            raise Violation(
                "undue removal",
                f"client {client} was put out of the group ({reason}), and is healthy",
            )
        state.permit_duplicates(client, cause)

    def _left_unheard(self, view: MemberView, member_id: str) -> bool:
        """Whether this is a member that has unsubscribed, of whose requests one was lost since, or
        processed late: LeaveGroup is sent once, and a late JoinGroup may make a member again."""
        client, since, config = view.member.client, view.unsubscribes_since, view.member.config
        within = config.close_timeout + config.session_timeout + config.rebalance_timeout
        lost = (*self._state.lost_requests.get(client, ()), self.late_joins.get(client, -1.0))
        recently = since <= self._state.clock.now <= since + within
        return recently and member_id == view.left_as and any(at >= since for at in lost)

    def _waits_for_sync(self, client: int, reason: str, rebalance_timeout: float) -> bool:
        """Whether a coordinator that assigns waited for the SyncGroup that follows a JoinGroup of a
        connection that was closed: heartbeats do not report that to the member."""
        since = self.late_joins.get(client)
        return (
            reason == NO_SYNC
            and since is not None
            and self._state.brokers.group.protocol == "consumer"
            and self._state.clock.now <= since + rebalance_timeout + 0.001
        )
