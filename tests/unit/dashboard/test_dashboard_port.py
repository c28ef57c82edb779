"""The port of ``asyncrevoke dashboard``: to whom it responds, and what a client may hold."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.web.dashboard.app import Dashboard
from asyncrevoke.web.dashboard.history import History
from asyncrevoke.web.dashboard.server import AsgiRequestHandler, served
from asyncrevoke.web.http_port import (
    AllowedHosts,
    HttpServer,
    PortLimits,
    RejectedRequestError,
    parse_request,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.types import Receive, Scope, Send


@asynccontextmanager
async def page_of(
    history: History | None = None,
    allowed_hosts: tuple[str, ...] = (),
    limits: PortLimits | None = None,
) -> AsyncGenerator[tuple[str, int]]:
    page = served(
        history or History("billing"), "127.0.0.1", 0, allowed_hosts, limits or PortLimits()
    )
    async with asyncio.timeout(60), page as address:
        port = urlsplit(address).port
        assert port is not None
        yield address, port


async def status_of(address: str, path: str = "", **headers: str) -> int:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with httpx.AsyncClient() as client:
        return (await client.get(f"{address}{path}", headers=sent)).status_code


async def raw(port: int, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("host", ["attacker.example", "attacker.example:80", "localhost.example"])
async def test_a_name_that_an_attacker_resolves_to_this_machine_is_rejected(host: str) -> None:
    async with page_of() as (address, _):
        for path in "", "view", "live", "dashboard.js":
            assert await status_of(address, path, host=host) == 421


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8983", "LOCALHOST.", "page.localhost", "127.0.0.1", "[::1]:80",
     "192.168.1.2:8983", "wiki.internal", "Wiki.Internal:8983"],
)  # fmt: skip
async def test_localhost_addresses_and_allowed_names_are_served(host: str) -> None:
    async with page_of(allowed_hosts=("wiki.internal",)) as (address, _):
        assert await status_of(address, host=host) == 200


@pytest.mark.parametrize(
    "host", [b"", b"Host:\r\n", b"Host: a b\r\n", b"Host: localhost\r\nHost: localhost\r\n"]
)
async def test_a_request_without_one_host_is_rejected(host: bytes) -> None:
    async with page_of() as (_, port):
        response = await raw(port, b"GET / HTTP/1.1\r\n" + host + b"\r\n")
    assert response.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("path", ["", "dashboard.js", "dashboard.css", "view", "view?ago=x"])
async def test_every_response_has_the_security_headers(path: str) -> None:
    async with page_of() as (address, _), httpx.AsyncClient() as client:
        headers = (await client.get(f"{address}{path}")).headers
    policy = dict(
        directive.split(" ", 1) for directive in headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cache-control"] == "no-store"


async def test_the_html_holds_no_inline_style_or_script() -> None:
    history = History("billing")
    for number in range(40):
        history.hold(TopicPartition("orders", number), f"till-{number % 3}")
    async with page_of(history) as (address, _), httpx.AsyncClient() as client:
        html = (await client.get(address)).text
        html += "".join((await client.get(f"{address}view")).json().values())
    assert "style=" not in html
    assert "onclick" not in html
    assert "<script>" not in html


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT"])
async def test_only_get_and_head_are_allowed(method: str) -> None:
    async with page_of() as (_, port):
        response = await raw(port, f"{method} / HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert response.startswith(b"HTTP/1.1 405 ")
        assert b"allow: GET, HEAD" in response
        for path in "", "view", "live":
            head = await raw(port, f"HEAD /{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert head.startswith(b"HTTP/1.1 200 ")
            assert head.endswith(b"\r\n\r\n"), "no body"


async def test_pages_of_other_sites_take_no_place() -> None:
    async with page_of() as (address, _):
        for path in "live", "view":
            for site in "cross-site", "same-site":
                assert await status_of(address, path, sec_fetch_site=site) == 403
            assert await status_of(address, path, origin="http://attacker.example") == 403
            assert await status_of(address, path, origin="null") == 403
            assert await status_of(address, path, origin="http://[") == 403
        assert await status_of(address, "view", sec_fetch_site="same-origin") == 200
        assert await status_of(address, "view", origin=address.removesuffix("/")) == 200


async def test_the_page_is_served_while_200_clients_send_nothing_or_half_a_request() -> None:
    async with page_of() as (address, port):
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
        for _, writer in idle[::2]:
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Unfinished: ")
        assert await status_of(address) == 200
        for _, writer in idle:
            writer.close()


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"GET /" + b"x" * 9000, b"\x00\r\n\r\n"]
)
async def test_an_unfinished_or_oversized_request_is_cut_off(sent: bytes) -> None:
    async with page_of(limits=PortLimits(request_seconds=0.2)) as (_, port):
        assert b" 200 " not in await raw(port, sent)


async def without_end(_: Scope, __: Receive, send: Send) -> None:
    """An application whose response no buffer can hold."""
    await send({"type": "http.response.start", "status": 200})
    while True:
        await send({"type": "http.response.body", "body": bytes(1 << 16), "more_body": True})


async def test_a_client_that_does_not_read_is_cut_off() -> None:
    limits = PortLimits(response_seconds=0.2)
    handler = AsgiRequestHandler(without_end)
    async with asyncio.timeout(60), HttpServer("127.0.0.1", 0, handler, limits) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        try:
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            while server.clients:  # noqa: ASYNC110 - which no event tells
                await asyncio.sleep(0.01)
        finally:
            writer.transport.abort()


async def test_a_stream_does_not_hold_up_the_end_of_its_port() -> None:
    async with (
        page_of() as (address, _),
        httpx.AsyncClient() as client,
        client.stream("GET", f"{address}live") as response,
    ):
        lines = response.aiter_lines()
        assert await anext(lines) == "retry: 50"
        await anext(lines)
        assert (await anext(lines)).startswith("data: {")


async def test_an_application_has_the_security_headers_on_its_dashboard_too() -> None:
    app = Starlette(routes=Dashboard(History("billing")).routes())
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://page") as client:
        page = await client.get("/dashboard/")
        rejected = await client.get("/dashboard/live", headers={"sec-fetch-site": "cross-site"})
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert rejected.status_code == 403


@given(st.binary() | st.from_regex(rb"(GET|HEAD|POST) /[ -~]{0,9} HTTP/1.[01](\r\n.*)*"))
def test_any_bytes_are_a_request_or_are_rejected(head: bytes) -> None:
    with suppress(RejectedRequestError):
        request = parse_request(head + b"\r\n\r\n")
        assert request.path.startswith(b"/")
        AllowedHosts(()).check(request)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET http://localhost/ HTTP/1.1", 400),
        (b"GET / HTTP/2", 400),
        (b"GET  / HTTP/1.1", 400),
        (b"GET /\x1b HTTP/1.1", 400),
        (b"get / HTTP/1.1", 400),
        (b"GET / HTTP/1.1\r\nHost : localhost", 400),
        (b"GET / HTTP/1.1\r\n folded: yes", 400),
        (b"GET / HTTP/1.1\nHost: localhost", 400),
        (b"GET / HTTP/1.1\r\nA: \x00", 400),
        (b"GET / HTTP/1.1" + b"\r\na: b" * 65, 431),
        (b"PATCH / HTTP/1.1\r\nHost: localhost", 405),
    ],
)
def test_what_is_no_plain_request_is_rejected(head: bytes, status: int) -> None:
    with pytest.raises(RejectedRequestError) as rejected:
        parse_request(head + b"\r\n\r\n")
    assert rejected.value.status == status
