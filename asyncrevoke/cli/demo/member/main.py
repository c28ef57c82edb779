"""The process of a demo member. It ends on SIGTERM, and when its parent ends.

Usage: python -m asyncrevoke.cli.demo.member.main CONFIG (CONFIG is a MemberConfig as JSON)
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path

import msgspec

from asyncrevoke.cli.demo.member.handler_log import Client, HandlerLog, MemberConfig


def end_with_parent() -> None:
    """Exit when the parent ends, which closes the pipe of the standard input."""

    def watch() -> None:
        while os.read(0, 64):
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


async def serve(config: MemberConfig, log: HandlerLog) -> None:
    """Run the member until SIGTERM."""
    if config.client is Client.ASYNCREVOKE:
        from asyncrevoke.cli.demo.member.asyncrevoke_member import run
    else:
        from asyncrevoke.cli.demo.member.aiokafka_member import run
    await run(config, log)


def main() -> None:
    """Run the member with the configuration in the first argument."""
    config = msgspec.json.decode(sys.argv[1], type=MemberConfig)
    end_with_parent()
    log = HandlerLog(Path(config.log), config.name)
    asyncio.run(serve(config, log))
    log.close()


if __name__ == "__main__":
    main()
