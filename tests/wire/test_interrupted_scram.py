"""SIGINT ends a process whose broker asks for very many SCRAM iterations."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from wire.test_unauthenticated_brokers import (
    SASL,
    SASL_AUTHENTICATE,
    HostileBroker,
    scram_challenge,
)

PROGRAM = f"""
import asyncio, sys
from asyncrevoke import Consumer

async def main():
    consumer = Consumer(
        "orders",
        bootstrap_servers=sys.argv[1],
        group_id="billing",
        sasl_scram_max_iterations=2**31 - 1,
        **{SASL!r},
    )
    async with consumer:
        async for _ in consumer:
            pass

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.timeout(150)
async def test_sigint_ends_a_process_that_hashes_a_password_for_minutes() -> None:
    broker = HostileBroker()
    challenge, challenged = scram_challenge(2**31 - 1), asyncio.Event()

    def respond(correlation: int, data: bytes) -> bytes:
        challenged.set()
        return challenge(correlation, data)

    broker.on[SASL_AUTHENTICATE] = respond
    node = await broker.start()
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        f"127.0.0.1:{node.port}",
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(60):
            await challenged.wait()
        child.send_signal(signal.SIGINT)
        async with asyncio.timeout(60):
            told, _ = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
        await broker.stop()
    assert (child.returncode, told) == (0, b"interrupted\n")
