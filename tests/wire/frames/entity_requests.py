"""The requests whose responses are used as kio decodes them."""

# pyright: reportUnknownVariableType=false

from __future__ import annotations

from typing import Any, Final

from asyncrevoke.broker import admin
from asyncrevoke.client.groups import configs as of_configs
from asyncrevoke.client.groups import requests as of_groups
from asyncrevoke.client.producing import requests as of_producer
from asyncrevoke.client.protocol.messages import EntityRequest


def _of_module(module: object) -> list[type[EntityRequest[Any]]]:
    return [
        value
        for _, value in sorted(vars(module).items())
        if isinstance(value, type) and issubclass(value, EntityRequest)
        if value is not EntityRequest
    ]


ENTITY_REQUESTS: Final[tuple[type[EntityRequest[Any]], ...]] = (
    *_of_module(of_producer),
    *_of_module(of_groups),
    *_of_module(admin),
    *_of_module(of_configs),
)
