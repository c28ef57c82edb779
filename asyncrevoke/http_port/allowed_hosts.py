"""The host names that requests may name; others are rejected against DNS rebinding."""

from __future__ import annotations

import re
from http import HTTPStatus
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from asyncrevoke.http_port.request import RejectedRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.http_port.request import HttpRequest

_HOST: Final = re.compile(rb"(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9._\-]+))(?::[0-9]{1,5})?")


class AllowedHosts:
    """``localhost``, names below it, any IP address, and ``names``; the port does not count.

    A web page of a stranger can have its own name resolve to this machine, and then read what a
    port here answers; its requests carry that name in the Host header. An address cannot be
    resolved anew, so every address is allowed.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {_canonical(name) for name in names}

    def check(self, request: HttpRequest) -> None:
        """Raises RejectedRequestError if the request was sent to another name."""
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
                    "this port is not served by that name: --allowed-host NAME allows it",
                ) from None


def _canonical(name: str) -> str:
    return name.lower().removesuffix(".")
