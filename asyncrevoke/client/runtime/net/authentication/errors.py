"""Why a connection cannot be authenticated."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class ExchangeError(Exception):
    """The client ends a SASL exchange; ``reason`` is a sentence."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class MechanismNotEnabledError(Exception):
    """The broker has not enabled the client's mechanism, but ``enabled``."""

    def __init__(self, enabled: tuple[str, ...]) -> None:
        super().__init__(", ".join(enabled))
        self.enabled = enabled


class AuthenticationRejectedError(Exception):
    """The broker rejects the authentication; the message is its reason."""


class NoTokenError(Exception):
    """The application's token provider failed."""


def without_secrets(secrets: Iterable[str], text: str) -> str:
    """A broker's text without what it was sent to authenticate the client."""
    for secret in filter(None, secrets):
        text = text.replace(secret, "***")
    return text
