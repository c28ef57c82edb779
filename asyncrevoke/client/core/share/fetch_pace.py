"""When a session sends its next ShareFetch, and for how long the broker may wait for records.

A broker handles one request of a connection at a time: while a fetch waits, no acknowledgement can
follow, and a record that another member has released does not end the wait.
"""

from __future__ import annotations

_LONG_WAIT = 0.5
_LONGEST_WAIT_WITH_RECORDS = 0.1
# Also the shortest time between two fetches, unless there are more records than were asked for.
_SHORTEST_WAIT = 0.005
# How long acknowledgements wait for free slots, if there are: a fetch may follow that has them.
_LONGEST_GATHERING = 0.02


class FetchPace:
    """In a group without further records, an acknowledgement is delayed for at most as long as its
    record was held, and 5 ms; else for 20 ms.

    A fetch with acknowledgements does not wait. After records have come, the next fetch is sent
    with their first acknowledgements, if these follow within 5 ms. All times are seconds.
    """

    def __init__(self, *, exact: bool) -> None:
        self._exact = exact
        # When the last fetch was sent that may acquire something.
        self.sent_at = float("-inf")
        self._acquired_at = float("-inf")
        # Whether the broker seems to have more records than the last fetch might acquire.
        self._has_more = True
        # Whether all records have been handled before the last fetch was sent.
        self._at_once = True

    def sent(self, now: float) -> None:
        """A fetch is sent."""
        self.sent_at = now

    def responded(self, now: float, wanted: int, acquired: int, handled: int) -> None:
        """A fetch of at most ``wanted`` records has acquired so many, and so many others have been
        handled meanwhile."""
        self._has_more = acquired >= wanted
        self._at_once = not handled
        if acquired:
            self._acquired_at = now

    @property
    def acknowledges_alone(self) -> bool:
        """Whether acknowledgements are sent without a fetch, if they are of all acquired records:
        one that waits for records may follow."""
        return not self._has_more

    @property
    def acknowledge_at(self) -> float:
        """The time before which acknowledgements wait for a fetch, if no slot is free for one."""
        if not self._has_more:
            return float("-inf")
        return max(self.sent_at, self._acquired_at) + _LONGEST_GATHERING

    def next_fetch(self, acquired: int, unfinished: int, *, acknowledges: bool) -> float:
        """The time before which no fetch is sent. So many records of this broker are acquired, and
        so many of them are not to be acknowledged yet; ``acknowledges``: others are."""
        if not acquired:
            return float("-inf")
        if not self._has_more:
            return (self.sent_at if acknowledges else self._acquired_at) + _SHORTEST_WAIT
        # Of records that are handled at once, one fetch replaces all.
        waits = self._exact and unfinished and self._at_once
        return self._acquired_at + _SHORTEST_WAIT if waits else float("-inf")

    def wait(self, now: float, acquired: int, *, acknowledges: bool) -> float:
        """How long the broker may wait for records, while so many are acquired."""
        if acknowledges:
            return 0.0
        if not acquired:
            return _LONG_WAIT
        held_for = now - self._acquired_at
        return min(max(held_for, _SHORTEST_WAIT), _LONGEST_WAIT_WITH_RECORDS)
