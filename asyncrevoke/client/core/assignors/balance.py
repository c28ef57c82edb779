"""The most even assignment when members are subscribed to different topics.

Only *counts* are decided here: how many partitions of a topic a member has. First all members keep
what they own, and each free partition goes to the subscriber with the fewest partitions. Then, from
the member with the most downward, a partition moves to a member with fewer by two or more, directly
or in a chain over members whose counts do not change. When there is no such chain, no assignment
has a smaller sum of squared counts (Harvey, Ladner, Lovász and Tamir, "Semi-matchings for bipartite
graphs and load balancing"). Java moves partitions directly only, so it is never more even.

This is done twice, first with free partitions alone: an owned partition moves only if the free ones
cannot even out the counts, and the group is stable after one more round. A member that no chain
leaves takes part in no later one, nor do those reached from it, which keeps the search short. The
steps of all searches are limited to n log n of the group's size; beyond that the result is a little
less even, but not less than Java's.

At the end, partitions return to their owners where the counts stay as even.

With racks (KIP-881), a partition that its owner would read across racks counts as free, and free
partitions first go to subscribers in their racks; even counts come before racks. See
``rack_placing.py``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from asyncrevoke.client.core.assignors.loads import PartitionCounts
from asyncrevoke.client.core.assignors.rack_placing import RackPlacing

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from asyncrevoke.client.core.assignors.assignor import Assignment
    from asyncrevoke.client.core.assignors.racks import Racks


def balance(
    partitions: Mapping[str, Sequence[int]],
    topics_of: Mapping[str, Collection[str]],
    owned: Assignment,
    racks: Racks | None = None,
) -> Assignment:
    """Assign every partition to one of its topic's subscribers, ``topics_of`` by member id.

    ``owned`` is what each member may keep. Each topic needs a subscriber. With ``racks``, members
    get partitions in their racks as long as the counts stay as even.
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
