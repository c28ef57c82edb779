"""Requests whose responses are used as kio decodes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.protocol.dialects.dialect import Dialect, make
from asyncrevoke.protocol.messages import EntityRequest, EntityResponse

if TYPE_CHECKING:
    from kio.static.protocol import RequestPayload, ResponsePayload


def entity(request_type: type[RequestPayload], response_type: type[ResponsePayload]) -> Dialect:
    """The version of ``request_type``, whose fields are those of the message."""

    def build(message: EntityRequest[object]) -> RequestPayload:
        return request_type(**{name: getattr(message, name) for name in message.__struct_fields__})

    def read(response: ResponsePayload) -> EntityResponse:
        return EntityResponse(entity=response)

    return make(request_type, build, response_type, read)
