"""Decoders and encoders that ask a server, which may not respond."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from asyncrevoke.client.model import Outage


class AskedServer:
    """A server that decoders and encoders ask."""

    def outage(self) -> Outage | None:
        """Since when it does not respond, and why; None if it does, as far as is known."""
        raise NotImplementedError


class AsksServer:
    """A decoder or an encoder that asks a ``server``."""

    def __init__(self, server: AskedServer) -> None:
        self.server = server


def outages_of(functions: Iterable[object]) -> Iterator[Outage]:
    """The servers that do not respond, each once."""
    servers = dict.fromkeys(one.server for one in functions if isinstance(one, AsksServer))
    for server in servers:
        outage = server.outage()
        if outage is not None:
            yield outage
