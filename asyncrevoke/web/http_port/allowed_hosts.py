"""The host names that requests may name. Other names are rejected, to prevent DNS rebinding."""

from __future__ import annotations

import re
from http import HTTPStatus
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from asyncrevoke.web.http_port.request import RejectedRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.web.http_port.request import HttpRequest

_HOST: Final = re.compile(rb"(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9._\-]+))(?::[0-9]{1,5})?")


class AllowedHosts:
    """Allows ``localhost``, names below it, any IP address, and ``names``, on any port.

    Prevents DNS rebinding: the name of a foreign web page can resolve to this machine, so that the
    page could read responses of this port. Its requests have that name in the Host header. An IP
    address needs no resolution, so every address is allowed.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {_canonical(name) for name in names}

    def check(self, request: HttpRequest) -> None:
        """Raise RejectedRequestError if the request names another host."""
        host = request.header(b"host")
        matched = None if host is None else _HOST.fullmatch(host)
        if matched is None:
            raise RejectedRequestError(HTTPStatus.BAD_REQUEST, "a Host header is needed")
        name = _canonical((matched[1] or matched[2]).decode())
        if not (name == "localhost" or name.endswith(".localhost") or name in self._names):
            try:
                ip_address(name)
            except ValueError:
                raise RejectedRequestError(
                    HTTPStatus.MISDIRECTED_REQUEST,
                    "this host name is not allowed: add it to the allowed hosts of this server",
                ) from None


def _canonical(name: str) -> str:
    return name.lower().removesuffix(".")
