"""Marks code that awaits the library outside a poll."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

    from asyncrevoke.core.consumer_core import ConsumerCore
    from asyncrevoke.runtime.loop.driver import Driver


@contextmanager
def poll_boundary(core: ConsumerCore, driver: Driver) -> Generator[None]:
    """Inside, the caller awaits the library: ``max_poll_interval`` does not run, and partitions
    whose revocation was announced may be released."""
    core.boundary(driver.now(), inside=True)
    driver.flush()
    try:
        yield
    finally:
        core.boundary(driver.now(), inside=False)
        driver.flush()
