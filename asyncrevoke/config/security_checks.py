"""Checks that the security options do not contradict each other."""

from __future__ import annotations

from typing import Protocol

from asyncrevoke.errors import ConfigError


class _SecurityOptions(Protocol):
    """The security options of a consumer. Implemented by :class:`ConsumerConfig`."""

    @property
    def security_protocol(self) -> str: ...
    @property
    def ssl_context(self) -> object | None: ...
    @property
    def sasl_mechanism(self) -> str: ...
    @property
    def sasl_plain_username(self) -> str | None: ...
    @property
    def sasl_plain_password(self) -> str | None: ...
    @property
    def sasl_oauth_token_provider(self) -> object | None: ...


def mechanism_without_sasl(protocol: str) -> ConfigError:
    """The error for a mechanism that the security protocol does not use."""
    wanted = "SASL_SSL" if protocol == "SSL" else "SASL_PLAINTEXT or SASL_SSL"
    return ConfigError(
        f'sasl_mechanism is given, but security_protocol="{protocol}" would not use it: '
        f"use security_protocol {wanted}"
    )


def check_security(config: _SecurityOptions) -> None:
    """Raise ConfigError for security options that contradict each other."""
    protocol = config.security_protocol
    if not protocol.endswith("SSL") and config.ssl_context is not None:
        raise ConfigError(
            f'ssl_context is given, but security_protocol="{protocol}" would not use it: '
            f'use security_protocol="{"SASL_SSL" if protocol.startswith("SASL") else "SSL"}"'
        )
    if not protocol.startswith("SASL"):
        for name in ("sasl_plain_username", "sasl_plain_password", "sasl_oauth_token_provider"):
            if getattr(config, name) is not None:
                wanted = "SASL_SSL" if protocol == "SSL" else "SASL_PLAINTEXT or SASL_SSL"
                raise ConfigError(
                    f'{name} is given, but security_protocol="{protocol}" would not use it: '
                    f"use security_protocol {wanted}"
                )
        if config.sasl_mechanism != "PLAIN":  # the default
            raise mechanism_without_sasl(protocol)
    elif config.sasl_mechanism == "OAUTHBEARER":
        if config.sasl_oauth_token_provider is None:
            raise ConfigError(
                "OAUTHBEARER needs sasl_oauth_token_provider, an object with "
                "`async def token(self) -> str`"
            )
    elif config.sasl_mechanism != "GSSAPI" and (
        config.sasl_plain_username is None or config.sasl_plain_password is None
    ):
        raise ConfigError(
            f"{config.sasl_mechanism} needs sasl_plain_username and sasl_plain_password"
        )
