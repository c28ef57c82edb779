"""What members of this process ask brokers, and what they are answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.runtime.channels import Channels

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from asyncrevoke.core.effects import Failed, Replied, Send


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
