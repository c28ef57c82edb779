"""Asks in the background for what handlers need to know of the share group: once for its options,
and then again and again for its lag."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, cast

from kio.schema.describe_configs.v1 import request as describe

from asyncrevoke.client import log_events
from asyncrevoke.client.core.io.effects import Channel, Failed, Send
from asyncrevoke.client.errors import AsyncRevokeError
from asyncrevoke.client.groups.configs import GROUP, DescribeConfigsRequest
from asyncrevoke.client.groups.errors import GroupsError
from asyncrevoke.client.groups.share_groups import offsets_in, offsets_request
from asyncrevoke.client.protocol.messages import EntityResponse, ErrorCode

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kio.schema.describe_configs.v1.response import DescribeConfigsResponse
    from kio.schema.describe_share_group_offsets.v1.response import (
        DescribeShareGroupOffsetsResponse,
    )

    from asyncrevoke.client.runtime.share.share_session import ShareSession

_DELIVERIES: Final = "share.delivery.count.limit"
_RESET: Final = "share.auto.offset.reset"
# The group's epoch when its first member has joined (1), and its topics are known (2).
_NEW_GROUP: Final = (1, 2)
# Seconds between two requests for the lag.
_LAG_INTERVAL: Final = 15.0


@asynccontextmanager
async def group_settings(session: ShareSession) -> AsyncGenerator[None]:
    """Inside, a task asks for the options and the lag."""
    asking = asyncio.create_task(_learn(session), name="asyncrevoke share group settings")
    try:
        yield
    finally:
        asking.cancel()
        await asyncio.wait((asking,))
        # If the consumer has ended meanwhile, it says why.
        with suppress(asyncio.CancelledError, AsyncRevokeError):
            asking.result()


async def _learn(session: ShareSession) -> None:
    """Tell the session after how many deliveries the broker archives a record, and log it if a new
    group begins at the end of its topics.

    Without DESCRIBE_CONFIGS on the group neither is known. When the group has assigned partitions,
    tell the session its lag every 15 s, until the task is cancelled, which changes nothing.
    """
    found = await _settings(session)
    if (limit := found.get(_DELIVERIES)) is not None and limit.isdecimal():
        session.core.delivery_limit = int(limit)
    epoch = await session.ask(session.core.wait_for_assignment)
    if epoch in _NEW_GROUP and found.get(_RESET) == "latest":
        log_events.SHARE_GROUP_BEGINS_AT_END.write_to(
            session.log,
            change=f"asyncrevoke groups configure {session.config.group_id} {_RESET}=earliest",
        )
    while True:
        session.core.group_lag = await _lag(session)
        await asyncio.sleep(_LAG_INTERVAL)


async def _lag(session: ShareSession) -> int | None:
    """How many records of the group are neither acknowledged nor archived; None if its coordinator
    does not say it."""
    name, node = session.config.group_id or "", session.core.coordinator.node
    if node is None:
        return None
    timeout = session.config.request_timeout
    send = Send(0, offsets_request(name), node, Channel.METADATA, timeout)
    reply = await session.requests.request(send)
    if isinstance(reply, Failed) or not isinstance(reply.message, EntityResponse):
        return None
    try:
        found = offsets_in(cast("DescribeShareGroupOffsetsResponse", reply.message.entity), name)
    except GroupsError:
        return None
    lags = [lag for _, lag in found.values() if lag >= 0]
    return sum(lags) if lags else None


async def _settings(session: ShareSession) -> dict[str, str]:
    """The options by name; empty if no broker tells them."""
    resource = describe.DescribeConfigsResource(
        resource_type=GROUP,
        resource_name=session.config.group_id or "",
        configuration_keys=(_DELIVERIES, _RESET),
    )
    message = DescribeConfigsRequest(resources=(resource,))
    for node in session.bootstrap:
        send = Send(0, message, node, Channel.METADATA, session.config.request_timeout)
        reply = await session.requests.request(send)
        if not isinstance(reply, Failed) and isinstance(reply.message, EntityResponse):
            response = cast("DescribeConfigsResponse", reply.message.entity)
            return {
                option.name: option.value
                for result in response.results
                if result.error_code is ErrorCode.none
                for option in result.configs
                if option.value is not None
            }
    return {}
