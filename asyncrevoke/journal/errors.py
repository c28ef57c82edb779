"""The exception for a journal that was changed after it was written."""

from __future__ import annotations

from asyncrevoke.client.errors import AsyncRevokeError


class DamagedJournalError(AsyncRevokeError):
    """Rows of a journal were lost or changed after they were written. The message names the session
    and the file."""
