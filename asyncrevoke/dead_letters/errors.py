"""Errors of reading and replaying dead letters."""

from __future__ import annotations

from asyncrevoke.client.errors import AsyncRevokeError


class DeadLettersError(AsyncRevokeError):
    """A dead letter topic cannot be read or replayed; the message is a sentence for the user."""
