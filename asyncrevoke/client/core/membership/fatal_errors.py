"""The exceptions for permanent errors of a group coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.core.assignors.registry import ASSIGNORS
from asyncrevoke.client.errors import (
    FatalError,
    FencedInstanceError,
    GroupAuthorizationError,
    InconsistentGroupError,
    UnsupportedVersionError,
)
from asyncrevoke.client.printable import printable
from asyncrevoke.client.protocol.messages import DescribeGroupsResponse, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from asyncrevoke.client.config import ConsumerConfig

_LONGEST_NAME = 200


def group_error(error: ErrorCode, config: ConsumerConfig, offered: Iterable[str]) -> FatalError:
    """The exception for the permanent error ``error``. ``offered`` are the names of this member's
    assignors."""
    group = f"group {config.group_id!r}"
    match error:
        case ErrorCode.fenced_instance_id:
            return FencedInstanceError(
                f"another member of {group} has joined with "
                f"group_instance_id={config.group_instance_id!r}: give each member its own"
            )
        case ErrorCode.group_authorization_failed:
            return GroupAuthorizationError(
                f"not authorized to use {group}: grant READ on it, or choose another group_id"
            )
        case ErrorCode.inconsistent_group_protocol:
            return no_common_assignor(config.group_id, offered, None)
        case ErrorCode.invalid_session_timeout:
            return InconsistentGroupError(
                f"{group} rejects session_timeout={config.session_timeout:g}: choose one between "
                "the broker's group.min.session.timeout.ms and group.max.session.timeout.ms"
            )
        case ErrorCode.group_max_size_reached:
            return InconsistentGroupError(
                f"{group} is full: raise the broker's group.max.size, or run fewer members"
            )
        case _:
            return InconsistentGroupError(f"{group} rejects this member: {error.name}")


def no_common_assignor(
    group_id: str | None, offered: Iterable[str], described: DescribeGroupsResponse | None
) -> FatalError:
    """The exception if a group rejects a member that offers the assignors ``offered``.
    ``described`` is the group, None if the coordinator has not described it."""
    group, ours = f"group {group_id!r}", ", ".join(offered)
    assignor = "" if described is None else printable(described.assignor, _LONGEST_NAME)
    kind = "" if described is None else printable(described.protocol_type, _LONGEST_NAME)
    if kind not in ("", "consumer"):
        return InconsistentGroupError(
            f"{group} is not of consumers but of {kind!r}: choose another group_id"
        )
    if described is not None and described.state == "Dead":
        return InconsistentGroupError(
            f"{group} has members that use KIP-848, or is a share group, which asyncrevoke groups "
            f"tells; it rejects this classic member, which offers {ours}. With KIP-848 members "
            'use group_protocol="consumer"; or, if other classic members are in it, offer '
            "an assignor that all of them offer; or, if none can join, set the brokers' "
            "group.consumer.migration.policy=bidirectional"
        )
    if not assignor:
        return InconsistentGroupError(
            f"{group} shares no assignor with this member, which offers {ours}. "
            "To upgrade a running group without stopping it, restart its members twice: first "
            'every member with assignors=["roundrobin", "cooperative-sticky"] (put the '
            "group's present assignor first, which `asyncrevoke groups` shows; aiokafka's default "
            "is roundrobin, Java's is range), then every member with "
            'assignors=["cooperative-sticky"]'
        )
    uses = f"{group} uses the assignor {assignor!r}, and this member offers {ours}"
    if assignor == "cooperative-sticky":
        return InconsistentGroupError(f'{uses}: assignors=["cooperative-sticky"] joins it')
    if assignor in ASSIGNORS:
        return InconsistentGroupError(
            f'{uses}. assignors=["{assignor}", "cooperative-sticky"] joins it. To make the whole '
            "group cooperative without stopping it, restart its members twice: first every member "
            'with these two, then every member with assignors=["cooperative-sticky"]; members '
            "whose client lacks cooperative-sticky cannot stay"
        )
    return InconsistentGroupError(
        f"{uses}. This library has {', '.join(ASSIGNORS)}. Either let every member of the group "
        f"offer one of these too; or give this member an assignor of your own with the name "
        f"{assignor!r}, which assigns as that of the other client does; or stop all members "
        "before the first one of this library starts, which continues at the group's offsets"
    )


def consumer_group_error(error: ErrorCode, detail: str, config: ConsumerConfig) -> FatalError:
    """The exception for the permanent error ``error`` of a coordinator that assigns (KIP-848)."""
    group = f"group {config.group_id!r}"
    match error:
        case ErrorCode.unsupported_assignor:
            return InconsistentGroupError(
                f"the brokers have no assignor named server_assignor={config.server_assignor!r} "
                f"({detail}): use one of those that they name in group.consumer.assignors, or "
                "leave it out"
            )
        case ErrorCode.group_max_size_reached:
            return InconsistentGroupError(
                f"{group} is full: raise the broker's group.consumer.max.size, or run fewer members"
            )
        case ErrorCode.group_id_not_found:
            return InconsistentGroupError(
                f"{group} has members of the classic protocol, and the brokers do not convert it, "
                f"or is a share group ({detail}), which asyncrevoke groups tells. With classic "
                "members set group.consumer.migration.policy=bidirectional, or use "
                'group_protocol="classic"; a share group keeps its type: choose another group_id'
            )
        case ErrorCode.invalid_regular_expression:
            return InconsistentGroupError(
                f"the brokers reject the pattern ({detail}): BrokerPattern takes RE2 syntax"
            )
        case ErrorCode.fenced_instance_id | ErrorCode.group_authorization_failed:
            return group_error(error, config, ())
        case _:
            return InconsistentGroupError(f"{group} rejects this member: {error.name} ({detail})")


def no_consumer_protocol(
    group_id: str, detail: str, features: Mapping[str, int] | None
) -> FatalError:
    """The exception if a coordinator has rejected a request of KIP-848, which it offers. The
    ``features`` of the cluster are None if it has not told them."""
    why = f" ({detail.removesuffix('.')})" if detail else ""
    feature = (
        "the feature group.version=1 (kafka-features.sh upgrade --feature group.version=1), which "
        "Apache Kafka 4.0 and later has"
    )
    protocols = "`consumer` in group.coordinator.rebalance.protocols"
    if features is None:
        lacks = f"{feature}, and {protocols}"
    else:
        lacks = protocols if features.get("group.version", 0) else feature
    return UnsupportedVersionError(
        f"{_cannot_use_kip_848(group_id)}{why}: the brokers must have {lacks}; "
        '"auto" falls back on the classic protocol without it, and "classic" does without'
    )


def consumer_protocol_not_sent(group_id: str, detail: str) -> FatalError:
    """The exception if a request of KIP-848 cannot be sent in a version that the coordinator
    offers. ``detail`` names these versions, and what does without."""
    return UnsupportedVersionError(f"{_cannot_use_kip_848(group_id)}: {detail}")


def _cannot_use_kip_848(group_id: str) -> str:
    return f'group_protocol="consumer" (KIP-848) cannot be used for group {group_id!r}'
