"""Sync functions as handlers, in threads, in processes and in interpreters."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from unit.handlers.blocking import work
from unit.handlers.results.scripted_results_broker import ScriptedResultsBroker
from unit.handlers.scripted_runner import running
from unit.handlers.scripted_source import RecordState, record, turns, until

from asyncrevoke import Consumer, Depends, HandlerContext, Record, Retry
from asyncrevoke.client.errors import (
    ConfigError,
    HandlerExitError,
    HandlerProcessError,
    HandlerTimeoutError,
)
from asyncrevoke.handlers.registry import Router
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from unit.handlers.scripted_runner import RunningHandlers

    from asyncrevoke.handlers.policy.registration import RunIn

needs_interpreters = pytest.mark.skipif(sys.version_info < (3, 14), reason="needs Python 3.14")
in_each_worker = pytest.mark.parametrize(
    "run_in", ["process", pytest.param("interpreter", marks=needs_interpreters)]
)


class Gate:
    """Holds calls in their threads until the test lets them go."""

    def __init__(self) -> None:
        self.begun: list[bytes | None] = []
        self.threads: set[int] = set()
        self._open = threading.Event()

    def wait(self, each: Record) -> None:
        self.threads.add(threading.get_ident())
        self.begun.append(each.value)
        assert self._open.wait(20.0)

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()  # no thread outlives its test


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedResultsBroker]:
    broker = ScriptedResultsBroker()
    yield broker
    await broker.open_producer().aclose()


def by_path(path: Path) -> Record:
    """A record whose value names a file."""
    return record(0, value=os.fsencode(path))


async def done(run: RunningHandlers, *records: Record) -> None:
    """These records, which were fed, are completed; a first call waits for its worker."""
    await turns()
    await until(
        lambda: all(run.source.state_of(each) is RecordState.DONE for each in records), 20.0
    )


# -- registration ---------------------------------------------------------------------------------


def rejection(function: Callable[..., Any], **options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        Router().handler("orders", **options)(function)
    return str(caught.value)


def takes_bytes(value: bytes) -> None: ...


async def is_async(value: bytes) -> None: ...


def takes_context(value: bytes, context: HandlerContext) -> None: ...


def test_a_place_that_is_none_is_rejected() -> None:
    message = 'run_in=\'pool\' is unknown: use "thread", "process" or "interpreter"'
    assert rejection(takes_bytes, run_in="pool") == message


@pytest.mark.parametrize("run_in", ["thread", "process", "interpreter"])
def test_an_async_function_runs_in_the_event_loop_and_nowhere_else(run_in: str) -> None:
    assert "is async and runs in the event loop" in rejection(is_async, run_in=run_in)


def test_what_another_process_cannot_import_is_rejected() -> None:
    def inner(value: bytes) -> None: ...

    for function in (inner, make_lambda()):
        assert "define it at the top of its module" in rejection(
            function, run_in="process", decoder=bytes_of
        )
    Router().handler("orders", run_in="thread")(inner)


def test_the_context_stays_in_its_process() -> None:
    assert "HandlerContext" in rejection(takes_context, run_in="process")
    Router().handler("orders", run_in="thread")(takes_context)


def test_a_generator_without_publish_to_is_rejected() -> None:
    assert "yields" in rejection(work.double, run_in="thread")
    Router().handler("orders", run_in="process", publish_to="doubles")(work.double)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="needs Python before 3.14")
def test_interpreters_need_python_3_14() -> None:
    assert "needs Python 3.14" in rejection(takes_bytes, run_in="interpreter")


@needs_interpreters
def test_a_function_of_the_script_is_rejected_for_interpreters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(takes_bytes, "__module__", "__main__")
    assert "is defined in the script itself" in rejection(takes_bytes, run_in="interpreter")
    Router().handler("orders", run_in="process")(takes_bytes)


def test_the_decorator_returns_a_sync_function_itself() -> None:
    assert Router().handler("orders", run_in="process")(takes_bytes) is takes_bytes


# -- threads --------------------------------------------------------------------------------------


async def test_records_of_one_key_are_handled_in_order_and_others_at_once(gate: Gate) -> None:
    first, behind, other = record(0, b"a"), record(1, b"a"), record(2, b"b")
    async with running(gate.wait, run_in="thread") as run:
        run.source.feed(first, behind, other)
        await until(lambda: len(gate.begun) == 2)
        assert set(gate.begun) == {first.value, other.value}
        assert threading.get_ident() not in gate.threads
        assert run.source.state_of(first) is RecordState.PENDING
        gate.open()
        await until(lambda: run.source.state_of(behind) is RecordState.DONE)
        await run.stop()


async def test_a_record_of_a_lost_partition_ends_when_its_thread_has_returned(gate: Gate) -> None:
    slow = record(0, b"a")
    async with running(gate.wait, run_in="thread", concurrency=1) as run:
        run.source.feed(slow)
        await until(lambda: bool(gate.begun))
        run.runner.lose([slow.topic_partition])
        await asyncio.sleep(0.05)
        assert len(list(run.runner.running())) == 1
        gate.open()
        await until(lambda: not list(run.runner.running()))
        await run.stop()


async def test_a_thread_beyond_its_time_pauses_the_partition_until_it_has_returned(
    gate: Gate,
) -> None:
    slow = record(0, b"a")
    async with running(gate.wait, run_in="thread", max_handler_time=10.0, on_error="skip") as run:
        run.source.feed(slow)
        await until(lambda: bool(gate.begun))
        run.clock.advance(5.0)
        run.clock.advance(5.0)
        run.clock.advance(5.0)
        event = "handler did not exit when cancelled; partition paused until resume()"
        assert run.log.events("error") == [event]
        assert run.source.state_of(slow) is RecordState.PENDING
        gate.open()
        await until(lambda: run.source.state_of(slow) is not RecordState.PENDING)
        await run.stop()


async def test_an_error_in_a_thread_is_a_failure_like_any_other() -> None:
    def fail(_each: Record) -> None:
        raise LookupError("no")

    async with running(fail, run_in="thread") as run:
        run.source.feed(record(0, b"a"))
        assert isinstance(await run.failure(), LookupError)


# -- threads, processes and interpreters ----------------------------------------------------------


@pytest.mark.parametrize(
    "run_in", ["thread", "process", pytest.param("interpreter", marks=needs_interpreters)]
)
@pytest.mark.parametrize("function", [work.leave_by_exit, work.leave_by_interrupt])
async def test_a_sync_function_that_exits_stops_the_consumer_and_not_the_event_loop(
    run_in: RunIn, function: Callable[[bytes], None]
) -> None:
    async with running(function, run_in=run_in, on_error="skip") as run:
        run.source.feed(record(0, b"a"))
        error = await run.failure()
        assert isinstance(error, HandlerExitError)
        assert isinstance(error.reason, (SystemExit, KeyboardInterrupt))
        assert run.source.in_flight == 0


# -- processes and interpreters -------------------------------------------------------------------


@in_each_worker
async def test_an_error_of_a_worker_has_its_traceback_as_its_cause(run_in: RunIn) -> None:
    async with running(work.fail, run_in=run_in) as run:
        run.source.feed(record(0, b"a"))
        error = await run.failure()
        assert isinstance(error, KeyError)
        assert not hasattr(error, "__notes__")
        assert f"in the worker {run_in}" in str(error.__cause__)
        assert "in fail" in str(error.__cause__)


@in_each_worker
async def test_a_failed_call_in_a_worker_is_retried_and_its_record_then_skipped(
    run_in: RunIn,
) -> None:
    retry = Retry(attempts=2, backoff=0.0, retry_on=KeyError)
    async with running(work.fail, run_in=run_in, retry=retry, on_error="skip") as run:
        failing = record(0, b"a")
        run.source.feed(failing)
        await until(lambda: bool(run.clock.timers), 20.0)
        run.clock.advance(1.0)
        await done(run, failing)
        await run.stop()
    assert run.log.events("warning") == [
        "handler failed; retrying",
        "handler failed; record skipped",
    ]


@in_each_worker
async def test_the_results_of_a_worker_are_published(
    run_in: RunIn, broker: ScriptedResultsBroker
) -> None:
    records = [record(number, value=b"%d" % number) for number in range(3)]
    async with running(
        work.double, run_in=run_in, publish_to="doubles", open_producer=broker.open_producer
    ) as run:
        run.source.feed(*records)
        await done(run, *records)
        await run.stop()
    assert [value for _, _, value in broker.written] == [b"0", b"0", b"1", b"2", b"2", b"4"]


@in_each_worker
async def test_workers_handle_the_records_of_each_key_in_order(
    run_in: RunIn, tmp_path: Path
) -> None:
    files = [tmp_path / "a", tmp_path / "b"]
    records = [
        record(number, files[number % 2].name.encode(), value=b"%s:%d" % (path, number))
        for number in range(20)
        for path in [os.fsencode(files[number % 2])]
    ]
    async with running(work.append_line, run_in=run_in, handler_concurrency=2) as run:
        run.source.feed(*records)
        await done(run, *records)
        await run.stop()
    lines = [[int(line) for line in file.read_text().split()] for file in files]
    assert lines == [list(range(0, 20, 2)), list(range(1, 20, 2))]


@in_each_worker
async def test_a_function_that_a_worker_cannot_import_is_a_failure_that_says_so(
    run_in: RunIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "only_here", sys.modules[__name__])
    monkeypatch.setattr(takes_bytes, "__module__", "only_here")
    async with running(takes_bytes, run_in=run_in) as run:
        run.source.feed(record(0, b"a"))
        error = await run.failure()
    assert isinstance(error, HandlerProcessError)
    assert f"runs in another {run_in}, which cannot import" in str(error)
    assert "(ModuleNotFoundError: No module named 'only_here')" in str(error)
    assert ('use run_in="process"' in str(error)) == (run_in == "interpreter")


@in_each_worker
@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (work.return_lock, "the lock that it returned cannot be pickled"),
        (work.fail_unpicklably, "raised UnpicklableError, which cannot be pickled"),
    ],
)
async def test_what_cannot_be_pickled_is_a_failure_that_says_so(
    function: Callable[[bytes], object], sentence: str, run_in: RunIn
) -> None:
    async with running(function, run_in=run_in, publish_to=None, decoder=bytes_of) as run:
        run.source.feed(record(0, b"a"))
        error = await run.failure()
        assert isinstance(error, HandlerProcessError)
        assert sentence in str(error)


@in_each_worker
async def test_a_value_that_cannot_be_pickled_is_named(run_in: RunIn) -> None:
    async with running(takes_bytes, run_in=run_in, decoder=lock) as run:
        run.source.feed(record(0, b"a"))
        error = await run.failure()
        assert isinstance(error, HandlerProcessError)
        assert "argument 1 cannot be pickled" in str(error)


# -- processes alone ------------------------------------------------------------------------------


async def test_a_function_runs_in_another_process(tmp_path: Path) -> None:
    async with running(work.note_pid, run_in="process") as run:
        run.source.feed(by_path(tmp_path / "pids"))
        await until(lambda: len(run.source.completions) == 1, 20.0)
        await run.stop()
    assert int((tmp_path / "pids").read_text()) != os.getpid()


async def test_the_record_of_a_killed_process_is_tried_again_in_another(tmp_path: Path) -> None:
    async with running(
        work.kill_once, run_in="process", retry=Retry(attempts=2, backoff=0.0)
    ) as run:
        run.source.feed(by_path(tmp_path / "pids"))
        await until(lambda: bool(run.clock.timers), 20.0)
        run.clock.advance(1.0)
        await until(lambda: len(run.source.completions) == 1, 20.0)
        await run.stop()
    assert int((tmp_path / "pids").read_text()) != os.getpid()


async def test_a_killed_process_is_a_failure_that_says_so(tmp_path: Path) -> None:
    async with running(work.kill_once, run_in="process") as run:
        run.source.feed(by_path(tmp_path / "pids"))
        error = await run.failure()
        assert isinstance(error, HandlerProcessError)
        assert "ended during the call" in str(error)


async def test_a_process_beyond_its_time_is_killed(tmp_path: Path) -> None:
    async with running(work.rest, run_in="process", max_handler_time=4.0, decoder=seconds) as run:
        run.source.feed(record(0, b"a"))
        await until(lambda: bool(list(run.runner.running())))
        run.clock.advance(2.0)
        run.clock.advance(2.0)
        assert isinstance(await run.failure(), HandlerTimeoutError)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs the signals of POSIX")
async def test_signals_that_end_the_parent_leave_a_call_alone() -> None:
    async with running(work.survive_signals, run_in="process", decoder=bytes_of) as run:
        run.source.feed(record(0, b"a"))
        await until(lambda: len(run.source.completions) == 1, 20.0)
        await run.stop()


# -- interpreters alone ---------------------------------------------------------------------------


@needs_interpreters
async def test_a_function_runs_in_another_interpreter_of_this_process(tmp_path: Path) -> None:
    async with running(work.note_pid, run_in="interpreter") as run:
        run.source.feed(by_path(tmp_path / "pids"))
        await until(lambda: len(run.source.completions) == 1, 20.0)
        await run.stop()
    assert int((tmp_path / "pids").read_text()) == os.getpid()
    assert work.noted == 0


@needs_interpreters
async def test_an_interpreter_imports_from_the_folders_that_this_process_has_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "added_later.py").write_text("def handle(value: bytes) -> None: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    handle = importlib.import_module("added_later").handle
    async with running(handle, run_in="interpreter") as run:
        run.source.feed(record(0, b"a"))
        await until(lambda: len(run.source.completions) == 1, 20.0)
        await run.stop()


# -- what the handlers above decode ---------------------------------------------------------------


def make_lambda() -> Callable[[bytes], None]:
    return lambda value: None


def lock(_each: Record) -> object:
    return threading.Lock()


def bytes_of(each: Record) -> bytes:
    return each.value or b""


def seconds(_each: Record) -> float:
    return 60.0


# -- in a test ------------------------------------------------------------------------------------


async def test_a_test_consumer_calls_sync_functions_in_the_event_loop() -> None:
    consumer = Consumer(group_id="billing")
    threads: list[int] = []

    async def suffix() -> str:
        return "!"

    @consumer.handler("orders", run_in="thread", publish_to="invoices")
    def bill(order: str, end: str = Depends(suffix)) -> str:
        threads.append(threading.get_ident())
        return order + end

    consumer.handler("numbers", run_in="process", publish_to="doubles")(work.double)

    async with TestConsumer(consumer) as tested:
        await tested.publish("orders", "one")
        await tested.publish("numbers", 3)
        assert threads == [threading.get_ident()]
        assert [call.outcome for call in tested.calls_of(bill)] == ["ok"]
        assert [each.value for each in tested.records("invoices")] == [b"one!"]
        assert [each.value for each in tested.records("doubles")] == [b"3", b"6"]
