"""Requests the configuration of a topic."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Final, cast

from kio.schema.describe_configs.v1 import request as describe
from kio.schema.describe_configs.v1 import response as described
from kio.schema.describe_configs.v1.response import DescribeConfigsResponse
from kio.static.primitive import i32Timedelta

from asyncrevoke.client.core.io.effects import Channel, Failed, Send
from asyncrevoke.client.errors import BrokerError, RequestTimeoutError
from asyncrevoke.client.groups.configs import TOPIC, DescribeConfigsRequest
from asyncrevoke.client.protocol.messages import EntityResponse, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncrevoke.client.runtime.session.session import Session

CLEANUP_POLICY: Final = "cleanup.policy"
"""The option that says whether a topic is compacted: "compact" is in its value."""


async def topic_settings(session: Session, topic: str, names: Sequence[str]) -> dict[str, str]:
    """The values of these options of a topic, its own ones or the broker's defaults, as text.

    An option that the broker does not know is missing. Raises BrokerError (DESCRIBE_CONFIGS on the
    topic is needed), and RequestTimeoutError if no broker responds.
    """
    resource = describe.DescribeConfigsResource(
        resource_type=TOPIC, resource_name=topic, configuration_keys=tuple(names)
    )
    message = DescribeConfigsRequest(resources=(resource,))
    why = "no broker is known"
    for node in session.bootstrap:
        send = Send(0, message, node, Channel.METADATA, session.config.request_timeout)
        reply = await session.requests.request(send)
        if isinstance(reply, Failed):
            why = reply.detail or reply.kind.value
        elif isinstance(reply.message, EntityResponse):
            return _values(topic, names, cast("DescribeConfigsResponse", reply.message.entity))
    raise RequestTimeoutError(f"no broker describes the configuration of {topic}: {why}")


def _values(topic: str, names: Sequence[str], response: DescribeConfigsResponse) -> dict[str, str]:
    found: dict[str, str] = {}
    for result in response.results:
        if result.resource_name != topic:
            continue
        if result.error_code is not ErrorCode.none:
            raise BrokerError(
                f"the broker does not describe the configuration of {topic} "
                f"({result.error_code.name}): the topic must exist, and the user needs "
                "DESCRIBE_CONFIGS on it",
                result.error_code,
            )
        found |= {
            config.name: config.value
            for config in result.configs
            if config.name in names and config.value is not None
        }
    return found


# --- the broker's side, for tests ---------------------------------------------------------------


def describe_configs_response(
    request: DescribeConfigsRequest, settings: Mapping[str, str]
) -> DescribeConfigsResponse:
    """A response in which each topic has these settings."""
    return DescribeConfigsResponse(
        throttle_time=i32Timedelta.parse(datetime.timedelta(0)),
        results=tuple(
            described.DescribeConfigsResult(
                error_code=ErrorCode.none,
                error_message=None,
                resource_type=TOPIC,
                resource_name=resource.resource_name,
                configs=tuple(
                    described.DescribeConfigsResourceResult(
                        name=name, value=value, read_only=False, is_sensitive=False, synonyms=()
                    )
                    for name, value in settings.items()
                    if name in (resource.configuration_keys or ())
                ),
            )
            for resource in request.resources
        ),
    )
