"""Scripts that worker processes of ``run_in="process"`` import."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from unit.handlers.scripted_runner import running
from unit.handlers.scripted_source import record

import asyncrevoke
from asyncrevoke import Retry
from asyncrevoke.client.runtime.loop.entering import UnguardedScriptError, check_main_script

_SCRIPT = """
import asyncio
from asyncrevoke import Consumer
from asyncrevoke.handlers.blocking.blocking_function import BlockingFunction

consumer = Consumer("orders", group_id="billing", bootstrap_servers="127.0.0.1:1")

def double(value: int) -> int:
    return 2 * value

async def main() -> None:
    if __name__ == "__main__":
        print(await BlockingFunction(double, "double", "process", 1)(21))
    else:
        await consumer.start()
        await consumer.aclose()
"""


def run(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    path = folder / "billing.py"
    path.write_text(script, encoding="utf-8")
    return subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_script_without_a_guard_is_refused_in_the_worker_that_imports_it(tmp_path: Path) -> None:
    found = run(tmp_path, _SCRIPT + "asyncio.run(main())\n")
    assert found.returncode == 1
    assert "UnguardedScriptError: billing.py enters a consumer when a worker" in found.stderr
    assert 'enter it below `if __name__ == "__main__":`' in found.stderr


def test_a_script_with_a_guard_has_its_own_functions_called_in_workers(tmp_path: Path) -> None:
    found = run(tmp_path, _SCRIPT + 'if __name__ == "__main__":\n    asyncio.run(main())\n')
    assert found.stdout == "42\n", found.stderr


def test_a_script_that_cannot_be_imported_again_is_named_as_the_reason(tmp_path: Path) -> None:
    script = 'if __name__ != "__main__":\n    raise LookupError("no second time")\n' + _SCRIPT
    found = run(tmp_path, script + "asyncio.run(main())\n")
    assert "not import the script of this process: LookupError: no second time" in found.stderr


def test_a_script_without_a_guard_is_refused_in_a_worker_without_a_main_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in workers of anyio 4.4, which add the module of the script once it is imported."""
    path = tmp_path / "billing.py"
    path.write_text(
        "from asyncrevoke.client.runtime.loop.entering import check_main_script\n"
        "check_main_script()\n",
        encoding="utf-8",
    )
    spec = spec_from_file_location("__mp_main__", path)
    assert spec is not None
    assert spec.loader is not None
    monkeypatch.delitem(sys.modules, "__main__")
    monkeypatch.delitem(sys.modules, "__mp_main__", raising=False)
    check_main_script()  # the parent has no script, as at a prompt
    with pytest.raises(UnguardedScriptError, match=r"billing\.py enters a consumer"):
        spec.loader.exec_module(module_from_spec(spec))


def test_the_command_line_can_be_imported_by_workers() -> None:
    """The script of ``python -m asyncrevoke run`` does nothing when it is imported."""
    command = Path(asyncrevoke.__file__).parent / "__main__.py"
    code = f"import runpy; runpy.run_path({str(command)!r}, run_name='__mp_main__')"
    subprocess.run([sys.executable, "-c", code, "--no-such-option"], timeout=60, check=True)


async def test_no_policy_retries_or_skips_what_a_script_without_a_guard_fails() -> None:
    async def handle(value: bytes) -> None:
        raise UnguardedScriptError("no guard")

    options = {"retry": Retry(attempts=9), "on_error": "skip"}
    async with running(handle, **options) as run:
        run.source.feed(record(0))
        with pytest.raises(UnguardedScriptError, match="no guard"):
            raise await run.failure()
        assert not run.source.completions
