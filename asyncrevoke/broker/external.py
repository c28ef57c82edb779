"""A broker that was started outside of this library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from asyncrevoke.broker.admin import Admin
from asyncrevoke.broker.errors import BrokerStartError
from asyncrevoke.broker.running import RunningBroker

if TYPE_CHECKING:
    from collections.abc import Sequence

CONNECT_TIMEOUT = 10.0


class ExternalBroker(RunningBroker):
    """A running broker at the user's address, without TLS and SASL, which is never stopped."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    @property
    @override
    def bootstrap_servers(self) -> str:
        return self._bootstrap_servers

    @property
    @override
    def admin_addresses(self) -> Sequence[str]:
        """The first of the given addresses."""
        return [self._bootstrap_servers.split(",")[0].strip()]

    @override
    def start(self) -> None:
        """Check that the broker responds. Raises BrokerStartError."""
        try:
            Admin(self.admin_addresses[0], CONNECT_TIMEOUT).brokers()
        except (OSError, ValueError) as error:
            raise BrokerStartError(
                f"no broker responds at {self._bootstrap_servers} ({error}): start it, correct the "
                "address (HOST:PORT, a listener without TLS and SASL), or unset ASYNCREVOKE_BROKER "
                "to have one started"
            ) from error

    @override
    def close(self) -> None:
        """Does nothing: the broker keeps running."""
