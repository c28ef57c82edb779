"""Failures of requests that end a consumer."""

import pytest

from asyncrevoke.client.core.io.effects import Failed, FailureKind
from asyncrevoke.client.core.io.fatal_error import FATAL_FAILURES, fatal_error
from asyncrevoke.client.errors import AuthenticationError, FatalError, UnsupportedVersionError


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (FailureKind.AUTHENTICATION, AuthenticationError),
        (FailureKind.UNSUPPORTED, UnsupportedVersionError),
    ],
)
@pytest.mark.parametrize("detail", ["broker 1 rejected it", ""])
def test_a_fatal_failure_is_an_error_with_its_detail_or_its_kind(
    kind: FailureKind, error: type[FatalError], detail: str
) -> None:
    found = fatal_error(Failed(1, kind, detail))
    assert type(found) is error
    assert str(found) == (detail or kind.value)


def test_only_failures_that_a_retry_cannot_resolve_are_fatal() -> None:
    assert frozenset((FailureKind.AUTHENTICATION, FailureKind.UNSUPPORTED)) == FATAL_FAILURES
