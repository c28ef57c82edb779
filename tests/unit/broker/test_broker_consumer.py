from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from fastapi import FastAPI

from asyncrevoke import ConfigError
from asyncrevoke.testing import BrokerConsumer

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker


def test_the_error_of_what_is_no_consumer_names_what_to_give() -> None:
    app: Any = FastAPI()
    with pytest.raises(ConfigError, match=r"consumer_for\(app\.consumer\)"):
        BrokerConsumer(app, cast("RunningBroker", None))
