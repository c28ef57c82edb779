"""The requests of members of this process, and their responses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from asyncrevoke.client.core.io.effects import Replied
from asyncrevoke.client.runtime.net.channels import Channels

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from asyncrevoke.client.core.io.effects import Failed, Send
    from asyncrevoke.client.protocol.messages import Response


def note_requests(
    monkeypatch: pytest.MonkeyPatch, note: Callable[[Send, Replied | Failed], object]
) -> None:
    """Call ``note`` with each request and its response, whichever way it was sent."""
    request, begin = Channels.request, Channels.begin

    async def noting(self: Channels, send: Send) -> Replied | Failed:
        response = await request(self, send)
        note(send, response)
        return response

    def noting_at_once(
        self: Channels, send: Send, then: Callable[[Replied | Failed], object]
    ) -> bool:
        def noted(response: Replied | Failed) -> None:
            note(send, response)
            then(response)

        return begin(self, send, noted)

    monkeypatch.setattr(Channels, "request", noting)
    monkeypatch.setattr(Channels, "begin", noting_at_once)


def change_responses(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Response], Response]
) -> None:
    """Give consumers of this process what ``change`` makes of each response."""
    request, begin = Channels.request, Channels.begin

    def changed(response: Replied | Failed) -> Replied | Failed:
        if isinstance(response, Replied):
            return Replied(response.request_id, change(response.message))
        return response

    async def changing(self: Channels, send: Send) -> Replied | Failed:
        return changed(await request(self, send))

    def changing_at_once(
        self: Channels, send: Send, then: Callable[[Replied | Failed], object]
    ) -> bool:
        return begin(self, send, lambda response: then(changed(response)))

    monkeypatch.setattr(Channels, "request", changing)
    monkeypatch.setattr(Channels, "begin", changing_at_once)


class HeldResponses:
    """Keeps responses of one type from the consumers of this process while :meth:`hold` applies.

    ``count`` says how many are held.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type[Response]) -> None:
        self._kind = kind
        self._released: asyncio.Future[None] | None = None
        self.count = 0
        request, begin = Channels.request, Channels.begin

        async def holding(channels: Channels, send: Send) -> Replied | Failed:
            response = await request(channels, send)
            if (released := self._until(response)) is not None:
                await asyncio.shield(released)
            return response

        def holding_at_once(
            channels: Channels, send: Send, then: Callable[[Replied | Failed], object]
        ) -> bool:
            def deliver(response: Replied | Failed) -> None:
                if (released := self._until(response)) is None:
                    then(response)
                else:
                    released.add_done_callback(lambda _: then(response))

            return begin(channels, send, deliver)

        monkeypatch.setattr(Channels, "request", holding)
        monkeypatch.setattr(Channels, "begin", holding_at_once)

    def hold(self) -> None:
        """Hold the responses that arrive from now on."""
        self._released = asyncio.get_running_loop().create_future()

    def release(self) -> None:
        """Hand over what is held, and hold no more."""
        if self._released is not None:
            self._released.set_result(None)
        self._released = None
        self.count = 0

    def _until(self, response: Replied | Failed) -> asyncio.Future[None] | None:
        if self._released is None or not isinstance(response, Replied):
            return None
        if not isinstance(response.message, self._kind):
            return None
        self.count += 1
        return self._released
