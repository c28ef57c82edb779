"""The exception of replays."""

from __future__ import annotations

from asyncrevoke.errors import AsyncRevokeError


class ReplayError(AsyncRevokeError):
    """A replay failed. Ranges that it has written count; run it again with its ``run_id`` to
    continue."""
