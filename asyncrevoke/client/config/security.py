"""The options with which connections are secured, and which of them contradict each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from asyncrevoke.client.errors import ConfigError

if TYPE_CHECKING:
    from asyncrevoke.client.config.consumer_config import ConsumerConfig
    from asyncrevoke.client.config.consumer_options import SaslMechanism


SECURITY_OPTIONS = (
    "security_protocol",
    "ssl_context",
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
    "sasl_kerberos_service_name",
    "sasl_kerberos_domain_name",
    "sasl_oauth_token_provider",
    "sasl_scram_max_iterations",
)


class _NotGiven(str):
    """The default value of an option, which is equal to the same value given by the user."""

    __slots__ = ()


DEFAULT_MECHANISM: Final = cast("SaslMechanism", _NotGiven("PLAIN"))


def check_security(config: ConsumerConfig) -> None:
    """Raise ConfigError for security options that contradict each other."""
    protocol = config.security_protocol
    if not protocol.endswith("SSL") and config.ssl_context is not None:
        raise ConfigError(
            f'ssl_context is given, but security_protocol="{protocol}" would not use it: '
            f'use security_protocol="{"SASL_SSL" if protocol.startswith("SASL") else "SSL"}"'
        )
    if not protocol.startswith("SASL"):
        given = [] if isinstance(config.sasl_mechanism, _NotGiven) else ["sasl_mechanism"]
        names = ("sasl_plain_username", "sasl_plain_password", "sasl_oauth_token_provider")
        given += [name for name in names if getattr(config, name) is not None]
        if given:
            wanted = "SASL_SSL" if protocol == "SSL" else "SASL_PLAINTEXT or SASL_SSL"
            raise ConfigError(
                f'{given[0]} is given, but security_protocol="{protocol}" would not use it: '
                f"use security_protocol {wanted}"
            )
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


def security_options(config: ConsumerConfig) -> dict[str, Any]:
    """The security options, by their names."""
    return {name: getattr(config, name) for name in SECURITY_OPTIONS}
