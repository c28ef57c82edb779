"""Runs fuzz targets in child processes, and says which input broke what.

An input that ends its process (an abort in C, a limit of the system) is known from the note that
the process kept; it is checked again alone in a new process, which says whether it needs the inputs
before it.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuzz.child import NOTE, NOTE_SIZE
from fuzz.target import HERE, kept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_JOB = 1000
# A child that does not respond for so long, in seconds, waits for something.
_SILENT = 120.0
_MAX_FAILURES = 20


@dataclass(frozen=True)
class Failure:
    """One input that broke a promise. ``index`` is None for inputs of the corpus."""

    target: str
    seed: int
    index: int | None
    data: bytes
    why: str

    def __str__(self) -> str:
        which = "kept input" if self.index is None else f"seed {self.seed}, input {self.index}"
        hexed = self.data.hex()
        if len(hexed) > 4000:
            hexed = f"{hexed[:4000]}... ({len(self.data)} bytes)"
        return f"{self.target}: {which}\n{self.why.rstrip()}\ninput: {hexed}"


@dataclass
class Figures:
    """What came of a run of one target."""

    target: str
    seed: int
    inputs: int = 0
    kept: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    slowest_index: int = -1
    growth: int = 0
    growth_index: int = -1
    peak: int = 0
    aborts: int = 0
    counts: Counter[str] = field(default_factory=Counter[str])
    failures: list[Failure] = field(default_factory=list[Failure])

    def __str__(self) -> str:
        rate = self.inputs / self.seconds if self.seconds else 0.0
        counted = ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items()))
        return (
            f"{self.target}: {self.inputs} inputs and {self.kept} kept ones in"
            f" {self.seconds:.0f} s ({rate:.0f}/s), seed {self.seed};"
            f" slowest {self.slowest * 1e3:.1f} ms of CPU (input {self.slowest_index}),"
            f" largest growth {self.growth / 1e6:.0f} MB (input {self.growth_index}),"
            f" peak {self.peak / 1e6:.0f} MB; {self.aborts} aborts, {len(self.failures)} failures"
            + (f"; {counted}" if counted else "")
        )


class _ChildEndedError(Exception):
    """The child has ended, or does not respond. ``how`` says it, with what it wrote to stderr."""

    def __init__(self, how: str, index: int, data: bytes) -> None:
        super().__init__(how)
        self.how = how
        self.index = index
        self.data = data


class _Child:
    """A process that checks inputs of one target."""

    def __init__(self, target: str, folder: Path, wide: bool) -> None:
        errors, errors_path = tempfile.mkstemp(dir=folder)
        self._errors_path = Path(errors_path)
        handle, path = tempfile.mkstemp(dir=folder)
        self._note_path = Path(path)
        os.ftruncate(handle, NOTE_SIZE)
        self._note = mmap.mmap(handle, NOTE_SIZE)
        os.close(handle)
        NOTE.pack_into(self._note, 0, -2, 0)
        # Measuring coverage would take the time and the memory that the limits are for.
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")
        }
        search = [str(HERE.parent), str(HERE.parent.parent), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, search))
        environment["PYTHONHASHSEED"] = "0"
        command = [sys.executable, "-m", "fuzz.child", target, path, "wide" if wide else "narrow"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            text=True,
        )
        os.close(errors)

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        """Give it a job; raises ``_ChildEndedError`` if it does not survive it."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        silent = threading.Event()

        def end() -> None:
            silent.set()
            self._process.kill()

        watch = threading.Timer(_SILENT, end)
        watch.start()
        try:
            stdin.write(json.dumps(job) + "\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            watch.cancel()
        if line:
            response: dict[str, Any] = json.loads(line)
            return response
        code = self._process.wait()
        how = f"did not respond for {_SILENT:g} s" if silent.is_set() else _ending(code)
        written = self._errors_path.read_bytes()[-4000:].decode(errors="replace")
        index, length = NOTE.unpack_from(self._note, 0)
        data = self._note[NOTE.size : NOTE.size + max(length, 0)]
        if index == -2:
            raise RuntimeError(f"the fuzz target cannot be started:\n{written}")
        raise _ChildEndedError(f"the process {how}\n{written}", index, data)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._note.close()
        self._note_path.unlink()
        self._errors_path.unlink()


def _ending(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"exited with code {code}"


class Run:
    """A run of one target: its kept inputs first, then drawn ones.

    ``inputs``: how many; None for as many as ``seconds`` allow. ``wide``: limits of time are ten
    times as long, for a machine that other tests use.
    """

    def __init__(
        self,
        target: str,
        seed: int,
        *,
        inputs: int | None = None,
        seconds: float | None = None,
        processes: int = 1,
        wide: bool = False,
        on_failure: Callable[[Failure], None] | None = None,
    ) -> None:
        self._target = target
        self._seed = seed
        self._inputs = inputs
        self._seconds = seconds
        self._processes = processes
        self._wide = wide
        self._on_failure = on_failure
        self._next = 0
        self._lock = threading.Lock()
        self._deadline: float | None = None
        self._error: BaseException | None = None
        self.figures = Figures(target, seed)

    def run(self) -> Figures:
        """Run it to the end, or until too much has failed."""
        began = time.monotonic()
        if self._seconds is not None:
            self._deadline = began + self._seconds
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            self._keep(Path(folder), kept(self._target))
            threads = [
                threading.Thread(target=self._work, args=(Path(folder),))
                for _ in range(self._processes)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.figures.seconds = time.monotonic() - began
        if self._error is not None:
            raise self._error
        return self.figures

    def check(self, path: Path, data: bytes) -> Figures:
        """Check one input from a file alone."""
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            self._keep(Path(folder), [(path, data)])
        return self.figures

    def _keep(self, folder: Path, inputs: Iterable[tuple[Path, bytes]]) -> None:
        child: _Child | None = None
        try:
            for path, data in inputs:
                child = child or _Child(self._target, folder, self._wide)
                try:
                    self._take(child.ask({"path": str(path)}), kept_path=path)
                except _ChildEndedError as ended:
                    child.close()
                    child = None
                    self.figures.aborts += 1
                    why = f"{path}\n{ended.how}"
                    self._fail(Failure(self._target, self._seed, None, data, why))
                self.figures.kept += 1
        finally:
            if child is not None:
                child.close()

    def _work(self, folder: Path) -> None:
        try:
            self._work_on(folder)
        except BaseException as error:  # noqa: BLE001 - raised by run()
            self._error = error

    def _work_on(self, folder: Path) -> None:
        child: _Child | None = None
        try:
            while (job := self._job()) is not None:
                ranges = [job]
                while ranges:
                    first, end = ranges.pop()
                    if first == end:
                        continue
                    child = child or _Child(self._target, folder, self._wide)
                    try:
                        response = child.ask(
                            {"seed": self._seed, "first": first, "count": end - first}
                        )
                    except _ChildEndedError as ended:
                        child.close()
                        child = None
                        self._ended(folder, ended)
                        self._count(1)
                        # What it found before went with it: those are checked again.
                        ranges += [(ended.index + 1, end), (first, ended.index)]
                    else:
                        self._take(response)
                        self._count(response["done"])
                        ranges.append((first + response["done"], end))
                    if self._over():
                        return
        finally:
            if child is not None:
                child.close()

    def _job(self) -> tuple[int, int] | None:
        with self._lock:
            if self._over():
                return None
            first = self._next
            end = first + _JOB if self._inputs is None else min(first + _JOB, self._inputs)
            self._next = end
            return (first, end) if first < end else None

    def _over(self) -> bool:
        late = self._deadline is not None and time.monotonic() >= self._deadline
        return late or self._error is not None or len(self.figures.failures) >= _MAX_FAILURES

    def _count(self, inputs: int) -> None:
        with self._lock:
            self.figures.inputs += inputs

    def _take(self, response: dict[str, Any], kept_path: Path | None = None) -> None:
        figures = self.figures
        with self._lock:
            figures.counts.update(response["counts"])
            figures.peak = max(figures.peak, response["peak"])
            took, index = response["slowest"]
            if took > figures.slowest:
                figures.slowest, figures.slowest_index = took, index
            growth, index = response["largest"]
            if growth > figures.growth:
                figures.growth, figures.growth_index = growth, index
        for each in response["failures"]:
            index = None if kept_path is not None else each["index"]
            why = each["why"] if kept_path is None else f"{kept_path}\n{each['why']}"
            data = bytes.fromhex(each["data"])
            self._fail(Failure(self._target, self._seed, index, data, why))

    def _ended(self, folder: Path, ended: _ChildEndedError) -> None:
        """The input that ended a child: again, alone in a new one."""
        again = _Child(self._target, folder, self._wide)
        try:
            again.ask({"seed": self._seed, "first": ended.index, "count": 1})
        except _ChildEndedError:
            alone = "It does so alone, too."
        else:
            alone = "Alone it does not: the inputs before it have a part in it."
        finally:
            again.close()
        with self._lock:
            self.figures.aborts += 1
        why = f"{ended.how}\n{alone}"
        self._fail(Failure(self._target, self._seed, ended.index, ended.data, why))

    def _fail(self, failure: Failure) -> None:
        with self._lock:
            self.figures.failures.append(failure)
        if self._on_failure is not None:
            self._on_failure(failure)
