"""Commits offsets for consumer groups without members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from asyncrevoke.client.groups import requests
from asyncrevoke.client.groups.cluster import UNSETTLED
from asyncrevoke.client.groups.errors import (
    CoordinatorUnavailableError,
    GroupsError,
    retry_transient_errors,
)
from asyncrevoke.client.protocol.messages import OffsetCommitResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.client.groups.cluster import GroupsClient
    from asyncrevoke.client.model import TopicPartition


async def commit_offsets(
    brokers: GroupsClient, name: str, offsets: Mapping[TopicPartition, int]
) -> None:
    """Commit these offsets for a group without members, which brokers create if it does not exist.
    Raises GroupsError, which names the partitions whose offsets were not set."""
    await retry_transient_errors(lambda: _commit(brokers, name, offsets))


async def _commit(brokers: GroupsClient, name: str, offsets: Mapping[TopicPartition, int]) -> None:
    node = await brokers.coordinator(name)
    response = await brokers.send(node, requests.commit(name, offsets), OffsetCommitResponse)
    codes = dict(response.errors)
    failed = {tp: codes.get(tp) for tp in offsets if codes.get(tp) is not ErrorCode.none}
    for code in failed.values():
        _check_group(code, name)
    if failed:
        listed = ", ".join(f"{tp} ({_reason(code)})" for tp, code in failed.items())
        raise GroupsError(f"offsets of {listed} were not set")


def _reason(code: ErrorCode | None) -> str:
    return "the broker did not respond about it" if code is None else code.name


def _check_group(code: ErrorCode | None, name: str) -> None:
    """Raise the error of the whole group, if ``code`` is one."""
    if code is not None and code in UNSETTLED:
        raise CoordinatorUnavailableError(f"committing for group {name!r}: {code.name}")
    if code in (ErrorCode.unknown_member_id, ErrorCode.illegal_generation):
        raise GroupsError(
            f"group {name!r} has members: stop them first, as a broker accepts the offsets of a "
            "live group from its members alone"
        )
    if code is ErrorCode.group_authorization_failed:
        raise GroupsError(
            f"committing for group {name!r}: not authorized; grant READ on the group and its "
            "topics to this user"
        )
