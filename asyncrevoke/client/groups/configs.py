"""Configurations of groups (KIP-848, KIP-932): values that a group has instead of the broker's."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import msgspec
from kio.schema.describe_configs.v1 import request as describe_1
from kio.schema.describe_configs.v1 import response as described_1
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1 import request as alter_1
from kio.schema.incremental_alter_configs.v1 import response as altered_1
from kio.static.primitive import i8

from asyncrevoke.client.groups.cluster import check
from asyncrevoke.client.groups.errors import GroupsError
from asyncrevoke.client.printable import printable
from asyncrevoke.client.protocol.messages import Entities, EntityRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.client.groups.cluster import GroupsClient

TOPIC: Final = i8(2)
"""The resource type of topics."""
GROUP: Final = i8(32)
"""The resource type of groups (KIP-848)."""
_SET: Final = i8(0)
_DELETE: Final = i8(1)
# org.apache.kafka.common.requests.DescribeConfigsResponse.ConfigSource
_SOURCES: Final = {
    2: "broker, dynamic",
    3: "cluster, dynamic",
    4: "broker",
    5: "default",
    8: "group",
}


class DescribeConfigsRequest(
    EntityRequest[described_1.DescribeConfigsResponse], frozen=True, kw_only=True
):
    """Requests configurations."""

    entities: ClassVar[Entities] = (
        describe_1.DescribeConfigsRequest,
        described_1.DescribeConfigsResponse,
    )
    resources: tuple[describe_1.DescribeConfigsResource, ...]


class IncrementalAlterConfigsRequest(
    EntityRequest[altered_1.IncrementalAlterConfigsResponse], frozen=True, kw_only=True
):
    """Changes values of configurations, and leaves all others as they are (KIP-339)."""

    entities: ClassVar[Entities] = (
        alter_1.IncrementalAlterConfigsRequest,
        altered_1.IncrementalAlterConfigsResponse,
    )
    resources: tuple[alter_1.AlterConfigsResource, ...]
    validate_only: bool = False


class GroupOption(msgspec.Struct, frozen=True, kw_only=True):
    """One option of a group. ``source``: who has set the value: ``group``, ``broker`` (in its
    properties), ``broker, dynamic``, ``cluster, dynamic``, or ``default`` for nobody."""

    name: str
    value: str | None
    source: str


async def group_options(brokers: GroupsClient, group: str) -> list[GroupOption]:
    """The options that a group has, or would have if it existed, by name. Raises GroupsError."""
    resource = describe_1.DescribeConfigsResource(
        resource_type=GROUP, resource_name=group, configuration_keys=None
    )
    response = await brokers.ask_any(DescribeConfigsRequest(resources=(resource,)))
    if [result.resource_name for result in response.results] != [group]:
        raise GroupsError(f"the broker has responded with other options than those of {group!r}")
    (result,) = response.results
    _check(
        result.error_code,
        result.error_message,
        f"the options of group {group!r}",
        "DESCRIBE_CONFIGS",
    )
    options = [
        GroupOption(
            name=option.name,
            value=option.value,
            source=_SOURCES.get(int(option.config_source), str(option.config_source)),
        )
        for option in result.configs
    ]
    return sorted(options, key=lambda option: option.name)


async def set_group_options(
    brokers: GroupsClient, group: str, values: Mapping[str, str | None]
) -> None:
    """Give a group these values; None: the broker's. All of them are set, or none. The group need
    not exist. Raises GroupsError with the broker's sentence."""
    options = tuple(
        alter_1.AlterableConfig(
            name=name, config_operation=_DELETE if value is None else _SET, value=value
        )
        for name, value in values.items()
    )
    resource = alter_1.AlterConfigsResource(
        resource_type=GROUP, resource_name=group, configs=options
    )
    response = await brokers.ask_any(IncrementalAlterConfigsRequest(resources=(resource,)))
    if [result.resource_name for result in response.responses] != [group]:
        raise GroupsError(f"the broker has responded about other options than those of {group!r}")
    (result,) = response.responses
    _check(
        result.error_code,
        result.error_message,
        f"setting options of group {group!r}",
        "ALTER_CONFIGS",
    )


def _check(code: ErrorCode, message: str | None, what: str, right: str) -> None:
    if code is ErrorCode.none or code in _NO_RIGHT or not message:
        check(code, what, right)
        return
    older = "; brokers of Apache Kafka 3 have no options of groups"
    raise GroupsError(
        f"{what}: the broker returned {code.name}: {printable(message)}"
        + (older if code is ErrorCode.invalid_request else "")
    )


_NO_RIGHT: Final = frozenset(
    (ErrorCode.group_authorization_failed, ErrorCode.cluster_authorization_failed)
)
