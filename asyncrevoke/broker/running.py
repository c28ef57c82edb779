"""The interface of all brokers: started by this library, or external."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

from asyncrevoke.broker.admin import REQUEST_TIMEOUT, Admin, Operation, Resource, wait_for_topic
from asyncrevoke.broker.listeners.security import ClientOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class RunningBroker(ABC):
    """A running broker or cluster; a synchronous context manager.

    Its methods block the calling thread, so do not call them in an event loop.
    """

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """The addresses for clients: ``host:port``, separated by commas."""

    @property
    @abstractmethod
    def admin_addresses(self) -> Sequence[str]:
        """``host:port`` of each running broker's listener without TLS and SASL."""

    @abstractmethod
    def start(self) -> None:
        """Start the brokers that do not run; returns when they respond. Raises BrokerStartError,
        with the fix, if a broker cannot be started or reached."""

    @abstractmethod
    def close(self) -> None:
        """End the brokers that :meth:`start` has started, and remove their data."""

    def client_options(self, user: str | None = None) -> ClientOptions:
        """The connection options of a client, as keyword arguments."""
        del user  # without SASL there are no users
        return ClientOptions(bootstrap_servers=self.bootstrap_servers)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; returns when every broker knows a leader of each of its partitions.

        ``replication`` is 1 on a single broker and 3 on a cluster, unless it is given. Raises
        BrokerRequestError if the broker rejects it, for example because the topic exists.
        """
        addresses = self.admin_addresses
        Admin(addresses[0]).create_topic(name, partitions, replication or -1, config or {})
        wait_for_topic(addresses, name, partitions, REQUEST_TIMEOUT)

    def add_partitions(self, name: str, total: int) -> None:
        """Raise a topic's number of partitions to ``total``; returns when they have leaders. Raises
        BrokerRequestError if the broker rejects it, for example because it has as many."""
        addresses = self.admin_addresses
        Admin(addresses[0]).add_partitions(name, total)
        wait_for_topic(addresses, name, total, REQUEST_TIMEOUT)

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises BrokerRequestError if the broker rejects it, for example because
        there is no such topic."""
        Admin(self.admin_addresses[0]).delete_topic(name)

    def allow(
        self,
        user: str,
        resource: Resource,
        name: str,
        operations: Iterable[Operation],
        *,
        prefixed: bool = False,
    ) -> None:
        """Allow ``user`` these ``operations``, on a broker whose security has ``acls=True``. Raises
        BrokerRequestError if the broker rejects it, for example without access control."""
        Admin(self.admin_addresses[0]).allow(user, resource, name, operations, prefixed=prefixed)
