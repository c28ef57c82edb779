"""The sentences for what a group refuses for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.core.effects import Failed, FailureKind
from asyncrevoke.errors import (
    AuthenticationError,
    FatalError,
    FencedInstanceError,
    GroupAuthorizationError,
    InconsistentGroupError,
    UnsupportedVersionError,
)
from asyncrevoke.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.config import ConsumerConfig


def refusal(error: ErrorCode, config: ConsumerConfig, offered: Iterable[str]) -> FatalError:
    """What the user is told when the coordinator answers ``error``, which no retry can mend.

    ``offered`` are the names of the assignors that this member offers.
    """
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
            return InconsistentGroupError(
                f"{group} shares no assignor with this member, which offers {', '.join(offered)}. "
                "To upgrade a running group without stopping it, restart its members twice: first "
                'every member with assignors=["roundrobin", "cooperative-sticky"] (put the '
                "group's present assignor first: aiokafka's default is roundrobin, Java's is "
                'range), then every member with assignors=["cooperative-sticky"]'
            )
        case ErrorCode.invalid_session_timeout:
            return InconsistentGroupError(
                f"{group} refuses session_timeout={config.session_timeout:g}: choose one between "
                "the broker's group.min.session.timeout.ms and group.max.session.timeout.ms"
            )
        case ErrorCode.group_max_size_reached:
            return InconsistentGroupError(
                f"{group} is full: raise the broker's group.max.size, or run fewer members"
            )
        case _:
            return InconsistentGroupError(f"{group} refuses this member: {error.name}")


def unanswerable(failed: Failed) -> FatalError:
    """What the user is told when a broker cannot be talked to at all."""
    if failed.kind is FailureKind.AUTHENTICATION:
        return AuthenticationError(failed.detail)
    return UnsupportedVersionError(failed.detail)
