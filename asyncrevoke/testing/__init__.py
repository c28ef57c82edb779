"""For tests of applications: a consumer without a broker, and pytest fixtures with a real broker.

Names are loaded on first use, because pytest imports this package in each run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncrevoke.testing.broker_consumer import BrokerConsumer
    from asyncrevoke.testing.calls import Call, NotHandled
    from asyncrevoke.testing.cluster import Published
    from asyncrevoke.testing.harness import TestConsumer

__all__ = ["BrokerConsumer", "Call", "NotHandled", "Published", "TestConsumer"]

_MODULES = {
    "BrokerConsumer": "asyncrevoke.testing.broker_consumer",
    "Call": "asyncrevoke.testing.calls",
    "NotHandled": "asyncrevoke.testing.calls",
    "Published": "asyncrevoke.testing.cluster",
    "TestConsumer": "asyncrevoke.testing.harness",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
