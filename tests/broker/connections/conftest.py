"""The broker that tests of secured connections share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from broker.connections.secured_broker import SecureBroker

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """A broker with a listener of each kind of security."""
    secure = SecureBroker(tmp_path_factory.mktemp("secure"))
    with secure.broker:
        yield secure
