"""The exception of a journal that cannot be trusted."""

from __future__ import annotations

from asyncrevoke.errors import AsyncRevokeError


class DamagedJournalError(AsyncRevokeError):
    """Rows of a journal were lost or changed after they were written; the message names the session
    and the file."""
