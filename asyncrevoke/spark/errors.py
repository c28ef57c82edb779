"""The exceptions of the Spark side."""

from __future__ import annotations

from asyncrevoke.errors import AsyncRevokeError


class SparkSetupError(AsyncRevokeError):
    """Spark cannot run here: the extra, a supported pyspark or a Java is missing. The message says
    what to install."""


class DataLossError(AsyncRevokeError):
    """Records that were asked for are not in the topic any more, or it was made anew."""


class StalledReadError(AsyncRevokeError, TimeoutError):
    """A range did not move on for ``no_progress_timeout``; the message says where it stands."""


class ReplayError(AsyncRevokeError):
    """A replay cannot go on; what it has written so far counts, and its ``run_id`` goes on."""


class HandoverError(AsyncRevokeError):
    """Offsets cannot be handed over; the message says why, and nothing else was committed than it
    says."""
