"""Checks inputs in a process of its own: ``python -m fuzz.child TARGET NOTE``.

Reads jobs as JSON lines from stdin and responds to each with a JSON line on stdout. Before it makes
and checks an input, it writes into the file NOTE which one it is: that is what the runner reads
when this process ends without a response.
"""

from __future__ import annotations

import faulthandler
import json
import mmap
import os
import resource
import signal
import struct
import sys
import time
import traceback
from pathlib import Path
from typing import IO, Any

from fuzz.target import Target, counts, drawn, load, read

CPU_LIMIT = 1.0
MEMORY_LIMIT = 2 * 1024**3
# An input that reaches these ends the process, also in the middle of a call into C.
_CPU_END = 10.0
_MEMORY_END = 2 * MEMORY_LIMIT
# Respond at least this often, in seconds, so that the runner sees that it goes on.
_RESPOND_AFTER = 2.0
_MAX_FAILURES = 20

NOTE_SIZE = 64 * 1024 * 1024
NOTE = struct.Struct("<qq")  # index (-1: none), length of the input (-1: it is being made)


class Child:
    """One target, and the note of what it is given."""

    def __init__(self, target: Target, note: mmap.mmap, wide: bool) -> None:
        self._target = target
        self._note = note
        self._factor = 10 if wide else 1
        self._peak = _peak()
        self._slowest = (0.0, -1)
        self._largest = (0, -1)
        self._failures: list[dict[str, Any]] = []

    def job(self, job: dict[str, Any]) -> dict[str, Any]:
        """Check the inputs of a job, or the first of them if it takes long."""
        self._slowest = (0.0, -1)
        self._largest = (0, -1)
        self._failures = []
        before = counts(self._target)
        done = 0
        began = time.monotonic()
        if path := job.get("path"):
            self._one(-1, lambda: read(Path(path)))
            done = 1
        else:
            seed, first = job["seed"], job["first"]
            for index in range(first, first + job["count"]):
                self._one(index, lambda index=index: drawn(self._target, seed, index))
                done += 1
                enough = time.monotonic() - began > _RESPOND_AFTER
                if enough or len(self._failures) >= _MAX_FAILURES:
                    break
        return {
            "done": done,
            "slowest": self._slowest,
            "largest": self._largest,
            "peak": self._peak,
            "failures": self._failures,
            "counts": {
                name: count - before.get(name, 0) for name, count in counts(self._target).items()
            },
        }

    def _one(self, index: int, make: Any) -> None:
        NOTE.pack_into(self._note, 0, index, -1)
        _end_after(_CPU_END * self._factor)
        try:
            data = make()
            self._note[NOTE.size : NOTE.size + len(data)] = data
            NOTE.pack_into(self._note, 0, index, len(data))
        except BaseException:  # noqa: BLE001 - whatever it is, it is a fault of the target
            self._fail(index, b"", "the target made no input:\n" + traceback.format_exc())
            return
        began = time.process_time()
        try:
            self._target.check(data)
        except BaseException:  # noqa: BLE001 - whatever it is, it is what is looked for
            self._fail(index, data, traceback.format_exc())
        took = time.process_time() - began
        _end_after(0.0)
        self._slowest = max(self._slowest, (took, index))
        if took > CPU_LIMIT * self._factor:
            self._fail(index, data, f"took {took:.2f} s of CPU; {CPU_LIMIT} s are allowed")
        peak = _peak()
        if peak > self._peak:
            self._largest = max(self._largest, (peak - self._peak, index))
            if peak > MEMORY_LIMIT >= self._peak:
                self._fail(index, data, f"took the process to {peak / 1e6:.0f} MB of memory")
            self._peak = peak

    def _fail(self, index: int, data: bytes, why: str) -> None:
        self._failures.append({"index": index, "data": data.hex(), "why": why})


def _peak() -> int:
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if sys.platform == "darwin" else size * 1024


def _end_after(seconds: float) -> None:
    """Let the system end this process after that much CPU time from now; 0: do not."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _address_space() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    return int(pages) * resource.getpagesize()


def main(arguments: list[str]) -> None:
    """Handle jobs until stdin ends."""
    name, note_path, wide = arguments
    faulthandler.enable()
    # A target may print: the responses have a descriptor of their own.
    responses: IO[str] = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    target = load(name)
    if sys.platform == "linux":
        limit = _address_space() + _MEMORY_END
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    with open(note_path, "r+b") as file, mmap.mmap(file.fileno(), NOTE_SIZE) as note:
        child = Child(target, note, wide == "wide")
        for line in sys.stdin:
            responses.write(json.dumps(child.job(json.loads(line))) + "\n")
            responses.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
