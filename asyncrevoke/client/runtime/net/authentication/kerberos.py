"""GSSAPI (RFC 4752) with the package ``gssapi``, which is imported when it is used."""

# pyright: reportMissingImports=false, reportUnknownMemberType=false
# pyright: reportUnnecessaryTypeIgnoreComment=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# gssapi is not installed where the types are checked.

from __future__ import annotations

import asyncio
from typing import Any, Final

from asyncrevoke.client.runtime.net.authentication.errors import ExchangeError

# RFC 4752, section 3.1: no security layer, hence no size of its messages.
_NO_LAYER: Final = 1
_NO_SIZE: Final = bytes(3)
_LAYER_BYTES: Final = 4


class KerberosExchange:
    """Proves the client's ticket to the service ``service`` on ``host``.

    The steps run in a thread, because they may ask the key distribution center.
    """

    secrets: tuple[str, ...] = ()

    def __init__(self, service: str, host: str) -> None:
        try:
            import gssapi  # type: ignore[import-not-found]
        except ModuleNotFoundError as error:
            raise ExchangeError(
                "sasl_mechanism GSSAPI needs the package gssapi: pip install gssapi"
            ) from error
        self._gssapi: Any = gssapi
        self._principal = f"{service}@{host}"
        self._context: Any = None
        self._is_over = False

    async def step(self, challenge: bytes | None) -> bytes | None:
        """The next message; None when the exchange is over."""
        if self._is_over:
            return None
        return await asyncio.to_thread(self._step, challenge)

    def _step(self, challenge: bytes | None) -> bytes:
        if self._context is None:
            name = self._gssapi.Name(
                self._principal, name_type=self._gssapi.NameType.hostbased_service
            )
            self._context = self._gssapi.SecurityContext(
                name=name.canonicalize(self._gssapi.MechType.kerberos), usage="initiate"
            )
        if not self._context.complete:
            return self._context.step(challenge) or b""
        layers: bytes = self._context.unwrap(challenge).message
        if len(layers) != _LAYER_BYTES or not layers[0] & _NO_LAYER:
            raise ExchangeError("it requires a security layer of GSSAPI, which Kafka does not have")
        self._is_over = True
        chosen = bytes((_NO_LAYER,)) + _NO_SIZE + self._principal.encode()
        wrapped: bytes = self._context.wrap(chosen, False).message
        return wrapped
