"""What brokers cannot tell of groups."""

from __future__ import annotations

from asyncrevoke.errors import AsyncRevokeError


class GroupsError(AsyncRevokeError):
    """What was asked of the brokers cannot be told; the message is a sentence for the user."""


class UnsettledError(GroupsError):
    """The coordinator is moving or loading: asked again soon it can tell."""


class NoGroupError(GroupsError):
    """There is no such group (yet)."""


class NotOfferedError(GroupsError):
    """The broker is too old, or too new, for the request."""
