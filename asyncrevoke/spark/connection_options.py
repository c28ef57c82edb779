"""The options of ``format("asyncrevoke")`` that say how to connect: strings, as all of Spark's."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final, cast

from asyncrevoke.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncrevoke.config import ConsumerOptions

_KAFKA: Final = (
    "bootstrap_servers", "client_id", "security_protocol", "sasl_mechanism", "sasl_plain_username",
    "sasl_plain_password", "sasl_kerberos_service_name", "sasl_kerberos_domain_name",
)  # fmt: skip
_TLS: Final = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password")
CONNECTION_OPTIONS: Final = (*_KAFKA, *_TLS)


def connection_options(given: Mapping[str, str]) -> ConsumerOptions:
    """A consumer's or producer's options to connect with; other options of ``given`` are left out.

    Raises ConfigError; OSError for an unreadable file.
    """
    options: dict[str, object] = {name: given[name] for name in _KAFKA if name in given}
    if any(name in given for name in _TLS):
        if "security_protocol" not in given:
            raise ConfigError('ssl_... options need security_protocol="SSL" or "SASL_SSL"')
        context = ssl.create_default_context(cafile=given.get("ssl_cafile"))
        if "ssl_certfile" in given:
            context.load_cert_chain(
                given["ssl_certfile"], given.get("ssl_keyfile"), given.get("ssl_password")
            )
        options["ssl_context"] = context
    return cast("ConsumerOptions", options)
