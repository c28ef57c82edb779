"""The exceptions of the Spark side."""

from __future__ import annotations

from asyncrevoke.errors import AsyncRevokeError


class SparkSetupError(AsyncRevokeError):
    """Spark cannot run here: the extra, a supported pyspark or a Java is missing. The message says
    what to install."""


class DataLossError(AsyncRevokeError):
    """Requested records are no longer in the topic, or the topic was created again."""


class StalledReadError(AsyncRevokeError, TimeoutError):
    """Reading a range made no progress for ``no_progress_timeout``; the message has its
    position."""


class HandoverError(AsyncRevokeError):
    """Offsets cannot be committed for the group; the message says why, and what was committed."""


class SinkError(AsyncRevokeError):
    """A row was not written to its topic; the message says which one, and why. Rows before and
    after it may have been written."""
