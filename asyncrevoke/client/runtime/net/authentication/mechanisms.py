"""The mechanisms of SASL that a client may choose."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, cast

from asyncrevoke.client.runtime.net.authentication.oauthbearer import BearerExchange
from asyncrevoke.client.runtime.net.authentication.scram import ScramExchange

if TYPE_CHECKING:
    from aiokafka.abc import AbstractTokenProvider

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.runtime.net.authentication.kerberos import KerberosExchange


class PlainExchange:
    """PLAIN (RFC 4616): one message, whose response is empty."""

    def __init__(self, username: str, password: str) -> None:
        self.secrets = (password,)
        self._message: bytes | None = f"{username}\0{username}\0{password}".encode()

    async def step(self, _challenge: bytes | None) -> bytes | None:
        """The message; then None."""
        message, self._message = self._message, None
        return message


if TYPE_CHECKING:
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
