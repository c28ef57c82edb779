"""Starlette routes of the page; all are read-only."""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlsplit

import msgspec
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from asyncrevoke.client.errors import AsyncRevokeError, ConfigError
from asyncrevoke.dead_letters.dead_letter_filter import DeadLetterFilter
from asyncrevoke.web.dashboard.history import KEPT, History
from asyncrevoke.web.dashboard.page import dead_letter, parts, stored_contents, stored_letters
from asyncrevoke.web.dashboard.stored_letters import StoredLetters

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from starlette.datastructures import QueryParams
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send


# Seconds before the next rendering, after a change and without one.
_SOON: Final = 0.1
_LATEST: Final = 1.0
_MOST_VIEWERS: Final = 32
# Seconds after which a stream ends, because servers that shut down wait for it. The browser then
# opens another one.
_STREAM: Final = 5.0
# Seconds for which a stream waits for a viewer that does not read.
_WRITE_TIMEOUT: Final = 5.0
# The page has one script and one style sheet, and nothing inline.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_Endpoint: TypeAlias = "Callable[[Request], Awaitable[Response]]"
_NUMBER: Final = re.compile("[0-9]{1,18}")
_PLACE: Final = re.compile("([0-9]{1,18}):([0-9]{1,18})")
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_TYPES: Final = {
    "index.html": "text/html",
    "dashboard.css": "text/css",
    "dashboard.js": "text/javascript",
}


