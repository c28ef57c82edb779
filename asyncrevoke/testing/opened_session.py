"""A session of a consumer under test, and its connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.errors import IllegalStateError
from asyncrevoke.client.runtime.session.session import Session
from asyncrevoke.client.runtime.share.share_session import ShareSession

if TYPE_CHECKING:
    from asyncrevoke.client.runtime.session.entered_session import EnteredSession
    from asyncrevoke.client.runtime.share.share_session import ConsumerSession
    from asyncrevoke.testing.connections import Connections

NOT_ENTERED = "use `async with TestConsumer(consumer) as t:` first"


class OpenedSession:
    """A session, which does not exist until the consumer has opened it."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self._session: EnteredSession | None = None

    def session_opened(self, session: EnteredSession) -> None:
        """The consumer has opened this session, and not started it yet."""
        self._session = session

    @property
    def session(self) -> ConsumerSession:
        """The session. Raises IllegalStateError before it is opened."""
        found = self._session
        if found is None:
            raise IllegalStateError(NOT_ENTERED)
        assert isinstance(found, Session | ShareSession)
        return found

    @property
    def in_consumer_group(self) -> Session:
        """The session, which is one of a consumer group, or of no group."""
        found = self.session
        assert isinstance(found, Session)
        return found

    @property
    def in_share_group(self) -> ShareSession:
        """The session, which is one of a share group."""
        found = self.session
        assert isinstance(found, ShareSession)
        return found
