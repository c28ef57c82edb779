"""How the members of a schedule write transactions, and which ones its brokers offer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionPlan:
    """The cluster's transaction.version, and how its members write transactions."""

    version: int = 2
    timeout: float = 10.0
    interval: float = 0.1
    # Whether a producer whose transaction has taken too long may begin no other epoch.
    fences_expired: bool = False
    # Partitions of the topic of results.
    results: int = 2
    # When the cluster's transaction.version becomes 2; None: it stays as it is.
    upgraded_at: float | None = None
    # The share of EndTxn with a response that does not say whether they are processed.
    unknown_outcomes: float = 0.0
    # Seconds between two looks of the coordinator for transactions that take too long.
    check_interval: float = 10.0
    # Most seconds after which a marker is written.
    marker_delay: float = 0.02
    # The share of members with a loop of their own, and a block for each batch.
    blocks: float = 0.0
    # The share of these blocks that raise an exception.
    failing_blocks: float = 0.1
