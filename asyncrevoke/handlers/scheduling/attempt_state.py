"""The attempts at a record or batch whose next call is not an ordinary first one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncrevoke.handlers.policy.batch import Unsent
    from asyncrevoke.handlers.policy.registration import Handler


class AttemptState:
    """The attempts at one item; ``calls`` counts the calls made so far.

    ``unsent``: no further call is made; the record is written to another topic. ``fails_with``: the
    record cannot be read, or has no lane; it fails with this error when a worker takes it.
    ``result_error``: the result of the last call could not be published; the record fails with this
    error when a worker takes it. ``handler``: the chosen one of a topic with several handlers,
    otherwise None.
    """

    __slots__ = ("calls", "fails_with", "handler", "result_error", "unsent")

    def __init__(
        self,
        calls: int,
        fails_with: BaseException | None = None,
        handler: Handler | None = None,
    ) -> None:
        self.handler = handler
        self.calls = calls
        self.fails_with = fails_with
        self.unsent: Unsent | None = None
        self.result_error: BaseException | None = None

    @property
    def has_started(self) -> bool:
        """Whether the handler was called before."""
        return self.calls > 0 or self.unsent is not None

    def start_call(self) -> int:
        """Count a call that begins now, and return its number."""
        self.calls += 1
        return self.calls

    def result_failed(self, error: BaseException) -> None:
        """The result of the last call could not be published."""
        self.result_error = error

    def take_result_error(self) -> BaseException | None:
        """Return ``result_error``, and clear it."""
        error, self.result_error = self.result_error, None
        return error

    def send_elsewhere(self, unsent: Unsent) -> None:
        """The last call has failed, and the record goes to another topic."""
        self.unsent = unsent


# A record that has not failed, whose first call is traced.
TRACED: Final = AttemptState(0)
