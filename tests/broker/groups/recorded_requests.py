"""What members of this process ask brokers, and what they are answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.core.io.effects import Replied
from asyncrevoke.runtime.net.channels import Channels

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from asyncrevoke.core.io.effects import Failed, Send
    from asyncrevoke.protocol.messages import Response


def note_requests(
    monkeypatch: pytest.MonkeyPatch, note: Callable[[Send, Replied | Failed], object]
) -> None:
    """Call ``note`` with each request and its answer, whichever way it was sent."""
    request, begin = Channels.request, Channels.begin

    async def noting(self: Channels, send: Send) -> Replied | Failed:
        answer = await request(self, send)
        note(send, answer)
        return answer

    def noting_at_once(
        self: Channels, send: Send, then: Callable[[Replied | Failed], object]
    ) -> bool:
        def noted(answer: Replied | Failed) -> None:
            note(send, answer)
            then(answer)

        return begin(self, send, noted)

    monkeypatch.setattr(Channels, "request", noting)
    monkeypatch.setattr(Channels, "begin", noting_at_once)


def change_answers(monkeypatch: pytest.MonkeyPatch, change: Callable[[Response], Response]) -> None:
    """Give consumers of this process what ``change`` makes of each response."""
    request, begin = Channels.request, Channels.begin

    def changed(answer: Replied | Failed) -> Replied | Failed:
        if isinstance(answer, Replied):
            return Replied(answer.request_id, change(answer.message))
        return answer

    async def changing(self: Channels, send: Send) -> Replied | Failed:
        return changed(await request(self, send))

    def changing_at_once(
        self: Channels, send: Send, then: Callable[[Replied | Failed], object]
    ) -> bool:
        return begin(self, send, lambda answer: then(changed(answer)))

    monkeypatch.setattr(Channels, "request", changing)
    monkeypatch.setattr(Channels, "begin", changing_at_once)
