"""For tests of applications: a consumer without a broker, and pytest fixtures with a real broker.

Names are loaded on first use, because pytest imports this package in each run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.lazy_names import lazy_names

if TYPE_CHECKING:
    from asyncrevoke.client.producing.message import Published
    from asyncrevoke.testing.broker_consumer import BrokerConsumer
    from asyncrevoke.testing.calls import Call, NotHandled
    from asyncrevoke.testing.harness import TestConsumer

__all__ = ["BrokerConsumer", "Call", "NotHandled", "Published", "TestConsumer"]

__getattr__ = lazy_names(
    __name__,
    {
        ".broker_consumer": ("BrokerConsumer",),
        ".calls": ("Call", "NotHandled"),
        ".cluster": ("Published",),
        ".harness": ("TestConsumer",),
    },
)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
