"""Each target's kept inputs, and a fixed number of drawn ones; `tox -e fuzz` draws many more."""

from __future__ import annotations

import sys

import pytest
from fuzz.run import Run
from fuzz.target import names

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="its limits are those of POSIX"),
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

_SEED = 17
_USUAL = 2_000
_INPUTS = {
    "completion_maps": 700,
    "core": 700,
    "dispatch": 1_000,
    "growth": 20,
    "producing": 150,
    "share_frames": 300,
    "stored_files": 700,
}


@pytest.mark.parametrize("name", names())
def test_kept_and_drawn_inputs_break_no_promise(name: str) -> None:
    figures = Run(name, _SEED, inputs=_INPUTS.get(name, _USUAL), processes=2, wide=True).run()
    print(figures)
    assert not figures.failures, "\n\n".join(map(str, figures.failures))
