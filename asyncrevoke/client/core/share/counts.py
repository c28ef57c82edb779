"""What a member of a share group has counted since it was entered, for metrics."""

from __future__ import annotations

from collections import Counter
from typing import Literal, TypeAlias

# Why locks are lost: they have passed; the broker has delivered the record again; the partition has
# another leader; the session's connection is closed; the session has ended while the consumer
# closes; the broker has refused the acknowledgement.
LockLoss: TypeAlias = Literal[
    "expired", "acquired_again", "leader_moved", "connection_closed", "session_ended", "refused"
]
AcknowledgeOutcome: TypeAlias = Literal["acknowledged", "refused", "unknown"]


class ShareCounts:
    """Counts of records, except ``session_opens`` and ``bytes_received``. Any thread may read them.

    ``acknowledgements`` are by type (accept, reject, release) and outcome: *unknown* if no response
    has come. ``bytes_received`` are those of the record batches of responses.
    """

    def __init__(self) -> None:
        self.acknowledgements: Counter[tuple[str, AcknowledgeOutcome]] = Counter()
        self.renewals = 0
        self.locks_lost: Counter[LockLoss] = Counter()
        self.acquired = 0
        self.session_opens = 0
        self.bytes_received = 0

    def add(self, other: ShareCounts) -> None:
        """Add the counts of another session."""
        self.acknowledgements.update(dict(other.acknowledgements))
        self.locks_lost.update(dict(other.locks_lost))
        self.renewals += other.renewals
        self.acquired += other.acquired
        self.session_opens += other.session_opens
        self.bytes_received += other.bytes_received
