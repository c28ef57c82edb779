"""One request over a connection of its own, for callers that have no event loop."""

from __future__ import annotations

import asyncio
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

from asyncrevoke.client.core.io.effects import Node
from asyncrevoke.client.protocol.receive_buffers import ReceiveBuffers
from asyncrevoke.client.runtime.net.connection import Connection
from asyncrevoke.client.runtime.net.decode_threads import DecodeThreads

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.protocol.messages import Request, Response

    T = TypeVar("T")


def request_blocking(message: Request, config: ConsumerConfig, within: float) -> Response:
    """Send ``message`` to the first bootstrap server and wait for its response.

    Opening the connection and the response may take ``within`` seconds each. Raises RequestFailed.
    """
    return run_blocking(_request(message, config, within))


async def _request(message: Request, config: ConsumerConfig, within: float) -> Response:
    threads = DecodeThreads()
    try:
        node = Node(-1, *config.addresses[0])
        buffers = ReceiveBuffers(0)
        connection = await Connection.open(node, config, threads, buffers, within=within)
        try:
            return await connection.request(message, within=within)
        finally:
            await connection.close()
    finally:
        threads.stop()


def run_blocking(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine to its end, also in a thread that runs an event loop, as a notebook does."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(asyncio.run(work))
        except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
            errors.append(error)

    thread = Thread(target=run, name="asyncrevoke request", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
