"""Marks code that awaits the library outside a poll."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncrevoke.client.core.core import Core
    from asyncrevoke.client.runtime.loop.driver import Driver


class PollBoundary:
    """Inside, the caller awaits the library: ``max_poll_interval`` does not run, and partitions
    whose revocation was announced may be released.

    A class: contextlib's generators write into exceptions, and a user's class may forbid that.
    """

    def __init__(self, core: Core, driver: Driver) -> None:
        self._core = core
        self._driver = driver

    def __enter__(self) -> None:
        self._set(inside=True)

    def __exit__(self, *_error: object) -> None:
        self._set(inside=False)

    def _set(self, *, inside: bool) -> None:
        self._driver.call(self._core.boundary, inside=inside)
