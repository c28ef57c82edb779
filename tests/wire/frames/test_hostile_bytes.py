"""Bytes that no broker would send, read in a child process because they may end it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SPOILED = 20_000


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(HERE.parents[2]), str(HERE.parents[1])))
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize(
    "program", ["response_frames.py", "corrupt_records.py", "corrupt_subscriptions.py"]
)
def test_corrupt_bytes_are_read_or_rejected_and_never_end_the_process(program: str) -> None:
    child = run(str(HERE / program), "20240229", str(SPOILED))
    assert child.returncode == 0, child.stderr[-2000:]
    read, rejected = map(int, child.stdout.split())
    assert read + rejected == SPOILED
    # Neither kind may be so rare that the test says nothing.
    assert min(read, rejected) > SPOILED // 20


# A MetadataResponse v12 whose header has its count of tagged fields, zero, in two bytes. Who reads
# that as one byte reads the rest from one byte too early: there 2**35 - 2 topics are declared.
SHIFTED = (
    "00000001 8000 00000000 01"  # correlation id, tagged fields, throttle time, no brokers
    "16 000000 ffffffff7f 78787878787878787878787878"  # the id of the cluster
    "00000001 01 00"  # controller, no topics, tagged fields
)


def test_a_header_with_its_tag_count_in_two_bytes_does_not_end_the_process() -> None:
    assert len(bytes.fromhex(SHIFTED)) == 39
    child = run(
        "-c",
        "import resource;"
        "resource.setrlimit(resource.RLIMIT_AS, (2 * 1024**3, 2 * 1024**3));"
        "from asyncrevoke.client.protocol import codec, messages\n"
        "try:\n"
        f"    codec.decode_response(messages.MetadataRequest, 12, bytes.fromhex('{SHIFTED}'))\n"
        "except codec.MalformedResponse:\n"
        "    print('rejected')",
    )
    assert (child.returncode, child.stdout) == (0, "rejected\n"), child.stderr[-2000:]


@pytest.mark.parametrize(
    ("version", "frame"),
    [(12, "00000000ffffffff0f"), (8, "000000007fffffff")],
    ids=["compact array", "array"],
)
def test_the_guard_is_still_needed(version: int, frame: str) -> None:
    """If this fails, kio rejects hostile counts by itself, and the guard has a reason less."""
    child = run(
        "-c",
        "import resource;"
        "resource.setrlimit(resource.RLIMIT_AS, (2 * 1024**3, 2 * 1024**3));"
        "from kio.serial import entity_reader;"
        f"from kio.schema.metadata.v{version}.response import MetadataResponse;"
        f"entity_reader(MetadataResponse)(bytes.fromhex('{frame}'), 0)",
    )
    assert child.returncode == -signal.SIGABRT, child.stderr[-2000:]
