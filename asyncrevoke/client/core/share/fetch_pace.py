"""When a session sends its next ShareFetch, and for how long the broker may wait for records.

A broker handles one request of a connection at a time: while a fetch waits, no acknowledgement can
follow, and a record that another member has released does not end the wait.
"""

from __future__ import annotations

_LONG_WAIT = 0.5
_LONGEST_WAIT_WITH_RECORDS = 0.1
# Also the shortest time between two fetches, unless there are more records than were asked for.
_SHORTEST_WAIT = 0.005


class FetchPace:
    """An acknowledgement is delayed for at most as long as its record was held, and 5 ms.

    A fetch with acknowledgements does not wait. After records have come, the next fetch is sent
    with their first acknowledgements, if these follow within 5 ms. All times are seconds.
    """

    def __init__(self) -> None:
        self._sent_at = float("-inf")
        self._acquired_at = float("-inf")
        # Whether the broker seems to have more records than the last fetch might acquire.
        self._has_more = True

    def sent(self, now: float) -> None:
        """A fetch is sent."""
        self._sent_at = now

    def responded(self, now: float, wanted: int, acquired: int) -> None:
        """A fetch of at most ``wanted`` records has acquired so many."""
        self._has_more = acquired >= wanted
        if acquired:
            self._acquired_at = now

    @property
    def acknowledges_alone(self) -> bool:
        """Whether acknowledgements are sent without a fetch, if they are of all acquired records:
        one that waits for records may follow."""
        return not self._has_more

    def next_fetch(self, *, acknowledges: bool, holds: bool) -> float:
        """The time before which no fetch is sent. ``acknowledges``: it would have
        acknowledgements; ``holds``: records of this broker are acquired."""
        if self._has_more or not holds:
            return float("-inf")
        return (self._sent_at if acknowledges else self._acquired_at) + _SHORTEST_WAIT

    def wait(self, now: float, *, acknowledges: bool, holds: bool) -> float:
        """How long the broker may wait for records."""
        if acknowledges:
            return 0.0
        if not holds:
            return _LONG_WAIT
        held_for = now - self._acquired_at
        return min(max(held_for, _SHORTEST_WAIT), _LONGEST_WAIT_WITH_RECORDS)
