"""The runner finds which input broke what, also if the process ended with it."""

from __future__ import annotations

import sys

import pytest
from fuzz.run import Figures, Run
from fuzz.target import drawn, kept, load, names

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="its limits are those of POSIX")

_SEED = 9
_INPUTS = 200
_WHY = {
    b"raise": "ValueError: as the input says",
    b"abort": "the process was ended by SIGABRT",
    b"exit": "the process exited with code 3",
    b"slow": "s of CPU; 1.0 s are allowed",
}


@pytest.fixture(scope="module")
def figures() -> Figures:
    return Run("_broken", _SEED, inputs=_INPUTS).run()


def test_every_input_that_breaks_a_promise_is_reported_with_its_bytes(figures: Figures) -> None:
    target = load("_broken")
    expected = {
        index: data for index in range(_INPUTS) if (data := drawn(target, _SEED, index)) != b"well"
    }
    assert set(expected.values()) == set(_WHY)

    assert {failure.index: failure.data for failure in figures.failures} == expected
    for failure in figures.failures:
        assert _WHY[failure.data] in failure.why
    ended = [data for data in expected.values() if data in {b"abort", b"exit"}]
    assert figures.aborts == len(ended)
    assert figures.inputs == _INPUTS
    assert figures.slowest > 1.0


def test_an_abort_is_reported_with_where_it_happened_and_whether_it_does_so_alone(
    figures: Figures,
) -> None:
    aborted = next(failure for failure in figures.failures if failure.data == b"abort")
    assert "It does so alone, too." in aborted.why
    assert "_broken.py" in aborted.why


def test_two_processes_check_the_same_inputs_as_one(figures: Figures) -> None:
    two = Run("_broken", _SEED, inputs=_INPUTS, processes=2).run()
    assert {failure.index: failure.data for failure in two.failures} == {
        failure.index: failure.data for failure in figures.failures
    }


@pytest.mark.parametrize("name", names())
def test_the_corpus_of_a_target_can_be_read(name: str) -> None:
    load(name)
    for path, data in kept(name):
        assert data or path.stem == "empty"
