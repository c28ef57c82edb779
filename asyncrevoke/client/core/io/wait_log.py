"""Log lines about waits, at most one in ten seconds for each key."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.log_events import LogEvent

    _Fields: TypeAlias = Callable[[], Mapping[str, object] | None]

REPEAT_AFTER = 10.0
# While no broker has responded yet.
WHAT_TO_CHECK = "that a broker listens there, and security_protocol"


class WaitLines:
    """Remembers since when each key is waited for. ``emit`` takes an event and its fields."""

    def __init__(self, emit: Callable[..., None]) -> None:
        self._emit = emit
        self._since: dict[str, float] = {}
        self._last: dict[str, float] = {}
        # Keys with a line since their wait began.
        self._logged: dict[str, None] = {}

    def waiting(
        self,
        now: float,
        key: str,
        event: LogEvent,
        first_after: float = 0.0,
        /,
        **fields: object,
    ) -> None:
        """Log that ``event`` is waited for: at once, or so many seconds after the first call, then
        every ten seconds."""
        since = self._since.setdefault(key, now)
        last = self._last.get(key)
        if now - since >= first_after and (last is None or now - last >= REPEAT_AFTER):
            self._last[key] = now
            self._logged[key] = None
            self._emit(event, **fields, seconds=round(now - since, 1))

    def over(self, now: float, key: str, event: LogEvent | None = None, **fields: object) -> None:
        """The wait is over; log ``event`` if the wait was logged."""
        since = self._since.get(key)
        logged = key in self._logged
        if since is None and not logged:
            return
        self.forget(key)
        if logged and event is not None:
            waited = now - since if since is not None else 0.0
            self._emit(event, **fields, seconds=round(waited, 1))

    def forget(self, key: str) -> None:
        """The wait is over, without a line."""
        self._since.pop(key, None)
        self._logged.pop(key, None)


class WaitLog(WaitLines):
    """The same, with lines by a timer."""

    def __init__(self, outbox: Outbox) -> None:
        super().__init__(outbox.emit)
        self._outbox = outbox

    def watch(self, now: float, key: str, event: LogEvent, fields: _Fields) -> None:
        """A wait begins: log ``event`` with ``fields()`` every ten seconds, from ten seconds on,
        until it is :meth:`over`. Without fields it has another cause, which has its own line."""
        self._since[key] = now
        self._outbox.set_timer(
            _timer(key), now + REPEAT_AFTER, lambda at: self._still(at, key, event, fields)
        )

    def _still(self, now: float, key: str, event: LogEvent, fields: _Fields) -> None:
        seconds = round(now - self._since[key], 1)
        if (shown := fields()) is not None:
            self._logged[key] = None
            self._emit(event, **shown, seconds=seconds)
        self._outbox.set_timer(
            _timer(key), now + REPEAT_AFTER, lambda at: self._still(at, key, event, fields)
        )

    def forget(self, key: str) -> None:
        """The wait is over, without a line."""
        self._outbox.cancel_timer(_timer(key))
        super().forget(key)


def _timer(key: str) -> str:
    return f"waiting-{key}"
