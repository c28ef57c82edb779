"""Each test of columns reads records by compiled loops, and by numpy."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

COMPILED = "asyncrevoke.client.columns.compiled_rows"


@pytest.fixture(params=["numba", "numpy"], autouse=True)
def _reads_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "numba":
        pytest.importorskip("numba", reason="needs the extra numba")
        import_module(COMPILED)
    else:
        monkeypatch.setitem(sys.modules, COMPILED, None)
