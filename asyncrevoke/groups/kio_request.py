"""Messages of kio over aiokafka's client, which takes any object with these few members."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from kio.serial import entity_writer
from kio.static.primitive import i32

from asyncrevoke.groups.errors import GroupsError, UnsupportedRequestError
from asyncrevoke.protocol.codec import LARGE_RESPONSE
from asyncrevoke.protocol.guard import HostileFrame, read_response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kio.static.protocol import RequestPayload, ResponsePayload

    Answer_co = TypeVar("Answer_co", bound=ResponsePayload, covariant=True)
else:
    Answer_co = TypeVar("Answer_co", covariant=True)

_CORRELATION_ID = struct.Struct(">i")


class _Encoded(Protocol):
    def encode(self) -> bytes: ...


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def encode(self) -> bytes:
        return self._data


class _Header:
    def __init__(self, frame: bytes) -> None:
        self.correlation_id: int = _CORRELATION_ID.unpack_from(frame)[0]


class KioRequest(Generic[Answer_co]):
    """A request in all supported versions, the preferred one first, with the response type of each.
    Raises UnsupportedRequestError when sent to a broker that speaks none of them."""

    def __init__(self, *versions: tuple[RequestPayload, type[Answer_co]]) -> None:
        self._versions = versions

    @property
    def newest(self) -> RequestPayload:
        """The request in its preferred version."""
        return self._versions[0][0]

    def prepare(self, offered: Mapping[int, tuple[int, int]]) -> _Prepared[Answer_co]:
        """The version to use, as aiokafka asks for it."""
        for request, answer in self._versions:
            lowest, highest = offered.get(request.__api_key__, (0, -1))
            if lowest <= request.__version__ <= highest:
                return _Prepared(request, answer)
        name = type(self.newest).__name__.removesuffix("Request")
        raise UnsupportedRequestError(
            f"the broker does not offer {name} in a version that this library supports"
        )


class _Prepared(Generic[Answer_co]):
    def __init__(self, request: RequestPayload, answer: type[Answer_co]) -> None:
        self._request = request
        self._answer = answer

    def build_request_header(self, correlation_id: int, client_id: str) -> _Encoded:
        header_type = self._request.__header_schema__
        header = header_type(
            request_api_key=self._request.__api_key__,
            request_api_version=self._request.__version__,
            correlation_id=i32(correlation_id),
            client_id=client_id,
        )
        with io.BytesIO() as buffer:
            entity_writer(header_type)(buffer, header)
            return _Bytes(buffer.getvalue())

    def encode(self) -> bytes:
        with io.BytesIO() as buffer:
            entity_writer(type(self._request))(buffer, self._request)
            return buffer.getvalue()

    def parse_response_header(self, frame: io.BytesIO) -> _Header:
        return _Header(frame.getvalue())

    @property
    def RESPONSE_TYPE(self) -> _Prepared[Answer_co]:  # noqa: N802 - aiokafka's name
        return self

    def decode(self, frame: io.BytesIO) -> Answer_co | GroupsError | LargeAnswer[Answer_co]:
        data = frame.getvalue()
        large = LargeAnswer(data, self._answer)
        return large if len(data) > LARGE_RESPONSE else large.decode()


class LargeAnswer(Generic[Answer_co]):
    """A response too large to decode on the event loop, where aiokafka would decode it."""

    def __init__(self, frame: bytes, answer: type[Answer_co]) -> None:
        self._frame = frame
        self._answer = answer

    def decode(self) -> Answer_co | GroupsError:
        """Decode the response. Returns an error instead of raising it: aiokafka would log it as its
        own bug."""
        try:
            return read_response(self._frame, self._answer)[0]
        except HostileFrame as error:
            return GroupsError(f"the answer is no {self._answer.__name__}: {error}")
