"""The options of a consumer of a share group: their defaults, and those that have no meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_CONCURRENCY = 64


def share_group_options(given: Mapping[str, object]) -> dict[str, object]:
    """The options, as they were given, with the defaults that differ in a share group."""
    options = {"order_by": None, **given}
    concurrency = options.get("concurrency", _CONCURRENCY)
    if isinstance(concurrency, int):
        options.setdefault("max_in_flight", 2 * concurrency)
    return options
