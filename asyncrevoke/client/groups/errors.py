"""Errors of requests about groups."""

from __future__ import annotations

from asyncrevoke.client.errors import AsyncRevokeError


class GroupsError(AsyncRevokeError):
    """A request about groups failed; the message is a sentence for the user."""


class CoordinatorUnavailableError(GroupsError):
    """The coordinator is moving or loading; a retry will succeed soon."""


class BrokerUnavailableError(GroupsError):
    """A broker does not respond, or its connection was lost."""


class NoGroupError(GroupsError):
    """The group does not exist (yet)."""


class UnsupportedRequestError(GroupsError):
    """The broker offers no version of the request that this library supports."""
