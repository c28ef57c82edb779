"""The exceptions of replays, sources, sinks and handovers on Spark."""

from __future__ import annotations

from asyncrevoke.client.errors import AsyncRevokeError


class SparkSetupError(AsyncRevokeError):
    """Spark cannot run here: the extra, a supported pyspark or a supported Java is missing. The
    message says what to install."""


class DataLossError(AsyncRevokeError):
    """Retention has removed requested records, or the topic was deleted and created again."""


class StalledReadError(AsyncRevokeError, TimeoutError):
    """Reading a range made no progress for ``no_progress_timeout``. The message has the
    position."""


class HandoverError(AsyncRevokeError):
    """Offsets cannot be committed for the group. The message says why, and what was committed."""


class SinkError(AsyncRevokeError):
    """A row was not written to its topic. The message names the row and the reason. Other rows of
    the DataFrame may have been written."""
