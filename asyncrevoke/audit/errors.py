"""The error of the audit itself."""

from __future__ import annotations

from asyncrevoke.client.errors import AsyncRevokeError


class TopicError(AsyncRevokeError):
    """The topic cannot be read up to the last offset in the journal."""
