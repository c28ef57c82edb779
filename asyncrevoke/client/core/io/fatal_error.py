"""The failures of requests that end a consumer, and their errors."""

from __future__ import annotations

from typing import Final

from asyncrevoke.client.core.io.effects import Failed, FailureKind
from asyncrevoke.client.errors import AuthenticationError, FatalError, UnsupportedVersionError

# A retry cannot succeed: the broker rejects the credentials, or has no common version.
FATAL_FAILURES: Final = frozenset((FailureKind.AUTHENTICATION, FailureKind.UNSUPPORTED))


def fatal_error(failed: Failed) -> FatalError:
    """The error for a failure whose kind is one of ``FATAL_FAILURES``."""
    detail = failed.detail or failed.kind.value
    if failed.kind is FailureKind.AUTHENTICATION:
        return AuthenticationError(detail)
    return UnsupportedVersionError(detail)
