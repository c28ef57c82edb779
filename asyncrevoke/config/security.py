"""The connection options that aiokafka's clients receive as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncrevoke.config.consumer_config import ConsumerConfig

SECURITY_OPTIONS = (
    "security_protocol",
    "ssl_context",
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
    "sasl_kerberos_service_name",
    "sasl_kerberos_domain_name",
    "sasl_oauth_token_provider",
)


def security_options(config: ConsumerConfig) -> dict[str, Any]:
    """The security options, which have the same names in aiokafka."""
    return {name: getattr(config, name) for name in SECURITY_OPTIONS}


def client_options(config: ConsumerConfig) -> dict[str, Any]:
    """The connection options for the clients of ``asyncrevoke.runtime.net.kafka_clients``."""
    return {
        "bootstrap_servers": ",".join(config.bootstrap_servers),
        "client_id": config.client_id,
        "sasl_scram_max_iterations": config.sasl_scram_max_iterations,
        **security_options(config),
    }
