"""The exception of replays."""

from __future__ import annotations

from asyncrevoke.client.errors import AsyncRevokeError


class ReplayError(AsyncRevokeError):
    """A replay failed. The ranges that it has written stay; run it again with its ``run_id`` to
    continue."""
