"""The session of a consumer under test, with its connections to the simulated brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.errors import IllegalStateError

if TYPE_CHECKING:
    from asyncrevoke.client.runtime.session.session import Session
    from asyncrevoke.testing.cluster import Connections

NOT_ENTERED = "use `async with TestConsumer(consumer) as t:` first"


class OpenedSession:
    """A session, which does not exist until the consumer has opened it."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self._session: Session | None = None

    def session_opened(self, session: Session) -> None:
        """The consumer has opened this session, and not started it yet."""
        self._session = session

    @property
    def session(self) -> Session:
        """The session. Raises IllegalStateError before it is opened."""
        if self._session is None:
            raise IllegalStateError(NOT_ENTERED)
        return self._session
