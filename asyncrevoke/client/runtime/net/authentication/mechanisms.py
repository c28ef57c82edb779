"""The mechanisms of SASL that a client may choose."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, cast

from asyncrevoke.client.runtime.net.authentication.oauthbearer import BearerExchange
from asyncrevoke.client.runtime.net.authentication.plain import PlainExchange
from asyncrevoke.client.runtime.net.authentication.scram import ScramExchange

if TYPE_CHECKING:
    from aiokafka.abc import AbstractTokenProvider

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.runtime.net.authentication.kerberos import KerberosExchange

    # ``step`` returns the next message, None when the exchange is over; ``secrets`` are the texts
    # that it has sent and that no error may show.
    Exchange: TypeAlias = PlainExchange | ScramExchange | BearerExchange | KerberosExchange


def begin_exchange(config: ConsumerConfig, host: str) -> Exchange:
    """The client's part of an exchange with the mechanism of ``config``, at a broker on ``host``.

    Raises ExchangeError if the package of the mechanism is not installed.
    """
    mechanism = config.sasl_mechanism
    if mechanism == "GSSAPI":
        from asyncrevoke.client.runtime.net.authentication.kerberos import KerberosExchange

        domain = config.sasl_kerberos_domain_name or host
        return KerberosExchange(config.sasl_kerberos_service_name, domain)
    # ``check_security`` has found the options that each of these needs.
    if mechanism == "OAUTHBEARER":
        return BearerExchange(cast("AbstractTokenProvider", config.sasl_oauth_token_provider))
    username = cast("str", config.sasl_plain_username)
    password = cast("str", config.sasl_plain_password)
    if mechanism == "PLAIN":
        return PlainExchange(username, password)
    return ScramExchange(mechanism, username, password, config.sasl_scram_max_iterations)
