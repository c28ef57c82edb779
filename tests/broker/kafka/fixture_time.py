"""A pytest plugin: what several tests share has a time limit of its own.

Brokers of a session or module start while its first test is set up. On a busy machine three starts
took longer than the 120 s of that test, and pytest reports a shared fixture that has failed as an
error of each test that uses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import pytest_timeout

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    if fixturedef.scope == "function":
        return (yield)
    item: pytest.Item = request._pyfuncitem
    _begin_again(item)
    try:
        return (yield)
    finally:
        _begin_again(item)


def _begin_again(item: pytest.Item) -> None:
    """Begin the time limit of the test from now."""
    settings = pytest_timeout._get_item_settings(item)
    if settings.timeout and not settings.func_only:
        item.ihook.pytest_timeout_cancel_timer(item=item)
        item.ihook.pytest_timeout_set_timer(item=item, settings=settings)
