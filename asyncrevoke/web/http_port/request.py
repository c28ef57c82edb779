"""Parses the head of an HTTP/1.x request strictly; ambiguous requests are rejected."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final, NamedTuple

_MAX_HEADERS: Final = 64
_REQUEST_LINE: Final = re.compile(rb"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.[01]")
_HEADER: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]{1,64}):[ \t]*([\t\x20-\x7e\x80-\xff]*)")


class RejectedRequestError(Exception):
    """A request is rejected; ``status`` and the message say why."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        self.status = status
        super().__init__(message)


class HttpRequest(NamedTuple):
    """Method, target and headers; header names are in lower case."""

    method: str
    path: bytes
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]

    def header(self, name: bytes) -> bytes | None:
        """The value of a header; None if it was not sent, the first one if it was sent twice."""
        return next((value for header, value in self.headers if header == name), None)


def parse_request(head: bytes) -> HttpRequest:
    """Parse everything up to the empty line. Raises RejectedRequestError."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    matched = _REQUEST_LINE.fullmatch(first)
    if matched is None:
        raise RejectedRequestError(HTTPStatus.BAD_REQUEST, "not an HTTP/1.1 request")
    if len(lines) > _MAX_HEADERS:
        raise RejectedRequestError(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {_MAX_HEADERS} headers"
        )
    headers: list[tuple[bytes, bytes]] = []
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise RejectedRequestError(HTTPStatus.BAD_REQUEST, "malformed header")
        headers.append((header[1].lower(), header[2].rstrip(b" \t")))
    if sum(name == b"host" for name, _ in headers) > 1:
        raise RejectedRequestError(HTTPStatus.BAD_REQUEST, "more than one Host header")
    if matched[1] not in (b"GET", b"HEAD"):
        raise RejectedRequestError(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are allowed")
    path, _, query = matched[2].partition(b"?")
    return HttpRequest(matched[1].decode(), path, query, tuple(headers))
