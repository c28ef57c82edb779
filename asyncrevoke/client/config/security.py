"""The options with which connections are secured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncrevoke.client.config.consumer_config import ConsumerConfig

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


def security_options(config: ConsumerConfig) -> dict[str, Any]:
    """The security options, by their names."""
    return {name: getattr(config, name) for name in SECURITY_OPTIONS}
