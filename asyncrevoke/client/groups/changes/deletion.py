"""Deletes groups without members, with their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from asyncrevoke.client.groups import requests
from asyncrevoke.client.groups.cluster import GroupsClient, check
from asyncrevoke.client.groups.errors import GroupsError, NoGroupError, retry_transient_errors

if TYPE_CHECKING:
    from asyncrevoke.client.groups.facts import GroupFacts, ShareGroupFacts


def check_empty(group: GroupFacts | ShareGroupFacts) -> None:
    """Raise GroupsError if the group has members: a broker does not delete it."""
    if group.members:
        raise _has_members(group.group)


async def delete_group(brokers: GroupsClient, name: str) -> None:
    """Delete a consumer group or a share group, with its offsets. Raises GroupsError, also if it
    has members, and NoGroupError if it does not exist."""

    async def ask() -> None:
        node = await brokers.coordinator(name)
        response = await brokers.ask(node, requests.DeleteGroupsRequest(groups_names=(name,)))
        if [result.group_id for result in response.results] != [name]:
            raise GroupsError(f"the broker has responded about other groups than {name!r}")
        code = response.results[0].error_code
        if code is ErrorCode.non_empty_group:
            raise _has_members(name)
        if code is ErrorCode.group_id_not_found:
            raise NoGroupError(f"there is no group {name!r}; asyncrevoke groups lists them")
        check(code, f"deleting group {name!r}", "DELETE")

    await retry_transient_errors(ask)


def _has_members(name: str) -> GroupsError:
    return GroupsError(f"group {name!r} has members: stop them first")
