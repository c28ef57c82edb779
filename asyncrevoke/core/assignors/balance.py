"""The most even assignment when members are subscribed to different topics.

Theory of operation. Partitions of one topic are worth the same to all of its subscribers, except
to those that own some of them already, so only *counts* are decided here: how many partitions of
a topic a member holds. First all keep what they own, and each free partition goes to the lightest
subscriber of its topic. Then, from the heaviest member downward, a partition is passed on to a
member that is lighter by two or more, directly or in a chain over members in between, whose loads
do not change. When no such chain is left, no assignment has a smaller sum of squared loads
(Harvey, Ladner, Lovász and Tamir, "Semi-matchings for bipartite graphs and load balancing").
Java passes on directly only, so its result is never more even than this one.

That is done twice, first with free partitions alone. So a partition leaves its owner only if the
free ones cannot even out the loads, and once all that had to go are free, nothing moves any more:
the group comes to rest after one follow-up round. If no chain leaves a member, none of the
members reached from it can take part in any later one; they are settled and the search stays
short. Searches have an allowance that grows with the size of the group as n log n does: members
that make them long on purpose get a result that is a little less even, but not less than Java's.

At the end, partitions go back to their owners where that leaves the loads as even as they are.

With racks (KIP-881), what its owner would read across racks counts as free, and what is free first
goes to the lightest subscriber beside it. The rest is as above: even loads come before racks. See
``rack_placing.py``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from asyncrevoke.core.assignors.loads import PartitionCounts
from asyncrevoke.core.assignors.rack_placing import RackPlacing

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from asyncrevoke.core.assignors.assignor import Assignment
    from asyncrevoke.core.assignors.racks import Racks


def balance(
    partitions: Mapping[str, Sequence[int]],
    topics_of: Mapping[str, Collection[str]],
    owned: Assignment,
    racks: Racks | None = None,
) -> Assignment:
    """Assign every partition to one of its topic's subscribers, ``topics_of`` by member id.

    ``owned`` names what each member has and may keep. Each topic needs a subscriber. With
    ``racks``, members get partitions beside them as long as loads stay as even.
    """
    placing = None if racks is None else RackPlacing(racks, topics_of, owned)
    loads = PartitionCounts(
        partitions, topics_of, owned if placing is None else placing.beside_owners
    )
    if placing is None:
        loads.place_free()
    else:
        placing.place_free(loads, partitions)
    loads.level(free_only=True)
    loads.level(free_only=False)
    loads.restore()
    name_free = None if placing is None else partial(placing.name_free, loads)
    return loads.assignment(partitions, name_free)
