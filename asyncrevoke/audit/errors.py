"""What goes wrong with an audit itself."""

from __future__ import annotations

from asyncrevoke.errors import AsyncRevokeError


class TopicError(AsyncRevokeError):
    """The topic cannot be read to the end of what the journal says of it."""
