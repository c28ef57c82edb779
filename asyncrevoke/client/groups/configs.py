"""Requests about configurations: of groups, of topics."""

from __future__ import annotations

from typing import ClassVar, Final

from kio.schema.describe_configs.v1 import request as describe_1
from kio.schema.describe_configs.v1 import response as described_1
from kio.schema.incremental_alter_configs.v1 import request as alter_1
from kio.schema.incremental_alter_configs.v1 import response as altered_1
from kio.static.primitive import i8

from asyncrevoke.client.protocol.messages import Entities, EntityRequest

TOPIC: Final = i8(2)
"""The resource type of topics."""
GROUP: Final = i8(32)
"""The resource type of groups (KIP-848)."""


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
