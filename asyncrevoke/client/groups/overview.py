"""Lists consumer groups with the number of their members and their lag."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from asyncrevoke.client.groups.errors import GroupsError, NoGroupError
from asyncrevoke.client.groups.observer import describe_group, list_groups

if TYPE_CHECKING:
    from asyncrevoke.client.groups.cluster import GroupsClient
    from asyncrevoke.client.groups.facts import GroupSummary

# Seconds for describing all groups: a cluster may have thousands.
_DESCRIBED_WITHIN: Final = 30.0


async def summarize_groups(
    brokers: GroupsClient, within: float = _DESCRIBED_WITHIN
) -> list[GroupSummary]:
    """All consumer groups by name, with members and lag. Raises GroupsError.

    Groups that the user may not describe, or that are not described ``within`` these seconds, have
    neither. Groups that have gone meanwhile are left out.
    """
    listed = await list_groups(brokers)
    summaries = {group.group: group for group in listed}
    with suppress(TimeoutError):  # the others are listed as they are
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
                        summary,
                        # Brokers before Apache Kafka 2.6 list no states, before 3.8 no types.
                        type=summary.type or facts.type,
                        state=summary.state or facts.state,
                        members=len(facts.members),
                        lag=facts.lag,
                    )
    return list(summaries.values())
