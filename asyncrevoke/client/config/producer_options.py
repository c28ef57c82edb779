"""The keyword arguments of a producer."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from aiokafka.abc import AbstractTokenProvider

    from asyncrevoke.client.config.consumer_options import (
        Compression,
        SaslMechanism,
        SecurityProtocol,
    )


class ProducerOptions(TypedDict, total=False):
    """The options of ``Producer(...)``, which are those of the same name at ``ConsumerConfig``."""

    bootstrap_servers: str | Sequence[str]
    client_id: str
    compression: Compression
    idempotent: bool
    request_timeout: float
    metadata_max_age: float
    security_protocol: SecurityProtocol
    ssl_context: ssl.SSLContext | None
    sasl_mechanism: SaslMechanism
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_scram_max_iterations: int
    sasl_kerberos_service_name: str
    sasl_kerberos_domain_name: str | None
    sasl_oauth_token_provider: AbstractTokenProvider | None