class Dashboard:
    """Serves a history. Renders it once for all viewers, and only while there are viewers.

    Nothing is queued for a viewer that does not read: its next message is the newest rendering.
    Viewers can list the dead letter topics of ``stored``.
    """

    def __init__(self, history: History, stored: StoredLetters | None = None) -> None:
        self.history = history
        self._stored = stored or StoredLetters(dict)
        self._rendered: tuple[int, bytes] = (-1, b"")
        self._rendered_at = 0.0
        self.renderings = 0

    def routes(self, prefix: str = "/dashboard") -> list[Route]:
        """``GET {prefix}/`` and the paths that the page requests."""

        async def moved(request: Request) -> RedirectResponse:
            return RedirectResponse(f"{request.url.path}/")

        async def live(_request: Request) -> Response:
            if self.history.listeners >= _MOST_VIEWERS:
                return _rejected(f"the page already has {_MOST_VIEWERS} viewers", 503)
            return _Live(self)

        async def view(request: Request) -> Response:
            try:
                ago = float(request.query_params.get("ago", "0"))
            except ValueError:
                return _rejected("ago must be a number of seconds", 400)
            if not 0 <= ago <= KEPT:
                return _rejected(f"ago must be 0 to {KEPT:g} seconds", 400)
            return _json(parts(self.history, ago, self._stored.topics()))

        async def letter(request: Request) -> Response:
            number = request.query_params.get("number", "")
            shown = dead_letter(self.history, int(number)) if _NUMBER.fullmatch(number) else None
            if shown is None:
                return _rejected("this dead letter is no longer kept", 404)
            return _json(shown)

        async def stored(request: Request) -> Response:
            try:
                return _json(await self._listed(request.query_params))
            except AsyncRevokeError as error:
                return _rejected(str(error), 404)

        async def file(_request: Request, *, name: str) -> Response:
            content = files("asyncrevoke.web.dashboard").joinpath("static", name).read_text("utf-8")
            return Response(content, media_type=_TYPES[name], headers=_HEADERS)

        data = {"/live": live, "/view": view, "/dead-letter": letter, "/dead-letters": stored}
        names = {"/": "index.html", **{f"/{name}": name for name in _TYPES}}
        return [
            *([Route(prefix, moved, include_in_schema=False)] if prefix else []),
            *(
                Route(f"{prefix}{path}", _of_this_site(endpoint), include_in_schema=False)
                for path, endpoint in data.items()
            ),
            *(
                Route(f"{prefix}{path}", partial(file, name=name), include_in_schema=False)
                for path, name in names.items()
            ),
        ]

    async def _listed(self, asked: QueryParams) -> dict[str, str]:
        """A dead letter topic, or one of its dead letters. Raises AsyncRevokeError."""
        topic = asked.get("topic", "")
        if (place := asked.get("place")) is not None:
            if (numbers := _PLACE.fullmatch(place)) is None:
                raise ConfigError("place must be PARTITION:OFFSET")
            partition, offset = int(numbers[1]), int(numbers[2])
            contents = await self._stored.shown_contents(topic, partition, offset)
            return stored_contents(topic, partition, offset, contents)
        partitions = asked.getlist("origin_partition")
        if any(_NUMBER.fullmatch(number) is None for number in partitions):
            raise ConfigError("origin_partition must be a number")
        chosen = DeadLetterFilter(
            origin_topics=frozenset(asked.getlist("origin_topic")),
            origin_partitions=frozenset(map(int, partitions)),
            errors=frozenset(asked.getlist("error")),
        )
        reading = await self._stored.newest(topic)
        return stored_letters(reading, chosen, values=self._stored.values)

    async def stream(self, seconds: float = _STREAM) -> AsyncGenerator[bytes]:
        """Server-sent events for some seconds: a rendering at once, after each change, and each
        second."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        yield b"retry: 50\n\n"
        with self.history.listening() as changed:
            while loop.time() < end:
                changed.clear()
                yield b"data: " + self._rendering() + b"\n\n"
                await asyncio.sleep(_SOON)
                try:
                    async with asyncio.timeout(_LATEST - _SOON):
                        await changed.wait()
                except TimeoutError:
                    continue

    def _rendering(self) -> bytes:
        now = self.history.clock()
        if self._rendered[0] != self.history.version or now - self._rendered_at > _LATEST / 2:
            shown = parts(self.history, 0, self._stored.topics())
            self._rendered = self.history.version, msgspec.json.encode(shown)
            self._rendered_at = now
            self.renderings += 1
        return self._rendered[1]


def _json(shown: dict[str, str]) -> Response:
    content = msgspec.json.encode(shown)
    return Response(content, media_type="application/json", headers=_HEADERS)


def _rejected(text: str, status: int) -> Response:
    return PlainTextResponse(text, status, headers=_HEADERS)


def _of_this_site(endpoint: _Endpoint) -> _Endpoint:
    async def checked(request: Request) -> Response:
        return _rejected_site(request) or await endpoint(request)

    return checked


def _rejected_site(request: Request) -> Response | None:
    """A rejection if a page of another site sent the request, because it would count as a viewer.
    Browsers name the site in one of two headers; other clients send neither."""
    if (site := request.headers.get("sec-fetch-site")) is not None:
        same = site in ("same-origin", "none")
    else:
        origin = request.headers.get("origin")
        same = origin is None or _host_of(origin) == request.headers.get("host")
    return None if same else _rejected("requests of other sites are rejected", 403)


def _host_of(origin: str) -> str:
    """Its host and port; empty if it has none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:  # such as "http://["
        return ""


class _Live(Response):
    """The stream of one viewer. Ends when the viewer disconnects, or does not read in time."""

    def __init__(self, dashboard: Dashboard) -> None:
        super().__init__(
            headers={**_HEADERS, "X-Accel-Buffering": "no"}, media_type="text/event-stream"
        )
        del self.headers["content-length"]
        self._dashboard = dashboard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await Response(headers=self.headers)(scope, receive, send)
            return
        gone = asyncio.create_task(_gone(receive))
        try:
            await self._send(send, gone)
        finally:
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)

    async def _send(self, send: Send, gone: asyncio.Task[None]) -> None:
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        body = {"type": "http.response.body", "more_body": True}
        try:
            async with (
                asyncio.timeout(_STREAM + _WRITE_TIMEOUT),
                aclosing(self._dashboard.stream()) as messages,
            ):
                async for message in messages:
                    if gone.done():
                        return
                    await send({**body, "body": message})
                await send({**body, "body": b"", "more_body": False})
        except TimeoutError:
            return


async def _gone(receive: Receive) -> None:
    """Return when the viewer has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
