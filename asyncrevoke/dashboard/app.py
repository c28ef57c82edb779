"""The page over HTTP: Starlette routes that only read."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from asyncrevoke.dashboard.history import KEPT
from asyncrevoke.dashboard.page import parts

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from asyncrevoke.dashboard.history import History

# Seconds between two pictures, and without news; and how many may look on.
_SOON: Final = 0.1
_LATEST: Final = 1.0
_MOST_VIEWERS: Final = 32
# A server that shuts down waits for its responses: each ends soon, and the browser asks again.
_STREAM: Final = 5.0
# How long a stream may be held up by a viewer that does not read.
_PATIENCE: Final = 5.0
# Scripts and styles come from the two files beside the page alone; nothing is inline.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
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
    """One history for many viewers. A picture is made once for all, and only if somebody looks.

    A viewer that does not read gets nothing more until it does, and then the newest picture:
    nothing is kept for it.
    """

    def __init__(self, history: History) -> None:
        self.history = history
        self._drawn: tuple[int, bytes] = (-1, b"")
        self._drawn_at = 0.0
        self.pictures = 0

    def routes(self, prefix: str = "/dashboard") -> list[Route]:
        """``GET {prefix}/`` and what belongs to it."""

        async def moved(request: Request) -> RedirectResponse:
            return RedirectResponse(f"{request.url.path}/")

        async def live(request: Request) -> Response:
            if (refusal := _of_another_site(request)) is not None:
                return refusal
            if self.history.listeners >= _MOST_VIEWERS:
                return _told(f"{_MOST_VIEWERS} viewers look on already", 503)
            return _Live(self)

        async def view(request: Request) -> Response:
            if (refusal := _of_another_site(request)) is not None:
                return refusal
            try:
                ago = float(request.query_params.get("ago", "0"))
            except ValueError:
                return _told("ago is a number of seconds", 400)
            if not 0 <= ago <= KEPT:
                return _told(f"ago is from 0 to {KEPT:g} seconds", 400)
            content = msgspec.json.encode(parts(self.history, ago))
            return Response(content, media_type="application/json", headers=_HEADERS)

        async def file(_request: Request, *, name: str) -> Response:
            content = files("asyncrevoke.dashboard").joinpath("static", name).read_text("utf-8")
            return Response(content, media_type=_TYPES[name], headers=_HEADERS)

        names = {"/": "index.html", **{f"/{name}": name for name in _TYPES}}
        return [
            *([Route(prefix, moved, include_in_schema=False)] if prefix else []),
            Route(f"{prefix}/live", live, include_in_schema=False),
            Route(f"{prefix}/view", view, include_in_schema=False),
            *(
                Route(f"{prefix}{path}", partial(file, name=name), include_in_schema=False)
                for path, name in names.items()
            ),
        ]

    async def stream(self, seconds: float = _STREAM) -> AsyncGenerator[bytes]:
        """Server-sent events: a picture at once, soon after each change, and each second; for
        some seconds."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        yield b"retry: 50\n\n"
        with self.history.listening() as changed:
            while loop.time() < end:
                changed.clear()
                yield b"data: " + self._picture() + b"\n\n"
                await asyncio.sleep(_SOON)
                try:
                    async with asyncio.timeout(_LATEST - _SOON):
                        await changed.wait()
                except TimeoutError:
                    continue

    def _picture(self) -> bytes:
        now = self.history.clock()
        if self._drawn[0] != self.history.version or now - self._drawn_at > _LATEST / 2:
            self._drawn = self.history.version, msgspec.json.encode(parts(self.history, 0))
            self._drawn_at = now
            self.pictures += 1
        return self._drawn[1]


def _told(text: str, status: int) -> Response:
    return PlainTextResponse(text, status, headers=_HEADERS)


def _of_another_site(request: Request) -> Response | None:
    """A refusal if the page of another site asks: it could not read the answer, but hold a place.

    Browsers say where a request comes from, in one header or the other; programs say nothing.
    """
    if (site := request.headers.get("sec-fetch-site")) is not None:
        same = site in ("same-origin", "none")
    else:
        origin = request.headers.get("origin")
        same = origin is None or urlsplit(origin).netloc == request.headers.get("host")
    return None if same else _told("pages of other sites may not ask", 403)


class _Live(Response):
    """A stream to one viewer, which ends soon after it has gone.

    One that does not read is given up: nothing else would end it.
    """

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
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        body = {"type": "http.response.body", "more_body": True}
        try:
            async with (
                asyncio.timeout(_STREAM + _PATIENCE),
                aclosing(self._dashboard.stream()) as pictures,
            ):
                async for picture in pictures:
                    if gone.done():
                        return
                    await send({**body, "body": picture})
                await send({**body, "body": b"", "more_body": False})
        except TimeoutError:
            return


async def _gone(receive: Receive) -> None:
    """Return when the viewer has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
