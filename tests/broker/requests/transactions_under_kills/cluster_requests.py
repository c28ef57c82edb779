"""Which broker coordinates what, and the finalized level of a feature: requests that block."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar, cast

from kio.schema.update_features.v1 import request as update_features
from kio.schema.update_features.v1.response import UpdateFeaturesResponse
from kio.static.primitive import i8, i16

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.protocol.messages import (
    FEATURES_REQUEST,
    ApiVersionsResponse,
    Entities,
    EntityRequest,
    EntityResponse,
    ErrorCode,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from asyncrevoke.client.runtime.net.single_request import request_blocking

if TYPE_CHECKING:
    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.client.protocol.messages import Request, Response

# Seconds for a response, and for an election.
_PATIENCE = 30.0
_UPGRADE, _SAFE_DOWNGRADE = 1, 2


class _UpdateFeatures(EntityRequest[UpdateFeaturesResponse], frozen=True, kw_only=True):
    entities: ClassVar[Entities] = (update_features.UpdateFeaturesRequest, UpdateFeaturesResponse)
    feature_updates: tuple[update_features.FeatureUpdateKey, ...]


def _request(broker: RunningBroker, message: Request) -> Response:
    config = ConsumerConfig(bootstrap_servers=broker.admin_addresses[0])
    return request_blocking(message, config, _PATIENCE)


def coordinator_of(
    broker: RunningBroker, group_id: str, transactional_id: str | None = None
) -> int:
    """The node id of the coordinator of this transactional id, or without one of this group."""
    message = FindCoordinatorRequest(group_id=group_id, transactional_id=transactional_id)
    deadline = time.monotonic() + _PATIENCE
    while True:
        found = _request(broker, message)
        assert isinstance(found, FindCoordinatorResponse)
        if found.error is ErrorCode.none:
            return found.node_id
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def transaction_version(broker: RunningBroker) -> int:
    """The finalized level of transaction.version; 0 if there is none."""
    found = _request(broker, FEATURES_REQUEST)
    assert isinstance(found, ApiVersionsResponse)
    return found.features.get("transaction.version", 0)


def set_transaction_version(broker: RunningBroker, level: int) -> None:
    """Finalize this level of transaction.version; returns when the first broker says so."""
    update = update_features.FeatureUpdateKey(
        feature="transaction.version",
        max_version_level=i16(level),
        upgrade_type=i8(_UPGRADE if level > transaction_version(broker) else _SAFE_DOWNGRADE),
    )
    found = cast("EntityResponse", _request(broker, _UpdateFeatures(feature_updates=(update,))))
    response = cast("UpdateFeaturesResponse", found.entity)
    assert response.error_code is ErrorCode.none, response
    assert all(result.error_code is ErrorCode.none for result in response.results), response
    deadline = time.monotonic() + _PATIENCE
    while transaction_version(broker) != level:
        assert time.monotonic() < deadline
        time.sleep(0.05)
