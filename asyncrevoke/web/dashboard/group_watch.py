"""Fills a history from the reports of brokers about a group: members, assignments, lag."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from asyncrevoke.client.groups.cluster import GroupsClient
from asyncrevoke.client.groups.errors import GroupsError
from asyncrevoke.client.groups.facts import ShareGroupFacts
from asyncrevoke.client.groups.observer import describe_group_of_any_type
from asyncrevoke.client.groups.unread import UnreadPartitions
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.printable import counted
from asyncrevoke.web.dashboard.history import History, Pending, Place, Sample

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.groups.facts import GroupFacts, MemberFacts

# Seconds before the next request, after a success and after a failure.
_INTERVAL = 0.5
_AGAIN = 2.0
# Seconds without a commit.
_PATIENCE = 30.0


class GroupWatch:
    """Fills a history until it is cancelled.

    Brokers report neither records in flight nor the begin of a revocation. A partition counts as
    draining while its member owns it and the target assignment has another owner.
    """

    def __init__(self, config: ConsumerConfig, group: str, history: History) -> None:
        self._config = config
        self._group = group
        self._history = history
        self._names: dict[str, str] = {}
        self._since: dict[TopicPartition, float] = {}
        self._noted = ""
        self._unread = UnreadPartitions(_PATIENCE)

    async def run(self) -> None:
        """Describe the group repeatedly. An error is noted on the page, and the request retried."""
        while True:
            try:
                async with GroupsClient(self._config) as cluster:
                    while True:
                        facts = await describe_group_of_any_type(cluster, self._group)
                        if isinstance(facts, ShareGroupFacts):
                            self.look_at_share_group(facts)
                        else:
                            self.look(facts)
                        await asyncio.sleep(_INTERVAL)
            except GroupsError as error:
                self._note(str(error))
            await asyncio.sleep(_AGAIN)

    def look(self, facts: GroupFacts) -> None:
        """Add one description of the group."""
        history, now = self._history, self._history.clock()
        releasing = {tp for member in facts.members for tp in member.releasing}
        names = {member.member_id: self._name(member) for member in facts.members}
        self._names = names
        places = tuple(
            Place(
                TopicPartition(part.topic, part.partition),
                names.get(part.member_id or "", ""),
                None,
                None,
                part.committed,
                part.lag,
            )
            for part in facts.partitions
        )
        history.places[self._group] = places
        if any(part.member_id is not None for part in facts.partitions) or not facts.members:
            # Without an owner of any partition the group is rebalancing, and the coordinator
            # reports no assignment.
            for place in places:
                draining = place.owner and place.partition in releasing
                history.hold(place.partition, place.owner, "draining" if draining else "held")
        self._since = {tp: since for tp, since in self._since.items() if tp in releasing}
        pending: list[Pending] = []
        wanted_by = {
            tp: names[member.member_id] for member in facts.members for tp in member.waiting_for
        }
        for member in facts.members:
            for tp in member.releasing:
                since = self._since.setdefault(tp, now)
                next_owner = f"assigned next to {wanted_by[tp]}" if tp in wanted_by else ""
                pending.append(Pending(tp, names[member.member_id], "draining", since, next_owner))
        history.pending[self._group] = tuple(pending)
        records = sum(part.committed or 0 for part in facts.partitions)
        lag = sum(part.lag or 0 for part in facts.partitions)
        members = len(facts.members)
        sample = Sample(now, records, lag=lag, state=facts.state, members=members)
        history.sample(self._group, sample)
        unread = self._unread.look(now, facts)
        says = (facts.rebalance.says, *(member.says for member in unread))
        self._note(f"{facts.state}: {' '.join(says)}")

    def look_at_share_group(self, facts: ShareGroupFacts) -> None:
        """Add one description of a share group, whose members share partitions."""
        history = self._history
        history.is_share = True
        places = tuple(
            Place(
                part.topic_partition,
                counted(len(part.member_ids), "member") if part.member_ids else "",
                None,
                None,
                part.start,
                part.lag,
            )
            for part in facts.partitions
        )
        history.places[self._group] = places
        for place in places:
            history.hold(place.partition, place.owner)
        records = sum(part.start or 0 for part in facts.partitions)
        sample = Sample(
            history.clock(),
            records,
            lag=facts.lag or 0,
            state=facts.state,
            members=len(facts.members),
        )
        history.sample(self._group, sample)
        self._note(facts.state)

    def _name(self, member: MemberFacts) -> str:
        known = self._names.get(member.member_id)
        return known or self._history.join(f"{member.client_id} {member.host}")

    def _note(self, text: str) -> None:
        if text != self._noted:
            self._noted = text
            self._history.note(self._group, text)
