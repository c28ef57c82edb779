"""Lists consumer groups with the number of their members and their lag."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from asyncrevoke.groups.errors import GroupsError, NoGroupError
from asyncrevoke.groups.observer import describe_group, list_groups

if TYPE_CHECKING:
    from asyncrevoke.groups.facts import GroupSummary
    from asyncrevoke.groups.observer import BrokerRequests

# Seconds for describing all groups: a cluster may have thousands.
_DESCRIBED_WITHIN: Final = 30.0


async def summarize_groups(
    brokers: BrokerRequests, within: float = _DESCRIBED_WITHIN
) -> list[GroupSummary]:
    """All consumer groups by name, with members and lag. Raises GroupsError.

    Groups that the user may not describe, and those that are not described within so many seconds,
    are without members and lag; those that have gone meanwhile are left out.
    """
    listed = await list_groups(brokers)
    summaries = {group.group: group for group in listed}
    try:
        async with asyncio.timeout(within):
            for summary in listed:
                try:
                    facts = await describe_group(brokers, summary.group, patience=0.0)
                except NoGroupError:
                    del summaries[summary.group]
                except GroupsError:
                    continue
                else:
                    summaries[summary.group] = msgspec.structs.replace(
                        summary, members=len(facts.members), lag=facts.lag
                    )
    except TimeoutError:
        # The others are listed as they are.
        return list(summaries.values())
    return list(summaries.values())
