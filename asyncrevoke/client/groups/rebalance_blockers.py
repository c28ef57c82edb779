"""Which members delay a rebalance, as far as brokers report it.

While a classic group is in PreparingRebalance, a broker reports neither which members have rejoined
nor which partitions they own. In a stable group, each member's subscription lists the partitions
that it owned when it joined. The member releases those that its assignment lacks, and joins again;
until then the group cannot assign them to others. Under KIP-848, a member that has to release
partitions, or has not received the newest assignment, has an epoch below the group's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.groups.facts import MemberFacts, RebalanceFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from asyncrevoke.client.model import TopicPartition

_JOINING = "PreparingRebalance"
_SYNCING = "CompletingRebalance"
_IDLE = frozenset(("Stable", "Empty", "Dead", ""))


def classic_rebalance(state: str, members: Sequence[MemberFacts]) -> RebalanceFacts:
    """Which members delay a rebalance of a classic group."""
    if state == _JOINING:
        return _unknown(
            "The group waits until all members have rejoined, at most for the longest rebalance "
            "timeout among them. Brokers do not report which members have not rejoined: see the "
            "members' logs. Cooperative members of asyncrevoke rejoin at once, eager members when "
            "their running handlers have ended."
        )
    if state == _SYNCING:
        return _unknown(
            "All members have joined; the group waits for the leader's assignment. Brokers do not "
            "report which member is the leader."
        )
    return _rebalance(
        state,
        [member for member in members if member.releasing],
        lambda member: f"{member_name(member)} has not released {_list(member.releasing)} yet",
    )


def consumer_group_rebalance(
    state: str, epoch: int, members: Sequence[MemberFacts]
) -> RebalanceFacts:
    """Which members delay a rebalance of a KIP-848 group."""

    def reason(member: MemberFacts) -> str:
        if member.releasing:
            return f"{member_name(member)} has not released {_list(member.releasing)} yet"
        return (
            f"{member_name(member)} is at epoch {member.epoch}, the newest assignment is of {epoch}"
        )

    return _rebalance(state, [member for member in members if is_behind(member, epoch)], reason)


def is_behind(member: MemberFacts, epoch: int) -> bool:
    """Whether a member of KIP-848 has not reached the newest assignment."""
    return bool(member.releasing) or (member.epoch is not None and member.epoch < epoch)


def _rebalance(
    state: str, slow: list[MemberFacts], reason: Callable[[MemberFacts], str]
) -> RebalanceFacts:
    if slow:
        says = "; ".join(map(reason, slow)) + "."
    elif state in _IDLE:
        says = "No rebalance is in progress."
    else:
        says = f"The group is {state}; no member delays it."
    return RebalanceFacts(
        in_progress=bool(slow) or state not in _IDLE,
        known=True,
        held_up_by=tuple(member.member_id for member in slow),
        says=says,
    )


def _unknown(says: str) -> RebalanceFacts:
    return RebalanceFacts(in_progress=True, known=False, held_up_by=(), says=says)


def member_name(member: MemberFacts) -> str:
    """How a member is called in sentences."""
    return f"{member.group_instance_id or member.client_id} at {member.host}"


def _list(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))
