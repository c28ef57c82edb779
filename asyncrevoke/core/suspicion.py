"""Whether records are handed out while nobody knows if the group still takes us for a member."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.outbox import Outbox


class Suspicion:
    """With ``on_suspect="pause"`` steps return no records while the last request that the
    coordinator answered as a member's is older than the session. That is no verdict, so nothing is
    given up.

    ``member_at()`` is the send time of that request, None where there is no group.
    """

    def __init__(
        self, outbox: Outbox, config: ConsumerConfig, member_at: Callable[[], float | None]
    ) -> None:
        self._outbox = outbox
        self._config = config
        self._member_at = member_at
        self._holding = False

    @property
    def pauses(self) -> bool:
        """Whether this consumer wants to wait."""
        return self._config.on_suspect == "pause"

    def holds(self, now: float) -> bool:
        """Whether records have to wait now."""
        heard = self._member_at()
        suspect = heard is not None and now - heard > self._config.session_timeout
        if suspect and not self._holding:
            self._outbox.emit(
                "warning",
                "no records until the coordinator confirms the membership",
                group=self._config.group_id,
            )
        self._holding = suspect
        return suspect

    def lift(self, now: float) -> None:
        """Let a waiting step look again, if what it waited for has come."""
        if self._holding and not self.holds(now):
            self._outbox.wake()
