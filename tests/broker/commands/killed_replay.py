"""A replay in transactions that kills its process at one step of its second transaction with
records: ``TOPIC ADDRESS JOURNAL STEP``."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from unittest.mock import patch

from asyncrevoke.client.runtime.net.channels import Channels
from asyncrevoke.dead_letters import DeadLetterTopic, Replay, ReplayOptions
from asyncrevoke.dead_letters.replay_journal import ReplayJournal

AT_ONCE = 10


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at(step: str) -> None:
    """``produced``, ``offsets``, ``ended`` and ``sent``: when this request is acknowledged, or for
    ``sent`` when EndTxn is written to the socket; ``journal``: before the journal has the end."""
    request = Channels.request
    counts = {"ProduceRequest": 0, "TxnOffsetCommitRequest": -1, "EndTxnRequest": -1}
    names = {
        "produced": "ProduceRequest",
        "offsets": "TxnOffsetCommitRequest",
        "ended": "EndTxnRequest",
        "sent": "EndTxnRequest",
    }

    async def counted(self: Channels, send: object) -> object:
        name = type(send.message).__name__  # type: ignore[attr-defined]
        if name in counts:
            counts[name] += 1
        is_it = names.get(step) == name and counts[name] == 2
        if is_it and step == "sent":
            asyncio.get_running_loop().call_later(0.001, kill)
        reply = await request(self, send)  # type: ignore[arg-type]
        if is_it:
            kill()
        return reply

    Channels.request = counted  # type: ignore[method-assign,assignment]
    # Each request is one that is awaited.
    Channels.begin = lambda *_: False  # type: ignore[method-assign]
    if step == "journal":
        ended = ReplayJournal.transaction_ended

        def kill_before(self: ReplayJournal, number: int, *, committed: bool) -> None:
            # The first one has offsets only.
            if number == 3:
                kill()
            ended(self, number, committed=committed)

        patch.object(ReplayJournal, "transaction_ended", kill_before).start()


async def main(topic: str, address: str, journal: str) -> None:
    options = ReplayOptions(journal=Path(journal), rate=AT_ONCE * 5, processing="exactly_once")
    async with DeadLetterTopic(topic, bootstrap_servers=address) as letters:
        await Replay(letters, options).run()


if __name__ == "__main__":
    kill_at(sys.argv[4])
    asyncio.run(main(*sys.argv[1:4]))
