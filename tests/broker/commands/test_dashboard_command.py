"""``asyncrevoke dashboard`` beside a group that is at work on a real broker."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from typing import TYPE_CHECKING

import pytest
from httpx import AsyncClient

from asyncrevoke import Consumer

if TYPE_CHECKING:
    from asyncio.subprocess import Process

    from asyncrevoke.broker import RunningBroker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(60),
    pytest.mark.kafka_topic(partitions=4),
]


async def run(*arguments: str) -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "asyncrevoke", "dashboard", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def until_shown(client: AsyncClient, part: str, text: str) -> None:
    async with asyncio.timeout(30):
        while text not in (await client.get("view")).json()[part]:  # noqa: ASYNC110 - no event there
            await asyncio.sleep(0.1)


async def test_a_group_is_shown_from_outside_until_the_command_is_interrupted(
    kafka_broker: RunningBroker, kafka_topic: str
) -> None:
    servers, group = kafka_broker.bootstrap_servers, f"{kafka_topic}-group"
    page = await run("--group", group, "--bootstrap-servers", servers, "--port", "0")
    assert page.stdout is not None
    address = (await page.stdout.readline()).decode().strip()
    assert address.startswith("http://127.0.0.1:")
    async with AsyncClient(base_url=address) as client:
        # There is none yet, and the page says so.
        await until_shown(client, "notes", "there is no group")
        async with Consumer(
            kafka_topic, bootstrap_servers=servers, group_id=group, client_id="till-1"
        ) as consumer:
            step = asyncio.create_task(anext(consumer))
            await until_shown(client, "owners", "till-1 127.0.0.1 <b>4</b>")
            await until_shown(client, "notes", "Stable")
            step.cancel()
        await until_shown(client, "owners", "nobody <b>4</b>")
    page.send_signal(signal.SIGINT)
    _, errors = await page.communicate()
    assert (page.returncode, errors.decode()) == (0, "Ctrl-C ends it\n")


async def test_dashboard_command_reports_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        page = await run("--group", "billing", "--port", port)
        _, errors = await page.communicate()
    assert page.returncode == 2
    assert f"cannot serve the page at 127.0.0.1:{port}" in errors.decode()
    assert "Traceback" not in errors.decode()
