"""The configuration of a member's process."""

from __future__ import annotations

import enum
from typing import Literal

import msgspec


class Client(enum.StrEnum):
    """The Kafka client of a member."""

    ASYNCREVOKE = "asyncrevoke"
    AIOKAFKA = "aiokafka"


class MemberConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in seconds."""

    client: Client
    name: str
    bootstrap_servers: str
    topic: str
    group: str
    log: str
    protocol: Literal["eager", "cooperative", "consumer"]
    concurrency: int
    session_timeout: float
    max_in_flight: int = 2000
    commit_interval: float = 1.0
    heartbeat_interval: float = 1.0
    # The folder of the member's journal, or None. ``strict`` is for members that may be killed.
    journal: str | None = None
    strict: bool = False
